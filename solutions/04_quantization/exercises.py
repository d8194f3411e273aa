"""The exercises of chapter 4: cases, known mistakes, hidden cases.

Hidden cases hold the fixtures F1 to F8 of `freeze.py` as well; each of them shows wrong variants that the others hide.
Most mistakes check their arguments as they should, so that each shows one thing only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy import float32, int8, int32, uint8

from underhood import Build, Case, Exercise, Learner, Mistake, data
from underhood.quantization import QParams, load_layers

FIXTURES = Path(__file__).resolve().parent / "frozen" / "fixtures.npz"
EPSILON = np.finfo(float32).eps


def Q(scale, zero_point):  # noqa: N802 - stands for the class of the same letter
    """Quantization parameters as a case's input."""
    return Build("quantization.qparams", scale=float(scale), zero_point=int(zero_point))


def fixtures():
    """Name → the frozen arrays of a fixture, its geometry as numbers."""
    with np.load(FIXTURES) as stored:
        found = {}
        for key in stored.files:
            name, field = key.split(".")
            found.setdefault(name, {"bias": None})[field] = stored[key]
    for fixture in found.values():
        fields = ("stride", "padding", "groups", "relu", "zw")
        fixture.update(zip(fields, map(int, fixture.pop("geometry")), strict=True))
    return found


def wrapped(x):
    """Codes as uint8 keeps them: modulo 256."""
    return (np.asarray(x).astype(np.int64) % 256).astype(uint8)


