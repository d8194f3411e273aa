"""The reference solutions of chapter 4 against frozen kernel outputs, the kernels' models, exact fractions and torch."""

from __future__ import annotations

import doctest
import hashlib
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from oracles import quantized_kernels as qk
from oracles.quantized_kernels import Conv

from autograder import exercises, reference
from autograder.chapters import module, text_sources
from underhood import data
from underhood.builders.quantization import qparams
from underhood.exercise import Build
from underhood.quantization import QParams, load_layers

CHAPTER = "04_quantization"
ANSWERS = reference.load(CHAPTER)
EXERCISES = {exercise.name: exercise for exercise in exercises(CHAPTER)}
ROOT = Path(__file__).resolve().parents[1]
MEAN, STD = np.float32([0.485, 0.456, 0.406])[:, None, None], np.float32([0.229, 0.224, 0.225])[:, None, None]
LAYER_NAMES = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8")


def fixtures() -> dict[str, dict]:
    return module(CHAPTER, "exercises").fixtures()


def as_conv(f: dict) -> Conv:
    geometry = {key: f[key] for key in ("stride", "padding", "groups", "zw")}
    q_in, q_out = QParams(*f["q_in"]), QParams(*f["q_out"])
    return Conv(f["x"], q_in, f["w"], f["s_w"], f["bias"], q_out, relu=bool(f["relu"]), **geometry)


def summed(f: dict) -> np.ndarray:
    return ANSWERS["conv_acc"](f["x"], int(f["q_in"][1]), f["w"], f["stride"], f["padding"], f["groups"], f["zw"])


def coded(f: dict, acc: np.ndarray, fn=ANSWERS["requantize"]) -> np.ndarray:
    (s_in, _), (s_out, zo) = f["q_in"], f["q_out"]
    return fn(acc, f["bias"], s_in, f["s_w"], s_out, int(zo), bool(f["relu"]))


@pytest.mark.parametrize("name", [name for name in EXERCISES if name != "quantized_network"])
def test_the_example_in_the_docstring_is_what_comes_out(name):
    (test,) = doctest.DocTestFinder(recurse=False).find(ANSWERS[name], name, globs=dict(ANSWERS), module=False)
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


# Frozen outputs and the kernels' models


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_sums_and_codes_are_the_frozen_ones(name):
    f = fixtures()[name]
    acc = summed(f)
    assert np.array_equal(acc, f["acc"]) and acc.dtype == np.int32
    assert np.array_equal(coded(f, acc), f["exact"])


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_where_no_pair_saturates_the_codes_are_the_live_x86_kernels(name):
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    f = fixtures()[name]
    conv = as_conv(f)
    exact = qk.fbgemm_acc(conv) == f["acc"] if qk.saturates("fbgemm", conv) else np.ones(f["acc"].shape, bool)
    assert np.array_equal(coded(f, summed(f))[exact], qk.conv_live("fbgemm", conv)[exact])
    assert exact.any() or name == "F8", "all pairs of F8 saturate"


def test_with_weights_of_six_bits_random_layers_have_the_live_x86_kernels_bits():
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    rng = np.random.default_rng(21)
    for _ in range(40):
        groups = int(rng.choice([1, 2, 3]))
        x = rng.integers(0, 256, (groups * 3, *rng.integers(5, 12, 2))).astype(np.uint8)
        w = rng.integers(-63, 64, (groups * 4, 3, *rng.integers(1, 4, 2))).astype(np.int8)
        s_w, bias = rng.uniform(0.001, 0.006, len(w)).astype(np.float32), rng.normal(0, 1, len(w)).astype(np.float32)
        f = {"x": x, "w": w, "s_w": s_w, "bias": bias, "q_in": (np.float32(0.02), int(rng.integers(0, 256)))}
        f |= {"q_out": (np.float32(0.05), int(rng.integers(0, 256))), "stride": int(rng.integers(1, 3)), "zw": 0}
        f |= {"padding": int(rng.integers(0, 2)), "groups": groups, "relu": bool(rng.random() < 0.5)}
        assert np.array_equal(coded(f, summed(f)), qk.conv_live("fbgemm", as_conv(f)))


