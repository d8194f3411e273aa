"""Makes the frozen data of chapter 4. Run it from the repository's root: `python solutions/04_quantization/freeze.py`.

The learner's data goes to `course/underhood/data`, the expected outputs of the fixtures to `frozen` beside this file.
Nothing here uses the solutions: integer sums and roundings come from `tests/oracles/quantized_kernels.py`. Saturating
outputs are the live kernel's, which the model there must match; on a CPU that does not saturate, they are the model's.

Needs torch, Pillow (which matplotlib brings) and, where `digits.npz` is missing, scikit-learn, which the course itself
does not use.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = ROOT / "course" / "underhood" / "data"
FROZEN = HERE / "frozen"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "course")]

from oracles import quantized_kernels as qk  # noqa: E402
from oracles.quantized_kernels import Conv  # noqa: E402

from underhood import data  # noqa: E402
from underhood.quantization import QParams, load_layers  # noqa: E402

TRAIN = 1347  # of 1,797 digits; the other 450 were written by people whom the network has not seen
MEAN = np.float32([0.485, 0.456, 0.406])  # of ImageNet, per color
STD = np.float32([0.229, 0.224, 0.225])
SEED = (
    35  # of the first 70, one whose filters show every cause: with it float64 in place of float32 costs an output too
)
IMAGENET_RANGE = -2.1179, 2.64  # (0 - MEAN) / STD at its smallest and (1 - MEAN) / STD at its largest


# Fixtures F1 to F8


def fixture(
    rng: np.random.Generator,
    C: int,
    OC: int,
    H: int,
    W: int,
    k: int,
    stride: int,
    padding: int,
    groups: int,
    zx: int,
    zo: int,
    relu: bool,
    zw: int = 0,
    s_in: float = 0.02,
    s_out: float = 0.11,
) -> Conv:
    """A random layer; the order of the draws is part of the fixture."""
    x = rng.integers(0, 256, (C, H, W)).astype(np.uint8)
    w = np.clip(np.round(rng.normal(0, 40, (OC, C // groups, k, k))), -127, 127).astype(np.int8)
    s_w = rng.uniform(0.001, 0.006, OC).astype(np.float32)
    bias = rng.normal(0, 1, OC).astype(np.float32)
    return Conv(x, QParams(s_in, zx), w, s_w, bias, QParams(s_out, zo), stride, padding, groups, relu, zw)


def fixtures() -> dict[str, Conv]:
    """Eight layers, each with something that the others lack.

    F1 odd and oblong, stride 2 · F2 pointwise · F3 depthwise · F4 weights with a zero point ·
    F5 outputs far beyond 255 · F6 exact ties · F7 many outputs · F8 the largest products.
    """
    rng = np.random.default_rng(42)
    made = {
        "F1": fixture(rng, 3, 8, 7, 9, 3, 2, 1, 1, 114, 0, True),
        "F2": fixture(rng, 4, 4, 5, 5, 1, 1, 0, 1, 0, 128, False),
        "F3": fixture(rng, 8, 8, 6, 6, 3, 1, 1, 8, 7, 20, True, s_out=0.05),
        "F4": fixture(rng, 3, 4, 5, 5, 3, 1, 1, 1, 100, 131, False, zw=5),
        "F5": fixture(rng, 3, 4, 5, 5, 3, 1, 1, 1, 114, 60, False, s_out=0.004),
    }
    ties = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    plus_minus = np.int8([1, -1]).reshape(2, 1, 1, 1)
    made["F6"] = Conv(ties, QParams(0.5, 5), plus_minus, np.float32([1, 1]), None, QParams(1, 11))
    made["F7"] = fixture(rng, 16, 32, 32, 32, 1, 1, 0, 1, 90, 120, False, s_out=0.06)
    full, hot = np.full((2, 3, 3), 255, np.uint8), np.full((1, 2, 3, 3), 127, np.int8)
    made["F8"] = Conv(full, QParams(0.01, 0), hot, np.float32([0.01]), np.float32([0]), QParams(0.3, 0), 1, 1)
    return made


def saturating(conv: Conv) -> np.ndarray:
    """uint8: the x86 kernel's output on a CPU that saturates."""
    model = qk.conv_model("fbgemm", conv, saturates=True)
    if not qk.why_not("fbgemm") and qk.saturates("fbgemm") and not np.array_equal(model, qk.conv_live("fbgemm", conv)):
        raise RuntimeError("the live kernel and its model differ: nothing is frozen")
    return model


