"""The numpy models of PyTorch's quantized kernels give the live kernels' bits, every one of them."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import quantized_kernels as qk
from oracles.quantized_kernels import Conv

from underhood.quantization import QParams


@pytest.fixture(params=qk.ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if reason := qk.why_not(request.param):
        pytest.skip(reason)
    return request.param


def random_qparams(rng: np.random.Generator, low: float, high: float) -> QParams:
    return QParams(np.exp(rng.uniform(np.log(low), np.log(high))), rng.integers(0, 256))


def random_conv(rng: np.random.Generator, engine: str, largest: int = 127) -> Conv:
    """Any kind of layer: pointwise, 3x3, 5x5, oblong, grouped, depthwise; odd sizes; hot and cold weights."""
    kind = rng.choice(["dense", "pointwise", "depthwise", "grouped"])
    if kind == "depthwise":
        groups = int(rng.choice([4, 8, 16, 24]))
        per_group, out = 1, 1
    elif kind == "grouped":
        # onednn's accumulator is known for groups of 6 (exact) and of 8 channels (pairs)
        groups, per_group = int(rng.choice([2, 3])), int(rng.choice([6, 8] if engine == "onednn" else [2, 5, 6, 8, 12]))
        out = per_group
    else:
        groups, per_group, out = 1, int(rng.integers(1, 20)), int(rng.integers(1, 20))
    k = 1 if kind == "pointwise" else int(rng.choice([3, 3, 5])) if kind == "depthwise" else int(rng.integers(1, 5))
    C, OC = groups * per_group, groups * out
    padding = int(rng.integers(0, k // 2 + 1))
    stride = int(rng.integers(1, 3))
    x = rng.integers(0, 256, (C, *rng.integers(max(5, k), 12, 2))).astype(np.uint8)
    w = np.clip(np.rint(rng.normal(0, rng.choice([10, 40, 90]), (OC, per_group, k, k))), -largest, largest)
    s_w = rng.uniform(0.001, 0.006, OC).astype(np.float32)
    bias = rng.normal(0, 1, OC).astype(np.float32)
    spread = np.sqrt(per_group * k * k) * 75 * max(1.0, w.std()) * 0.02 * 0.0035
    return Conv(
        x=x,
        q_in=QParams(rng.uniform(0.01, 0.03), rng.integers(0, 256)),
        w=w.astype(np.int8),
        s_w=s_w if rng.random() < 0.6 else s_w[0],
        bias=bias if rng.random() < 0.8 else None,
        q_out=QParams(spread * rng.choice([0.002, 0.01, 0.02, 0.05]), rng.integers(0, 256)),
        stride=stride,
        padding=padding,
        groups=groups,
        relu=bool(rng.random() < 0.4),
        zw=int(rng.integers(-8, 9)) if engine == "fbgemm" and rng.random() < 0.2 else 0,
    )


def misses(got: np.ndarray, want: np.ndarray) -> int:
    assert got.shape == want.shape and got.dtype == want.dtype == np.uint8
    return int(np.count_nonzero(got != want))


def test_every_convolution_has_the_live_kernels_bits(engine: str) -> None:
    rng = np.random.default_rng(4)
    values = pairs = 0
    for turn in range(500):
        conv = random_conv(rng, engine)
        got = qk.conv_live(engine, conv)
        assert misses(qk.conv_model(engine, conv, qk.saturates(engine, conv)), got) == 0, (turn, conv)
        values += len(np.unique(got))
        pairs += misses(qk.conv_model(engine, conv, saturates=False), got)
    assert values > 500 * 20, "the outputs are nearly constant: nothing was compared"
    assert (pairs > 500) == (engine == "fbgemm" or qk.saturates(engine)), "the fuzz holds saturated pairs"


def test_every_linear_layer_has_the_live_kernels_bits(engine: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        N, K, OC = rng.integers(1, 40, 3)
        x = rng.integers(0, 256, (N, K)).astype(np.uint8)
        w = np.clip(np.rint(rng.normal(0, 60, (OC, K))), -127, 127).astype(np.int8)
        s_w = rng.uniform(0.001, 0.006, OC).astype(np.float32)
        q_in, q_out = random_qparams(rng, 0.01, 0.03), random_qparams(rng, 0.02, 0.2)
        bias, relu = rng.normal(0, 1, OC).astype(np.float32), bool(rng.random() < 0.4)
        s_w = s_w if rng.random() < 0.6 else s_w[0]
        got = qk.linear_live(engine, x, q_in, w, s_w, bias, q_out, relu)
        image, kernels = qk.as_conv(x, w)
        conv = Conv(image, q_in, kernels, s_w, bias, q_out, relu=relu)
        assert misses(qk.conv_model(engine, conv, qk.saturates(engine, conv))[:, :, 0].T, got) == 0


@pytest.mark.parametrize("per_channel", [True, False])
def test_sums_that_fall_next_to_a_tie_round_as_the_live_kernel_rounds(engine: str, per_channel: bool) -> None:
    """Multipliers within one unit in the last place of 1/(2m): odd multiples of m land on both sides of one half."""
    rng = np.random.default_rng(6 + per_channel)
    recipes = {"fbgemm": qk.fbgemm_requantize, "onednn": qk.onednn_requantize, "qnnpack": qk.qnnpack_requantize}
    near = 0
    for _ in range(20):
        OC, K, side = 16, 8, 128
        x = rng.integers(0, 256, (K, side, side)).astype(np.uint8)
        w = rng.integers(-63, 64, (OC, K, 1, 1)).astype(np.int8)  # two of them times 255 fit into int16
        m = rng.integers(60, 300, OC if per_channel else 1)
        s_in, s_out = np.float32(rng.uniform(0.01, 0.03)), np.float32(rng.uniform(0.02, 0.2))
        s_w = (s_out / s_in / (2 * m)).astype(np.float32)
        steps = rng.integers(-2000, 2000, OC) + rng.choice([0, 0.5, 1e-4, 0.4999, 0.3], OC)
        bias = (steps * np.float64(s_in) * s_w).astype(np.float32)
        conv = Conv(x, QParams(s_in, rng.integers(0, 256)), w, s_w if per_channel else s_w[0], bias,
                    QParams(s_out, rng.integers(100, 156)))  # fmt: skip
        acc = qk.exact_acc(conv)
        assert misses(recipes[engine](conv, acc), qk.conv_live(engine, conv)) == 0
        step = (acc + steps[:, None, None]) / (2 * m if per_channel else 2 * m[0]).reshape(-1, 1, 1)
        near += np.count_nonzero(np.abs(step - np.floor(step) - 0.5) < 1e-5)
    assert near > 1000, "no tie was near"


def test_with_weights_of_seven_bits_the_exact_accumulator_gives_the_live_x86_bits() -> None:
    """The graded recipe: fbgemm's roundings on an exact accumulator. 2 * 255 * 63 < 2**15, so no pair can saturate."""
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    rng = np.random.default_rng(7)
    for _ in range(120):
        conv = random_conv(rng, "fbgemm", largest=63)
        assert misses(qk.fbgemm_requantize(conv, qk.exact_acc(conv)), qk.conv_live("fbgemm", conv)) == 0