def test_random_sums_get_the_kernel_models_codes():
    rng = np.random.default_rng(22)
    for _ in range(60):
        acc = rng.integers(-(2**20), 2**20, (5, 40, 40)).astype(np.int32)
        s_w, bias = rng.uniform(0.001, 0.006, 5).astype(np.float32), rng.normal(0, 2, 5).astype(np.float32)
        q_in, q_out = QParams(rng.uniform(0.01, 0.03), 0), QParams(rng.uniform(0.02, 0.9), rng.integers(0, 256))
        relu = bool(rng.random() < 0.5)
        conv = Conv(np.zeros((1, 1, 1), np.uint8), q_in, np.zeros((5, 1, 1, 1), np.int8), s_w, bias, q_out, relu=relu)
        got = ANSWERS["requantize"](acc, bias, q_in.scale, s_w, q_out.scale, q_out.zero_point, relu)
        assert np.array_equal(got, qk.fbgemm_requantize(conv, acc))


def test_random_layers_have_the_exact_sums_also_beyond_what_float32_can_count():
    rng = np.random.default_rng(23)
    for channels in (1, 3, 64, 700):
        x = rng.integers(0, 256, (channels, 6, 5)).astype(np.uint8)
        w = rng.integers(100, 128, (4, channels, 3, 2)).astype(np.int8)
        conv = Conv(x, QParams(1, 3), w, np.ones(4, np.float32), None, QParams(1, 0), 2, 1)
        assert np.array_equal(ANSWERS["conv_acc"](x, 3, w, 2, 1), qk.exact_acc(conv))


def test_pairs_give_the_saturating_kernels_frozen_output_of_the_photo():
    stem, x, q_in, w, s_w = first_layer()
    codes, zx = ANSWERS["quantize"](x, q_in), q_in.zero_point
    padded = np.pad(codes, ((0, 0), (1, 1), (1, 1)), constant_values=zx)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    patches = windows.transpose(1, 2, 3, 4, 0).reshape(112, 112, 27)
    kernels = w.transpose(0, 2, 3, 1).reshape(32, 27)
    acc = np.stack([ANSWERS["madd_pairs"](patches, k) - zx * k.sum(dtype=np.int32) for k in kernels])
    q_out = QParams(*stem["q_out"])
    got = ANSWERS["requantize"](acc, stem["bias"], q_in.scale, s_w, q_out.scale, q_out.zero_point, True)
    assert np.array_equal(got, stem["kernel"])
    exact = ANSWERS["conv_acc"](codes, zx, w, 2, 1)
    yours = ANSWERS["requantize"](exact, stem["bias"], q_in.scale, s_w, q_out.scale, q_out.zero_point, True)
    misses = ANSWERS["explain_misses"](yours, stem["kernel"], codes, w, zx, 2, 1)
    assert len(misses) == np.count_nonzero(yours != stem["kernel"]) > 10_000
    assert {miss["kind"] for miss in misses} == {"saturation"}
    for miss in misses[::500]:
        (o, i, j), (first, second) = miss["index"], miss["pair"]
        terms = [int(padded[c, 2 * i + a, 2 * j + b]) * int(w[o, c, a, b]) for a, b, c in (first, second)]
        assert not -(2**15) <= sum(terms) < 2**15


def first_layer():
    stem = data.load("photo_stem")
    x = (stem["photo"] / np.float32(255) - MEAN) / STD
    return stem, x, QParams(*stem["q_in"]), *ANSWERS["quantize_weight_per_channel"](stem["w"])


# The other functions, each against something that shares no code with it


def test_ranges_are_torchs_observers():
    torch = pytest.importorskip("torch", reason="torch is not installed, so there is nothing to compare with")
    observers = pytest.importorskip(
        "torch.ao.quantization", reason="this torch has no observers any more, so there is nothing to compare with"
    )
    rng = np.random.default_rng(24)
    ranges = rng.normal(0, 3, (300, 2)).astype(np.float32)
    ranges = np.concatenate([np.sort(ranges), np.float32([[-1, 1], [0, 0], [-1e-6, 1e-6], [0.5, 3], [-3, -1]])])
    for low, high in ranges:
        observer = observers.MinMaxObserver(dtype=torch.quint8)
        observer(torch.tensor([low, high]))
        scale, zero_point = observer.calculate_qparams()
        assert ANSWERS["choose_qparams"](low, high) == QParams(np.float32(scale.item()), zero_point.item())


def test_codes_are_the_kernel_models_also_at_halves():
    rng = np.random.default_rng(25)
    for _ in range(80):
        qp = QParams(rng.uniform(0.001, 0.5), rng.integers(0, 256))
        halves = (rng.integers(-300, 300, 500) + 0.5) * np.float64(qp.scale)
        x = np.concatenate([halves, rng.normal(0, 60, 500) * qp.scale]).astype(np.float32)
        assert np.array_equal(ANSWERS["quantize"](x, qp), qk.quantize_model(x, qp))
        back = ANSWERS["dequantize"](np.arange(256, dtype=np.uint8), qp)
        exact = [Fraction(float(qp.scale)) * (code - qp.zero_point) for code in range(256)]
        assert back.tolist() == [float(np.float32(float(value))) for value in exact]