def half_away(x):
    """Round to the nearest integer, halves away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + x.dtype.type(0.5))


# ------------------------------------------------------------------------------------------------------ choose_qparams


def random_ranges(rng):
    """Ranges with and without zero, tiny ones, and what is no range."""
    for _ in range(3):
        low, high = -float(rng.uniform(0.1, 9)), float(rng.uniform(0.1, 9))
        yield Case("a range on both sides of zero", "values", (low, high))
        yield Case("a positive range", "ranges without zero", (high, 2 * high))
        yield Case("a negative range", "ranges without zero", (2 * low, low))
        yield Case("a range far from zero", "ranges without zero", (high + 90, high + 100))
        yield Case("a symmetric range", "float32", (-high, high))
        yield Case("a range below epsilon", "float32", (low * 1e-6, high * 1e-6))
    n = 2 * int(rng.integers(3, 100))
    yield Case(f"from {-n - 0.5} to {254.5 - n}: half a step", "values", (-n - 0.5, 254.5 - n))
    yield Case("the ends exchanged", "errors", (high, low), raises=ValueError)
    yield Case("an infinite end", "errors", (-np.inf, high), raises=ValueError)
    yield Case("nan", "errors", (low, np.nan), raises=ValueError)
    yield Case("one value: allowed", "errors", (high, high))
    yield Case("one value below zero: allowed", "errors", (low, low))


def ranged(
    widen=True,
    dtype=float32,
    zero=lambda low, high, s: -np.rint(low / s),
    steps=255,
    floor=EPSILON,
    check=True,
    span=lambda low, high: high - low,
):
    """A right answer, but for what is given."""

    def choose_qparams(mn, mx):
        low, high = dtype(mn), dtype(mx)
        if check and not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise ValueError("no range")
        if widen:
            low, high = min(low, dtype(0)), max(high, dtype(0))
        scale = max(span(low, high) / dtype(steps), dtype(floor))
        return QParams(scale, np.clip(np.nan_to_num(zero(low, high, scale)), 0, 255))

    return choose_qparams


CHOOSE_QPARAMS = Exercise(
    name="choose_qparams",
    title="a range becomes 256 codes",
    level="medium",
    minutes=10,
    parts=("values", "ranges without zero", "float32", "errors"),
    probe="quantization.parameters",
    tolerance=0.0,
    cases=(
        Case("from -1 to 2", "values", (-1.0, 2.0), expected={"scale": 0.0117647061124444, "zero_point": 85}),
        Case(
            "the range of a normalized picture: the zero point is 113.509 before rounding",
            "values",
            (-2.1179, 2.64),
            expected={"scale": 0.018658433109521866, "zero_point": 114},
        ),
        Case("from -3 to 5", "values", (-3.0, 5.0), expected={"scale": 0.0313725508749485, "zero_point": 96}),
        Case(
            "the zero point is 2.5 before rounding", "values", (-2.5, 252.5), expected={"scale": 1.0, "zero_point": 2}
        ),
        Case(
            "all positive", "ranges without zero", (0.5, 3.0), expected={"scale": 0.0117647061124444, "zero_point": 0}
        ),
        Case(
            "all negative",
            "ranges without zero",
            (-3.0, -1.0),
            expected={"scale": 0.0117647061124444, "zero_point": 255},
        ),
        Case(
            "from 1.1 to 2",
            "ranges without zero",
            (1.1, 2.0),
            expected={"scale": 0.007843137718737125, "zero_point": 0},
        ),
        Case(
            "from -1 to 1: in float32 the zero point is a little below 127.5",
            "float32",
            (-1.0, 1.0),
            expected={"scale": 0.007843137718737125, "zero_point": 127},
        ),
        Case(
            "from -0.1 to 0.6: the difference of the two float32 numbers, not that of the float64 ones",
            "float32",
            (-0.1, 0.6),
            expected={"scale": 0.002745098201557994, "zero_point": 36},
        ),
        Case("nothing but zeros", "float32", (0.0, 0.0), expected={"scale": 1.1920928955078125e-07, "zero_point": 0}),
        Case(
            "a range below epsilon",
            "float32",
            (-1e-6, 1e-6),
            expected={"scale": 1.1920928955078125e-07, "zero_point": 8},
        ),
        Case("from 2 down to -1", "errors", (2.0, -1.0), raises=ValueError),
        Case("up to infinity", "errors", (0.0, np.inf), raises=ValueError),
        Case("from nan", "errors", (np.nan, 1.0), raises=ValueError),
        Case("one value only", "errors", (1.5, 1.5), expected={"scale": 0.0058823530562222, "zero_point": 0}),
    ),
    hidden=random_ranges,
    mistakes=(
        Mistake(
            "cutting the fraction off the zero point",
            ranged(zero=lambda low, high, s: int(-low / s)),
            hint="int() and .astype(int) drop the fraction. The nearest code to 113.509 is another one.",
        ),
        Mistake(
            "rounding half a step of the zero point up",
            ranged(zero=lambda low, high, s: np.floor(-low / s + float32(0.5))),
            hint="2.5 is as near to 2 as to 3. Which of the two does np.round give, and so torch?",
        ),
        Mistake(
            "a range that does not hold zero",
            ranged(widen=False),
            hint="Which real number has to have a code of its own, because padding and ReLU give it?",
        ),
        Mistake(
            "computing in float64",
            ranged(dtype=np.float64),
            hint="The kernel's numbers are float32. Convert both ends first, and look at the range from -1 to 1.",
        ),
        Mistake(
            "dividing by 256 steps",
            ranged(steps=256),
            hint="256 codes have how many gaps between them?",
        ),
        Mistake(
            "forgetting the minus sign of the zero point",
            ranged(zero=lambda low, high, s: np.rint(low / s)),
            hint="A code counts steps up from the smallest value. How many steps is it from mn up to 0?",
        ),
        Mistake(
            "counting the zero point from the upper end",
            ranged(zero=lambda low, high, s: np.rint(high / s)),
            hint="Code 0 is the lower end, code 255 the upper one. From which end is the zero point counted?",
        ),
        Mistake(
            "a symmetric range",
            ranged(span=lambda low, high: 2 * max(-low, high), zero=lambda low, high, s: 128),
            hint="That is the scheme of weights. For activations the range ends where the values end.",
        ),
        Mistake(
            "no floor for the scale",
            ranged(floor=0),
            hint="A range of zero length gives a scale of 0, and a division by it. What is the smallest scale?",
        ),
        Mistake(
            "rounding the zero point up",
            ranged(zero=lambda low, high, s: np.ceil(-low / s)),
            hint="ceil goes up from 95.1 as well. Which of the two neighbors is nearer?",
        ),
        Mistake(
            "taking any two numbers",
            ranged(check=False),
            hint="A range runs from a finite number to another that is not smaller. Look before you compute.",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------ quantize, dequantize


def random_reals(rng):
    """Real numbers of several shapes, exact halves with odd zero points, numbers far outside."""
    for shape in ((9,), (3, 4), (2, 3, 2)):
        scale, zero_point = float(float32(rng.uniform(0.01, 0.2))), int(rng.integers(20, 230))
        x = (rng.uniform(-0.2, 1.2, shape) * 255 - zero_point).astype(float32) * float32(scale)
        yield Case(f"random numbers, {len(shape)} axes", "values", (x, Q(scale, zero_point)))
    for zero_point in (int(n) for n in 2 * rng.integers(10, 100, 3) + 1):
        halves = (rng.integers(-9, 9, 12) + 0.5).astype(float32)
        yield Case("exact halves, odd zero point", "halves", (halves, Q(1, zero_point)))
        yield Case("exact halves of a step of 1/4", "halves", (halves / 4, Q(0.25, zero_point)))
    far = (rng.normal(size=8) * 1000).astype(float32)
    yield Case("numbers far outside", "clamp", (far, Q(0.5, int(rng.integers(1, 255)))))
    wide = (rng.uniform(1, 2, 8) * [4e4, -4e4, 3e9, -3e9, 5e4, -5e4, 6e9, -6e9]).astype(float32)
    yield Case("steps that no int16 and no int32 holds", "clamp", (wide, Q(1, int(rng.integers(1, 255)))))
    scales = (2 / np.arange(101, 255, 2)).astype(float32)  # here x / s and x * (1 / s) part company at some halves
    for scale in rng.choice(scales, 6):
        halves = ((np.arange(3, 60) + 0.5) * np.float64(scale)).astype(float32)
        yield Case("numbers next to half a step", "reciprocal", (halves, Q(scale, 4)))


def codes_of(
    steps=lambda x, s: x * (float32(1) / s),
    round_=np.rint,
    shift=lambda n, z: n + z,
    first=lambda n, z: n,
    cast=lambda y: np.clip(y, 0, 255).astype(uint8),
):
    """A right answer, but for what is given. `first` is applied between the division and the rounding."""

    def quantize(x, qp):
        return cast(shift(round_(first(steps(x, qp.scale), qp.zero_point)), qp.zero_point))

    return quantize


QUANTIZE = Exercise(
    name="quantize",
    title="to codes and back",
    level="medium",
    minutes=8,
    parts=("values", "halves", "clamp", "reciprocal"),
    cases=(
        Case(
            "steps of one half",
            "values",
            (float32([-1.0, 0.0, 0.6, 1.3, 2.8]), Q(0.5, 10)),
            expected=uint8([8, 10, 11, 13, 16]),
        ),
        Case(
            "two axes",
            "values",
            (float32([[-0.3, -0.12], [0.07, 0.21]]), Q(0.1, 128)),
            expected=uint8([[125, 127], [129, 130]]),
        ),
        Case(
            "halves and an odd zero point",
            "halves",
            (float32([0.5, 1.5, 2.5, 3.5]), Q(1, 1)),
            expected=uint8([1, 3, 3, 5]),
        ),
        Case(
            "halves on both sides of zero",
            "halves",
            (float32([0.5, 1.5, 2.5, -0.5, -1.5, 6.5]), Q(1, 10)),
            expected=uint8([10, 12, 12, 10, 8, 16]),
        ),
        Case(
            "both ends",
            "clamp",
            (float32([-1.15, -0.23, 24.22, 24.5, 99, -99]), Q(0.1, 11)),
            expected=uint8([0, 9, 253, 255, 255, 0]),
        ),
        Case(
            "0.273939937 / 0.00214854861 is a little below 127.5, its product with the reciprocal is not",
            "reciprocal",
            (float32([0.273939937]), Q(float32(0.00214854861), 0)),
            expected=uint8([128]),
        ),
    ),
    hidden=random_reals,
    mistakes=(
        Mistake(
            "cutting off the fraction",
            codes_of(round_=np.trunc),
            hint="astype drops the fraction, so 1.2 and 1.8 become 1. Which function gives the nearest integer?",
        ),
        Mistake(
            "rounding halves up",
            codes_of(round_=lambda n: np.floor(n + float32(0.5))),
            hint="floor(n + 0.5) sends 0.5 and 2.5 up. The kernel rounds halves to the even neighbor.",
        ),
        Mistake(
            "rounding halves away from zero",
            codes_of(round_=half_away),
            hint="That is the rule of school and of C's round. The kernel rounds halves to the even neighbor.",
        ),
        Mistake(
            "adding the zero point before rounding",
            codes_of(first=lambda n, z: n + float32(z), shift=lambda n, z: n),
            hint="An odd zero point makes even neighbors odd. In which order do rounding and adding go?",
        ),
        Mistake(
            "dividing by the scale",
            codes_of(steps=lambda x, s: x / s),
            hint="On paper it is the same. The kernel computes 1 / scale once, in float32, and multiplies.",
        ),
        Mistake(
            "codes that wrap around instead of stopping at the ends",
            codes_of(cast=wrapped),
            hint="256 as uint8 is 0. Which function keeps numbers between two ends?",
        ),
        Mistake(
            "clamping before the zero point is added",
            codes_of(shift=lambda n, z: np.clip(n, 0, 255) + z),
            hint="Steps below zero are as good as those above, until the zero point lifts them.",
        ),
        Mistake(
            "leaving out the zero point",
            codes_of(shift=lambda n, z: n),
            hint="Which code stands for 0.0?",
        ),
        Mistake(
            "clamping to the range of int8",
            codes_of(cast=lambda y: np.clip(y, -128, 127).astype(int8)),
            hint="Activations are uint8: which is their smallest and largest code?",
        ),
        Mistake(
            "multiplying by the scale",
            codes_of(steps=lambda x, s: x * s),
            hint="The scale is the size of one step. How many steps of 0.5 fit into 2.8?",
        ),
    ),
)


def random_codes(rng):
    """Random codes of several shapes, all 256 of them, codes below the zero point."""
    for shape in ((7,), (2, 5)):
        q = rng.integers(60, 256, shape).astype(uint8)
        yield Case(f"random codes, {len(shape)} axes", "values", (q, Q(rng.uniform(0.01, 0.2), rng.integers(10, 50))))
    low = rng.integers(0, 100, 9).astype(uint8)
    yield Case("codes below the zero point", "codes below the zero point", (low, Q(0.03, rng.integers(101, 256))))
    every = np.arange(256).astype(uint8)
    yield Case("every code", "codes below the zero point", (every, Q(rng.uniform(0.01, 0.2), rng.integers(1, 255))))


DEQUANTIZE = Exercise(
    name="dequantize",
    title="to codes and back",
    level="easy",
    minutes=4,
    parts=("values", "codes below the zero point", "inputs untouched"),
    second_of_card=True,
    tolerance=1e-5,  # scale * code - scale * zero_point is as right, and rounds twice
    cases=(
        Case(
            "codes from the zero point up",
            "values",
            (uint8([11, 13, 255]), Q(0.5, 11)),
            expected=float32([0.0, 1.0, 122.0]),
        ),
        Case(
            "two axes", "values", (uint8([[4, 5], [6, 200]]), Q(0.25, 4)), expected=float32([[0.0, 0.25], [0.5, 49.0]])
        ),
        Case(
            "codes on both sides",
            "codes below the zero point",
            (uint8([0, 9, 11, 255]), Q(0.1, 11)),
            expected=float32([-1.1, -0.2, 0.0, 24.4]),
        ),
        Case(
            "zero point 255",
            "codes below the zero point",
            (uint8([0, 254, 255]), Q(0.5, 255)),
            expected=float32([-127.5, -0.5, 0.0]),
        ),
    ),
    hidden=random_codes,
    mistakes=(
        Mistake(
            "subtracting in uint8",
            lambda q, qp: (q - uint8(qp.zero_point)).astype(float32) * qp.scale,
            hint="uint8 has no numbers below 0: 9 - 11 wraps around to 254. Convert first, then subtract.",
        ),
        Mistake(
            "subtracting in int8",
            lambda q, qp: (q.astype(int8) - np.array(qp.zero_point).astype(int8)).astype(float32) * qp.scale,
            hint="int8 ends at 127. Which type holds every difference of two codes?",
        ),
        Mistake(
            "subtracting the zero point from the real number",
            lambda q, qp: q.astype(float32) * qp.scale - float32(qp.zero_point),
            hint="The zero point is a code. Subtract it while you still have codes.",
        ),
        Mistake(
            "leaving out the zero point",
            lambda q, qp: q.astype(float32) * qp.scale,
            hint="Which code stands for 0.0?",
        ),
        Mistake(
            "returning float64",
            lambda q, qp: (q.astype(np.float64) - qp.zero_point) * np.float64(qp.scale),
            hint="The numbers are right, their type is not: networks compute in float32.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------- quantize_weight_per_channel


def random_weights(rng):
    """Channels of unlike size, in two to five axes; channels of zeros; halves where division and reciprocal differ."""
    for shape in ((4, 3), (3, 5), (3, 3)):
        w = (rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 1, (shape[0], 1))).astype(float32)
        yield Case(f"random weights, {shape[0]} by {shape[1]}", "values", (w,))
    for shape in ((3, 2, 3, 3), (2, 2, 3), (2, 1, 2, 2, 2)):
        w = (rng.normal(size=shape) * 0.1).astype(float32)
        yield Case(f"random weights, {len(shape)} axes", "any number of axes", (w,))
    w = rng.normal(size=(3, 4)).astype(float32)
    w[1] = 0
    yield Case("a channel of zeros among others", "small channels", (w,))
    yield Case("channels around epsilon", "small channels", ((w * float32(1e-6)),))
    largest = np.arange(1, 400, 2) / 100
    halves = np.stack([largest, largest / 2], axis=1).astype(float32)  # 63.5 steps, more or less
    yield Case("weights next to half a step", "division", (halves[rng.permutation(200)[:150]],))


def coded_weights(
    largest=lambda w: np.abs(w).reshape(len(w), -1).max(axis=1),
    divisor=127,
    floor=EPSILON,
    steps=lambda w, s: np.rint(w / s),
    shape_of_scale=lambda s: s,
    cast=lambda y: np.clip(y, -127, 127).astype(int8),
):
    """A right answer, but for what is given."""

    def quantize_weight_per_channel(w):
        scale = np.maximum(largest(w) / float32(divisor), float32(floor))
        columns = scale.reshape(-1, *[1] * (w.ndim - 1))
        return cast(np.nan_to_num(steps(w, columns))), shape_of_scale(scale)

    return quantize_weight_per_channel


def per_tensor_weights(w):
    scale = np.maximum(np.abs(w).max() / float32(127), EPSILON)
    return np.rint(w / scale).astype(int8), np.full(len(w), scale)


def one_number_as_scale(w):
    scale = np.abs(w).max() / float32(127)
    return np.rint(w / scale).astype(int8), scale


def weights_by_input_channel(w):
    turned, scale = coded_weights()(w.swapaxes(0, 1))
    return turned.swapaxes(0, 1), scale


SMALL_AND_LARGE = float32([[0.5, -1.27, 0.3], [0.02, 0.008, -0.0127]])

QUANTIZE_WEIGHT_PER_CHANNEL = Exercise(
    name="quantize_weight_per_channel",
    title="a scale for each channel",
    level="medium",
    minutes=10,
    parts=("values", "any number of axes", "small channels", "division"),
    tolerance=0.0,
    cases=(
        Case(
            "a large channel and a small one",
            "values",
            (SMALL_AND_LARGE,),
            expected=(int8([[50, -127, 30], [127, 51, -81]]), float32([1.27, 0.02]) / float32(127)),
        ),
        Case(
            "as many rows as columns",
            "values",
            (float32([[1.0, -0.25], [-4.0, 3.0]]),),
            expected=(int8([[127, -32], [-127, 95]]), float32([1, 4]) / float32(127)),
        ),
        Case(
            "kernels of 2 by 2",
            "any number of axes",
            (float32([[[[0.1, -0.2], [0.3, 0.4]]], [[[-5.0, 4.0], [3.0, 2.0]]]]),),
            expected=(
                int8([[[[32, -64], [95, 127]]], [[[-127, 102], [76, 51]]]]),
                float32([0.4, 5]) / float32(127),
            ),
        ),
        Case(
            "a channel of zeros",
            "small channels",
            (float32([[0.0, 0.0], [0.5, -1.0]]),),
            expected=(int8([[0, 0], [64, -127]]), float32([1.1920929e-07, 1 / 127])),
        ),
        Case(
            "weights of a millionth",
            "small channels",
            (float32([[1e-6, -5e-7]]),),
            expected=(int8([[8, -4]]), float32([1.1920929e-07])),
        ),
        Case(
            "0.485 / (0.97 / 127) is 63.5, its product with the reciprocal is a little below",
            "division",
            (float32([[0.97, 0.485]]),),
            expected=(int8([[127, 64]]), float32([0.97]) / float32(127)),
        ),
    ),
    hidden=random_weights,
    mistakes=(
        Mistake(
            "one scale for the whole tensor",
            per_tensor_weights,
            hint="The small channel keeps 2 of its 127 steps. Over which axes is the largest weight looked for?",
        ),
        Mistake(
            "one number as the scale of every channel",
            one_number_as_scale,
            hint="The small channel keeps 2 of its 127 steps. How many scales does a weight of OC channels have?",
        ),
        Mistake(
            "a scale for each input channel",
            weights_by_input_channel,
            hint="Axis 0 is the output channel, axis 1 the input channel. Which of them survives in the scales?",
        ),
        Mistake(
            "the largest weight instead of the largest absolute weight",
            coded_weights(largest=lambda w: w.reshape(len(w), -1).max(axis=1)),
            hint="-1.27 is further from zero than 0.5.",
        ),
        Mistake(
            "dividing by 128",
            coded_weights(divisor=128),
            hint="128 is no int8. A symmetric range ends at the same number on both sides: which?",
        ),
        Mistake(
            "spreading smallest to largest over 255 steps",
            coded_weights(largest=lambda w: np.ptp(w.reshape(len(w), -1), axis=1), divisor=255),
            hint="That is the scheme of activations, and it needs a zero point. Weights use a symmetric range around 0.",
        ),
        Mistake(
            "cutting off the fraction",
            coded_weights(steps=lambda w, s: np.trunc(w / s)),
            hint="astype drops the fraction. Which function gives the nearest integer?",
        ),
        Mistake(
            "no floor for the scale",
            coded_weights(floor=0),
            hint="A channel of zeros has a scale of 0, and 0 / 0 is nan. What is the smallest scale?",
        ),
        Mistake(
            "multiplying by the reciprocal",
            coded_weights(steps=lambda w, s: np.rint(w * (float32(1) / s))),
            hint="quantize multiplies by the reciprocal, as its kernel does. Here the definition divides: look at 63.5 steps.",
        ),
        Mistake(
            "scales that keep the summed axes",
            coded_weights(shape_of_scale=lambda s: s.reshape(-1, 1)),
            hint="The scales should have the shape (OC,). What does keepdims keep?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------ conv_acc


def convolve(
    x,
    zx,
    w,
    stride=1,
    padding=0,
    groups=1,
    zw=0,
    *,
    fill=None,
    real=lambda x, zx: x.astype(np.int64) - zx,
    weights=lambda w, zw: w.astype(np.int64) - zw,
    steps=lambda s: (s, s),
    size=lambda n, k, s, p: (n + 2 * p - k) // s + 1,
    sides=lambda p: (p, p),
    group=lambda o, per_group, outputs: o // outputs * per_group,
    add=lambda products: products.sum(axis=(-3, -2, -1)),
    check=True,
):
    """The exact sums, but for what is given; int32."""
    if check and (len(x) != w.shape[1] * groups or len(w) % groups):
        raise ValueError("channels do not fit")
    w = weights(w, zw)
    (OC, per_group, kh, kw), (down, across) = w.shape, steps(stride)
    Ho, Wo = size(x.shape[1], kh, stride, padding), size(x.shape[2], kw, stride, padding)
    if steps(stride) != (stride, stride):
        Ho, Wo = (x.shape[1] + 2 * padding - kh) // down + 1, (x.shape[2] + 2 * padding - kw) // across + 1
    before, after = sides(padding)
    more = stride * (Ho + Wo) + kh + kw  # rows and columns for sizes that come out too large
    around = (before, after + more)
    x = real(np.pad(x, ((0, 0), around, around), constant_values=zx if fill is None else fill), zx)
    out = np.zeros((OC, Ho, Wo), np.int64)
    for o in range(OC):
        first = group(o, per_group, max(OC // groups, 1))
        windows = np.lib.stride_tricks.sliding_window_view(x[first : first + per_group], (kh, kw), axis=(1, 2))
        windows = windows[:, ::down, ::across][:, :Ho, :Wo].transpose(1, 2, 0, 3, 4)
        out[o] = add(windows * w[o, : windows.shape[2]])
    return out.astype(int32)


def varied(**others):
    """`convolve` with the signature of the exercise."""

    def conv_acc(x, zx, w, stride=1, padding=0, groups=1, zw=0):
        return convolve(x, zx, w, stride, padding, groups, zw, **others)

    return conv_acc


def in_float32(products):
    """The sum of products, each partial sum rounded to float32."""
    flat = products.reshape(*products.shape[:-3], -1).astype(float32)
    return np.add.accumulate(flat, axis=-1)[..., -1]


def random_convolutions(rng):
    """Fixtures of `freeze.py`, then random layers of every kind."""
    for name, part in {
        "F2": "values", "F8": "values", "F1": "stride and padding", "F5": "stride and padding", "F3": "groups",
        "F4": "weights' zero point",
    }.items():  # fmt: skip
        f = fixtures()[name]
        yield Case(
            f"layer {name}: x of {f['x'].shape}, w of {f['w'].shape}",
            part,
            (f["x"], int(f["q_in"][1]), f["w"], f["stride"], f["padding"], f["groups"], f["zw"]),
        )

    def codes(*shape):
        return rng.integers(0, 256, shape).astype(uint8)

    def kernels(*shape):
        return rng.integers(-127, 128, shape).astype(int8)

    zx = int(rng.integers(20, 230))
    yield Case("random codes, oblong kernels", "values", (codes(3, 6, 5), zx, kernels(2, 3, 3, 2)))
    yield Case("random codes, stride 2", "stride and padding", (codes(2, 7, 10), zx, kernels(3, 2, 3, 3), 2, 1))
    yield Case(
        "random codes, stride 3, padding 2", "stride and padding", (codes(2, 8, 5), zx, kernels(2, 2, 5, 5), 3, 2)
    )
    yield Case("random codes, 3 groups", "groups", (codes(6, 4, 4), zx, kernels(9, 2, 3, 3), 1, 1, 3))
    zw = int(rng.integers(1, 9))
    yield Case(
        "random codes and zero points", "weights' zero point", (codes(2, 4, 5), zx, kernels(3, 2, 3, 3), 1, 1, 1, zw)
    )
    yield Case("one channel too many", "errors", (codes(3, 2, 2), zx, kernels(2, 2, 1, 1)), raises=ValueError)
    yield Case(
        "more groups than channels", "errors", (codes(2, 2, 2), zx, kernels(4, 1, 1, 1), 1, 0, 4), raises=ValueError
    )
    yield Case(
        "outputs that no groups divide", "errors", (codes(4, 2, 2), zx, kernels(3, 2, 1, 1), 1, 0, 2), raises=ValueError
    )
    yield Case(
        "one channel that no group takes",
        "errors",
        (codes(5, 2, 2), zx, kernels(4, 2, 1, 1), 1, 0, 2),
        raises=ValueError,
    )
    yield Case("a kernel as large as the image: allowed", "errors", (codes(2, 3, 2), zx, kernels(2, 2, 3, 2)))
    yield Case("one channel in each group: allowed", "errors", (codes(2, 2, 2), zx, kernels(4, 1, 1, 1), 1, 0, 2))


SMALL = uint8([[[10, 20, 30], [40, 50, 60], [70, 80, 255]]])
ONE_TO_NINE = (np.arange(1, 10).reshape(1, 1, 3, 3) - 5).astype(int8)
OBLONG = np.arange(0, 240, 8).reshape(1, 5, 6).astype(uint8)
FOUR = (np.arange(16).reshape(4, 2, 2) * 15 + 7).astype(uint8)
PAIRS = int8([[[[1]], [[2]]], [[[3]], [[-4]]], [[[5]], [[6]]], [[[-7]], [[8]]]])

CONV_ACC = Exercise(
    name="conv_acc",
    title="the integer convolution",
    level="hard",
    minutes=20,
    parts=("values", "stride and padding", "groups", "weights' zero point", "errors"),
    cases=(
        Case(
            "kernels of 2 by 2",
            "values",
            (SMALL, 10, int8([[[[1, 2], [3, -4]]]])),
            expected=int32([[[-50, -30], [10, -630]]]),
        ),
        Case(
            "two channels in, two out, kernels of 1 by 2",
            "values",
            (uint8([[[1, 2, 3]], [[200, 100, 0]]]), 100, int8([[[[1, 0]], [[0, 2]]], [[[0, -3]], [[5, 1]]]])),
            expected=int32([[[-99, -298]], [[794, 191]]]),
        ),
        Case(
            "large products: 255 * 127",
            "values",
            (np.full((2, 2, 2), 255, uint8), 0, np.full((1, 2, 2, 2), 127, int8)),
            expected=int32([[[259080]]]),
        ),
        Case(
            "601 channels: more than float32 can count",
            "values",
            (
                np.concatenate([np.full((600, 1, 1), 255), np.full((1, 1, 1), 1)]).astype(uint8),
                0,
                np.concatenate([np.full((1, 600, 1, 1), 127), np.full((1, 1, 1, 1), 1)], axis=1).astype(int8),
            ),
            expected=int32([[[19431001]]]),
        ),
        Case(
            "padding of 1: the border stands for 0.0",
            "stride and padding",
            (SMALL, 10, ONE_TO_NINE, 1, 1),
            expected=int32([[[260, 400, 220], [480, 1260, 735], [-100, -155, -380]]]),
        ),
        Case(
            "5 by 6, stride 2, padding 1: three by three come out",
            "stride and padding",
            (OBLONG, 100, np.array(ONE_TO_NINE), 2, 1),
            expected=int32([[[-424, -292, -148], [588, 912, 912], [-136, -508, -652]]]),
        ),
        Case(
            "4 by 5 without padding, stride 2",
            "stride and padding",
            (OBLONG[:, :4, :5], 100, ONE_TO_NINE, 2, 0),
            expected=int32([[[912, 912]]]),
        ),
        Case(
            "two groups: two channels in and two out in each",
            "groups",
            (FOUR[:, :1], 50, PAIRS, 1, 0, 2),
            expected=int32([[[-9, 36]], [[-197, -212]], [[1207, 1372]], [[557, 572]]]),
        ),
        Case(
            "depthwise: each channel by itself",
            "groups",
            (FOUR[:2], 50, int8([[[[1, 2], [3, 4]]], [[[-1, 0], [0, 1]]]]), 1, 0, 2),
            expected=int32([[[-130]], [[45]]]),
        ),
        Case(
            "weights with zero point 5, and padding",
            "weights' zero point",
            (SMALL[:, :2, :2], 10, int8([[[[6, 4], [8, 5]]]]), 1, 1, 1, 5),
            expected=int32([[[0, 0, 30], [0, 80, 130], [-30, -10, 40]]]),
        ),
        Case(
            "a weight of -127 with zero point 5: -132 is no int8",
            "weights' zero point",
            (SMALL[:, :1, 1:], 10, int8([[[[-127, 127]]]]), 1, 0, 1, 5),
            expected=int32([[[1120]]]),
        ),
        Case("three channels for kernels of two", "errors", (SMALL.repeat(3, 0), 10, PAIRS), raises=ValueError),
        Case("four channels in one group for kernels of two", "errors", (FOUR, 50, PAIRS), raises=ValueError),
        Case("three outputs in two groups", "errors", (FOUR, 50, PAIRS[:3], 1, 0, 2), raises=ValueError),
        Case(
            "a kernel as large as the image",
            "errors",
            (SMALL, 10, ONE_TO_NINE),
            expected=int32([[[1260]]]),
        ),
    ),
    hidden=random_convolutions,
    mistakes=(
        Mistake(
            "padding with code 0",
            varied(fill=0),
            hint="The border stands for 0.0. Which code stands for 0.0?",
        ),
        Mistake(
            "leaving out the input's zero point",
            varied(real=lambda x, zx: x.astype(np.int64)),
            hint="A code is a number of steps above the zero point, so code zx counts as 0 in the sum.",
        ),
        Mistake(
            "subtracting the zero point in uint8",
            varied(real=lambda x, zx: (x - uint8(zx)).astype(np.int64)),
            hint="uint8 has no numbers below 0: 40 - 100 wraps around to 196. Convert first, then subtract.",
        ),
        Mistake(
            "subtracting the zero point in int8",
            varied(real=lambda x, zx: (x.astype(int8) - np.array(zx).astype(int8)).astype(np.int64)),
            hint="int8 ends at 127, and 255 - 0 becomes -1. Which type holds every difference of two codes?",
        ),
        Mistake(
            "adding up in int16",
            varied(add=lambda products: products.sum(axis=(-3, -2, -1)).astype(np.int16)),
            hint="Two products of 255 * 127 are more than int16 holds. In which type does the sum belong?",
        ),
        Mistake(
            "adding up in float32",
            varied(add=in_float32),
            hint="Above 2**24 = 16777216 float32 skips odd integers. How large can your sums become?",
        ),
        Mistake(
            "flipping the kernel",
            varied(weights=lambda w, zw: w[..., ::-1, ::-1].astype(np.int64) - zw),
            hint="Mathematicians flip the kernel, networks do not: w[o, c, 0, 0] meets the upper left code.",
        ),
        Mistake(
            "exchanging rows and columns of the kernel",
            varied(weights=lambda w, zw: w.swapaxes(2, 3).astype(np.int64) - zw),
            hint="The third axis of w runs down the image, the fourth across. Try a kernel of 1 by 2.",
        ),
        Mistake(
            "striding down but not across",
            varied(steps=lambda s: (s, 1)),
            hint="The stride holds for both axes.",
        ),
        Mistake(
            "H // stride as the output's height",
            varied(size=lambda n, k, s, p: n // s),
            hint="A window of k needs k rows of what there is with padding. How often does it fit in steps of the stride?",
        ),
        Mistake(
            "padding at the right and below only",
            varied(sides=lambda p: (0, 2 * p)),
            hint="With padding 1 the window begins one row above the image and one column left of it.",
        ),
        Mistake(
            "leaving out the weights' zero point",
            varied(weights=lambda w, zw: w.astype(np.int64)),
            hint="The weights are codes too: what is subtracted from them?",
        ),
        Mistake(
            "subtracting the weights' zero point in int8",
            varied(weights=lambda w, zw: (w - np.array(zw).astype(int8)).astype(np.int64)),
            hint="int8 begins at -128: -127 - 5 wraps around to 124. Convert first, then subtract.",
        ),
        Mistake(
            "reading the first group's channels for every output",
            varied(group=lambda o, per_group, outputs: 0),
            hint="Output o belongs to group o // (OC / groups). At which channel does that group begin?",
        ),
        Mistake(
            "taking any number of channels",
            varied(check=False),
            hint="Kernels of two channels in two groups need four. Compare the shapes before you add.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------- requantize


def random_sums(rng):
    """Fixtures of `freeze.py`, then random sums: biases, exact halves, sums that need clamps."""
    for name, part in {"F2": "values", "F8": "values", "F7": "bias", "F4": "bias", "F1": "clamp and ReLU",
                       "F3": "clamp and ReLU", "F5": "clamp and ReLU", "F6": "rounding"}.items():  # fmt: skip
        f = fixtures()[name]
        (s_in, _), (s_out, zo) = f["q_in"], f["q_out"]
        args = (f["acc"], f["bias"], float(s_in), f["s_w"], float(s_out), int(zo), bool(f["relu"]))
        yield Case(f"sums of layer {name}", part, args)

    def scales():
        return float(float32(rng.uniform(0.01, 0.03))), rng.uniform(0.001, 0.006, 3).astype(float32)

    for axes in (1, 2):
        s_in, s_w = scales()
        acc = rng.integers(-60000, 60000, (3, *[4] * axes)).astype(int32)
        yield Case(f"random sums, {axes + 1} axes", "values", (acc, None, s_in, s_w, 0.07, int(rng.integers(40, 200))))
        bias = rng.normal(0, 2, 3).astype(float32)
        yield Case("random sums and biases", "bias", (acc, bias, s_in, s_w, 0.07, int(rng.integers(40, 200))))
    yield Case("one scale for all channels", "values", (acc, None, s_in, float(s_w[0]), 0.05, 99))
    odd = (2 * rng.integers(-40, 40, (2, 9)) + 1).astype(int32)
    yield Case(
        "exact halves, odd zero point",
        "rounding",
        (odd, None, 0.5, float32([1, 1]), 1.0, 2 * int(rng.integers(45, 70)) + 1),
    )
    yield Case(
        "exact halves, even zero point",
        "rounding",
        (odd, None, 0.25, float32([2, 2]), 1.0, 2 * int(rng.integers(45, 70))),
    )
    for relu in (False, True):
        yield Case(
            f"sums far outside, ReLU {relu}",
            "clamp and ReLU",
            (acc * 20, bias, s_in, s_w, 0.05, int(rng.integers(10, 90)), relu),
        )


def column(values, acc):
    """Values by channel, in a shape that broadcasts against acc."""
    return np.asarray(values).reshape(-1, *[1] * (acc.ndim - 1))


def fixed_bias(bias, s_acc):
    """The bias in whole steps of the accumulator, as int32 recipes keep it."""
    return np.rint(bias / s_acc)


def recoded(
    dtype=float32,
    scale=lambda s_w: s_w,
    offset=lambda bias, s_acc, s_out: bias / s_acc,
    late=lambda bias, s_acc, s_out: 0,
    scaled=lambda y, s_acc, s_out: y * (s_acc / s_out),
    round_=np.rint,
    first=lambda y, zo: y,
    then=lambda y, zo: y + zo,
    floor=lambda zo, relu: zo if relu else 0,
    cast=lambda y: np.minimum(y, 255).astype(uint8),
):
    """A right answer, but for what is given. `offset` is added to the sum, `late` to the scaled sum."""

    def requantize(acc, bias, s_in, s_w, s_out, zo, relu=False):
        s_w = scale(np.atleast_1d(np.asarray(s_w, float32))).astype(dtype)
        s_acc = column(dtype(float32(s_in)) * s_w, acc)
        y = acc.astype(dtype)
        s_out = dtype(float32(s_out))
        if bias is not None:
            y = y + offset(column(bias, acc).astype(dtype), s_acc, s_out)
        y = scaled(y, s_acc, s_out)
        if bias is not None:
            y = y + late(column(bias, acc).astype(dtype), s_acc, s_out)
        y = then(round_(first(y, dtype(zo))), dtype(zo))
        return cast(np.maximum(y, floor(zo, relu)))

    return requantize


def relu_before_bias(acc, bias, s_in, s_w, s_out, zo, relu=False):
    return recoded()(np.maximum(acc, 0) if relu else acc, bias, s_in, s_w, s_out, zo)


SUMS = int32([[100, 150, 250, -50, 1000, 30000, -30000]])
HALVES = int32([[-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5]])

REQUANTIZE = Exercise(
    name="requantize",
    title="from sums to codes",
    level="hard",
    minutes=15,
    parts=("values", "bias", "rounding", "clamp and ReLU", "inputs untouched"),
    cases=(
        Case(
            "a multiplier of 0.002",
            "values",
            (int32([[100, 150, 1000, 30000]]), None, 0.02, float32([0.005]), 0.05, 3),
            expected=uint8([[3, 3, 5, 63]]),
        ),
        Case(
            "two channels, two scales",
            "values",
            (int32([[-400, 0, 400], [-400, 0, 400]]), None, 0.5, float32([0.1, 0.01]), 0.25, 128),
            expected=uint8([[48, 128, 208], [120, 128, 136]]),
        ),
        Case(
            "an image of two channels, one scale for both",
            "values",
            (int32([[[10, 20], [30, 40]], [[50, 60], [70, 80]]]), None, 0.5, 0.1, 0.25, 20),
            expected=uint8([[[22, 24], [26, 28]], [[30, 32], [34, 36]]]),
        ),
        Case(
            "a bias of 125 steps of the sum",
            "bias",
            (SUMS, float32([0.0125]), 0.02, float32([0.005]), 0.05, 3),
            expected=uint8([[3, 4, 4, 3, 5, 63, 0]]),
        ),
        Case(
            "biases of -2 and 5",
            "bias",
            (int32([[0, 10], [0, 10]]), float32([-2.0, 5.0]), 0.5, float32([0.1, 0.1]), 0.25, 128),
            expected=uint8([[120, 122], [148, 150]]),
        ),
        Case(
            "a bias that is no whole number of the sum's steps",
            "bias",
            (
                int32([[387951]]),
                float32([0.6979053616523743]),
                0.027358785271644592,
                float32([0.004285051021724939]),
                0.5046871304512024,
                128,
            ),
            expected=uint8([[220]]),
        ),
        Case(
            "halves, odd zero point",
            "rounding",
            (HALVES, None, 0.5, float32([1.0]), 1.0, 11),
            expected=uint8([[9, 9, 9, 10, 11, 11, 11, 12, 13, 13, 13]]),
        ),
        Case(
            "on paper 140.500000 and a little; in float32 exactly 140.5",
            "rounding",
            (
                int32([[273381]]),
                float32([0.18436549603939056]),
                0.03223877400159836,
                float32([0.004089703317731619]),
                2.8983068466186523,
                128,
            ),
            expected=uint8([[140]]),
        ),
        Case(
            "-7.5, where s_in * s_w / s_out is rounded before it multiplies",
            "rounding",
            (int32([[-5000]]), None, 0.035, float32([0.003]), 0.07, 128),
            expected=uint8([[120]]),
        ),
        Case(
            "both ends",
            "clamp and ReLU",
            (int32([[-9000, -300, 0, 300, 9000]]), None, 0.1, float32([0.1]), 0.1, 20),
            expected=uint8([[0, 0, 20, 50, 255]]),
        ),
        Case(
            "ReLU: 0.0 has code 20",
            "clamp and ReLU",
            (int32([[-9000, -50, 0, 300, 9000]]), None, 0.1, float32([0.1]), 0.1, 20, True),
            expected=uint8([[20, 20, 20, 50, 255]]),
        ),
        Case(
            "ReLU, with biases of 30 and -30 steps of the sum",
            "clamp and ReLU",
            (int32([[-10, -50], [10, 100]]), float32([0.3, -0.3]), 0.1, float32([0.1, 0.1]), 0.1, 20, True),
            expected=uint8([[22, 20], [20, 27]]),
        ),
    ),
    hidden=random_sums,
    mistakes=(
        Mistake(
            "one scale for all channels",
            recoded(scale=lambda s_w: np.full_like(s_w, s_w[0])),
            hint="Each output channel has a weight scale of its own. How does a (OC,) array meet an (OC, H, W) one?",
        ),
        Mistake(
            "leaving out the bias",
            recoded(offset=lambda bias, s_acc, s_out: 0),
            hint="The bias is a real number for each channel. In which unit is the sum?",
        ),
        Mistake(
            "adding the bias without dividing by a scale",
            recoded(offset=lambda bias, s_acc, s_out: 0, late=lambda bias, s_acc, s_out: bias),
            hint="Sum and output count steps, the bias is in real units. How many steps is it?",
        ),
        Mistake(
            "a bias in whole steps of the output",
            recoded(offset=lambda bias, s_acc, s_out: 0, late=lambda bias, s_acc, s_out: np.rint(bias / s_out)),
            hint="Round once, at the end. A bias rounded before that loses its fraction.",
        ),
        Mistake(
            "a bias rounded to a whole number of the sum's steps",
            recoded(offset=lambda bias, s_acc, s_out: fixed_bias(bias, s_acc)),
            hint="Other engines keep the bias as int32. This one adds it as a float.",
        ),
        Mistake(
            "cutting off the fraction",
            recoded(round_=np.trunc),
            hint="astype drops the fraction. Which function gives the nearest integer?",
        ),
        Mistake(
            "rounding halves up",
            recoded(round_=lambda y: np.floor(y + y.dtype.type(0.5))),
            hint="floor(y + 0.5) sends 0.5 and 2.5 up. The kernel rounds halves to the even neighbor.",
        ),
        Mistake(
            "rounding halves away from zero",
            recoded(round_=half_away),
            hint="That is the rule of school. The kernel rounds halves to the even neighbor.",
        ),
        Mistake(
            "adding the zero point before rounding",
            recoded(first=lambda y, zo: y + zo, then=lambda y, zo: y),
            hint="An odd zero point makes even neighbors odd. In which order do rounding and adding go?",
        ),
        Mistake(
            "no ReLU, or one that clamps at code 0",
            recoded(floor=lambda zo, relu: 0),
            hint="ReLU lets nothing below 0.0 pass. Which code stands for 0.0 in the output?",
        ),
        Mistake(
            "a ReLU of the sum, before the bias is added",
            relu_before_bias,
            hint="A negative sum may be lifted above 0.0 by its bias. Which of the six steps is the last?",
        ),
        Mistake(
            "a ReLU in every layer",
            recoded(floor=lambda zo, relu: zo),
            hint="Without relu=True, codes below the zero point are as good as those above.",
        ),
        Mistake(
            "no clamp at 255",
            recoded(cast=wrapped),
            hint="The lower end is clamped, and 256 as uint8 is 0. What happens to a very bright output?",
        ),
        Mistake(
            "codes that wrap around at both ends",
            recoded(floor=lambda zo, relu: zo if relu else -np.inf, cast=wrapped),
            hint="256 as uint8 is 0, and -1 is 255. Which function keeps numbers between two ends?",
        ),
        Mistake(
            "leaving out the output's zero point",
            recoded(then=lambda y, zo: y),
            hint="A sum of 0 is the real number 0.0. Which code stands for 0.0 in the output?",
        ),
        Mistake(
            "multiplying by s_in * s_w and dividing by s_out, one after the other",
            recoded(scaled=lambda y, s_acc, s_out: y * s_acc / s_out),
            hint="On paper it is the same. The kernel rounds s_in * s_w / s_out to float32 first and multiplies once.",
        ),
        Mistake(
            "computing in float64",
            recoded(dtype=np.float64),
            hint="More digits, another answer: the kernel's numbers are float32, and so are its roundings.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------- madd_pairs


def random_pairs(rng):
    """Products of every size: cold, hot, of even and odd length, with leading axes."""
    for K in (6, 10):
        x, w = rng.integers(0, 256, (4, K)).astype(uint8), rng.integers(-40, 41, (4, K)).astype(int8)
        yield Case(f"small weights, K = {K}", "values", (x, w))
        hot = rng.choice(int8([-127, -120, 119, 125, 127, 60]), (5, K))
        x = rng.integers(100, 256, (5, K)).astype(uint8)
        yield Case(f"large weights, K = {K}", "saturation", (x, hot))
        yield Case(f"large weights, K = {K - 1}", "odd lengths", (x[:, 1:], hot[:, 1:]))
        yield Case("leading axes that broadcast", "leading axes", (x[:, None], hot[None, :3]))
    yield Case("one product", "odd lengths", (x[:, :1], hot[:, :1]))
    yield Case("three leading axes", "leading axes", (x[:4].reshape(2, 2, 1, -1), hot[:3]))


def paired(
    products=lambda x, w: x.astype(int32) * w.astype(int32),
    order=lambda p: p,
    keep_last=True,
    saturate=lambda pairs: np.clip(pairs, -32768, 32767),
    total=lambda pairs: pairs.sum(axis=-1),
):
    """A right answer, but for what is given."""

    def madd_pairs(x, w):
        p = order(products(x, w))
        if p.shape[-1] % 2:
            p = np.concatenate([p, np.zeros_like(p[..., :1])], axis=-1) if keep_last else p[..., :-1]
        pairs = p.reshape(*p.shape[:-1], p.shape[-1] // 2, 2).sum(axis=-1)
        return np.asarray(total(saturate(pairs))).astype(int32)

    return madd_pairs


def running(pairs):
    """The sum, clamped to 16 bits after every step."""
    total = np.zeros(pairs.shape[:-1], np.int64)
    for k in range(pairs.shape[-1]):
        total = np.clip(total + pairs[..., k], -32768, 32767)
    return total


def far_order(p):
    """Products k and k + K/2 side by side, as splitting a row into halves pairs them."""
    K = p.shape[-1]
    half = (K + 1) // 2
    return p[..., [k // 2 + half * (k % 2) for k in range(K - K % 2)] + ([half - 1] if K % 2 else [])]


MADD_PAIRS = Exercise(
    name="madd_pairs",
    title="sixteen bits for two products",
    level="medium",
    minutes=12,
    parts=("values", "saturation", "odd lengths", "leading axes"),
    cases=(
        Case(
            "pairs far from the ends: 10 - 40 and 90 - 160",
            "values",
            (uint8([[1, 2, 3, 4]]), int8([[10, -20, 30, -40]])),
            expected=int32([-100]),
        ),
        Case(
            "codes above 127",
            "values",
            (uint8([[200, 255, 130, 128]]), int8([[10, 10, -10, 5]])),
            expected=int32([3890]),
        ),
        Case(
            "211·71 + 171·107 = 33278 is too much, 200·(-90) + 180·(-100) = -36000 too little",
            "saturation",
            (uint8([[211, 171, 200, 180]]), int8([[71, 107, -90, -100]])),
            expected=int32([-1]),
        ),
        Case(
            "three pairs of 64770",
            "saturation",
            (np.full((1, 6), 255, uint8), np.full((1, 6), 127, int8)),
            expected=int32([98301]),
        ),
        Case(
            "a pair at the lower end",
            "saturation",
            (uint8([[255, 255, 1, 1]]), int8([[-127, -127, 1, 1]])),
            expected=int32([-32766]),
        ),
        Case(
            "three products: the last stands alone",
            "odd lengths",
            (uint8([[255, 255, 255]]), int8([[127, 127, 127]])),
            expected=int32([65152]),
        ),
        Case("one product", "odd lengths", (uint8([[255]]), int8([[-100]])), expected=int32([-25500])),
        Case(
            "two rows of codes for one row of weights",
            "leading axes",
            (uint8([[255, 255, 0, 0], [0, 255, 255, 0]]), int8([100, 100, 100, 100])),
            expected=int32([32767, 51000]),
        ),
    ),
    hidden=random_pairs,
    mistakes=(
        Mistake(
            "adding exactly",
            paired(saturate=lambda pairs: pairs),
            hint="33278 does not fit into 16 bits. What is kept of a pair's sum?",
        ),
        Mistake(
            "pairing products that lie half a row apart",
            paired(order=far_order),
            hint="The pairs are (0, 1), (2, 3): neighbors in memory.",
        ),
        Mistake(
            "a clamp after every step",
            paired(saturate=lambda pairs: pairs, total=running),
            hint="The pairs are added in 32 bits. Only the sum inside a pair is kept in 16.",
        ),
        Mistake(
            "a clamp of the total",
            paired(saturate=lambda pairs: pairs, total=lambda pairs: np.clip(pairs.sum(axis=-1), -32768, 32767)),
            hint="Three pairs give more than 32767 together, and may. What is clamped before they are added?",
        ),
        Mistake(
            "a sum that wraps around in 16 bits",
            paired(saturate=lambda pairs: pairs.astype(np.int16).astype(int32)),
            hint="The instruction saturates: 33278 becomes 32767, not -32258.",
        ),
        Mistake(
            "dropping the last product of an odd length",
            paired(keep_last=False),
            hint="Three products are one pair and one product. Where did the third go?",
        ),
        Mistake(
            "reading the codes as int8",
            paired(products=lambda x, w: x.astype(int8).astype(int32) * w),
            hint="Codes reach 255. As int8, 200 is -56.",
        ),
        Mistake(
            "a lower end of -32767",
            paired(saturate=lambda pairs: np.clip(pairs, -32767, 32767)),
            hint="The smallest int16 is one further from zero than the largest.",
        ),
    ),
)


# -------------------------------------------------------------------------------------------- hit_rate, explain_misses


def random_likenesses(rng):
    """Codes that are equal at some places only, of several shapes; shapes that differ."""
    for shape in ((12,), (3, 5), (2, 3, 4)):
        a = rng.integers(0, 6, shape).astype(uint8)
        b = np.where(rng.random(shape) < 0.6, a, rng.integers(0, 6, shape)).astype(uint8)
        b.flat[0] = a.flat[0] + 1
        yield Case(f"random codes, {len(shape)} axes", "values", (a, b))
    yield Case("codes against larger integers", "values", (a, a.astype(int32) + (a > 0) * 256))
    yield Case("one place missing", "errors", (a.ravel(), a.ravel()[1:]), raises=ValueError)
    yield Case("another shape of the same size", "errors", (a, a.reshape(4, 6)), raises=ValueError)
    yield Case("one value against many", "errors", (a, a[:1, :1, :1]), raises=ValueError)
    yield Case("nothing", "errors", (a[:0], a[:0]), raises=ValueError)
    yield Case("a single place: allowed", "errors", (a[:1, 0, 0], b[:1, 0, 0]))
    yield Case("no axes at all: allowed", "errors", (np.array(3), np.array(3)))


def rated(rule):
    """The rule, with the checks that it needs."""

    def hit_rate(a, b):
        if a.shape != b.shape or a.size == 0:
            raise ValueError("nothing to compare")
        return rule(a, b)

    return hit_rate


HIT_RATE = Exercise(
    name="hit_rate",
    title="count misses, explain misses",
    level="easy",
    minutes=6,
    parts=("values", "errors"),
    tolerance=1e-6,
    cases=(
        Case("one miss in four", "values", (uint8([1, 2, 3, 4]), uint8([1, 2, 0, 4])), expected=0.75),
        Case("no miss", "values", (uint8([3, 0]), uint8([3, 0])), expected=1.0),
        Case("zeros on both sides", "values", (uint8([1, 2, 0]), uint8([5, 0, 7])), expected=0.0),
        Case("no zeros, no hits", "values", (uint8([1, 2, 3]), uint8([2, 3, 1])), expected=0.0),
        Case("two axes", "values", (uint8([[0, 7], [7, 0]]), uint8([[0, 8], [9, 0]])), expected=0.5),
        Case("0 and 256, which are equal in uint8 only", "values", (uint8([0, 5]), int32([256, 5])), expected=0.5),
        Case("100000 and 100001", "values", (int32([100000, 1]), int32([100001, 1])), expected=0.5),
        Case("four places against two", "errors", (uint8([1, 1, 1, 1]), uint8([1, 1])), raises=ValueError),
        Case("three places against one", "errors", (uint8([1, 1, 1]), uint8([1])), raises=ValueError),
        Case("a row against a column", "errors", (uint8([[1, 1]]), uint8([[1], [1]])), raises=ValueError),
        Case("nothing to compare", "errors", (uint8([]), uint8([])), raises=ValueError),
        Case("a single place", "errors", (uint8([[4]]), uint8([[4]])), expected=1.0),
    ),
    hidden=random_likenesses,
    mistakes=(
        Mistake(
            "a.all() == b.all()",
            rated(lambda a, b: float(a.all() == b.all())),
            hint="a.all() is one yes or no: has a any zero? Two such answers are compared, no codes.",
        ),
        Mistake(
            "the share of misses",
            rated(lambda a, b: float(np.mean(a != b))),
            hint="One miss in four: the rate counts the other three.",
        ),
        Mistake(
            "counting hits without dividing",
            rated(lambda a, b: int(np.sum(a == b))),
            hint="A rate lies between 0 and 1. How many places are there?",
        ),
        Mistake(
            "letting codes pass that are off by one",
            rated(lambda a, b: float(np.mean(np.abs(a.astype(int) - b.astype(int)) <= 1))),
            hint="Bit for bit: 2 is not 3. A tolerance hides what you are looking for.",
        ),
        Mistake(
            "letting numbers pass that are close",
            rated(lambda a, b: float(np.isclose(a, b).mean())),
            hint="isclose allows one part in 100,000. Equal means equal.",
        ),
        Mistake(
            "comparing sorted codes",
            rated(lambda a, b: float(np.mean(np.sort(a.ravel()) == np.sort(b.ravel())))),
            hint="The same codes at other places are other pictures. What is compared with what?",
        ),
        Mistake(
            "all or nothing",
            rated(lambda a, b: float(np.array_equal(a, b))),
            hint="array_equal says whether all places are equal. How many are?",
        ),
        Mistake(
            "comparing as uint8",
            rated(lambda a, b: float(np.mean(a.astype(uint8) == b.astype(uint8)))),
            hint="256 as uint8 is 0. Compare the numbers as they come.",
        ),
        Mistake(
            "taking any two shapes",
            lambda a, b: float(np.mean(a.ravel()[: b.size] == b.ravel()[: a.size])),
            hint="Four places against two have no rate. Compare the shapes first, and the size with 0.",
        ),
    ),
)


def random_misses(rng):
    """Layers of several kernels and strides, cold and hot, with misses of every size strewn over the outputs."""

    def missed(part, about, x, w, zx, stride, padding):
        Ho, Wo = ((n + 2 * padding - k) // stride + 1 for n, k in zip(x.shape[1:], w.shape[2:], strict=True))
        want = rng.integers(10, 240, (len(w), Ho, Wo)).astype(uint8)
        off = rng.choice([0, 0, 1, -1, 7, -9], want.shape)
        return Case(about, part, ((want + off).astype(uint8), want, x, w, zx, stride, padding))

    zx = int(rng.integers(50, 200))
    x = rng.integers(0, 256, (3, 5, 4)).astype(uint8)
    cold = rng.integers(-40, 41, (2, 3, 2, 2)).astype(int8)
    yield missed("values", "small weights: no pair can saturate", x, cold, zx, 1, 0)
    for C, k in ((3, 2), (1, 3), (2, 3)):
        hot = rng.choice(int8([-127, -100, -30, 30, 100, 127]), (2, C, k, k))
        bright = rng.integers(120, 256, (C, 5, 4)).astype(uint8)
        yield missed("saturation", f"large weights, {C} channels, kernels of {k}", bright, hot, zx, 1, 0)
        yield missed("the pair", f"large weights, {C} channels, kernels of {k}", bright, hot, zx, 1, 0)
        yield missed("stride and padding", f"stride 2, padding 1, kernels of {k}", bright, hot, 255, 2, 1)


def explained(
    want_first=False,
    pad=lambda zx: zx,
    codes=lambda x, zx: x.astype(int32),
    order=(1, 2, 0),
    bad=lambda sums, products: np.flatnonzero((sums < -32768) | (sums > 32767)),
    which=0,
    kind=lambda g, e, pair: "saturation" if pair else "rounding" if abs(g - e) == 1 else "other",
    missed=lambda g, e: g != e,
):
    """A right answer, but for what is given."""

    def explain_misses(got, want, x, w, zx, stride, padding):
        sizes = (len(x), *w.shape[2:])
        around = (padding, padding)
        padded = codes(np.pad(x, ((0, 0), around, around), constant_values=pad(zx)), zx)
        places = [tuple(int(n) for n in place) for place in np.ndindex(*(sizes[axis] for axis in order))]
        places = [tuple(dict(zip(order, place, strict=True))[axis] for axis in (1, 2, 0)) for place in places]
        found = []
        for o, i, j in np.ndindex(want.shape):
            g, e = int(got[o, i, j]), int(want[o, i, j])
            if not missed(g, e):
                continue
            top, left = i * stride, j * stride
            products = (padded[:, top : top + sizes[1], left : left + sizes[2]] * w[o]).transpose(order).ravel()
            sums = products[: len(products) // 2 * 2].reshape(-1, 2).sum(axis=1)
            at = bad(sums, products)
            pair = (places[2 * at[which]], places[2 * at[which] + 1]) if len(at) else None
            values = {"got": e, "want": g} if want_first else {"got": g, "want": e}
            found.append({"index": (o, i, j), **values, "kind": kind(g, e, pair), "pair": pair})
        return found

    return explain_misses


def miss(index, got, want, kind, pair=None):
    """One entry of the expected list."""
    return {"index": index, "got": got, "want": want, "kind": kind, "pair": pair}


DIM, BRIGHT = uint8([[[10, 20, 30], [40, 50, 60]]]), np.full((1, 2, 3), 250, uint8)
THREE = uint8([[[250, 240]], [[10, 245]], [[230, 250]]])  # three channels, one row of two pixels
CROSSING = int8([[[[50, 100]], [[-20, 100]], [[100, 110]]]])  # products 2 and 3 are in two pixels
HIGH = uint8([[[255, 254]], [[191, 255]]])  # two channels, two pixels: with weights 127 and 2 at the upper limit
LOW = uint8([[[255, 255]], [[128, 129]]])  # with weights -128 and -1 at the lower one

EXPLAIN_MISSES = Exercise(
    name="explain_misses",
    title="count misses, explain misses",
    level="hard",
    minutes=15,
    parts=("values", "saturation", "the pair", "stride and padding", "inputs untouched"),
    second_of_card=True,
    cases=(
        Case(
            "a miss by one, a miss by five",
            "values",
            (uint8([[[8, 9]]]), uint8([[[9, 14]]]), DIM, int8([[[[1, 2], [3, -4]]]]), 10, 1, 0),
            expected=[miss((0, 0, 0), 8, 9, "rounding"), miss((0, 0, 1), 9, 14, "other")],
        ),
        Case(
            "no misses",
            "values",
            (uint8([[[8, 9]]]), uint8([[[8, 9]]]), DIM, int8([[[[1, 2], [3, -4]]]]), 10, 1, 0),
            expected=[],
        ),
        Case(
            "250·100 + 250·100 in the second row of the kernel",
            "saturation",
            (uint8([[[90, 91]]]), uint8([[[90, 61]]]), BRIGHT, int8([[[[1, 2], [100, 100]]]]), 10, 1, 0),
            expected=[miss((0, 0, 1), 91, 61, "saturation", ((1, 0, 0), (1, 1, 0)))],
        ),
        Case(
            "a saturated pair that changes the code by one only",
            "saturation",
            (uint8([[[90, 91]]]), uint8([[[91, 91]]]), BRIGHT, int8([[[[-90, -90], [2, 1]]]]), 10, 1, 0),
            expected=[miss((0, 0, 0), 90, 91, "saturation", ((0, 0, 0), (0, 1, 0)))],
        ),
        Case(
            "pairs of exactly 32767 and 32768",
            "saturation",
            (uint8([[[70, 71]]]), uint8([[[75, 61]]]), HIGH, int8([[[[127]], [[2]]]]), 0, 1, 0),
            expected=[
                miss((0, 0, 0), 70, 75, "other"),
                miss((0, 0, 1), 71, 61, "saturation", ((0, 0, 0), (0, 0, 1))),
            ],
        ),
        Case(
            "pairs of exactly -32768 and -32769",
            "saturation",
            (uint8([[[70, 71]]]), uint8([[[75, 81]]]), LOW, int8([[[[-128]], [[-1]]]]), 0, 1, 0),
            expected=[
                miss((0, 0, 0), 70, 75, "other"),
                miss((0, 0, 1), 71, 81, "saturation", ((0, 0, 0), (0, 0, 1))),
            ],
        ),
        Case(
            "a large sum of small pairs",
            "saturation",
            (uint8([[[90, 91]]]), uint8([[[80, 91]]]), BRIGHT, int8([[[[60, 60], [60, 60]]]]), 10, 1, 0),
            expected=[miss((0, 0, 0), 90, 80, "other")],
        ),
        Case(
            "three channels, two pixels: pairs cross from one pixel to the next",
            "the pair",
            (uint8([[[70]]]), uint8([[[33]]]), THREE, CROSSING, 128, 1, 0),
            expected=[miss((0, 0, 0), 70, 33, "saturation", ((0, 0, 2), (0, 1, 0)))],
        ),
        Case(
            "nine products: the last one stands alone",
            "the pair",
            (
                uint8([[[70]]]),
                uint8([[[72]]]),
                np.full((1, 3, 3), 255, uint8),
                int8([[[[1, 1, 1], [1, 1, 1], [1, 127, 127]]]]),
                0,
                1,
                0,
            ),
            expected=[miss((0, 0, 0), 70, 72, "other")],
        ),
        Case(
            "stride 2, padding 1: at the corner three of four codes are padding",
            "stride and padding",
            (uint8([[[9, 9]]]), uint8([[[5, 5]]]), DIM, int8([[[[90, 90], [5, 5]]]]), 200, 2, 1),
            expected=[
                miss((0, 0, 0), 9, 5, "saturation", ((0, 0, 0), (0, 1, 0))),
                miss((0, 0, 1), 9, 5, "saturation", ((0, 0, 0), (0, 1, 0))),
            ],
        ),
    ),
    hidden=random_misses,
    mistakes=(
        Mistake(
            "calling every miss by one a rounding",
            explained(kind=lambda g, e, pair: "rounding" if abs(g - e) == 1 else "saturation" if pair else "other"),
            hint="A saturated pair may change the code by one only. What is looked for first?",
        ),
        Mistake(
            "pairs in the order (channel, row, column)",
            explained(order=(0, 1, 2)),
            hint="That is the order of w in memory. The kernel walks through pixels, all channels of one, then the next.",
        ),
        Mistake(
            "padding with code 0",
            explained(pad=lambda zx: 0),
            hint="Padding takes part in pairs, with the code that stands for 0.0.",
        ),
        Mistake(
            "products of codes without their zero point",
            explained(codes=lambda x, zx: x.astype(int32) - zx),
            hint="The kernel multiplies raw codes and corrects for the zero point afterwards.",
        ),
        Mistake(
            "the last saturated pair instead of the first",
            explained(which=-1),
            hint="There may be several. Which one comes first in the order of the kernel?",
        ),
        Mistake(
            "exchanging got and want",
            explained(want_first=True),
            hint="The first argument is yours, the second the kernel's.",
        ),
        Mistake(
            "looking at the whole sum instead of pairs",
            explained(
                bad=lambda sums, products: np.flatnonzero(
                    (np.abs(products.sum()) > 32767) & (np.arange(len(sums)) == 0)
                )
            ),
            hint="The pairs' sums are added in 32 bits. Only inside a pair there are 16.",
        ),
        Mistake(
            "the same limit on both sides of zero",
            explained(bad=lambda sums, products: np.flatnonzero(np.abs(sums) > 32767)),
            hint="Which of -32768 and 32768 fits into 16 bits?",
        ),
        Mistake(
            "subtracting codes in uint8",
            explained(kind=lambda g, e, pair: "saturation" if pair else "rounding" if (g - e) % 256 == 1 else "other"),
            hint="In uint8, 7 - 8 is 255. Convert before you subtract.",
        ),
        Mistake(
            "passing over misses by one",
            explained(missed=lambda g, e: abs(g - e) > 1),
            hint="Every place where the codes differ belongs in the list.",
        ),
    ),
)


# ------------------------------------------------------------------------------- quantize_multiplier, requantize_fixed


def random_multipliers(rng):
    """Multipliers of every size, and what is none."""
    for m in 10.0 ** rng.uniform(-6, -0.31, 4):
        yield Case("a random multiplier", "values", (float(m),))
    for m in 2.0 ** rng.uniform(0.1, 9, 3):
        yield Case("a multiplier above 1", "one and above", (float(m),))
    yield Case("a power of two", "one and above", (2.0 ** int(rng.integers(1, 9)),))
    yield Case("a little below a power of two", "one and above", (2.0 ** int(rng.integers(1, 9)) * (1 - 1e-11),))
    yield Case("below zero", "errors", (-float(m),), raises=ValueError)
    yield Case("zero", "errors", (0.0,), raises=ValueError)
    yield Case("minus infinity", "errors", (-np.inf,), raises=ValueError)
    yield Case("tiny: allowed", "errors", (float(m) * 1e-12,))
    yield Case("huge: allowed", "errors", (float(m) * 1e12,))


def multiplied(round_=lambda x: int(np.rint(x)), bits=31, sign=-1, carry=True, top=0, check=True, real=lambda m: m):
    """A right answer, but for what is given."""

    def quantize_multiplier(m):
        if check and not 0 < m < np.inf:
            raise ValueError("no multiplier")
        if not np.isfinite(m):
            return 0, 0
        fraction, exponent = np.frexp(real(m))
        fraction, exponent = fraction / 2**top, int(exponent) + top
        m0 = round_(fraction * 2**bits)
        if carry and m0 == 2**bits:
            m0, exponent = m0 // 2, exponent + 1
        return m0, sign * exponent

    return quantize_multiplier


QUANTIZE_MULTIPLIER = Exercise(
    name="quantize_multiplier",
    title="integers only",
    level="medium",
    minutes=8,
    parts=("values", "one and above", "errors"),
    cases=(
        Case("one half", "values", (0.5,), expected=(1073741824, 0)),
        Case("one third", "values", (1 / 3,), expected=(1431655765, 1)),
        Case("0.007247427341846", "values", (0.007247427341846,), expected=(1992157658, 7)),
        Case("0.0003", "values", (0.0003,), expected=(1319413953, 11)),
        Case("one", "one and above", (1.0,), expected=(1073741824, -1)),
        Case("three", "one and above", (3.0,), expected=(1610612736, -2)),
        Case("so little below 1 that it rounds up to it", "one and above", (0.9999999999,), expected=(1073741824, -1)),
        Case("zero", "errors", (0.0,), raises=ValueError),
        Case("minus one half", "errors", (-0.5,), raises=ValueError),
        Case("infinity", "errors", (np.inf,), raises=ValueError),
        Case("nan", "errors", (np.nan,), raises=ValueError),
        Case("2 to the power of -40", "errors", (2.0**-40,), expected=(1073741824, 39)),
    ),
    hidden=random_multipliers,
    mistakes=(
        Mistake(
            "cutting off the fraction of m0",
            multiplied(round_=int),
            hint="0.0003 gives 1319413952.9: which integer is nearest?",
        ),
        Mistake(
            "a shift with the wrong sign",
            multiplied(sign=1),
            hint="A small multiplier needs a shift to the right, which counts as positive here.",
        ),
        Mistake(
            "an m0 that reaches 2**31",
            multiplied(carry=False),
            hint="m0 = 2**31 does not fit into int32. Which smaller m0, with which shift, means the same?",
        ),
        Mistake(
            "an m0 of 30 bits",
            multiplied(top=1),
            hint="An m0 below 2**30 wastes a bit. Shift until it is at least 2**30.",
        ),
        Mistake(
            "a multiplier of 15 bits",
            multiplied(bits=15),
            hint="m0 has 31 bits: m = m0 / 2**31 / 2**shift.",
        ),
        Mistake(
            "a multiplier in float32",
            multiplied(real=lambda m: float(float32(m))),
            hint="float32 holds 24 bits, m0 has 31. Keep m as it comes.",
        ),
        Mistake(
            "taking any number",
            multiplied(check=False),
            hint="Zero, negative numbers, nan and infinity have no m0.",
        ),
    ),
)


def random_fixed(rng):
    """Random sums and multipliers, halves on both sides of zero, sums that need clamps."""
    for _ in range(2):
        m0, shift, zo = int(rng.integers(2**30, 2**31)), int(rng.integers(4, 9)), int(rng.integers(40, 200))
        acc = (rng.integers(-90, 90, (3, 4)) * 2**shift + rng.integers(0, 2**shift, (3, 4))).astype(int32)
        yield Case("random sums", "values", (acc, m0, shift, zo))
        large = rng.integers(-(2**30), 2**30, 8).astype(int32)
        yield Case("sums of 30 bits", "values", (large, m0, int(rng.integers(22, 24)), zo))
        yield Case("sums far outside", "clamp", (acc * 50, m0, shift, zo))
    for shift in (1, 2, 3):
        near = np.arange(-40, 40).astype(int32) + int(rng.integers(0, 4))
        yield Case(f"halves, shift {shift}", "halves", (near, 2**30, shift, 100 + int(rng.integers(0, 9))))
    yield Case("halves, no shift", "halves", (near, 2**30, 0, 90 + int(rng.integers(0, 9))))
    m0 = 2**30 + 2 ** int(rng.integers(24, 29))
    yield Case("halves after two roundings", "halves", (np.arange(-60, 60).astype(int32), m0, 2, 100))


def high_multiply(acc, m0):
    """acc * m0 / 2**31, halves up."""
    return (acc.astype(np.int64) * m0 + 2**30) >> 31


def shifted(high, shift):
    """high / 2**shift, halves away from zero."""
    return np.sign(high) * ((np.abs(high) + ((1 << shift) >> 1)) >> shift)


def fixed(high=high_multiply, shift_=shifted, cast=lambda y: np.clip(y, 0, 255).astype(uint8), early=False):
    """A right answer, but for what is given."""

    def requantize_fixed(acc, m0, shift, zo):
        if early:
            return cast(shift_(high(acc, m0) + zo, shift))
        return cast(shift_(high(acc, m0), shift) + zo)

    return requantize_fixed


AROUND_ZERO = np.arange(-8, 9).astype(int32)

REQUANTIZE_FIXED = Exercise(
    name="requantize_fixed",
    title="integers only",
    level="hard",
    minutes=12,
    parts=("values", "halves", "clamp", "inputs untouched"),
    second_of_card=True,
    cases=(
        Case(
            "a multiplier of 0.002",
            "values",
            (int32([100, 150, 250, -50, 1000, 30000]), 1099511628, 8, 3),
            expected=uint8([3, 3, 4, 3, 5, 63]),
        ),
        Case(
            "sums of two thousand million, two axes",
            "values",
            (int32([[2000000000], [-1999999999]]), 1073741824, 23, 128),
            expected=uint8([[247], [9]]),
        ),
        Case(
            "a multiplier of one quarter",
            "halves",
            (AROUND_ZERO, 1073741824, 1, 100),
            expected=uint8([98, 98, 98, 99, 99, 99, 99, 100, 100, 101, 101, 101, 101, 102, 102, 102, 102]),
        ),
        Case(
            "a multiplier of one half, no shift",
            "halves",
            (int32([-3, -2, -1, 0, 1, 2, 3]), 1073741824, 0, 10),
            expected=uint8([9, 9, 10, 10, 11, 11, 12]),
        ),
        Case(
            "a multiplier of 3/8, shift 1",
            "halves",
            (int32([-5, -4, -1, 0, 1, 4, 5]), 1610612736, 1, 50),
            expected=uint8([48, 48, 49, 50, 51, 52, 52]),
        ),
        Case(
            "both ends",
            "clamp",
            (int32([-30000, 200000, -1000]), 1099511628, 8, 3),
            expected=uint8([0, 255, 1]),
        ),
    ),
    hidden=random_fixed,
    mistakes=(
        Mistake(
            "a product that wraps around in 32 bits",
            fixed(high=lambda acc, m0: high_multiply((acc.astype(np.int64) * m0).astype(int32), 1)),
            hint="A sum times m0 needs 62 bits. Which type holds them?",
        ),
        Mistake(
            "shifts that do not round",
            fixed(high=lambda acc, m0: (acc.astype(np.int64) * m0) >> 31, shift_=lambda high, shift: high >> shift),
            hint="A shift to the right rounds down. What is added before it, so that it rounds to the nearest?",
        ),
        Mistake(
            "one rounding instead of two",
            fixed(
                high=lambda acc, m0: acc.astype(np.int64) * m0,
                shift_=lambda product, shift: shifted(product, 31 + shift),
            ),
            hint="That is the better number, and not what this hardware does: it rounds after each of its two steps.",
        ),
        Mistake(
            "halves away from zero in the multiplication as well",
            fixed(high=lambda acc, m0: shifted(acc.astype(np.int64) * m0, 31)),
            hint="The two steps treat negative halves differently. Look at a sum of -1 with a multiplier of one half.",
        ),
        Mistake(
            "rounding negative halves up",
            fixed(shift_=lambda high, shift: (high + ((1 << shift) >> 1)) >> shift),
            hint="Adding half and shifting sends -1.5 to -1. Halves go away from zero on both sides.",
        ),
        Mistake(
            "adding the zero point before the shift",
            fixed(early=True),
            hint="The zero point is a code of the output. When is the output's scale reached?",
        ),
        Mistake(
            "codes that wrap around instead of stopping at the ends",
            fixed(cast=wrapped),
            hint="256 as uint8 is 0. Which function keeps numbers between two ends?",
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------- qadd, avgpool


def random_sums_of_two(rng):
    """Random codes and parameters; sums that need clamps; ReLU; codes where a fused multiply-add decides."""

    def codes(*shape):
        return rng.integers(0, 256, shape).astype(uint8)

    def q(low=0.02, high=0.05):
        return Q(float32(rng.uniform(low, high)), rng.integers(60, 200))

    for shape in ((9,), (2, 3, 4)):
        yield Case(f"random codes, {len(shape)} axes", "values", (codes(*shape), q(), codes(*shape), q(), q(0.08, 0.1)))
        yield Case("random codes, ReLU", "ReLU", (codes(*shape), q(), codes(*shape), q(), q(0.08, 0.1), True))
    yield Case("sums far outside", "clamp", (codes(16), q(), codes(16), q(), q(0.004, 0.01)))
    halves = rng.integers(0, 40, 16).astype(uint8)
    yield Case("exact halves", "rounding", (halves, Q(0.25, 7), codes(16) // 8, Q(0.5, 20), Q(0.5, 101)))
    every, other = np.arange(256).astype(uint8), rng.permutation(256).astype(uint8)
    yield Case("every code", "rounding", (every, Q(0.035, 185), other, Q(0.097, 41), Q(0.108, 75)))
    # The whole table of 65,536 pairs holds a handful of places that a fused multiply-add decides.
    left, right = np.repeat(every, 256), np.tile(every, 256)
    a, b, out = (
        ((0.035, 185), (0.097, 41), (0.108, 75)) if rng.random() < 0.5 else ((0.066, 30), (0.08, 93), (0.184, 156))
    )
    yield Case("every pair of codes", "rounding", (left, Q(*a), right, Q(*b), Q(*out)))


def real_numbers(q, qp):
    """Codes as float32, with the one rounding of a fused multiply-add."""
    offset = -qp.scale * float32(qp.zero_point)
    return (q * np.float64(qp.scale) + np.float64(offset)).astype(float32)


def added(
    real=real_numbers,
    mix=lambda a, b: a + b,
    relu_=lambda total: np.maximum(total, 0),
    always=False,
    round_=np.rint,
    first=lambda y, z: y,
    then=lambda y, z: y + z,
    floor=lambda z, relu: 0,
    cast=lambda y: np.clip(y, 0, 255).astype(uint8),
):
    """A right answer, but for what is given."""

    def qadd(a, qa, b, qb, qout, relu=False):
        total = mix(real(a, qa), real(b, qb))
        total = relu_(total) if relu or always else total
        y = first(total * (float32(1) / qout.scale), float32(qout.zero_point))
        return cast(np.maximum(then(round_(y), float32(qout.zero_point)), floor(qout.zero_point, relu)))

    return qadd


def one_scale(a, qa, b, qb, qout, relu=False):
    return added()(a, qa, b, QParams(qa.scale, qb.zero_point), qout, relu)


def adding_codes(a, qa, b, qb, qout, relu=False):
    return np.clip(a.astype(int) + b, 0, 255).astype(uint8)


def relu_of_each_input(a, qa, b, qb, qout, relu=False):
    if relu:
        a, b = np.maximum(a, qa.zero_point), np.maximum(b, qb.zero_point)
    return added()(a, qa, b, qb, qout)


def sum_in_float64(a, qa, b, qb, qout, relu=False):
    def real(q, qp):
        return q * np.float64(qp.scale) + np.float64(-qp.scale * float32(qp.zero_point))

    def mix(x, y):
        return (x + y).astype(float32)

    return added(real=real, mix=mix)(a, qa, b, qb, qout, relu)


A, B = uint8([0, 10, 255, 128]), uint8([255, 20, 255, 1])

QADD = Exercise(
    name="qadd",
    title="addition and average",
    level="medium",
    minutes=10,
    parts=("values", "clamp", "ReLU", "rounding", "inputs untouched"),
    cases=(
        Case(
            "two scales, two zero points",
            "values",
            (A, Q(0.02, 10), B, Q(0.03, 20), Q(0.05, 12)),
            expected=uint8([149, 12, 251, 48]),
        ),
        Case(
            "two axes",
            "values",
            (uint8([[4, 8], [6, 2]]), Q(0.5, 4), uint8([[10, 9], [0, 30]]), Q(0.25, 10), Q(0.25, 100)),
            expected=uint8([[100, 107], [94, 116]]),
        ),
        Case(
            "both ends",
            "clamp",
            (uint8([0, 255, 120]), Q(0.5, 100), uint8([0, 255, 100]), Q(0.5, 100), Q(0.25, 60)),
            expected=uint8([0, 255, 100]),
        ),
        Case(
            "0.0 has code 12",
            "ReLU",
            (uint8([0, 10, 60, 60]), Q(0.02, 10), uint8([20, 10, 30, 0]), Q(0.03, 20), Q(0.05, 12), True),
            expected=uint8([12, 12, 38, 20]),
        ),
        Case(
            "without ReLU codes below 12 come out",
            "ReLU",
            (uint8([0, 10, 60]), Q(0.02, 10), uint8([20, 10, 30]), Q(0.03, 20), Q(0.05, 12)),
            expected=uint8([8, 6, 38]),
        ),
        Case(
            "halves, odd zero point",
            "rounding",
            (uint8([1, 3, 5, 7]), Q(0.5, 0), uint8([4, 4, 4, 4]), Q(1, 4), Q(1, 11)),
            expected=uint8([11, 13, 13, 15]),
        ),
        Case(
            "codes where the one rounding of a fused multiply-add decides",
            "rounding",
            (uint8([0]), Q(0.035, 185), uint8([66]), Q(0.097, 41), Q(0.108, 75)),
            expected=uint8([37]),
        ),
        Case(
            "codes where it decides that each term is rounded to float32 before they are added",
            "rounding",
            (uint8([0]), Q(0.05, 199), uint8([165]), Q(0.03, 55), Q(0.14, 129)),
            expected=uint8([82]),
        ),
    ),
    hidden=random_sums_of_two,
    mistakes=(
        Mistake(
            "adding the codes",
            adding_codes,
            hint="Codes of different scales are like inches and centimeters. What can be added?",
        ),
        Mistake(
            "leaving out the zero points of the inputs",
            added(real=lambda q, qp: q.astype(float32) * qp.scale),
            hint="Code 10 of a stands for 0.0. What is it worth in your sum?",
        ),
        Mistake(
            "one scale for both inputs",
            one_scale,
            hint="b has parameters of its own.",
        ),
        Mistake(
            "averaging the two inputs",
            added(mix=lambda a, b: (a + b) / 2),
            hint="The sum is asked for; the output's scale makes room for it.",
        ),
        Mistake(
            "leaving out the output's zero point",
            added(then=lambda y, z: y),
            hint="A sum of 0.0 has a code of its own in the output.",
        ),
        Mistake(
            "codes that wrap around instead of stopping at the ends",
            added(cast=wrapped),
            hint="256 as uint8 is 0. Which function keeps numbers between two ends?",
        ),
        Mistake(
            "no ReLU, or one that clamps at code 0",
            added(relu_=lambda total: total),
            hint="ReLU lets nothing below 0.0 pass. Which code stands for 0.0 in the output?",
        ),
        Mistake(
            "a ReLU of each input",
            relu_of_each_input,
            hint="1.0 and -0.6 are 0.4 together. What is it that must not fall below 0.0?",
        ),
        Mistake(
            "a ReLU in every addition",
            added(always=True),
            hint="Without relu=True, codes below the zero point are as good as those above.",
        ),
        Mistake(
            "adding the zero point before rounding",
            added(first=lambda y, z: y + z, then=lambda y, z: y),
            hint="An odd zero point makes even neighbors odd. In which order do rounding and adding go?",
        ),
        Mistake(
            "cutting off the fraction",
            added(round_=np.trunc),
            hint="astype drops the fraction. Which function gives the nearest integer?",
        ),
        Mistake(
            "rounding twice where the kernel rounds once",
            added(real=lambda q, qp: (q.astype(float32) - float32(qp.zero_point)) * qp.scale),
            hint="The kernel computes scale * code + (-scale * zero_point), and rounds product and sum together. "
            "float64 holds both exactly.",
        ),
        Mistake(
            "adding in float64",
            sum_in_float64,
            hint="Each term is rounded to float32 on its own, and their sum once more.",
        ),
    ),
)


def random_maps(rng):
    """Random maps, one of them large; halves with odd and even zero points."""
    for shape in ((3, 4, 4), (4, 3, 5), (2, 7, 7)):
        x = rng.integers(0, 256, shape).astype(uint8)
        yield Case(f"random codes, {shape[1]} by {shape[2]}", "values", (x, Q(0.1, int(rng.integers(0, 256)))))
    for zero_point in (2 * int(rng.integers(20, 60)) + 1, 2 * int(rng.integers(20, 60))):
        x = rng.integers(0, 120, (6, 1, 2)).astype(uint8) * 2
        x[:, 0, 0] += 1
        yield Case(f"halves, zero point {zero_point}", "halves", (x, Q(0.1, zero_point)))
    yield Case(
        "2 by 7: some halves are none in float32",
        "halves",
        (uint8(rng.permutation([7] * 6 + [6] * 8)).reshape(1, 2, 7), Q(0.2, 0)),
    )


def averaged(
    total=lambda x, z: x.sum(axis=(1, 2), dtype=np.int64) - z * x[0].size,
    divide=lambda s, n: s.astype(float32) * (float32(1) / float32(n)),
    round_=np.rint,
    then=lambda y, z: y + z,
):
    """A right answer, but for what is given."""

    def avgpool(x, qp):
        y = round_(divide(total(x, qp.zero_point), x[0].size))
        return np.clip(then(y, qp.zero_point), 0, 255).astype(uint8)

    return avgpool


def mean_of_reals(x, qp):
    real = (x.astype(float32) - float32(qp.zero_point)) * qp.scale
    return codes_of()(real.mean(axis=(1, 2)), qp)


AVGPOOL = Exercise(
    name="avgpool",
    title="addition and average",
    level="easy",
    minutes=6,
    parts=("values", "halves", "inputs untouched"),
    second_of_card=True,
    cases=(
        Case(
            "two channels of 2 by 2",
            "values",
            (uint8([[[10, 20], [30, 43]], [[202, 255], [255, 255]]]), Q(0.1, 100)),
            expected=uint8([26, 242]),
        ),
        Case("one row of three", "values", (uint8([[[9, 1, 0]]]), Q(0.1, 0)), expected=uint8([3])),
        Case(
            "1, 2, 2 and 5, zero point 0: 2.5 steps",
            "halves",
            (uint8([[[1, 2], [2, 5]]]), Q(0.1, 0)),
            expected=uint8([2]),
        ),
        Case(
            "1, 2, 2 and 5, zero point 1: 1.5 steps",
            "halves",
            (uint8([[[1, 2], [2, 5]]]), Q(0.1, 1)),
            expected=uint8([3]),
        ),
        Case(
            "10 and 11, zero point 4: 6.5 steps, whatever the scale",
            "halves",
            (uint8([[[10, 11]]]), Q(0.03, 4)),
            expected=uint8([10]),
        ),
        Case("0 and 3, zero point 2: -0.5 steps", "halves", (uint8([[[0, 3]]]), Q(0.1, 2)), expected=uint8([2])),
        Case(
            "91 / 14 is 6.5, and 91 times float32's 1/14 is a little more",
            "halves",
            (uint8([[[7, 7, 7, 7, 7, 7, 7], [6, 6, 6, 6, 6, 6, 6]]]), Q(0.1, 0)),
            expected=uint8([7]),
        ),
    ),
    hidden=random_maps,
    mistakes=(
        Mistake(
            "rounding the mean of the codes",
            lambda x, qp: np.rint(x.mean(axis=(1, 2))).astype(uint8),
            hint="2.5 codes, or 1.5 steps above a zero point of 1: they round to different neighbors.",
        ),
        Mistake(
            "cutting off the fraction of the mean of the codes",
            lambda x, qp: x.mean(axis=(1, 2)).astype(uint8),
            hint="astype drops the fraction, and a code is no number of steps above zero yet. What is subtracted first?",
        ),
        Mistake(
            "averaging real numbers",
            mean_of_reals,
            hint="On paper the scale cancels. In float32 it leaves roundings behind: average codes minus zero point.",
        ),
        Mistake(
            "cutting off the fraction",
            averaged(round_=np.trunc),
            hint="astype and // drop the fraction. Which function gives the nearest integer?",
        ),
        Mistake(
            "adding up in uint8",
            averaged(total=lambda x, z: x.sum(axis=(1, 2), dtype=uint8).astype(np.int64) - z * x[0].size),
            hint="Two codes of 200 are more than uint8 holds.",
        ),
        Mistake(
            "dividing by the number of pixels",
            averaged(divide=lambda s, n: s.astype(float32) / float32(n)),
            hint="On paper it is the same. The kernel computes 1 / n once, in float32, and multiplies.",
        ),
        Mistake(
            "one average for all channels",
            lambda x, qp: np.full(len(x), averaged()(x.reshape(1, 1, -1), qp)[0]),
            hint="Each channel has an average of its own. Which axes disappear?",
        ),
        Mistake(
            "the largest code of each channel",
            lambda x, qp: x.max(axis=(1, 2)),
            hint="That is max pooling.",
        ),
    ),
)


# --------------------------------------------------------------------------------------------------- quantized_network

OPS = {name: Learner(name) for name in ("conv_acc", "requantize", "qadd", "avgpool")}
STAND_INS = Build("quantization.stand_ins")


def convolution(w, q_in, q_out, bias=None, stride=1, padding=0, groups=1, relu=False, s_w=None):
    """A convolution, or with weights of two axes a linear layer, as a dict."""
    w = np.asarray(w, int8)
    channels = np.arange(1, len(w) + 1)
    return {
        "op": "conv" if w.ndim == 4 else "linear",
        "w": w,
        "s_w": (0.002 * channels).astype(float32) if s_w is None else s_w,
        "bias": (0.25 * channels - 0.5).astype(float32) if bias is None else bias,
        **{"q_in": q_in, "q_out": q_out, "stride": stride, "padding": padding, "groups": groups},
        **{"relu": relu, "add_from": None},
    }


def other(op, q_in, q_out, add_from=None, relu=False):
    """An addition or an average as a dict."""
    plain = {"op": op, "q_in": q_in, "q_out": q_out, "stride": 1, "padding": 0, "groups": 1}
    return plain | {"relu": relu, "add_from": add_from}


def small_network(rng):
    """Convolution, depthwise, pointwise, addition, average, linear: one block of a MobileNet."""
    q = [Q(s, z) for s, z in ((0.02, 7), (0.05, 0), (0.06, 3), (0.09, 120), (0.1, 110), (0.08, 128))]

    def kernels(*shape):
        return rng.integers(-60, 61, shape)

    return [
        convolution(kernels(4, 1, 3, 3), q[0], q[1], padding=1, stride=2, relu=True),
        convolution(kernels(4, 1, 3, 3), q[1], q[2], padding=1, groups=4, relu=True),
        convolution(kernels(4, 4, 1, 1), q[2], q[3]),
        other("add", q[3], q[4], add_from=0),
        other("avgpool", q[4], q[4]),
        convolution(kernels(10, 4), q[4], q[5]),
    ]


def digits_network():
    """The shipped int8 network, ready to be a case's input, and the codes of all digits (1797, 8, 8)."""
    layers = load_layers(data.load("digits_cnn_int8"))
    listed = [
        {
            key: Q(*(value.scale, value.zero_point)) if isinstance(value, QParams) else value
            for key, value in layer.items()
        }
        for layer in layers
    ]
    brightness = data.load("digits")["images"] / float32(16)
    q = layers[0]["q_in"]
    codes = np.clip(np.rint(brightness.astype(float32) * (float32(1) / q.scale)) + q.zero_point, 0, 255)
    return listed, codes.astype(uint8)


