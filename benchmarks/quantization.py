"""How fast the reference solutions of chapter 4 are, beside torch's kernels: one thread, one run, medians of CPU time.

Torch's layers are packed and their inputs quantized beforehand; only the run itself is timed. The contenders take
turns, round by round, and the clock is the process's CPU time: with one thread that is the time on an idle machine,
and on a busy one it leaves out the turns of others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PHOTO = Path(__file__).resolve().parents[1] / "course" / "underhood" / "data" / "photo_stem.npz"
ROUNDS = 15
LOOP = "definition's loop, extrapolated"
MEAN = np.float32([0.485, 0.456, 0.406])[:, None, None]  # of ImageNet, per color
STD = np.float32([0.229, 0.224, 0.225])[:, None, None]


def rows(reference: Mapping[str, Callable] | None = None, rounds: int = ROUNDS) -> list[dict]:
    """Milliseconds of the first layer and of the whole MobileNetV2, and the share of logits that are torch's.

    Parameters
    ----------
    reference
        The functions of chapter 4 by name; by default the reference solutions.
    rounds
        How often the whole network is timed; the first layer, which takes milliseconds, is timed ten times as often.

    Returns
    -------
    list of dict
        Keys "name", "value", "unit", "reference" (the same quantity of the contender that the name mentions last) and
        "ratio" (above 1: better than that contender).
    """
    import torch

    if reference is None:
        from autograder.reference import load

        reference = load("04_quantization")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return first_layer(reference, rounds) + whole_network(reference, rounds)
    finally:
        torch.set_num_threads(threads)


def first_layer(reference: Mapping[str, Callable], rounds: int) -> list[dict]:
    """3x224x224 to 32x112x112, kernel 3, stride 2, padding 1, ReLU: the photo and filters that the chapter ships."""
    import torch
    from torch.nn import functional as F

    from underhood.engines import engine
    from underhood.quantization import QParams

    stored = np.load(PHOTO)
    q_in, q_out, bias = QParams(*stored["q_in"]), QParams(*stored["q_out"]), stored["bias"]
    x = (stored["photo"].astype(np.float32) / np.float32(255) - MEAN) / STD
    codes = reference["quantize"](x, q_in)
    w, s_w = reference["quantize_weight_per_channel"](stored["w"])

    def numpy() -> np.ndarray:
        acc = reference["conv_acc"](codes, q_in.zero_point, w, 2, 1)
        return reference["requantize"](acc, bias, q_in.scale, s_w, q_out.scale, q_out.zero_point, True)

    def packed(name: str) -> Callable[[], torch.Tensor]:
        with engine(name):
            scales, zeros = torch.from_numpy(s_w).double(), torch.zeros(len(w), dtype=torch.long)
            weight = torch._make_per_channel_quantized_tensor(torch.from_numpy(w), scales, zeros, 0)
            layer = torch.ops.quantized.conv2d_prepack(weight, torch.from_numpy(bias), [2, 2], [1, 1], [1, 1], 1)
            image = torch._make_per_tensor_quantized_tensor(torch.from_numpy(codes)[None], q_in.scale, q_in.zero_point)
            image = image.contiguous(memory_format=torch.channels_last)

        def run() -> torch.Tensor:
            with engine(name):
                return torch.ops.quantized.conv2d_relu(image, layer, q_out.scale, q_out.zero_point)

        return run

    real, weight, offset = torch.from_numpy(x)[None], torch.from_numpy(stored["w"]), torch.from_numpy(bias)

    def float32() -> torch.Tensor:
        with torch.no_grad():
            return F.conv2d(real, weight, offset, 2, 1).relu()

    contenders: dict[str, Callable[[], object]] = {"numpy": numpy}
    contenders |= {f"torch {name}": packed(name) for name in ("x86", "qnnpack")}
    contenders["torch float32"] = float32
    times = {LOOP: loop([(codes, q_in.zero_point, w, 2, 1)], reference["conv_acc"])} | medians(contenders, 10 * rounds)
    return compared("quantized first layer", times.pop("numpy"), times)


def definition(x: np.ndarray, zx: int, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """int32 (OC, Ho, Wo): the accumulator as a textbook defines it, one product at a time."""
    (C, H, W), (OC, _, kh, kw) = x.shape, w.shape
    out = np.zeros((OC, (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1), np.int32)
    for o, i, j in np.ndindex(out.shape):
        total = 0
        for c in range(C):
            for a in range(kh):
                for b in range(kw):
                    row, col = i * stride + a - padding, j * stride + b - padding
                    if 0 <= row < H and 0 <= col < W:
                        total += (int(x[c, row, col]) - zx) * int(w[o, c, a, b])
        out[o, i, j] = total
    return out


def whole_network(reference: Mapping[str, Callable], rounds: int) -> list[dict]:
    """torchvision's MobileNetV2 at 224x224 with calibrated random weights, seven-bit activations as torch has them."""
    import torch

    from underhood import mobilenet

    photo = np.load(PHOTO)["photo"]
    image = torch.from_numpy((photo.astype(np.float32) / np.float32(255) - MEAN) / STD)[None]
    images = torch.cat([image, image.flip(3), image.roll(40, 2), image.roll(70, 3)])
    float32 = mobilenet.mobilenet_v2(images)
    engines = {name: mobilenet.quantized(float32, images, name) for name in ("x86", "qnnpack")}
    layers = mobilenet.layers(engines["x86"])
    # On a CPU with VNNI the engine x86 is oneDNN, which rounds in another order: fbgemm is what the course computes.
    fbgemm = mobilenet.quantized(float32, images, "fbgemm")
    codes, outputs = mobilenet.outputs(fbgemm, image, "fbgemm")

    def numpy() -> np.ndarray:
        return reference["quantized_network"](codes, layers, reference)

    contenders: dict[str, Callable[[], object]] = {"numpy": numpy}
    contenders |= {f"torch {name}": mobilenet.timed(model, image, name) for name, model in engines.items()}
    contenders["torch float32"] = mobilenet.timed(float32, image, "x86")
    calls: list[tuple] = []

    def conv_acc(*arguments: Any) -> np.ndarray:
        calls.append(arguments)
        return reference["conv_acc"](*arguments)

    reference["quantized_network"](codes, layers, {**reference, "conv_acc": conv_acc})
    times = {LOOP: loop([call[:5] for call in calls], reference["conv_acc"])} | medians(contenders, rounds)
    rate = reference["hit_rate"](numpy(), outputs[-1])
    name = "quantized MobileNetV2, logits equal to torch fbgemm's in every bit"
    equal = {"name": name, "value": rate, "unit": "share of 1,000", "reference": 1.0, "ratio": rate}
    return [*compared("quantized MobileNetV2", times.pop("numpy"), times), equal]


def loop(calls: Sequence[tuple], conv_acc: Callable) -> float:
    """Milliseconds that `definition` would take for all these convolutions: one output channel of each is timed."""
    seconds = 0.0
    for x, zx, w, stride, padding in calls:
        first = x[: w.shape[1]], zx, w[:1], stride, padding
        start = time.process_time()
        sums = definition(*first)
        seconds += (time.process_time() - start) * len(w)
        if not np.array_equal(sums, conv_acc(*first)):
            raise ValueError("the definition's loop and conv_acc give different sums")
    return seconds * 1e3


def medians(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time of each contender, which take turns; one round beforehand does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            if turn:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) * 1e3 for name, values in seconds.items()}


def compared(what: str, numpy: float, others: Mapping[str, float]) -> list[dict]:
    """One row for each contender."""
    return [
        {"name": f"{what}, numpy against {name}", "value": numpy, "unit": "ms", "reference": ms, "ratio": ms / numpy}
        for name, ms in others.items()
    ]