def test_weights_are_the_nearest_steps_and_torchs_codes_but_for_its_reciprocal():
    rng = np.random.default_rng(26)
    largest = np.arange(1, 2000, 2) / 100
    halves = np.stack([largest, largest / 2], axis=1).astype(np.float32)  # 63.5 steps, more or less
    for w in (rng.normal(size=(16, 3, 3, 3)).astype(np.float32), halves, np.float32(1e-8) * halves):
        codes, scale = ANSWERS["quantize_weight_per_channel"](w)
        tops = [max(abs(Fraction(float(v))) for v in channel.ravel()) / 127 for channel in w]
        assert all(
            abs(Fraction(float(s)) - top) <= top / 2**24 or s == 2.0**-23 > top
            for s, top in zip(scale, tops, strict=True)
        )
        for channel, s, coded_channel in zip(w, scale, codes, strict=True):
            ratios = [np.float32(float(Fraction(float(v)) / Fraction(float(s)))) for v in channel.ravel()]
            assert [round(float(ratio)) for ratio in ratios] == coded_channel.ravel().tolist()
        if not qk.why_not("fbgemm"):
            import torch

            zeros = torch.zeros(len(w), dtype=torch.long)
            scales = torch.from_numpy(scale).double()
            with qk.live("fbgemm"):
                live = torch.quantize_per_channel(torch.from_numpy(w), scales, zeros, 0, torch.qint8).int_repr().numpy()
            columns = scale.reshape(-1, *[1] * (w.ndim - 1))
            assert np.array_equal(live, np.rint(w * (np.float32(1) / columns)))
            assert np.mean(live == codes) > (0.9 if w.ndim == 2 else 0.9999)


def test_sums_of_two_have_the_kernel_models_bits_for_all_pairs_of_codes():
    rng = np.random.default_rng(27)
    a, b = np.repeat(np.arange(256, dtype=np.uint8), 256), np.tile(np.arange(256, dtype=np.uint8), 256)
    for _ in range(60):
        qa, qb, qout = (QParams(rng.uniform(0.01, 0.2), rng.integers(0, 256)) for _ in range(3))
        relu = bool(rng.random() < 0.5)
        assert np.array_equal(
            ANSWERS["qadd"](a, qa, b, qb, qout, relu), qk.add_model("fbgemm", a, qa, b, qb, qout, relu)
        )


def test_averages_are_the_kernel_models():
    rng = np.random.default_rng(28)
    for _ in range(200):
        x = rng.integers(0, 256, (20, *rng.integers(1, 17, 2))).astype(np.uint8)
        qp = QParams(0.1, rng.integers(0, 256))
        assert np.array_equal(ANSWERS["avgpool"](x, qp), qk.avgpool_model("fbgemm", x, qp))


def test_a_multiplier_is_the_nearest_integer_of_31_bits():
    rng = np.random.default_rng(29)
    for m in [*np.exp(rng.uniform(-20, 20, 300)).tolist(), 0.5, 1.0, 1 - 2.0**-40, 2.0**-40, 3.0]:
        m0, shift = ANSWERS["quantize_multiplier"](m)
        assert 2**30 <= m0 < 2**31 and type(m0) is type(shift) is int
        assert abs(Fraction(m) * Fraction(2) ** (31 + shift) - m0) <= Fraction(1, 2)


def test_fixed_point_codes_follow_the_definition_in_exact_fractions():
    rng = np.random.default_rng(30)
    for _ in range(40):
        m0, shift, zo = int(rng.integers(2**30, 2**31)), int(rng.integers(0, 12)), int(rng.integers(0, 256))
        acc = rng.integers(-300 * 2**shift, 300 * 2**shift, 60).astype(np.int32)
        want = []
        for value in acc.tolist():
            product = value * m0
            nudged = product + (2**30 if product >= 0 else 1 - 2**30)
            high = int(Fraction(nudged, 2**31))  # toward zero
            mask = 2**shift - 1
            want.append(min(max((high >> shift) + ((high & mask) > (mask >> 1) + (high < 0)) + zo, 0), 255))
        assert ANSWERS["requantize_fixed"](acc, m0, shift, zo).tolist() == want


