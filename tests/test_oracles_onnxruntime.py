"""The reference solutions of chapter 4 against onnxruntime: operators of the ONNX standard, from another team's kernels.

Two of its rules differ from torch's, and so from the course's: `QuantizeLinear` divides by the scale where torch multiplies
by its reciprocal, and the bias of `QLinearConv` is an int32 in steps of s_in * s_w, as in qnnpack. uint8 weights (the code
plus 128, with 128 as zero point) are added up exactly on every CPU; int8 weights are, without VNNI, kept in sums of two
products of 16 bits, as by fbgemm (onnxruntime#16105).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import quantized_kernels as qk
from oracles.quantized_kernels import Conv
from test_oracles_quantization import LAYER_NAMES, as_conv, fixtures
from test_quantized_kernels import random_conv

from autograder import reference
from underhood.quantization import QParams

onnx = pytest.importorskip("onnx", reason="onnx is not installed, so no model can be written for onnxruntime")
onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed, so there is nothing to compare with"
)

ANSWERS = reference.load("04_quantization")
OPSET, IR = 21, 10  # the newest that onnxruntime 1.20 reads
MICROSOFT = "com.microsoft"


def one_node(op: str, inputs: list[np.ndarray], domain: str = "", **attributes: Any) -> np.ndarray:
    """What onnxruntime gives for a model of one node; the first input is fed, the others are constants of the model."""
    names = [f"input{i}" for i in range(len(inputs))]
    kind = onnx.helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    result = {"QuantizeLinear": onnx.TensorProto.UINT8, "DequantizeLinear": onnx.TensorProto.FLOAT}
    result["ConvInteger"] = onnx.TensorProto.INT32
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, ["output"], domain=domain, **attributes)],
        op,
        [onnx.helper.make_tensor_value_info(names[0], kind, inputs[0].shape)],
        [onnx.helper.make_tensor_value_info("output", result.get(op, kind), None)],
        [onnx.numpy_helper.from_array(a, name) for name, a in zip(names[1:], inputs[1:], strict=True)],
    )
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else constants are folded
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {names[0]: inputs[0]})[0]


def codes_of(q: QParams) -> list[np.ndarray]:
    """Scale and zero point as an operator takes them."""
    return [np.array(q.scale, np.float32), np.array(q.zero_point, np.uint8)]


def weights_of(conv: Conv, signed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Weights and their zero point, as int8 or moved up by 128 into uint8."""
    if signed:
        return conv.w, np.int8(conv.zw)
    return (conv.w.astype(np.int16) + 128).astype(np.uint8), np.uint8(128 + conv.zw)


def geometry(conv: Conv) -> dict[str, Any]:
    return {"strides": [conv.stride] * 2, "pads": [conv.padding] * 4, "group": conv.groups}


def sums(conv: Conv) -> np.ndarray:
    """ConvInteger: int32 (OC, Ho, Wo)."""
    w, zw = weights_of(conv, signed=False)
    return one_node("ConvInteger", [conv.x[None], w, codes_of(conv.q_in)[1], np.array(zw)], **geometry(conv))[0]


def codes(conv: Conv, bias: np.ndarray | None = None, signed: bool = False) -> np.ndarray:
    """QLinearConv: uint8 (OC, Ho, Wo); `bias` int32 (OC,)."""
    w, zw = weights_of(conv, signed)
    s_w = np.asarray(conv.s_w, np.float32)
    inputs = [conv.x[None], *codes_of(conv.q_in), w, s_w, np.full(s_w.shape, zw), *codes_of(conv.q_out)]
    return one_node("QLinearConv", inputs if bias is None else [*inputs, bias], **geometry(conv))[0]


def reference_sums(conv: Conv) -> np.ndarray:
    return ANSWERS["conv_acc"](conv.x, conv.q_in.zero_point, conv.w, conv.stride, conv.padding, conv.groups, conv.zw)


def reference_codes(conv: Conv, acc: np.ndarray, bias: np.ndarray) -> np.ndarray:
    s_w = np.broadcast_to(np.asarray(conv.s_w, np.float32), len(conv.w))
    return ANSWERS["requantize"](acc, bias, conv.q_in.scale, s_w, conv.q_out.scale, conv.q_out.zero_point, False)


def bias_in_steps(conv: Conv) -> np.ndarray:
    """int32 (OC,): the bias in whole steps of the sum."""
    if conv.bias is None:
        return np.zeros(len(conv.w), np.int32)
    return np.rint(conv.bias / (np.float64(conv.q_in.scale) * conv.s_w)).astype(np.int32)


def random_codes(rng: np.random.Generator) -> tuple[np.ndarray, QParams]:
    """Numbers, and halves of a step among them, with the parameters."""
    q = QParams(np.exp(rng.uniform(np.log(0.001), 0)), rng.integers(0, 256))
    halves = rng.integers(-600, 600, 5000) / 2 * np.float64(q.scale)
    return np.concatenate([halves, rng.normal(0, 60, 5000) * q.scale]).astype(np.float32), q


