"""What PyTorch's quantized CPU kernels compute, as numpy models, and the live kernels to compare them with.

Three engines, three recipes. They share the codes (activations uint8, weights int8, padding with the input's zero
point) and differ in the accumulator, the bias and the order of roundings:

=========  ==============================================  =============  =========================================
engine     accumulator (on a CPU without VNNI)             bias           rounding
=========  ==============================================  =============  =========================================
fbgemm     int16-saturating pairs in order (kh, kw, c)     float32        nearest even, then the zero point
onednn     int16-saturating pairs inside each tap          float32        zero point first, then nearest even
qnnpack    exact, modulo 2**32                             int32          nearest even, then the zero point
=========  ==============================================  =============  =========================================

Sources: FBGEMM `QuantUtilsAvx2.cc` (requantizeOutputProcessingAvx2) and the instruction `vpmaddubsw`; oneDNN's
developer guide, "Nuances of int8 computations"; QNNPACK's requantization and addition. Each formula is confirmed
against the live kernel by `tests/test_quantized_kernels.py`. The course's solutions share no code with this module.

With VNNI nothing saturates, with two exceptions: FBGEMM's own kernels for depthwise layers have no other instructions
(`own_depthwise`), and oneDNN's depthwise kernel multiplies by one scale after the other. torch's engine "x86" is oneDNN
there, and FBGEMM elsewhere.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from underhood.quantization import QParams

f32, f64, i32, i64 = np.float32, np.float64, np.int32, np.int64

ENGINES = ("fbgemm", "onednn", "qnnpack")


@dataclass(frozen=True)
class Conv:
    """One quantized convolution: everything that decides its output.

    `x` uint8 (C, H, W); `w` int8 (OC, C/groups, kh, kw); `s_w` float32 (OC,), or a scalar for weights with one scale;
    `bias` float32 (OC,) or None, in real units; `zw` the weights' zero point (fbgemm only).
    """

    x: np.ndarray
    q_in: QParams
    w: np.ndarray
    s_w: np.ndarray | float
    bias: np.ndarray | None
    q_out: QParams
    stride: int = 1
    padding: int = 0
    groups: int = 1
    relu: bool = False
    zw: int = 0

    @property
    def per_channel(self) -> bool:
        return np.ndim(self.s_w) == 1

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.w.shape[:2] == (self.groups, 1)

    @property
    def own_depthwise(self) -> bool:
        """Whether FBGEMM has a kernel for it that is for depthwise layers only (`takeDepthWiseFastPath`)."""
        k, across = self.w.shape[2:]
        fits = k == across and k in (3, 5) and self.padding == k // 2 and self.stride in (1, 2)
        return self.depthwise and self.groups % 8 == 0 and fits


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c in float32 with one rounding, as a fused multiply-add gives it.

    The product is exact in float64. The sum is rounded to odd there (Boldo and Melquiond 2008), after which rounding it
    to float32 is the same as rounding the exact sum.
    """
    product, c = np.asarray(a, f64) * np.asarray(b, f64), np.asarray(c, f64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = (np.ascontiguousarray(total).view(i64).reshape(total.shape) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, toward), total).astype(f32)


def to_int32(y: np.ndarray) -> np.ndarray:
    """float32 to int32 as `cvtps2dq` does it: nearest even; nan and what does not fit become -2**31. Returns int64."""
    fits = np.abs(y) < 2**31  # false for nan
    return np.where(fits, np.rint(np.where(fits, y, 0)), -(2**31)).astype(i64)


def sat16(y: np.ndarray) -> np.ndarray:
    """Clamped to int16, as `packs` does."""
    return np.clip(y, -(2**15), 2**15 - 1)