def random_networks(rng):
    """Stand-ins in layers with random weights, and digits through the shipped network."""
    for _ in range(2):
        layers = small_network(rng)
        x = rng.integers(0, 256, (1, 8, 8)).astype(uint8)
        yield Case("two random convolutions, stand-ins", "values", (x, layers[:2], STAND_INS))
        yield Case("with an addition, stand-ins", "additions", (x, layers[:4], STAND_INS))
        yield Case("all six layers, stand-ins", "average and linear", (x, layers, STAND_INS))
    q = Q(0.04, int(rng.integers(1, 99)))
    layers = [*layers[:3], other("add", Q(0.09, 120), q, 1, True), other("add", q, Q(0.1, 9), 0)]
    yield Case("two additions, stand-ins", "additions", (x, layers, STAND_INS))
    layers, digits = digits_network()
    for i in rng.integers(1347, 1797, 2):
        yield Case(f"digit {i} of the shipped network", "together", (digits[i][None], layers, OPS))


def wired(
    chosen=lambda layers, i: layers[i],
    incoming=lambda layers, i: layers[i]["q_in"],
    second=lambda layers, i, other: layers[other]["q_out"],
    picked=lambda outputs, start, other: outputs[other],
    flatten=True,
    biased=True,
):
    """A right answer, but for what is given."""

    def quantized_network(x, layers, ops):
        outputs, start = [], x
        for i in range(len(layers)):
            layer, q_in = chosen(layers, i), incoming(layers, i)
            q_out = layer["q_out"]
            if layer["op"] == "add":
                earlier = picked(outputs, start, layer["add_from"])
                x = ops["qadd"](x, q_in, earlier, second(layers, i, layer["add_from"]), q_out, layer["relu"])
            elif layer["op"] == "avgpool":
                x = ops["avgpool"](x, q_in)
            else:
                linear = layer["op"] == "linear"
                image, w = (x.reshape(-1, 1, 1), layer["w"][:, :, None, None]) if linear else (x, layer["w"])
                geometry = layer["stride"], layer["padding"], layer["groups"]
                acc = ops["conv_acc"](image, q_in.zero_point, w, *geometry)
                bias = layer["bias"] if biased else None
                scales = q_in.scale, layer["s_w"], q_out.scale
                x = ops["requantize"](acc, bias, *scales, q_out.zero_point, layer["relu"])
                x = x.reshape(-1) if linear and flatten else x
            outputs.append(x)
        return x

    return quantized_network