def test_codes_are_onnxruntimes_but_where_a_reciprocal_and_a_division_round_to_two_sides_of_a_half():
    rng = np.random.default_rng(40)
    differ = total = 0
    for _ in range(40):
        x, q = random_codes(rng)
        theirs = one_node("QuantizeLinear", [x, *codes_of(q)])
        ours = ANSWERS["quantize"](x, q)
        quotient, product = x / q.scale, x * (np.float32(1) / q.scale)
        assert np.array_equal(theirs, np.clip(np.rint(quotient) + q.zero_point, 0, 255)), "it divides"
        same = np.rint(quotient) == np.rint(product)
        assert np.array_equal(theirs[same], ours[same])
        assert np.abs(theirs.astype(int) - ours).max() <= 1
        differ, total = differ + np.count_nonzero(theirs != ours), total + x.size
    assert 0 < differ < total / 20, "the halves show that the two rules are two"


def test_numbers_from_codes_are_onnxruntimes():
    rng = np.random.default_rng(41)
    every = np.arange(256, dtype=np.uint8)
    for _ in range(40):
        _, q = random_codes(rng)
        theirs = one_node("DequantizeLinear", [every, *codes_of(q)])
        assert np.array_equal(theirs, ANSWERS["dequantize"](every, q)) and theirs.dtype == np.float32


@pytest.mark.parametrize("name", LAYER_NAMES)
def test_the_frozen_sums_are_onnxruntimes(name):
    conv = as_conv(fixtures()[name])
    assert np.array_equal(sums(conv), fixtures()[name]["acc"])
    assert np.array_equal(sums(conv), reference_sums(conv))


def test_random_layers_have_onnxruntimes_sums_and_codes():
    rng = np.random.default_rng(42)
    values = 0
    for turn in range(150):
        conv = random_conv(rng, "fbgemm")
        acc, steps = reference_sums(conv), bias_in_steps(conv)
        assert np.array_equal(sums(conv), acc), (turn, conv)
        none = np.zeros(len(conv.w), np.float32)
        assert np.array_equal(codes(conv), reference_codes(conv, acc, none)), (turn, conv)
        theirs = codes(conv, steps)
        # The bias is inside the sum before anything is rounded: added there, the rest of the recipe is the course's.
        assert np.array_equal(theirs, reference_codes(conv, acc + steps[:, None, None], none)), (turn, conv)
        if conv.bias is not None:  # with a bias that is not whole, a code moves to its neighbor here and there
            assert np.abs(theirs.astype(int) - reference_codes(conv, acc, conv.bias)).max() <= 1
        values += len(np.unique(theirs))
    assert values > 150 * 20, "the outputs are nearly constant: nothing was compared"


def test_int8_weights_are_added_up_exactly_or_in_saturating_pairs_as_the_cpu_has_it():
    probe = int(codes(qk.LARGEST_PAIR, signed=True).item())
    assert probe in (109, 216) and codes(qk.LARGEST_PAIR).item() == 216
    rng = np.random.default_rng(43)
    pairs = 0
    for _ in range(80):
        conv = random_conv(rng, "onednn")  # its weights have no zero point
        if conv.groups > 1:
            continue
        acc = qk.fbgemm_acc(conv, saturates=probe == 109)
        none = np.zeros(len(conv.w), np.float32)
        assert np.array_equal(codes(conv, signed=True), reference_codes(conv, acc, none))
        pairs += np.count_nonzero(acc != reference_sums(conv))
    assert (pairs > 0) == (probe == 109)


def test_sums_of_two_are_onnxruntimes_but_for_one_code_in_ten_thousand_at_most():
    """QLinearAdd scales both by ratios of scales, in another order than torch: a half can fall to the other side."""
    rng = np.random.default_rng(44)
    a, b = np.repeat(np.arange(256, dtype=np.uint8), 256), np.tile(np.arange(256, dtype=np.uint8), 256)
    for _ in range(20):
        qa, qb, q_out = (QParams(rng.uniform(0.01, 0.2), rng.integers(0, 256)) for _ in range(3))
        theirs = one_node("QLinearAdd", [a, *codes_of(qa), b, *codes_of(qb), *codes_of(q_out)], MICROSOFT)
        apart = np.abs(theirs.astype(int) - ANSWERS["qadd"](a, qa, b, qb, q_out))
        assert apart.max() <= 1 and np.count_nonzero(apart) <= a.size / 10_000


def test_averages_have_onnxruntimes_codes_by_the_recipe_that_it_shares_with_qnnpack():
    rng = np.random.default_rng(45)
    differ = 0
    for _ in range(200):
        x = rng.integers(0, 256, (20, *rng.integers(1, 17, 2))).astype(np.uint8)
        q = QParams(rng.uniform(0.01, 0.2), rng.integers(0, 256))
        inputs = [x[None], *codes_of(q), *codes_of(q)]
        theirs = one_node("QLinearGlobalAveragePool", inputs, MICROSOFT, channels_last=0)[0, :, 0, 0]
        assert np.array_equal(theirs, qk.avgpool_model("qnnpack", x, q))
        apart = np.abs(theirs.astype(int) - ANSWERS["avgpool"](x, q))
        assert apart.max() <= 1
        differ += np.count_nonzero(apart)
    assert differ < 200 * 20 / 100, "only halves may part"