def patches(conv: Conv, outside: int) -> np.ndarray:
    """int32 (groups, Ho, Wo, kh, kw, C/groups): the codes under the kernel at each place; padding holds `outside`."""
    p = conv.padding
    kh, kw = conv.w.shape[2:]
    padded = np.pad(conv.x.astype(i32), ((0, 0), (p, p), (p, p)), constant_values=outside)
    seen = sliding_window_view(padded, (kh, kw), axis=(1, 2))[:, :: conv.stride, :: conv.stride]
    C, Ho, Wo = seen.shape[:3]
    return seen.reshape(conv.groups, C // conv.groups, Ho, Wo, kh, kw).transpose(0, 2, 3, 4, 5, 1)


def exact_acc(conv: Conv) -> np.ndarray:
    """int64 (OC, Ho, Wo): the sum of (x - zx) * (w - zw), every digit of it."""
    x = patches(conv, conv.q_in.zero_point).astype(i64) - conv.q_in.zero_point
    return _dot(conv, x.reshape(*x.shape[:3], -1), conv.w.astype(i64) - conv.zw, lambda x, w: x @ w)


def _dot(conv: Conv, x: np.ndarray, w: np.ndarray, dot: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """`dot(patches of the channel's group, kernel in the order (kh, kw, c))` for every output channel."""
    kernels = w.transpose(0, 2, 3, 1).reshape(len(w), -1)
    per_group = len(w) // conv.groups
    return np.stack([dot(x[o // per_group], kernel) for o, kernel in enumerate(kernels)])


def _pairs(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The last axis multiplied, added two by two, clamped to int16, added up."""
    products = x * w
    whole = products.shape[-1] // 2 * 2
    sums = products[..., 0:whole:2] + products[..., 1:whole:2]
    return sat16(sums).sum(axis=-1) + sat16(products[..., whole:]).sum(axis=-1)


def fbgemm_acc(conv: Conv, saturates: bool = True) -> np.ndarray:
    """int64 (OC, Ho, Wo): raw codes in saturating pairs that run across taps, zero points corrected for afterwards."""
    if not saturates:
        return exact_acc(conv)
    zx = conv.q_in.zero_point
    x = patches(conv, zx).astype(i64)
    x = x.reshape(*x.shape[:3], -1)

    def dot(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return _pairs(x, w) - zx * (w.sum() - w.size * conv.zw) - conv.zw * x.sum(axis=-1)

    return _dot(conv, x, conv.w.astype(i64), dot)


def onednn_acc(conv: Conv, saturates: bool = True) -> np.ndarray:
    """int64 (OC, Ho, Wo): saturating pairs inside each tap; padded taps contribute nothing; depthwise exact.

    With groups, kernels of eight channels a group (or a multiple) work in pairs; those of six were found exact.
    """
    pairs = not conv.depthwise and (conv.groups == 1 or conv.w.shape[1] % 8 == 0)
    if not (saturates and pairs):
        return exact_acc(conv)
    x = patches(conv, 0).astype(i64)
    inside = patches(replace(conv, x=np.ones_like(conv.x)), 0).astype(i64)
    taps = x.shape[3] * x.shape[4]
    x, inside = x.reshape(*x.shape[:3], taps, -1), inside.reshape(*inside.shape[:3], taps, -1)
    both = np.stack([x, inside])

    def dot(both: np.ndarray, w: np.ndarray) -> np.ndarray:
        w = w.reshape(taps, -1)
        return _pairs(both[0], w).sum(axis=-1) - conv.q_in.zero_point * (both[1] * w).sum(axis=(-2, -1))

    return _dot(conv, both.swapaxes(0, 1), conv.w.astype(i64), dot)


def _column(values: np.ndarray | float, like: np.ndarray) -> np.ndarray:
    return np.asarray(values, f32).reshape(-1, *[1] * (like.ndim - 1))


def fbgemm_requantize(conv: Conv, acc: np.ndarray) -> np.ndarray:
    """uint8, the shape of `acc`."""
    y = acc.astype(f32)
    s_acc = f32(conv.q_in.scale) * _column(conv.s_w, acc)
    if conv.bias is not None:
        bias = _column(conv.bias, acc)
        y = y + bias / s_acc if conv.per_channel else fma(bias, (1.0 / s_acc.astype(f64)).astype(f32), y)
    y = sat16(to_int32(y * (s_acc / f32(conv.q_out.scale))))
    return _clamp(sat16(y + conv.q_out.zero_point), conv)


def onednn_requantize(conv: Conv, acc: np.ndarray, saturates: bool = True) -> np.ndarray:
    """uint8, the shape of `acc`. The scales pass through their reciprocals on the way, each rounded to float32."""
    one = f32(1)
    s_in, s_out = one / (one / f32(conv.q_in.scale)), one / (one / f32(conv.q_out.scale))
    if conv.depthwise and not saturates:
        y = (acc.astype(f32) * s_in) * _column(conv.s_w, acc)
    else:
        y = acc.astype(f32) * (s_in * _column(conv.s_w, acc))
    if conv.bias is not None:
        y = y + _column(conv.bias, acc)
    if conv.relu:
        y = np.maximum(y, f32(0))
    y = y * (one / s_out) + f32(conv.q_out.zero_point)
    return np.rint(np.clip(y, 0, 255)).astype(np.uint8)


def qnnpack_requantize(conv: Conv, acc: np.ndarray) -> np.ndarray:
    """uint8, the shape of `acc`. The bias is an int32 in units of s_in * s_w, clamped there; the accumulator wraps."""
    s_w = _column(conv.s_w, acc)
    if conv.bias is not None:
        inverse = f32(1) / (f32(conv.q_in.scale) * s_w)
        steps = np.rint((_column(conv.bias, acc) * inverse).astype(f64))
        acc = acc + np.clip(steps, -(2**31), 2**31 - 1).astype(i64)
    acc = (acc + 2**31) % 2**32 - 2**31
    multiplier = (s_w * f32(conv.q_in.scale)) * (f32(1) / f32(conv.q_out.scale))
    y = sat16(to_int32(acc.astype(f32) * multiplier))
    return _clamp(sat16(y + conv.q_out.zero_point), conv)


def _clamp(y: np.ndarray, conv: Conv) -> np.ndarray:
    return np.clip(y, conv.q_out.zero_point if conv.relu else 0, 255).astype(np.uint8)


def conv_model(engine: str, conv: Conv, saturates: bool = True) -> np.ndarray:
    """uint8 (OC, Ho, Wo): what `engine` gives on a CPU whose kernels saturate, or on one whose kernels do not."""
    match engine:
        case "fbgemm":
            return fbgemm_requantize(conv, fbgemm_acc(conv, saturates))
        case "onednn":
            return onednn_requantize(conv, onednn_acc(conv, saturates), saturates)
        case "qnnpack":
            return qnnpack_requantize(conv, exact_acc(conv))
    raise ValueError(f"no model of an engine {engine!r}")


def as_conv(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A linear layer as a 1x1 convolution: x (N, K) to (K, N, 1), w (OC, K) to (OC, K, 1, 1)."""
    return np.ascontiguousarray(x.T)[:, :, None], w[:, :, None, None]


def quantize_model(x: np.ndarray, q: QParams) -> np.ndarray:
    """uint8, the shape of `x`, below 2**31 - 255 steps: the product with the reciprocal, rounded, then shifted."""
    steps = np.asarray(x, f32) * (f32(1) / f32(q.scale))
    return np.clip(np.rint(steps.astype(f64)) + q.zero_point, 0, 255).astype(np.uint8)


def add_model(
    engine: str, a: np.ndarray, qa: QParams, b: np.ndarray, qb: QParams, q_out: QParams, relu: bool = False
) -> np.ndarray:
    """uint8, the shape of `a`: real numbers on x86 and onednn, fixed point on qnnpack."""
    if engine != "qnnpack":
        total = _real(a, qa) + _real(b, qb)
        return quantize_model(np.maximum(total, f32(0)) if relu else total, q_out)
    ratios = f32(qa.scale) / f32(q_out.scale), f32(qb.scale) / f32(q_out.scale)
    shift = 21 - int(np.frexp(max(ratios))[1] - 1)
    ma, mb = (int(np.rint(np.ldexp(f64(ratio), shift))) for ratio in ratios)
    acc = ma * (a.astype(i64) - qa.zero_point) + mb * (b.astype(i64) - qb.zero_point)
    mask = (1 << shift) - 1
    remainder = (acc & mask) - (acc < 0)
    y = (acc >> shift) + (remainder > mask >> 1) + q_out.zero_point
    return np.clip(y, q_out.zero_point if relu else 0, 255).astype(np.uint8)


def _real(q: np.ndarray, qp: QParams) -> np.ndarray:
    return fma(f32(qp.scale), q.astype(f32), f32(qp.scale) * f32(-qp.zero_point))


def avgpool_model(engine: str, x: np.ndarray, q: QParams, channels_last: bool = True) -> np.ndarray:
    """uint8 (C,): the mean over all places of x (C, H, W), with the input's own parameters.

    The x86 engines have two kernels: in the channels-last layout, which every convolution leaves behind, the zero point
    is taken off before the division and added after the rounding; in the plain layout the raw codes are averaged, so
    that with an odd zero point every tie goes the other way.
    """
    n = x[0].size
    if engine != "qnnpack" and not channels_last:
        return np.rint(x.astype(i64).sum(axis=(1, 2)).astype(f32) * (f32(1) / f32(n))).astype(np.uint8)
    steps = (x.astype(i64) - q.zero_point).sum(axis=(1, 2)).astype(f32)
    factor = f32(q.scale) / (f32(q.scale) * f32(n)) if engine == "qnnpack" else f32(1) / f32(n)
    return np.clip(np.rint(steps * factor) + q.zero_point, 0, 255).astype(np.uint8)


# The live kernels. Weights are packed afresh for every call: qnnpack keeps the first call's zero point in them and
# onednn the first call's ReLU.


def why_not(engine: str) -> str:
    """A sentence that says why `engine` cannot be run here, or an empty string."""
    try:
        import torch
    except ImportError:
        return "torch is not installed, so there is no live kernel to compare with"
    if engine not in torch.backends.quantized.supported_engines:
        return f"this build of torch has no engine {engine}"
    try:
        with live(engine):
            _probe(engine)
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"engine {engine} does not run here: {str(error).splitlines()[0]}"
    return ""


@contextmanager
def live(engine: str) -> Iterator[None]:
    """Within, torch runs quantized layers on `engine`, and its warnings that they are deprecated stay silent."""
    import torch

    before = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = engine
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


LARGEST_PAIR = Conv(
    x=np.full((2, 1, 1), 255, np.uint8),
    q_in=QParams(1, 0),
    w=np.full((1, 2, 1, 1), 127, np.int8),
    s_w=f32([1]),
    bias=None,
    q_out=QParams(300, 0),
)


def _probe(engine: str) -> int:
    """255 * 127 + 255 * 127 = 64770 in steps of 300 on the live kernel: 216 if it is exact, 109 if it saturates."""
    return int(conv_live(engine, LARGEST_PAIR).item())


@functools.cache
def _probed(engine: str) -> bool:
    return _probe(engine) == 109


def saturates(engine: str, conv: Conv | None = None) -> bool:
    """Whether this CPU's kernel of `engine` clamps pairs of products to int16: it does where there is no VNNI.

    For a layer `conv` that FBGEMM has a depthwise kernel for, that kernel does on every CPU.
    """
    return _probed(engine) or (engine == "fbgemm" and conv is not None and conv.own_depthwise)


def _codes(x: np.ndarray, q: QParams) -> Any:
    import torch

    return torch._make_per_tensor_quantized_tensor(torch.from_numpy(np.array(x)), float(q.scale), q.zero_point)


def _weights(w: np.ndarray, s_w: np.ndarray | float, zw: int) -> Any:
    import torch

    codes = torch.from_numpy(np.array(w))
    if np.ndim(s_w) == 0:
        return torch._make_per_tensor_quantized_tensor(codes, float(f32(s_w)), zw)
    scales = torch.from_numpy(np.asarray(s_w, f64))
    return torch._make_per_channel_quantized_tensor(codes, scales, torch.full((len(w),), zw, dtype=torch.long), 0)


def _bias(bias: np.ndarray | None) -> Any:
    import torch

    return None if bias is None else torch.from_numpy(np.array(bias, f32))


def conv_live(engine: str, conv: Conv) -> np.ndarray:
    """uint8 (OC, Ho, Wo) from `torch.ops.quantized.conv2d` or `conv2d_relu`."""
    import torch

    with live(engine):
        twice = [conv.stride] * 2, [conv.padding] * 2, [1, 1]
        weights = _weights(conv.w, conv.s_w, conv.zw)
        packed = torch.ops.quantized.conv2d_prepack(weights, _bias(conv.bias), *twice, conv.groups)
        run = torch.ops.quantized.conv2d_relu if conv.relu else torch.ops.quantized.conv2d
        y = run(_codes(conv.x[None], conv.q_in), packed, float(conv.q_out.scale), conv.q_out.zero_point)
        return y.int_repr()[0].numpy()


def linear_live(
    engine: str,
    x: np.ndarray,
    q_in: QParams,
    w: np.ndarray,
    s_w: np.ndarray | float,
    bias: np.ndarray | None,
    q_out: QParams,
    relu: bool,
) -> np.ndarray:
    """uint8 (N, OC) from `torch.ops.quantized.linear` or `linear_relu`, for x (N, K) and w (OC, K)."""
    import torch

    with live(engine):
        packed = torch.ops.quantized.linear_prepack(_weights(w, s_w, 0), _bias(bias))
        run = torch.ops.quantized.linear_relu if relu else torch.ops.quantized.linear
        return run(_codes(x, q_in), packed, float(q_out.scale), q_out.zero_point).int_repr().numpy()


def quantize_live(x: np.ndarray, q: QParams) -> np.ndarray:
    """uint8 from `torch.quantize_per_tensor`."""
    import torch

    with live(torch.backends.quantized.engine):
        real = torch.from_numpy(np.array(x, f32))
        return torch.quantize_per_tensor(real, float(q.scale), q.zero_point, torch.quint8).int_repr().numpy()


def add_live(
    engine: str, a: np.ndarray, qa: QParams, b: np.ndarray, qb: QParams, q_out: QParams, relu: bool = False
) -> np.ndarray:
    """uint8 from `torch.ops.quantized.add` or `add_relu`."""
    import torch

    with live(engine):
        run = torch.ops.quantized.add_relu if relu else torch.ops.quantized.add
        return run(_codes(a, qa), _codes(b, qb), float(q_out.scale), q_out.zero_point).int_repr().numpy()


def avgpool_live(engine: str, x: np.ndarray, q: QParams, channels_last: bool = True) -> np.ndarray:
    """uint8 (C,) from `adaptive_avg_pool2d` to one place; a convolution leaves the channels-last layout behind."""
    import torch

    with live(engine):
        codes = _codes(x[None], q)
        if channels_last:
            codes = codes.contiguous(memory_format=torch.channels_last)
        return torch.nn.functional.adaptive_avg_pool2d(codes, 1).int_repr()[0, :, 0, 0].numpy()
