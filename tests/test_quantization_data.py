"""The frozen data of chapter 4: right, reproducible, small, and telling the story that the notebook tells."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from oracles import quantized_kernels as qk
from oracles.quantized_kernels import Conv

from underhood import data
from underhood.quantization import QParams, load_layers

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "course" / "underhood" / "data"
FIXTURES = ROOT / "solutions" / "04_quantization" / "frozen" / "fixtures.npz"
FILES = ("photo_stem.npz", "digits.npz", "digits_cnn.npz", "digits_cnn_int8.npz")


@pytest.fixture(scope="module")
def freeze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("freeze", ROOT / "solutions" / "04_quantization" / "freeze.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stem(freeze: ModuleType) -> tuple[np.ndarray, Conv, np.ndarray]:
    """The normalized photo, the first layer, and the frozen output of the saturating kernel."""
    with np.load(DATA / "photo_stem.npz") as stored:
        x, q_in = freeze.normalize(stored["photo"]), QParams(*stored["q_in"])
        w, s_w = freeze.quantize_weights(stored["w"])
        layer = Conv(
            qk.quantize_model(x, q_in), q_in, w, s_w, stored["bias"], QParams(*stored["q_out"]), 2, 1, relu=True
        )
        return x, layer, stored["kernel"]


def hits(a: np.ndarray, b: np.ndarray) -> float:
    assert a.shape == b.shape
    return float(np.mean(a == b))


def textbook(layer: Conv, codes: np.ndarray, q_in: QParams) -> np.ndarray:
    """float64 (OC, Ho, Wo): the public attempt: exact sums, float64, nothing done about values above 255."""
    acc = qk.exact_acc(Conv(codes, q_in, layer.w, layer.s_w, None, layer.q_out, 2, 1))
    s_out = np.float64(layer.q_out.scale)
    multiplier = np.float64(q_in.scale) * layer.s_w.astype(np.float64) / s_out
    y = acc * multiplier[:, None, None] + (layer.bias.astype(np.float64) / s_out)[:, None, None]
    return np.maximum(np.rint(y), 0)


def test_the_public_attempt_lands_where_the_chapter_says_and_every_cause_costs_what_it_says(stem: tuple) -> None:
    x, layer, kernel = stem
    scale = (x.max() - x.min()) / np.float32(255)
    own = QParams(scale, int(-x.min() / scale))  # the photo's own range, truncated
    codes = np.clip(np.rint(x / own.scale + own.zero_point), 0, 255).astype(np.uint8)
    attempt = textbook(layer, codes, own)
    model_range = textbook(layer, layer.x, layer.q_in)
    clamped = np.minimum(model_range, 255)
    acc = qk.exact_acc(layer)
    exact = qk.fbgemm_requantize(layer, acc)
    stages = [hits(y, kernel) for y in (attempt, model_range, clamped, exact)]
    assert 0.90 < stages[0] < 0.97
    assert stages == sorted(set(stages)), "each cause that is removed brings the rate up"
    assert np.array_equal(qk.conv_model("fbgemm", layer, saturates=True), kernel)

    off = np.abs(exact.astype(int) - kernel)
    assert off.max() >= 20
    saturated = acc != qk.fbgemm_acc(layer)
    assert saturated[off > 0].all(), "what is still wrong is saturation, all of it"


def test_the_live_x86_kernel_gives_the_frozen_output_of_the_photo(stem: tuple) -> None:
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    _, layer, kernel = stem
    want = kernel if qk.saturates("fbgemm") else qk.conv_model("fbgemm", layer, saturates=False)
    assert np.array_equal(qk.conv_live("fbgemm", layer), want)


def test_the_photo_and_its_filters_are_what_the_script_makes_of_matplotlibs_sample(freeze: ModuleType) -> None:
    with np.load(DATA / "photo_stem.npz") as stored:
        photo = stored["photo"]
        off = np.abs(photo.astype(int) - freeze.photo())
        assert photo.shape == (3, 224, 224) and off.max() <= 3 and off.mean() < 0.1  # JPEG decoders differ by a little
        w, bias, layer = freeze.stem(photo)
        assert np.allclose(w, stored["w"], atol=1e-5) and np.allclose(bias, stored["bias"], atol=1e-4)
        assert np.allclose(layer.q_out.scale, stored["q_out"][0], rtol=1e-4)


def test_every_fixture_is_what_its_seed_draws_and_its_outputs_are_the_kernels(freeze: ModuleType) -> None:
    live = not qk.why_not("fbgemm")
    pairs = []
    with np.load(FIXTURES) as stored:
        for name, conv in freeze.fixtures().items():
            for key, value in freeze.fields(conv).items():
                assert np.array_equal(stored[f"{name}.{key}"], value), (name, key)
            assert np.array_equal(stored[f"{name}.acc"], qk.exact_acc(conv))
            exact, saturating = stored[f"{name}.exact"], stored[f"{name}.saturating"]
            assert np.array_equal(exact, qk.conv_model("fbgemm", conv, saturates=False))
            assert np.array_equal(saturating, qk.conv_model("fbgemm", conv, saturates=True))
            if live:
                here = qk.conv_live("fbgemm", conv)
                assert np.array_equal(here, saturating if qk.saturates("fbgemm", conv) else exact), name
            if not np.array_equal(qk.fbgemm_acc(conv), stored[f"{name}.acc"]):
                pairs.append(name)
    assert pairs == ["F4", "F5", "F7", "F8"], "the fixtures that hold a saturated pair"


def test_the_int8_network_is_the_float_one_quantized(freeze: ModuleType) -> None:
    want = freeze.quantize_layers(load_layers(data.load("digits_cnn")))
    got = load_layers(data.load("digits_cnn_int8"))
    assert [layer["op"] for layer in got].count("conv") == 10 and len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_the_frozen_logits_are_the_kernels_and_tell_the_digits_apart(freeze: ModuleType) -> None:
    images, labels = freeze.digits()
    layers = load_layers(data.load("digits_cnn_int8"))
    codes = qk.quantize_model(images[freeze.TRAIN :, None] / np.float32(16), layers[0]["q_in"])
    with np.load(DATA / "digits_cnn_int8.npz") as stored:
        logits = {"exact": stored["exact"], "saturating": stored["saturating"]}
    for kind, frozen in logits.items():
        assert frozen.shape == (450, 10) and frozen.dtype == np.uint8
        assert np.mean(frozen.argmax(axis=1) == labels[freeze.TRAIN :]) > 0.95
        for i in range(0, 450, 45):
            assert np.array_equal(freeze.run(codes[i], layers, saturates=kind == "saturating"), frozen[i])
    assert not np.array_equal(logits["exact"], logits["saturating"])
    seven = freeze.quantize_layers(load_layers(data.load("digits_cnn")), bits=7)
    for x in qk.quantize_model(images[:20, None] / np.float32(16), seven[0]["q_in"]):
        assert np.array_equal(freeze.run(x, seven, saturates=True), freeze.run(x, seven, saturates=False))


def test_the_live_x86_kernels_chained_give_the_frozen_logits(freeze: ModuleType) -> None:
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    layers = load_layers(data.load("digits_cnn_int8"))
    images, _ = freeze.digits()
    with np.load(DATA / "digits_cnn_int8.npz") as stored:
        frozen = stored["saturating"]
    for i in range(0, 450, 9):
        codes = qk.quantize_model(images[freeze.TRAIN + i][None] / np.float32(16), layers[0]["q_in"])
        # With VNNI the depthwise layers alone saturate, which no frozen output has.
        want = frozen[i] if qk.saturates("fbgemm") else freeze.run(codes, layers, saturates=None)
        x, outputs = qk.quantize_live(images[freeze.TRAIN + i][None] / np.float32(16), layers[0]["q_in"]), []
        for layer in layers:
            q_in, q_out = layer["q_in"], layer["q_out"]
            if layer["op"] == "add":
                other = layers[layer["add_from"]]["q_out"]
                x = qk.add_live("fbgemm", x, q_in, outputs[layer["add_from"]], other, q_out, layer["relu"])
            elif layer["op"] == "avgpool":
                x = qk.avgpool_live("fbgemm", x, q_in)
            elif layer["op"] == "linear":
                rest = layer["w"], layer["s_w"], layer["bias"], q_out, layer["relu"]
                x = qk.linear_live("fbgemm", x[None], q_in, *rest)[0]
            else:
                geometry = {key: layer[key] for key in ("stride", "padding", "groups", "relu")}
                x = qk.conv_live("fbgemm", Conv(x, q_in, layer["w"], layer["s_w"], layer["bias"], q_out, **geometry))
            outputs.append(x)
        assert np.array_equal(x, want), i


def test_the_float_network_of_the_checkpoint_reads_the_digits(freeze: ModuleType) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed, so there is nothing to compare with")
    from underhood.digits_cnn import float_outputs

    images, labels = freeze.digits()
    assert images.shape == (1797, 8, 8) and images.max() == 16 and np.bincount(labels).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # fmt: skip
    layers = load_layers(data.load("digits_cnn"))
    x = torch.from_numpy(images[:, None]).float() / 16
    outputs = float_outputs(x, layers)
    right = outputs[-1].argmax(dim=1).numpy() == labels
    assert right[freeze.TRAIN :].mean() > 0.96
    for layer, output in zip(layers, outputs, strict=True):
        seen = output[: freeze.TRAIN]
        assert np.allclose(layer["range"], [seen.min(), seen.max()], rtol=1e-4, atol=1e-4)


def test_folding_batch_normalization_changes_no_logit_and_training_learns() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed, so there is nothing to compare with")
    from underhood.digits_cnn import DigitsCNN, float_layers, float_outputs, train

    with np.load(DATA / "digits.npz") as stored:
        x, y = (
            torch.from_numpy(stored["images"][:256, None]).float() / 16,
            torch.from_numpy(stored["labels"][:256]).long(),
        )
    torch.manual_seed(0)
    model = DigitsCNN()
    assert sum(p.numel() for p in model.parameters()) == 8442
    seen: list[int] = []
    train(model, x, y, epochs=4, progress=lambda epochs: (seen.append(n) or n for n in epochs))
    assert seen == [0, 1, 2, 3]
    with torch.no_grad():
        logits = model(x)
    assert (logits.argmax(dim=1) == y).float().mean() > 0.5
    assert torch.allclose(float_outputs(x, float_layers(model))[-1], logits, atol=1e-4)


def test_all_that_the_chapter_ships_is_small_and_has_its_source_and_license_beside_it() -> None:
    assert sum((DATA / name).stat().st_size for name in FILES) < 400_000
    assert FIXTURES.stat().st_size < 200_000
    words = (DATA / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in words for name in FILES)
    assert "CC BY 4.0" in words and "public domain" in words


@pytest.mark.slow
@pytest.mark.parametrize("name", qk.ENGINES)
def test_every_layer_of_mobilenet_has_the_live_kernels_bits(name: str, freeze: ModuleType) -> None:
    """Eight-bit activations, so that pairs saturate; each model is fed its own outputs, from photo to logits."""
    if reason := qk.why_not(name):
        pytest.skip(reason)
    pytest.importorskip("torchvision", reason="torchvision is not installed, so there is nothing to compare with")
    import torch

    from underhood import mobilenet

    with np.load(DATA / "photo_stem.npz") as stored:
        image = torch.from_numpy(freeze.normalize(stored["photo"]))[None]
    images = torch.cat([image, image.flip(3), image.roll(40, 2)])
    network = mobilenet.quantized(mobilenet.mobilenet_v2(images), images, name, reduce_range=False)
    layers = mobilenet.layers(network)
    x, live = mobilenet.outputs(network, image, name)
    outputs: list[np.ndarray] = []
    for i, (layer, want) in enumerate(zip(layers, live, strict=True)):
        q_in, q_out = layer["q_in"], layer["q_out"]
        if layer["op"] == "add":
            other = layers[layer["add_from"]]["q_out"]
            x = qk.add_model(name, outputs[layer["add_from"]], other, x, q_in, q_out)
        elif layer["op"] == "avgpool":
            x = qk.avgpool_model(name, x, q_in)
        else:
            x, w = (x, layer["w"]) if layer["op"] == "conv" else qk.as_conv(x[None], layer["w"])
            geometry = {key: layer[key] for key in ("stride", "padding", "groups", "relu")}
            conv = Conv(x, q_in, w, layer["s_w"], layer["bias"], q_out, **geometry)
            x = qk.conv_model(name, conv, qk.saturates(name, conv)).reshape(want.shape)
        assert np.array_equal(x, want), (i, layer["op"])
        outputs.append(x)
    assert len(outputs) == 64 and len(np.unique(outputs[-1])) > 100