@pytest.mark.parametrize("saturates", [True, False])
def test_the_largest_pair_of_products_tells_a_saturating_accumulator_from_an_exact_one(saturates: bool) -> None:
    """2 * 255 * 127 = 64770 in steps of 300: 216, or 109 once it is clamped to 32767. `saturates` looks for these."""
    for engine in ("fbgemm", "onednn"):
        assert qk.conv_model(engine, qk.LARGEST_PAIR, saturates).item() == (109 if saturates else 216)
    assert qk.conv_model("qnnpack", qk.LARGEST_PAIR, saturates).item() == 216


def test_a_bias_that_falls_next_to_half_a_step_rounds_as_the_live_kernel_rounds(engine: str) -> None:
    """With an accumulator of 0 and an output scale of s_in * s_w, the output is the bias in whole steps."""
    rng = np.random.default_rng(12)
    for turn in range(8):
        OC = 4096
        s_in, s_out = np.float32(rng.uniform(0.01, 0.03)), np.float32(rng.uniform(1e-5, 1e-4))
        s_w = (s_out / s_in * rng.uniform(0.98, 1.02, OC)).astype(np.float32)
        bias = ((rng.integers(-90, 90, OC) + 0.5) * np.float64(s_in) * s_w).astype(np.float32)
        x, w = np.full((1, 1, 1), 100, np.uint8), np.full((OC, 1, 1, 1), 3, np.int8)
        conv = Conv(x, QParams(s_in, 100), w, s_w, bias, QParams(s_out, 128))
        got = qk.conv_live(engine, conv)
        assert misses(qk.conv_model(engine, conv, qk.saturates(engine, conv)), got) == 0, turn
        assert len(np.unique(got)) > 150