def test_integers_only_are_off_by_one_now_and_then_and_never_by_more():
    rng = np.random.default_rng(31)
    differences = []
    for s_w in rng.uniform(0.003, 0.005, 20).astype(np.float32):
        acc = rng.integers(-60_000, 60_000, 20_000).astype(np.int32)
        s_acc = np.float64(np.float32(0.02)) * s_w
        bias = np.float32(rng.normal())
        exact = ANSWERS["requantize"](acc[None], np.float32([bias]), 0.02, s_w, 0.06, 120)[0].astype(int)
        m0, shift = ANSWERS["quantize_multiplier"](float(s_acc / np.float32(0.06)))
        total = acc + np.rint(bias / s_acc).astype(np.int32)
        differences.append(np.abs(ANSWERS["requantize_fixed"](total, m0, shift, 120) - exact))
    assert np.max(differences) == 1 and 0.999 < np.mean(np.equal(differences, 0)) < 1


@pytest.mark.parametrize("step", [15])
def test_the_network_gives_the_frozen_logits(step):
    layers = load_layers(data.load("digits_cnn_int8"))
    codes = ANSWERS["quantize"](data.load("digits")["images"][1347:, None] / np.float32(16), layers[0]["q_in"])
    frozen = data.load("digits_cnn_int8")["exact"]
    for i in range(0, 450, step):
        assert np.array_equal(ANSWERS["quantized_network"](codes[i], layers, ANSWERS), frozen[i])


def test_the_small_network_of_the_visible_case_gives_what_the_kernels_models_give():
    freeze_run = load_freeze().run
    cases = [case for case in EXERCISES["quantized_network"].cases if case.part == "together"]
    for case in cases:
        x, layers, _ = case.args
        layers = [
            {key: qparams(**value.arguments) if isinstance(value, Build) else value for key, value in layer.items()}
            for layer in layers
        ]
        assert freeze_run(x, layers, saturates=False).tolist() == case.expected.tolist()
    assert cases


def load_freeze():
    import importlib.util

    spec = importlib.util.spec_from_file_location("freeze", ROOT / "solutions" / CHAPTER / "freeze.py")
    freeze = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(freeze)
    return freeze


@pytest.mark.slow
def test_the_whole_mobilenet_has_the_live_x86_kernels_bits():
    """With 7-bit activations no pair saturates, whatever the CPU. ("x86" is another engine on a CPU with VNNI.)"""
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    pytest.importorskip("torchvision", reason="torchvision is not installed, so there is nothing to compare with")
    import torch

    from underhood import mobilenet

    _, x, *_ = first_layer()
    image = torch.from_numpy(x)[None]
    network = mobilenet.quantized(mobilenet.mobilenet_v2(image), image, "fbgemm")
    steps = mobilenet.steps(network, image, "fbgemm")
    assert len(steps) == 64
    for layer, *before, after in steps:
        if layer["op"] == "add":
            got = ANSWERS["qadd"](*before, layer["q_out"])
        else:
            got = ANSWERS["quantized_network"](*before, [layer], ANSWERS)
        assert np.array_equal(got, after), layer["op"]
    chained = ANSWERS["quantized_network"](steps[0][1], mobilenet.layers(network), ANSWERS)
    assert np.array_equal(chained, steps[-1][-1]) and len(np.unique(chained)) > 20


# The fixtures reveal what they are for

SUM_MISTAKES = {
    "padding with code 0": "F1 F3 F4 F5",
    "leaving out the input's zero point": "F1 F3 F4 F5 F6 F7",
    "subtracting the zero point in uint8": "F1 F3 F4 F5 F6 F7",
    "subtracting the zero point in int8": "F1 F2 F3 F4 F5 F7 F8",
    "adding up in int16": "F8",
    "flipping the kernel": "F1 F3 F4 F5",
    "exchanging rows and columns of the kernel": "F1 F3 F4 F5",
    "striding down but not across": "F1",
    "H // stride as the output's height": "F1",
    "leaving out the weights' zero point": "F4",
    "reading the first group's channels for every output": "F3",
}
CODE_MISTAKES = {
    "one scale for all channels": "F1 F2 F3 F4 F5 F7",
    "leaving out the bias": "F1 F2 F3 F4 F5 F7",
    "adding the bias without dividing by a scale": "F1 F2 F3 F4 F5 F7",
    "a bias in whole steps of the output": "F1 F2 F3 F4 F7",
    "a bias rounded to a whole number of the sum's steps": "F7",
    "cutting off the fraction": "F1 F2 F3 F4 F5 F6 F7",
    "rounding halves up": "F6",
    "rounding halves away from zero": "F6",
    "adding the zero point before rounding": "F6",
    "no ReLU, or one that clamps at code 0": "F3",
    "a ReLU in every layer": "F2 F4 F5 F6 F7",
    "no clamp at 255": "F5",
    "codes that wrap around at both ends": "F5",
    "leaving out the output's zero point": "F2 F3 F4 F5 F6 F7",
}