def fields(conv: Conv) -> dict[str, np.ndarray]:
    """A convolution as arrays."""
    stored = {
        "x": conv.x,
        "w": conv.w,
        "s_w": conv.s_w,
        "q_in": pair(conv.q_in),
        "q_out": pair(conv.q_out),
        "geometry": np.int64([conv.stride, conv.padding, conv.groups, conv.relu, conv.zw]),
    }
    return stored if conv.bias is None else stored | {"bias": conv.bias}


def pair(q: QParams) -> np.ndarray:
    """float64 (2,): scale, zero point."""
    return np.array([q.scale, q.zero_point], np.float64)


def freeze_fixtures() -> None:
    """Inputs, exact accumulators, outputs of the graded recipe and of the saturating kernel."""
    stored = {}
    for name, conv in fixtures().items():
        acc = qk.exact_acc(conv)
        results = {
            "acc": acc.astype(np.int32),
            "exact": qk.fbgemm_requantize(conv, acc),
            "saturating": saturating(conv),
        }
        stored |= {f"{name}.{key}": value for key, value in (fields(conv) | results).items()}
    save(FROZEN / "fixtures.npz", stored)


# The photo and the first layer


def photo() -> np.ndarray:
    """uint8 (3, 224, 224): the top square of matplotlib's sample photo of Grace Hopper (US Navy, public domain)."""
    from matplotlib.cbook import get_sample_data
    from PIL import Image

    with get_sample_data("grace_hopper.jpg") as file, Image.open(file) as image:
        width = image.size[0]
        square = image.convert("RGB").crop((0, 0, width, width)).resize((224, 224), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def normalize(codes: np.ndarray) -> np.ndarray:
    """float32, the shape of `codes` (3, H, W): brightness as torchvision's networks expect it."""
    return (codes.astype(np.float32) / np.float32(255) - MEAN[:, None, None]) / STD[:, None, None]


def filter_bank(
    x: np.ndarray, filters: int = 32, seed: int = SEED, patches: int = 20_000, rounds: int = 12
) -> np.ndarray:
    """float64 (filters, 3, 3, 3): what the patches of the image x (3, H, W) are made of.

    Spherical k-means on whitened patches (Coates and Ng 2012, "Learning Feature Representations with K-means"), then
    a soft threshold at 35 % of each filter's largest weight: what is small becomes exactly 0.
    """
    rng = np.random.default_rng(seed)
    top, left = rng.integers(0, x.shape[1] - 2, patches), rng.integers(0, x.shape[2] - 2, patches)
    rows = np.stack([x[:, i : i + 3, j : j + 3].ravel() for i, j in zip(top, left, strict=True)]).astype(np.float64)
    rows -= rows.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(rows.T))
    whiten = axes / np.sqrt(variances + 0.1) @ axes.T
    white = rows @ whiten
    white /= np.linalg.norm(white, axis=1, keepdims=True) + 1e-6
    centers = unit(rng.normal(size=(filters, white.shape[1])))
    for _ in range(rounds):
        likeness = white @ centers.T
        nearest = np.abs(likeness).argmax(axis=1)
        chosen = np.zeros_like(likeness)
        chosen[np.arange(patches), nearest] = likeness[np.arange(patches), nearest]
        centers = unit(chosen.T @ white + centers)
    bank = centers @ whiten
    threshold = 0.35 * np.abs(bank).max(axis=1, keepdims=True)
    return unit(np.sign(bank) * np.maximum(np.abs(bank) - threshold, 0)).reshape(filters, 3, 3, 3)


