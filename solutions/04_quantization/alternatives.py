"""Other right solutions of chapter 4, and wrong ones that no Mistake covers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from underhood.quantization import QParams

EPSILON = 1.1920928955078125e-07

# ------------------------------------------------------------------------------------------------------ choose_qparams


def range_step_by_step(mn, mx):
    if math.isnan(mn) or math.isnan(mx) or math.isinf(mn) or math.isinf(mx):
        raise ValueError("the ends of a range are finite")
    if mn > mx:
        raise ValueError("the ends are exchanged")
    low = np.float32(mn) if mn < 0 else np.float32(0)
    high = np.float32(mx) if mx > 0 else np.float32(0)
    scale = np.divide(np.subtract(high, low), np.float32(255))
    if scale < EPSILON:
        scale = np.float32(EPSILON)
    return QParams(scale=scale, zero_point=int(round(float(np.divide(-low, scale)))))


def range_in_arrays(mn, mx):
    ends = np.array([mn, mx, 0.0], dtype=np.float32)
    if not np.isfinite(ends).all() or ends[0] > ends[1]:
        raise ValueError(f"{mn} to {mx} is no range")
    scale = np.maximum((ends.max() - ends.min()) / np.float32(255.0), np.float32(EPSILON))
    return QParams(scale, int(np.clip(0 - np.rint(ends.min() / scale), 0, 255)))


def range_of_254_steps(mn, mx):
    right = range_in_arrays(mn, mx)
    return QParams(right.scale * np.float32(255 / 254), right.zero_point)


# ------------------------------------------------------------------------------------------------ quantize, dequantize


def codes_by_loops(x, qp):
    reciprocal = np.float32(1.0) / qp.scale
    codes = np.empty(x.shape, dtype=np.uint8)
    for place in np.ndindex(x.shape):
        code = round(float(np.float32(x[place]) * reciprocal)) + qp.zero_point
        codes[place] = min(max(code, 0), 255)
    return codes


def codes_by_integers(x, qp):
    steps = np.around(np.multiply(x, np.reciprocal(qp.scale))).astype(np.int64)
    return np.minimum(np.maximum(steps + qp.zero_point, 0), 255).astype("uint8")


def codes_one_too_high(x, qp):
    return np.clip(codes_by_integers(x, qp).astype(int) + 1, 0, 255).astype(np.uint8)


def reals_by_table(q, qp):
    table = np.array([qp.scale * np.float32(code - qp.zero_point) for code in range(256)], dtype=np.float32)
    return table[q]


def reals_by_integers(q, qp):
    return np.float32(qp.scale) * (q.astype(np.int32) - qp.zero_point).astype(np.float32)


def reals_of_another_scale(q, qp):
    return reals_by_integers(q, qp) * np.float32(2)


# ---------------------------------------------------------------------------------------- quantize_weight_per_channel


def weights_by_loops(w):
    codes, scales = np.empty(w.shape, np.int8), []
    for o, channel in enumerate(w):
        scale = max(np.float32(max(abs(v) for v in channel.ravel())) / np.float32(127), np.float32(EPSILON))
        codes[o] = np.rint(channel / scale)
        scales.append(scale)
    return codes, np.array(scales, dtype=np.float32)


def weights_by_moved_axes(w):
    axes = tuple(range(1, w.ndim))
    largest = np.maximum(w.max(axis=axes), -w.min(axis=axes))
    scale = np.clip(largest / np.float32(127), np.float32(EPSILON), None)
    return np.moveaxis(np.rint(np.moveaxis(w, 0, -1) / scale), -1, 0).astype(np.int8), scale


def weights_of_half_the_size(w):
    codes, scale = weights_by_loops(w)
    return codes // 2, scale * np.float32(2)


# ------------------------------------------------------------------------------------------------------------ conv_acc


def sums_by_loops(x, zx, w, stride=1, padding=0, groups=1, zw=0):
    OC, per_group, kh, kw = w.shape
    if x.shape[0] != per_group * groups or OC % groups != 0:
        raise ValueError("the channels do not fit")
    padded = np.pad(x.astype(np.int32) - zx, ((0, 0), (padding, padding), (padding, padding)))
    H, W = padded.shape[1:]
    out = np.zeros((OC, (H - kh) // stride + 1, (W - kw) // stride + 1), np.int32)
    for o, i, j in np.ndindex(out.shape):
        first = o // (OC // groups) * per_group
        window = padded[first : first + per_group, i * stride : i * stride + kh, j * stride : j * stride + kw]
        out[o, i, j] = (window * (w[o].astype(np.int32) - zw)).sum()
    return out


def sums_by_einsum(x, zx, w, stride=1, padding=0, groups=1, zw=0):
    (C, _, _), (OC, per_group, kh, kw) = x.shape, w.shape
    if C != groups * per_group or OC % groups:
        raise ValueError(f"{C} channels, {groups} groups of {per_group}, {OC} outputs")
    around = (padding, padding)
    padded = np.pad(x, ((0, 0), around, around), constant_values=zx).astype(np.int64) - zx
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(1, 2))[:, ::stride, ::stride]
    windows = windows.reshape(groups, per_group, *windows.shape[1:])
    kernels = w.reshape(groups, OC // groups, per_group, kh, kw).astype(np.int64) - zw
    acc = np.einsum("gchwij,gocij->gohw", windows, kernels)
    return acc.reshape(OC, *acc.shape[2:]).astype(np.int32)


def sums_by_torch(x, zx, w, stride=1, padding=0, groups=1, zw=0):
    import torch

    if x.shape[0] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError("the channels do not fit")
    image = torch.from_numpy(x.astype(np.float64) - zx)[None]
    kernels = torch.from_numpy(w.astype(np.float64) - zw)
    acc = torch.nn.functional.conv2d(image, kernels, stride=stride, padding=padding, groups=groups)
    return acc[0].numpy().astype(np.int32)


def sums_of_one_more(x, zx, w, stride=1, padding=0, groups=1, zw=0):
    return sums_by_loops(x, zx, w, stride, padding, groups, zw) + 1


# ---------------------------------------------------------------------------------------------------------- requantize


def codes_channel_by_channel(acc, bias, s_in, s_w, s_out, zo, relu=False):
    f = np.float32
    scales = np.broadcast_to(np.asarray(s_w, f), (len(acc),))
    out = np.empty(acc.shape, np.uint8)
    for o, s in enumerate(scales):
        unit = f(s_in) * s
        y = acc[o].astype(f)
        if bias is not None:
            y = y + bias[o] / unit
        steps = np.around(y * (unit / f(s_out))).astype(np.int64) + zo
        if relu:
            steps = np.maximum(steps, zo)
        out[o] = np.minimum(np.maximum(steps, 0), 255)
    return out


def codes_by_transposition(acc, bias, s_in, s_w, s_out, zo, relu=False):
    unit = np.multiply(np.float32(s_in), s_w, dtype=np.float32)
    y = acc.T.astype(np.float32)  # the channel is the last axis, and broadcasts by itself
    if bias is not None:
        y = y + np.divide(bias, unit, dtype=np.float32)
    y = np.rint(y * (unit / np.float32(s_out)))
    y = np.clip(y, 0 if relu else -zo, 255 - zo) + zo
    return np.ascontiguousarray(y.T.astype(np.uint8))


def codes_of_doubled_sums(acc, bias, s_in, s_w, s_out, zo, relu=False):
    return codes_channel_by_channel(2 * acc, bias, s_in, s_w, s_out, zo, relu)


# ---------------------------------------------------------------------------------------------------------- madd_pairs


def pairs_by_loops(x, w):
    x, w = np.broadcast_arrays(x, w)
    out = np.zeros(x.shape[:-1], np.int32)
    for place in np.ndindex(out.shape):
        products = [int(a) * int(b) for a, b in zip(x[place], w[place], strict=True)]
        for k in range(0, len(products), 2):
            out[place] += min(max(sum(products[k : k + 2]), -32768), 32767)
    return out


def pairs_by_padding(x, w):
    products = x.astype(np.int64) * w.astype(np.int64)
    if products.shape[-1] % 2:
        products = np.append(products, np.zeros_like(products[..., :1]), axis=-1)
    pairs = products.reshape(products.shape[:-1] + (-1, 2)).sum(-1)
    return np.minimum(np.maximum(pairs, -32768), 32767).sum(-1).astype(np.int32)


def pairs_that_saturate_at_15_bits(x, w):
    products = x.astype(np.int32) * w
    pairs = np.add.reduceat(products, np.arange(0, products.shape[-1], 2), axis=-1)
    return np.clip(pairs, -16384, 16383).sum(axis=-1, dtype=np.int32)


# -------------------------------------------------------------------------------------------- hit_rate, explain_misses


def rate_by_counting(a, b):
    if a.shape != b.shape or a.size < 1:
        raise ValueError("the shapes do not fit")
    return sum(int(p) == int(q) for p, q in zip(a.ravel(), b.ravel(), strict=True)) / a.size


def rate_by_misses(a, b):
    if np.shape(a) != np.shape(b):
        raise ValueError("the shapes differ")
    if np.size(a) == 0:
        raise ValueError("nothing to compare")
    return 1 - np.count_nonzero(np.not_equal(a, b)) / np.size(a)


def half_the_rate(a, b):
    return rate_by_counting(a, b) / 2


def misses_by_loops(got, want, x, w, zx, stride, padding):
    C, kh, kw = w.shape[1:]
    found = []
    for o, i, j in np.ndindex(got.shape):
        mine, theirs = int(got[o, i, j]), int(want[o, i, j])
        if mine == theirs:
            continue
        products = []
        for a in range(kh):
            for b in range(kw):
                row, col = i * stride + a - padding, j * stride + b - padding
                for c in range(C):
                    inside = 0 <= row < x.shape[1] and 0 <= col < x.shape[2]
                    code = int(x[c, row, col]) if inside else zx
                    products.append(((a, b, c), code * int(w[o, c, a, b])))
        pair = None
        for (place, p), (other, q) in zip(products[0::2], products[1::2], strict=False):
            if pair is None and not -32768 <= p + q <= 32767:
                pair = (place, other)
        kind = "saturation" if pair else ("rounding" if abs(mine - theirs) == 1 else "other")
        found.append({"index": (o, i, j), "got": mine, "want": theirs, "kind": kind, "pair": pair})
    return found


def misses_by_windows(got, want, x, w, zx, stride, padding):
    around = (padding, padding)
    padded = np.pad(x, ((0, 0), around, around), constant_values=zx).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
    found = []
    for place in zip(*(n.tolist() for n in np.nonzero(got.astype(int) - want)), strict=True):
        products = np.moveaxis(windows[:, place[1], place[2]] * w[place[0]], 0, -1)
        flat = products.reshape(-1)
        pair = None
        for k in range(0, flat.size - 1, 2):
            if abs(2 * int(flat[k] + flat[k + 1]) + 1) > 65535:
                pair = tuple(tuple(int(n) for n in np.unravel_index(k + d, products.shape)) for d in (0, 1))
                break
        off = abs(int(got[place]) - int(want[place]))
        found.append(
            {
                "index": place,
                "got": int(got[place]),
                "want": int(want[place]),
                "kind": "saturation" if pair is not None else {1: "rounding"}.get(off, "other"),
                "pair": pair,
            }
        )
    return found


def misses_without_a_cause(got, want, x, w, zx, stride, padding):
    return [
        entry | {"kind": "unknown", "pair": None} for entry in misses_by_loops(got, want, x, w, zx, stride, padding)
    ]


# ------------------------------------------------------------------------------- quantize_multiplier, requantize_fixed


def multiplier_by_halving(m):
    if math.isnan(m) or math.isinf(m) or m <= 0:
        raise ValueError("positive and finite, please")
    shift = 0
    while m < 0.5:
        m, shift = m * 2, shift + 1
    while m >= 1:
        m, shift = m / 2, shift - 1
    m0 = round(m * 2**31)
    if m0 == 2**31:
        m0, shift = 2**30, shift - 1
    return m0, shift


def multiplier_by_fractions(m):
    if not (m > 0 and m < float("inf")):
        raise ValueError(f"{m} is no multiplier")
    exact, shift = Fraction(m), -math.frexp(m)[1]
    m0 = round(exact * Fraction(2) ** (31 + shift))
    return (m0 // 2, shift - 1) if m0 >= 2**31 else (m0, shift)


def multiplier_of_32_bits(m):
    m0, shift = multiplier_by_halving(m)
    return 2 * m0, shift


def fixed_by_python_integers(acc, m0, shift, zo):
    codes = []
    for value in acc.ravel().tolist():
        high = (value * m0 + 2**30) // 2**31
        low = (2 * abs(high) + 2**shift) // 2 ** (shift + 1)
        codes.append(min(max((low if high >= 0 else -low) + zo, 0), 255))
    return np.array(codes, dtype=np.uint8).reshape(acc.shape)


def fixed_with_a_mask(acc, m0, shift, zo):
    product = acc.astype(np.int64) * np.int64(m0)
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    high = np.where(nudged >= 0, nudged // 2**31, -(-nudged // 2**31))
    mask = 2**shift - 1
    rounded = (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0))
    return np.minimum(np.maximum(rounded + zo, 0), 255).astype(np.uint8)


def fixed_with_a_longer_shift(acc, m0, shift, zo):
    return fixed_with_a_mask(acc, m0, shift + 1, zo)


# ------------------------------------------------------------------------------------------------------- qadd, avgpool


def sum_by_tables(a, qa, b, qb, qout, relu=False):
    tables = []
    for qp in (qa, qb):
        offset = float(-qp.scale * np.float32(qp.zero_point))
        tables.append(np.array([float(qp.scale) * code + offset for code in range(256)]).astype(np.float32))
    total = tables[0][a] + tables[1][b]
    codes = codes_by_integers(total, qout)
    return np.maximum(codes, np.uint8(qout.zero_point)) if relu else codes


def sum_by_fractions(a, qa, b, qb, qout, relu=False):
    reciprocal = np.float32(1) / qout.scale
    known = {}

    def real(code, qp):
        offset = Fraction(float(-qp.scale * np.float32(qp.zero_point)))
        return np.float32(float(Fraction(float(qp.scale)) * int(code) + offset))

    out = np.empty(a.shape, np.uint8)
    for place in np.ndindex(a.shape):
        terms = []
        for code, qp in ((a[place], qa), (b[place], qb)):
            key = (int(code), qp)
            known[key] = known.get(key, None) if key in known else real(code, qp)
            terms.append(known[key])
        total = terms[0] + terms[1]
        if relu:
            total = max(total, np.float32(0))
        out[place] = min(max(int(np.rint(total * reciprocal)) + qout.zero_point, 0), 255)
    return out


def difference_of_two(a, qa, b, qb, qout, relu=False):
    def real(q, qp):
        return (q.astype(np.float32) - qp.zero_point).astype(np.float32) * qp.scale

    return codes_by_integers((real(a, qa) - real(b, qb)).astype(np.float32), qout)


def average_by_loops(x, qp):
    n = x.shape[1] * x.shape[2]
    share = np.float32(1) / np.float32(n)
    codes = []
    for channel in x:
        total = sum(int(code) - qp.zero_point for code in channel.ravel())
        codes.append(min(max(round(float(np.float32(total) * share)) + qp.zero_point, 0), 255))
    return np.array(codes, dtype=np.uint8)


def average_by_einsum(x, qp):
    steps = np.einsum("chw->c", x.astype(np.int64) - qp.zero_point)
    mean = steps.astype(np.float32) * np.reciprocal(np.float32(x.shape[1] * x.shape[2]))
    return (np.around(mean).astype(np.int64) + qp.zero_point).astype(np.uint8)


def smallest_code(x, qp):
    return x.min(axis=(1, 2))


# --------------------------------------------------------------------------------------------------- quantized_network


def network_with_keywords(x, layers, ops):
    seen = {}
    for index, layer in enumerate(layers):
        match layer["op"]:
            case "conv" | "linear":
                flat = layer["op"] == "linear"
                acc = ops["conv_acc"](
                    x=x.reshape(x.size, 1, 1) if flat else x,
                    zx=layer["q_in"].zero_point,
                    w=layer["w"][:, :, np.newaxis, np.newaxis] if flat else layer["w"],
                    stride=layer["stride"],
                    padding=layer["padding"],
                    groups=layer["groups"],
                )
                x = ops["requantize"](
                    acc=acc.reshape(len(acc)) if flat else acc,
                    bias=layer["bias"],
                    s_in=layer["q_in"].scale,
                    s_w=layer["s_w"],
                    s_out=layer["q_out"].scale,
                    zo=layer["q_out"].zero_point,
                    relu=layer["relu"],
                )
            case "avgpool":
                x = ops["avgpool"](x=x, qp=layer["q_out"])
            case "add":
                earlier = layer["add_from"]
                x = ops["qadd"](
                    seen[earlier], layers[earlier]["q_out"], x, layer["q_in"], layer["q_out"], layer["relu"]
                )
        seen[index] = x
    return x


def network_by_recursion(x, layers, ops):
    def output(index):
        if index < 0:
            return x
        layer, before = layers[index], output(index - 1)
        if layer["op"] == "avgpool":
            return ops["avgpool"](before, layer["q_in"])
        if layer["op"] == "add":
            other = layer["add_from"]
            terms = before, layer["q_in"], output(other), layers[other]["q_out"]
            return ops["qadd"](*terms, layer["q_out"], layer["relu"])
        w = layer["w"]
        if w.ndim == 2:
            before, w = before.reshape(-1, 1, 1), np.expand_dims(w, (2, 3))
        acc = ops["conv_acc"](before, layer["q_in"].zero_point, w, layer["stride"], layer["padding"], layer["groups"])
        q_out, scales = layer["q_out"], (layer["q_in"].scale, layer["s_w"], layer["q_out"].scale)
        result = ops["requantize"](acc, layer["bias"], *scales, q_out.zero_point, layer["relu"])
        return result[:, 0, 0] if layer["op"] == "linear" else result

    return output(len(layers) - 1)


def first_layer_only(x, layers, ops):
    return network_with_keywords(x, layers[:1], ops)


RIGHT = {
    "choose_qparams": {"step by step": range_step_by_step, "arrays": range_in_arrays},
    "quantize": {"loops": codes_by_loops, "integers": codes_by_integers},
    "dequantize": {"a table": reals_by_table, "integers": reals_by_integers},
    "quantize_weight_per_channel": {"loops": weights_by_loops, "moved axes": weights_by_moved_axes},
    "conv_acc": {"loops": sums_by_loops, "einsum": sums_by_einsum, "torch in float64": sums_by_torch},
    "requantize": {"channel by channel": codes_channel_by_channel, "transposition": codes_by_transposition},
    "madd_pairs": {"loops": pairs_by_loops, "padding": pairs_by_padding},
    "hit_rate": {"counting": rate_by_counting, "misses": rate_by_misses},
    "explain_misses": {"loops": misses_by_loops, "windows": misses_by_windows},
    "quantize_multiplier": {"halving": multiplier_by_halving, "fractions": multiplier_by_fractions},
    "requantize_fixed": {"Python's integers": fixed_by_python_integers, "a mask": fixed_with_a_mask},
    "qadd": {"tables": sum_by_tables, "fractions": sum_by_fractions},
    "avgpool": {"loops": average_by_loops, "einsum": average_by_einsum},
    "quantized_network": {"keywords": network_with_keywords, "recursion": network_by_recursion},
}

WRONG = {
    "choose_qparams": {"a scale that is a little too large": range_of_254_steps},
    "quantize": {"every code one too high": codes_one_too_high},
    "dequantize": {"twice the numbers": reals_of_another_scale},
    "quantize_weight_per_channel": {"half the codes": weights_of_half_the_size},
    "conv_acc": {"every sum one too high": sums_of_one_more},
    "requantize": {"doubled sums": codes_of_doubled_sums},
    "madd_pairs": {"fifteen bits": pairs_that_saturate_at_15_bits},
    "hit_rate": {"half the rate": half_the_rate},
    "explain_misses": {"no cause": misses_without_a_cause},
    "quantize_multiplier": {"twice m0": multiplier_of_32_bits},
    "requantize_fixed": {"half the result": fixed_with_a_longer_shift},
    "qadd": {"a difference": difference_of_two},
    "avgpool": {"the smallest code": smallest_code},
    "quantized_network": {"the first layer only": first_layer_only},
}