@pytest.mark.parametrize("mistake", SUM_MISTAKES)
def test_the_fixtures_reveal_a_mistake_in_the_sums(mistake):
    fn = next(m.fn for m in EXERCISES["conv_acc"].mistakes if m.name == mistake)
    for name in SUM_MISTAKES[mistake].split():
        f = fixtures()[name]
        got = fn(f["x"], int(f["q_in"][1]), f["w"], f["stride"], f["padding"], f["groups"], f["zw"])
        assert not np.array_equal(got, f["acc"]), name


@pytest.mark.parametrize("mistake", CODE_MISTAKES)
def test_the_fixtures_reveal_a_mistake_in_the_codes(mistake):
    fn = next(m.fn for m in EXERCISES["requantize"].mistakes if m.name == mistake)
    for name in CODE_MISTAKES[mistake].split():
        f = fixtures()[name]
        assert not np.array_equal(coded(f, f["acc"], fn), f["exact"]), name


# Without torch, and without warnings

DIGEST = """
import hashlib
import numpy as np
rng = np.random.default_rng(5)
x, w = rng.integers(0, 256, (6, 9, 8)).astype(np.uint8), rng.normal(size=(8, 3, 3, 3)).astype(np.float32)
q = choose_qparams(-1.7, 2.9)
codes, s_w = quantize_weight_per_channel(w)
acc = conv_acc(x, q.zero_point, codes, 2, 1, 2)
y = requantize(acc, rng.normal(size=8).astype(np.float32), q.scale, s_w, 0.05, 31)
parts = [codes, s_w, acc, y, quantize(w, q), dequantize(x, q), madd_pairs(x, x.astype(np.int8)), avgpool(x, q)]
parts += [qadd(x, q, x[::-1], QParams(0.03, 9), QParams(0.04, 77)), np.array(quantize_multiplier(0.0123))]
parts += [requantize_fixed(acc, *quantize_multiplier(0.0123), 40), np.array(q.zero_point), np.array(hit_rate(x, x[::-1]))]
parts += [np.array(str(explain_misses(y, y[::-1].copy(), x[:3], codes, 9, 2, 1)))]
digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
"""


def test_without_torch_the_reference_gives_the_same_bits():
    cells = [c.source for s in text_sources(CHAPTER) for c in reference.solution_cells(reference.read(s))]
    head = "import sys\nsys.modules['torch'] = None\nfrom collections.abc import Callable\nimport numpy as np\n"
    head += "from underhood.quantization import QParams\n"
    program = "\n".join([head, *cells, DIGEST, "print(digest)"])
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = dict(ANSWERS)
    exec(DIGEST, here)
    assert done.stdout.strip() == here["digest"] and len(here["digest"]) == hashlib.sha256().digest_size * 2


@pytest.mark.parametrize(
    "name",
    ["underhood", "underhood.quantization", "underhood.engines", "underhood.mobilenet", "underhood.plots.quantization"],
)
def test_importing_the_helper_package_warns_of_nothing(name):
    done = subprocess.run([sys.executable, "-W", "error", "-c", f"import {name}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_engines_say_what_the_kernel_oracles_say():
    from underhood import engines

    for name in qk.ENGINES:
        if qk.why_not(name):
            assert engines.saturates(name) is None
        else:
            assert engines.saturates(name) == qk.saturates(name)
            f = fixtures()["F1"]
            q_in, q_out = QParams(*f["q_in"]), QParams(*f["q_out"])
            got = engines.conv2d(name, f["x"], q_in, f["w"], f["s_w"], f["bias"], q_out, 2, 1, relu=True)
            assert np.array_equal(got, qk.conv_live(name, as_conv(f)))


def test_a_machine_without_an_engine_is_told_so(capsys, monkeypatch):
    from underhood import engines

    def missing(*args, **kwargs):
        raise AttributeError("no quantized tensors")

    engines.saturates.cache_clear()
    monkeypatch.setattr(engines, "conv2d", missing)
    try:
        engines.report()
        assert engines.available() == ()
        assert "cannot be run here" in capsys.readouterr().out
    finally:
        engines.saturates.cache_clear()