def unit(rows: np.ndarray) -> np.ndarray:
    """Each row divided by its length."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def quantize_weights(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes and float32 (OC,) scales: the largest weight of each output channel becomes 127 or -127."""
    largest = np.abs(w).reshape(len(w), -1).max(axis=1)
    s_w = np.maximum((largest / np.float32(127)).astype(np.float32), np.float32(2**-23))
    codes = np.rint(w / s_w.reshape(-1, *[1] * (w.ndim - 1)))
    return np.clip(codes, -127, 127).astype(np.int8), s_w


def range_qparams(low: float, high: float) -> QParams:
    """Parameters for uint8 codes that cover low to high, and 0."""
    low, high = min(np.float32(low), np.float32(0)), max(np.float32(high), np.float32(0))
    scale = max((high - low) / np.float32(255), np.float32(2**-23))
    return QParams(scale, np.clip(-np.rint(low / scale), 0, 255))


def stem(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, Conv]:
    """Float weights (32, 3, 3, 3) and bias (32,), and the quantized layer on the photo: stride 2, padding 1, ReLU.

    The filters keep unlike gains, as trained ones do: all channels share one output scale, which the strongest needs. A
    filter stays silent until its response is half a standard deviation above its mean, and the output range leaves out
    the largest thousandth: a network calibrated on other photos meets a brighter one.
    """
    x = normalize(codes)
    q_in = range_qparams(*IMAGENET_RANGE)
    w = filter_bank(x)
    layer = Conv(qk.quantize_model(x, q_in), q_in, *quantize_weights(w.astype(np.float32)), None, q_in, 2, 1, relu=True)
    strength = responses(layer).std(axis=(1, 2))
    w = (w * (strength / strength.max())[:, None, None, None] ** 2).astype(np.float32)

    w_codes, s_w = quantize_weights(w)
    layer = Conv(layer.x, q_in, w_codes, s_w, None, q_in, 2, 1, relu=True)
    y = responses(layer)
    bias = (-y.mean(axis=(1, 2)) - 0.5 * y.std(axis=(1, 2))).astype(np.float32)
    q_out = range_qparams(0, np.percentile(np.maximum(y + bias[:, None, None], 0), 99.9))
    return w, bias, Conv(layer.x, q_in, w_codes, s_w, bias, q_out, 2, 1, relu=True)


def responses(layer: Conv) -> np.ndarray:
    """float64 (OC, Ho, Wo): the exact sums in real units, without the bias."""
    return qk.exact_acc(layer) * (layer.q_in.scale * np.float64(layer.s_w))[:, None, None]


def freeze_photo() -> None:
    """The photo, the float layer, its parameters, and the saturating kernel's output."""
    codes = photo()
    w, bias, layer = stem(codes)
    kernel = {"q_in": pair(layer.q_in), "q_out": pair(layer.q_out), "kernel": saturating(layer)}
    save(DATA / "photo_stem.npz", {"photo": codes, "w": w, "bias": bias} | kernel)


# Digits


def digits() -> tuple[np.ndarray, np.ndarray]:
    """uint8 (1797, 8, 8) with values 0 to 16, and uint8 (1797,) labels."""
    file = DATA / "digits.npz"
    if not file.exists():
        from sklearn.datasets import load_digits

        bunch = load_digits()
        save(file, {"images": bunch.images.astype(np.uint8), "labels": bunch.target.astype(np.uint8)})
    with np.load(file) as stored:
        return stored["images"], stored["labels"]


def train_digits() -> list[dict]:
    """The float network, trained on the first 1,347 digits, with the range of each layer's output on them."""
    import torch

    from underhood.digits_cnn import DigitsCNN, float_layers, float_outputs, train

    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, labels = digits()
    x = torch.from_numpy(images[:TRAIN, None]).float() / 16
    model = DigitsCNN()
    train(model, x, torch.from_numpy(labels[:TRAIN]).long(), seed=1)
    layers = float_layers(model)
    for layer, output in zip(layers, float_outputs(x, layers), strict=True):
        layer["range"] = np.float32([output.min(), output.max()])
    return layers


