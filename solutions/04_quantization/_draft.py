"""Reference solutions of chapter 4, to be pasted into the notebook's solution cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from underhood.quantization import QParams

SMALLEST_SCALE = np.float32(2**-23)  # torch's floor for a scale: the float32 epsilon, 1.1920929e-07


def choose_qparams(mn: float, mx: float) -> QParams:
    mn, mx = np.float32(mn), np.float32(mx)
    if not (np.isfinite(mn) and np.isfinite(mx) and mn <= mx):
        raise ValueError(f"no range: from {mn} to {mx}")
    mn, mx = min(mn, np.float32(0)), max(mx, np.float32(0))  # 0.0 needs a code of its own
    scale = max((mx - mn) / np.float32(255), SMALLEST_SCALE)
    return QParams(scale, np.clip(-np.rint(mn / scale), 0, 255))


def quantize(x: np.ndarray, qp: QParams) -> np.ndarray:
    steps = np.asarray(x, np.float32) * (np.float32(1) / qp.scale)  # the kernel multiplies by the reciprocal
    steps = np.rint(np.fmin(steps, np.float32(2**31 - 128)))  # fmin sends nan to the top
    return np.clip(steps + qp.zero_point, 0, 255).astype(np.uint8)


def dequantize(q: np.ndarray, qp: QParams) -> np.ndarray:
    return (q.astype(np.float32) - np.float32(qp.zero_point)) * qp.scale


def quantize_weight_per_channel(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w = np.asarray(w, np.float32)
    largest = np.abs(w).reshape(len(w), -1).max(axis=1)
    scale = np.maximum(largest / np.float32(127), SMALLEST_SCALE)
    steps = np.rint(w / scale.reshape(-1, *[1] * (w.ndim - 1)))
    return np.clip(steps, -127, 127).astype(np.int8), scale


def conv_acc_loop(
    x: np.ndarray, zx: int, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1, zw: int = 0
) -> np.ndarray:
    """The definition, one output at a time."""
    (C, H, W), (OC, per_group, kh, kw) = x.shape, w.shape
    if C != per_group * groups or OC % groups:
        raise ValueError(f"{C} channels into {OC} do not fit kernels of {per_group} channels in {groups} groups")
    x = np.pad(x.astype(np.int32) - zx, ((0, 0), (padding, padding), (padding, padding)))
    w = w.astype(np.int32) - zw
    out = np.zeros((OC, (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1), np.int32)
    for o, i, j in np.ndindex(out.shape):
        first = o // (OC // groups) * per_group
        top, left = i * stride, j * stride
        out[o, i, j] = np.sum(x[first : first + per_group, top : top + kh, left : left + kw] * w[o])
    return out


def conv_acc(
    x: np.ndarray, zx: int, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1, zw: int = 0
) -> np.ndarray:
    (C, H, W), (OC, per_group, kh, kw) = x.shape, w.shape
    if C != per_group * groups or OC % groups:
        raise ValueError(f"{C} channels into {OC} do not fit kernels of {per_group} channels in {groups} groups")
    Ho, Wo = (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1

    w = w.reshape(groups, OC // groups, -1).astype(np.float32) - np.float32(zw)
    largest = max(zx, 255 - zx) * np.abs(w).sum(axis=-1).max()
    dtype = np.float32 if largest < 2**24 else np.float64  # below 2²⁴ float32 holds every partial sum exactly

    if padding:
        x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)), constant_values=zx)
    x = np.subtract(x, zx, dtype=dtype)
    rows = [slice(i, i + stride * (Ho - 1) + 1, stride) for i in range(kh)]
    cols = [slice(j, j + stride * (Wo - 1) + 1, stride) for j in range(kw)]
    taps = [x[:, r, c] for r in rows for c in cols]  # views: what each place of the kernel meets
    columns = np.stack(taps, axis=1) if len(taps) > 1 else taps[0]
    acc = w.astype(dtype, copy=False) @ columns.reshape(groups, -1, Ho * Wo)
    return acc.astype(np.int32).reshape(OC, Ho, Wo)


def requantize(
    acc: np.ndarray,
    bias: np.ndarray | None,
    s_in: float,
    s_w: np.ndarray | float,
    s_out: float,
    zo: int,
    relu: bool = False,
) -> np.ndarray:
    per_channel = (-1, *[1] * (acc.ndim - 1))
    s_acc = np.float32(s_in) * np.asarray(s_w, np.float32).reshape(per_channel)
    y = acc.astype(np.float32)
    if bias is not None:
        y += np.asarray(bias, np.float32).reshape(per_channel) / s_acc
    y *= s_acc / np.float32(s_out)
    np.rint(y, out=y)
    y += np.float32(zo)
    return np.clip(y, zo if relu else 0, 255, out=y).astype(np.uint8)


def quantize_multiplier(m: float) -> tuple[int, int]:
    if not 0 < m < np.inf:
        raise ValueError(f"a multiplier is positive and finite, this one is {m}")
    fraction, exponent = np.frexp(np.float64(m))  # m = fraction * 2**exponent, 1/2 <= fraction < 1
    m0 = int(np.rint(fraction * 2**31))
    if m0 == 2**31:  # the fraction rounded up to 1
        m0, exponent = 2**30, exponent + 1
    return m0, -int(exponent)


def requantize_fixed(acc: np.ndarray, m0: int, shift: int, zo: int) -> np.ndarray:
    product = acc.astype(np.int64) * m0
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    high = np.sign(nudged) * (np.abs(nudged) >> 31)  # / 2**31, toward zero
    mask = (1 << shift) - 1
    rounded = (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0))
    return np.clip(rounded + zo, 0, 255).astype(np.uint8)


def madd_pairs(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    products = np.asarray(x, np.int32) * np.asarray(w, np.int32)
    pairs = products[..., 0::2].copy()
    pairs[..., : products.shape[-1] // 2] += products[..., 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=-1, dtype=np.int32)


def qadd(a: np.ndarray, qa: QParams, b: np.ndarray, qb: QParams, qout: QParams, relu: bool = False) -> np.ndarray:
    def real(q: np.ndarray, qp: QParams) -> np.ndarray:  # one fused multiply-add: exact in float64, rounded once
        offset = qp.scale * np.float32(-qp.zero_point)
        return (q * np.float64(qp.scale) + np.float64(offset)).astype(np.float32)

    total = real(a, qa) + real(b, qb)
    return quantize(np.maximum(total, 0) if relu else total, qout)


def avgpool(x: np.ndarray, qp: QParams) -> np.ndarray:
    n = x[0].size
    steps = x.sum(axis=(1, 2), dtype=np.int32) - n * qp.zero_point
    mean = steps.astype(np.float32) * (np.float32(1) / np.float32(n))
    return np.clip(np.rint(mean) + qp.zero_point, 0, 255).astype(np.uint8)


def quantized_network(x: np.ndarray, layers: list[dict], ops: dict[str, Callable]) -> np.ndarray:
    outputs = []
    for layer in layers:
        q_in, q_out = layer["q_in"], layer["q_out"]
        if layer["op"] == "add":
            other = layer["add_from"]
            x = ops["qadd"](x, q_in, outputs[other], layers[other]["q_out"], q_out, layer["relu"])
        elif layer["op"] == "avgpool":
            x = ops["avgpool"](x, q_in)
        else:
            w = layer["w"]
            if layer["op"] == "linear":  # a 1×1 convolution of a 1×1 image
                x, w = x.reshape(-1, 1, 1), w.reshape(*w.shape, 1, 1)
            acc = ops["conv_acc"](x, q_in.zero_point, w, layer["stride"], layer["padding"], layer["groups"])
            x = ops["requantize"](
                acc, layer["bias"], q_in.scale, layer["s_w"], q_out.scale, q_out.zero_point, layer["relu"]
            )
            if layer["op"] == "linear":
                x = x.reshape(-1)
        outputs.append(x)
    return x


def hit_rate(a: np.ndarray, b: np.ndarray) -> float:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"shapes {a.shape} and {b.shape}: nothing to compare place by place")
    return float(np.mean(a == b))


def explain_misses(
    got: np.ndarray, want: np.ndarray, x: np.ndarray, w: np.ndarray, zx: int, stride: int, padding: int
) -> list[dict]:
    kh, kw = w.shape[2:]
    padded = np.pad(x.astype(np.int32), ((0, 0), (padding, padding), (padding, padding)), constant_values=zx)
    places = [(i, j, c) for i in range(kh) for j in range(kw) for c in range(len(x))]  # kernel order: channel fastest
    misses = []
    for o, i, j in zip(*np.nonzero(got != want), strict=True):
        patch = padded[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
        products = (patch * w[o]).transpose(1, 2, 0).ravel()
        sums = products[: products.size // 2 * 2].reshape(-1, 2).sum(axis=1)
        saturated = np.flatnonzero((sums < -(2**15)) | (sums > 2**15 - 1))
        pair = (places[2 * saturated[0]], places[2 * saturated[0] + 1]) if saturated.size else None
        g, e = int(got[o, i, j]), int(want[o, i, j])
        kind = "saturation" if pair else "rounding" if abs(g - e) == 1 else "other"
        misses.append({"index": (int(o), int(i), int(j)), "got": g, "want": e, "kind": kind, "pair": pair})
    return misses


def conv_acc_saturating(
    x: np.ndarray, zx: int, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1, zw: int = 0
) -> np.ndarray:
    """What the x86 kernel adds up: raw codes in saturating pairs, the zero points corrected for afterwards."""
    (_, H, W), (OC, per_group, kh, kw) = x.shape, w.shape
    Ho, Wo = (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding)), constant_values=zx)
    windows = [
        padded[:, i : i + stride * (Ho - 1) + 1 : stride, j : j + stride * (Wo - 1) + 1 : stride]
        for i in range(kh)
        for j in range(kw)
    ]
    patches = np.stack(windows, axis=-1).reshape(groups, per_group, Ho, Wo, kh * kw)
    patches = patches.transpose(0, 2, 3, 4, 1).reshape(groups, Ho, Wo, -1)  # (kh, kw, channel): channel fastest
    kernels = w.transpose(0, 2, 3, 1).reshape(OC, -1)
    out = np.empty((OC, Ho, Wo), np.int32)
    for o, kernel in enumerate(kernels):
        patch = patches[o // (OC // groups)]
        raw = madd_pairs(patch, kernel)
        out[o] = raw - zx * (kernel.sum(dtype=np.int32) - kernel.size * zw) - zw * patch.sum(axis=-1, dtype=np.int32)
    return out