TINY = convolution([[[[1, 2], [3, 4]]], [[[-1, 0], [0, 5]]]], Q(0.02, 7), Q(0.05, 3), stride=2, relu=True)
TINY_DEPTHWISE = convolution([[[[2]]], [[[-3]]]], Q(0.05, 3), Q(0.06, 10), padding=1, groups=2)
TINY_ADD = other("add", Q(0.06, 10), Q(0.1, 20), add_from=0)
TINY_LINEAR = convolution([[1, 2], [3, -4], [5, 6]], Q(0.05, 3), Q(0.07, 50))
PICTURE = (np.arange(16).reshape(1, 4, 4) * 16).astype(uint8)
SAME_SIZE = convolution([[[[2]]], [[[-3]]]], Q(0.05, 3), Q(0.06, 10), groups=2)

QUANTIZED_NETWORK = Exercise(
    name="quantized_network",
    title="a whole network",
    level="medium",
    minutes=15,
    parts=("values", "additions", "average and linear", "inputs untouched", "together"),
    cases=(
        Case(
            "one convolution; its operations are stand-ins with arithmetic of their own",
            "values",
            (PICTURE, [TINY], STAND_INS),
            expected=uint8([[[52, 53], [54, 55]], [[240, 241], [242, 243]]]),
        ),
        Case(
            "two convolutions, the second depthwise and padded",
            "values",
            (PICTURE, [TINY, TINY_DEPTHWISE], STAND_INS),
            expected=uint8(
                [
                    [[75, 76, 77, 78], [79, 80, 81, 82], [83, 84, 85, 86], [87, 88, 89, 90]],
                    [[18, 19, 20, 21], [22, 23, 24, 25], [26, 27, 28, 29], [30, 31, 32, 33]],
                ]
            ),
        ),
        Case(
            "an addition of the output of layer 0",
            "additions",
            (PICTURE, [TINY, SAME_SIZE, TINY_ADD], STAND_INS),
            expected=uint8([[[203, 172], [141, 110]], [[64, 33], [2, 222]]]),
        ),
        Case(
            "two additions, one with ReLU",
            "additions",
            (
                PICTURE,
                [TINY, SAME_SIZE, TINY_ADD | {"relu": True}, other("add", Q(0.1, 20), Q(0.2, 5), add_from=1)],
                STAND_INS,
            ),
            expected=uint8([[[98, 202], [55, 159]], [[162, 15], [119, 223]]]),
        ),
        Case(
            "an average and a linear layer",
            "average and linear",
            (PICTURE, [TINY, other("avgpool", Q(0.05, 3), Q(0.05, 3)), TINY_LINEAR], STAND_INS),
            expected=uint8([13, 202, 172]),
        ),
        Case(
            "your own operations: one block of a MobileNet",
            "together",
            ((np.arange(64) * 37 % 256).reshape(1, 8, 8).astype(uint8), small_network(np.random.default_rng(4)), OPS),
            expected=uint8([121, 149, 117, 97, 134, 123, 125, 116, 207, 126]),
        ),
    ),
    hidden=random_networks,
    mistakes=(
        Mistake(
            "adding the input of the named layer instead of its output",
            wired(picked=lambda outputs, start, other: outputs[other - 1] if other else start),
            hint="add_from = 0 means the output of layers[0]. How do you count outputs?",
        ),
        Mistake(
            "one set of parameters for both terms of an addition",
            wired(second=lambda layers, i, other: layers[i]["q_in"]),
            hint="The added output was quantized by the layer that made it: look at that layer's q_out.",
        ),
        Mistake(
            "the input parameters of the first layer in every layer",
            wired(incoming=lambda layers, i: layers[0]["q_in"]),
            hint="Each layer reads codes in its own q_in.",
        ),
        Mistake(
            "reading a layer's input with its output parameters",
            wired(incoming=lambda layers, i: layers[i]["q_out"]),
            hint="q_in belongs to the codes that come in, q_out to those that go out.",
        ),
        Mistake(
            "leaving out ReLU",
            wired(chosen=lambda layers, i: layers[i] | {"relu": False}),
            hint="Both requantize and qadd take relu, and False is its default.",
        ),
        Mistake(
            "leaving out padding",
            wired(chosen=lambda layers, i: layers[i] | {"padding": 0}),
            hint="conv_acc's default padding is 0. What does the layer say?",
        ),
        Mistake(
            "leaving out groups",
            wired(chosen=lambda layers, i: layers[i] | {"groups": 1}),
            hint="conv_acc's default is one group. What does the layer say?",
        ),
        Mistake(
            "leaving out stride",
            wired(chosen=lambda layers, i: layers[i] | {"stride": 1}),
            hint="conv_acc's default stride is 1. What does the layer say?",
        ),
        Mistake(
            "leaving out the bias",
            wired(biased=False),
            hint="requantize takes the bias, in real units, as the layer holds it.",
        ),
        Mistake(
            "a linear layer that keeps its 1 by 1 image",
            wired(flatten=False),
            hint="The output of a linear layer has one axis: (10,).",
        ),
    ),
)


EXERCISES = (
    CHOOSE_QPARAMS,
    QUANTIZE,
    DEQUANTIZE,
    QUANTIZE_WEIGHT_PER_CHANNEL,
    CONV_ACC,
    REQUANTIZE,
    MADD_PAIRS,
    HIT_RATE,
    EXPLAIN_MISSES,
    QUANTIZE_MULTIPLIER,
    REQUANTIZE_FIXED,
    QADD,
    AVGPOOL,
    QUANTIZED_NETWORK,
)