def quantize_layers(layers: list[dict], bits: int = 8) -> list[dict]:
    """The int8 network of a float one. With 7 bits the activations' codes end at 127, so that no pair can saturate."""
    wider = 255 / (2**bits - 1)
    quantized: list[dict] = []
    q_in = range_qparams(0, wider)  # brightness, 0 to 1
    for layer in layers:
        low, high = (float(end) for end in layer["range"])
        low, high = min(low, 0.0), max(high, 0.0)
        q_out = q_in if layer["op"] == "avgpool" else range_qparams(low, low + (high - low) * wider)
        kept = {key: value for key, value in layer.items() if key not in ("w", "range")}
        if "w" in layer:
            kept["w"], kept["s_w"] = quantize_weights(layer["w"])
        quantized.append(kept | {"q_in": q_in, "q_out": q_out})
        q_in = q_out
    return quantized


def run(x: np.ndarray, layers: list[dict], saturates: bool | None) -> np.ndarray:
    """uint8 (10,): what the x86 kernels give for the codes x (1, 8, 8), saturating or not; None: as on this CPU."""
    outputs: list[np.ndarray] = []
    for layer in layers:
        q_in, q_out = layer["q_in"], layer["q_out"]
        if layer["op"] == "add":
            other = layers[layer["add_from"]]["q_out"]
            x = qk.add_model("fbgemm", x, q_in, outputs[layer["add_from"]], other, q_out, layer["relu"])
        elif layer["op"] == "avgpool":
            x = qk.avgpool_model("fbgemm", x, q_in)
        else:
            image, w = (x, layer["w"]) if layer["op"] == "conv" else qk.as_conv(x[None], layer["w"])
            geometry = {key: layer[key] for key in ("stride", "padding", "groups", "relu")}
            conv = Conv(image, q_in, w, layer["s_w"], layer["bias"], q_out, **geometry)
            x = qk.conv_model("fbgemm", conv, qk.saturates("fbgemm", conv) if saturates is None else saturates)
            x = x if layer["op"] == "conv" else x.ravel()
        outputs.append(x)
    return x


def freeze_digits() -> None:
    """The float network, the quantized one, and the quantized one's logits for the 450 digits that were held back."""
    file = DATA / "digits_cnn.npz"
    save(file, stored_layers(train_digits()))
    layers = quantize_layers(load_layers(data.load("digits_cnn")))
    images, _ = digits()
    codes = qk.quantize_model(images[TRAIN:, None] / np.float32(16), layers[0]["q_in"])
    logits = {
        "exact": np.stack([run(x, layers, saturates=False) for x in codes]),
        "saturating": np.stack([run(x, layers, saturates=True) for x in codes]),
    }
    save(DATA / "digits_cnn_int8.npz", stored_layers(layers) | logits)


def stored_layers(layers: list[dict]) -> dict[str, np.ndarray]:
    """What `underhood.quantization.load_layers` reads."""
    stored: dict[str, np.ndarray] = {"ops": np.array([layer["op"] for layer in layers])}
    for i, layer in enumerate(layers):
        add_from = -1 if layer["add_from"] is None else layer["add_from"]
        geometry = [layer["stride"], layer["padding"], layer["groups"], layer["relu"], add_from]
        stored[f"{i}.geometry"] = np.int64(geometry)
        for key in ("w", "s_w", "bias", "range"):
            if key in layer:
                stored[f"{i}.{key}"] = layer[key]
        for key in ("q_in", "q_out"):
            if key in layer:
                stored[f"{i}.{key}"] = pair(layer[key])
    return stored


def save(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a compressed archive; the same arrays give the same bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **arrays)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    freeze_fixtures()
    freeze_photo()
    freeze_digits()