def test_a_bias_too_large_for_int32_wraps_in_qnnpack_and_nowhere_else(engine: str) -> None:
    x = np.uint8([[[0, 114, 255]]])
    conv = Conv(x, QParams(0.018658448, 114), np.full((1, 1, 1, 1), 127, np.int8), np.float32([1.1920929e-07]),
                np.float32([-5.885]), QParams(0.023, 0))  # fmt: skip
    got = qk.conv_live(engine, conv)
    assert misses(qk.conv_model(engine, conv, qk.saturates(engine, conv)), got) == 0
    assert (got.ravel() != 0).any() == (engine == "qnnpack")


def test_every_addition_has_the_live_kernels_bits(engine: str) -> None:
    rng = np.random.default_rng(8)
    for turn in range(60):
        a, b = rng.integers(0, 256, (2, 1, 8, 28, 42)).astype(np.uint8)
        qa, qb, q_out = (random_qparams(rng, 0.01, 0.1) for _ in range(3))
        got = qk.add_live(engine, a, qa, b, qb, q_out, relu=bool(turn % 2))
        assert misses(qk.add_model(engine, a, qa, b, qb, q_out, relu=bool(turn % 2)), got) == 0, turn


@pytest.mark.parametrize("channels_last", [True, False])
def test_every_average_has_the_live_kernels_bits(engine: str, channels_last: bool) -> None:
    rng = np.random.default_rng(9)
    for turn in range(60):
        x = rng.integers(0, 256, (160, *rng.integers(1, 9, 2))).astype(np.uint8)
        q = random_qparams(rng, 0.001, 0.2)
        got = qk.avgpool_live(engine, x, q, channels_last)
        assert misses(qk.avgpool_model(engine, x, q, channels_last), got) == 0, turn


def test_every_quantization_has_the_live_bits() -> None:
    if reason := qk.why_not("fbgemm"):
        pytest.skip(reason)
    rng = np.random.default_rng(10)
    for turn in range(40):
        q = random_qparams(rng, 0.001, 1)
        x = (rng.integers(-600, 600, 20_000) / 2 * np.float64(q.scale)).astype(np.float32)  # ties and near ties
        assert misses(qk.quantize_model(x, q), qk.quantize_live(x, q)) == 0, turn


def test_one_fused_multiply_add_rounds_once() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(11)
    a, b = rng.normal(0, 1, (2, 4000)).astype(np.float32)
    c = np.where(rng.random(4000) < 0.5, rng.normal(0, 1e-8, 4000), -a * b).astype(np.float32)
    for x, y, z, got in zip(a, b, c, qk.fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        around = [got, np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))]
        assert min(abs(Fraction(float(n)) - exact) for n in around) == abs(Fraction(float(got)) - exact)
    # a tie in float32 that float64 cannot tell from one: 1 + 2**-24 + 2**-70 is just above it
    assert qk.fma(np.float32(2**-35), np.float32(2**-35), np.float32(1)) == 1
    a, b, c = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(2**-70)
    assert qk.fma(a, b, c) == np.float32(1 + 2**-11 + 2**-23)
