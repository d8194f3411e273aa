# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Chapter 4 · Quantization
#
# A **quantized** network computes with 8-bit integers. Somebody read the integers out of one, redid its first convolution in
# numpy, and found 92 % of the numbers equal. Most others were off by one; one was 121 where PyTorch had 76. The best
# answer said: 99.999 %, the rest depends on the hardware. You will find every cause, and end at 100.0000 %.
#
# ![Three maps of misses over a portrait. The public attempt misses the kernel everywhere, on 9 of 100 outputs. With the network's own scale the misses that are left lie on bright places: face, stars, collar. With sums as the kernel keeps them there is no miss.](figures/misses.png)
#
# **When you are done you will be able to**
#
# - choose a scale and a zero point, and turn real numbers into 8-bit codes and back;
# - write a quantized convolution that gives PyTorch's bits, and say which roundings that takes;
# - compare two tensors so that a miss shows, and explain each miss;
# - compute with integers only, as hardware does;
# - run whole quantized networks with your own functions.
#
# **You need** numpy arrays, and what a convolution is. **It takes** about 120 minutes to the 100 %, which is the end of the
# question: nine functions. Then take a break. *Integers only*, for who builds hardware, and whole networks take another
# 60 minutes: five functions. All fourteen are worth 56 points.

# %%
import sys

if "google.colab" in sys.modules:  # on Colab: the course's helper package, and nothing else
    package = "underhood @ git+https://github.com/under-the-hood-course/under-the-hood@v1.0.0#subdirectory=course"
    get_ipython().run_line_magic("pip", f'install -q --no-deps "{package}"')

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from tqdm import tqdm

from underhood import check, data, digits_cnn, engines, mobilenet, ready
from underhood.plots import quantization as plots
from underhood.quantization import QParams, load_layers

# %% [markdown]
# ## Codes for real numbers
#
# A **code** is an integer from 0 to 255 that stands for a real number: `real = scale * (code - zero_point)`. The
# **scale** is the size of one step; the **zero point** is the code of 0.0. Together they are the quantization parameters:
# `QParams(scale, zero_point)`. Codes are numpy's uint8; the scale is float32, because PyTorch's **kernels**, the compiled
# routines that do the work, compute in float32, and you want their bits. (PyTorch's own quantized tensors are deprecated.
# You will not need them.)
#
# ### **Exercise 4.1 · a range becomes 256 codes** — *medium · 10 min · 4 points*
#
# Given the smallest and the largest value, choose scale and zero point. From -1 to 2 there are 255 steps of 3/255 =
# 0.01176, and 0.0 lies 85 steps above -1: code 85.
#
# - **0.0 needs a code of its own**: padding is 0.0, and so is all that a ReLU, `max(x, 0)`, cuts off. A range that leaves it
#   out is widened first: 0.5 to 3 becomes 0 to 3.
# - The zero point is **rounded**, with `np.rint`. From -2.1179 to 2.64 it is 113.509 before that: code 114.
# - Everything is float32. From -1 to 1 the zero point is a little below 127.5, not on it.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-choose_qparams", "locked": false, "schema_version": 3, "solution": true, "task": false}
def choose_qparams(mn: float, mx: float) -> QParams:
    """Scale and zero point for uint8 codes that cover a range of real numbers, and 0.

    Parameters
    ----------
    mn, mx : float
        Smallest and largest value, in real units; taken as float32.

    Returns
    -------
    QParams
        scale, float32, in real units per step: the range, widened to hold 0, divided by 255, in float32; at least
        float32's epsilon, 1.1920929e-07. zero_point, int, 0 to 255: the code of 0.0, rounded (halves to even).

    Raises
    ------
    ValueError
        If mn is above mx, or one of them is nan or infinite.

    Examples
    --------
    >>> choose_qparams(-1.0, 2.0)
    QParams(scale=np.float32(0.011764706), zero_point=85)
    """
    ### BEGIN SOLUTION
    mn, mx = np.float32(mn), np.float32(mx)
    if not (np.isfinite(mn) and np.isfinite(mx) and mn <= mx):
        raise ValueError(f"no range: from {mn} to {mx}")
    mn, mx = min(mn, np.float32(0)), max(mx, np.float32(0))  # 0.0 needs a code of its own
    scale = max((mx - mn) / np.float32(255), np.finfo(np.float32).eps)
    return QParams(scale, -np.rint(mn / scale))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-choose_qparams-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("choose_qparams")
### BEGIN HIDDEN TESTS
check("choose_qparams", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Convert both ends to float32 and check them. What has to happen to the range 0.5 to 3 before you divide?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `min(mn, 0)` and `max(mx, 0)` widen. The zero point is how many steps `mn` lies below 0.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `scale = max((mx - mn) / np.float32(255), np.finfo(np.float32).eps)`; the zero point is `-np.rint(mn / scale)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ### **Exercise 4.2 · to codes and back** — *medium · 12 min · 7 points · uses 4.1*
#
# With scale 0.5 and zero point 10, the number 1.3 is 2.6 steps, so 3 steps, code 13. Back, 13 is 1.5. Three details
# decide about single bits:
#
# - **Halves go to the even neighbor**: `np.rint` sends 0.5 to 0, 1.5 to 2 and 2.5 to 2.
# - **The zero point is added after rounding.** 0.5 steps with zero point 1 give 0 + 1 = 1. Adding first gives 1.5, and
#   that rounds to 2.
# - The kernel multiplies by **1 / scale**, which is itself rounded to float32.
#
# On the way back, mind the type: in uint8, 9 - 11 is 254.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-quantize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize(x: np.ndarray, qp: QParams) -> np.ndarray:
    """Real numbers to codes.

    Parameters
    ----------
    x : float32 array, any shape
        Finite, in real units.
    qp : QParams

    Returns
    -------
    uint8 array, the shape of x
        In float32: x times the reciprocal of the scale, rounded (halves to even), plus the zero point, clamped to 0…255.

    Examples
    --------
    >>> quantize(np.float32([-0.25, 0.0, 0.15, 99.0]), QParams(0.1, 11)).tolist()
    [9, 11, 13, 255]
    """
    ### BEGIN SOLUTION
    steps = np.rint(x * (np.float32(1) / qp.scale))  # PyTorch's kernel multiplies by the reciprocal
    return np.clip(steps + qp.zero_point, 0, 255).astype(np.uint8)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-quantize-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("quantize")
### BEGIN HIDDEN TESTS
check("quantize", hidden=True)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "04_quantization-dequantize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dequantize(q: np.ndarray, qp: QParams) -> np.ndarray:
    """Codes to real numbers.

    Parameters
    ----------
    q : uint8 array, any shape
    qp : QParams

    Returns
    -------
    float32 array, the shape of q
        scale * (code - zero_point), in real units.

    Examples
    --------
    >>> dequantize(np.uint8([0, 11, 13]), QParams(0.5, 11)).tolist()
    [-5.5, 0.0, 1.0]
    """
    ### BEGIN SOLUTION
    return (q.astype(np.float32) - np.float32(qp.zero_point)) * qp.scale
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-dequantize-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("dequantize")
### BEGIN HIDDEN TESTS
check("dequantize", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# `quantize` has four steps: scale, round, shift, clamp. `dequantize` has two, and neither may happen in uint8.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `np.float32(1) / qp.scale` is the reciprocal. `np.clip` comes before `astype(np.uint8)`, because astype wraps around.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `np.clip(np.rint(…) + qp.zero_point, 0, 255).astype(np.uint8)`, and `(q.astype(np.float32) - …) * qp.scale`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Below is a matrix with its codes and what they stand for. The scale is 0.0157. How large can the error of one number
# be? Which number comes back exactly?

# %%
if ready("choose_qparams", "quantize", "dequantize"):
    original = np.float32([[-1.0, -0.504, 0.0, 0.31], [0.25, 1.007, 2.0, 3.0], [0.011, 0.5, -0.123, 1.5]])
    qp = choose_qparams(original.min(), original.max())
    q = quantize(original, qp)
    print(qp)
    plots.show_matrices(original, q, dequantize(q, qp))

# %% [markdown]
# Half a step at most, and 0.0 is exact: that is why the range must hold it.
#
# ### **Exercise 4.3 · a scale for each channel** — *medium · 10 min · 4 points*
#
# So far you coded **activations**, the numbers that flow from layer to layer.
# **Weights** are coded in int8 around zero point 0, with codes from -127 to 127, and each **output channel** (axis 0) has
# its own scale: its largest absolute weight divided by 127. For the rows (0.5, -1.27, 0.3) and (0.02, 0.008, -0.0127) the
# codes are (50, -127, 30) and (127, 51, -81). With one scale for both rows the second would be (2, 1, -1). Here you
# *divide* by the scale. (`torch.quantize_per_channel` multiplies by the reciprocal; close to half a step that can be
# another code.)
#
# In PyTorch a weight with a scale for each channel raises an error when it is asked for `q_scale()`; ask for
# `q_per_channel_scales()`.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-quantize_weight_per_channel", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize_weight_per_channel(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights to int8 codes, with one scale for each output channel and zero point 0.

    Parameters
    ----------
    w : float32 array (OC, …)
        Real units; axis 0 is the output channel.

    Returns
    -------
    codes : int8 array, the shape of w
        w divided by its channel's scale, rounded (halves to even), clamped to -127…127.
    scale : float32 array (OC,)
        The channel's largest absolute weight divided by 127, in float32; at least float32's epsilon, 1.1920929e-07.

    Examples
    --------
    >>> codes, scale = quantize_weight_per_channel(np.float32([[0.5, -1.27], [0.02, 0.008]]))
    >>> codes.tolist()
    [[50, -127], [127, 51]]
    """
    ### BEGIN SOLUTION
    largest = np.abs(w).reshape(len(w), -1).max(axis=1)
    scale = np.maximum(largest / np.float32(127), np.finfo(np.float32).eps)
    steps = np.rint(w / scale.reshape(-1, *[1] * (w.ndim - 1)))
    return np.clip(steps, -127, 127).astype(np.int8), scale
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-quantize_weight_per_channel-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("quantize_weight_per_channel")
### BEGIN HIDDEN TESTS
check("quantize_weight_per_channel", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# One number for each entry of axis 0, whatever the other axes are.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `np.abs(w).reshape(len(w), -1).max(axis=1)` is the largest of each channel. To divide, give the scales as many axes as w
# has.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `np.maximum(largest / np.float32(127), np.finfo(np.float32).eps)`, then `np.rint(w / scale.reshape(-1, 1, …))`.
#
# </details>

# %%
# Try your own inputs here.

# %%
# Three weights each of four kernels of the layer below. An error is half a step at most: which row has the smallest steps?
if ready("quantize_weight_per_channel"):
    weights = data.load("photo_stem")["w"][[2, 7, 10, 31], 1, 0]
    q, scale = quantize_weight_per_channel(weights)
    print("scales", scale)
    plots.show_matrices(weights, q, q * scale[:, None])

# %% [markdown]
# ## A convolution of codes
#
# The layer that you rebuild has 32 filters of 3 × 3 on 3 colors, stride 2, padding 1, and a ReLU. The photo is 224 × 224,
# so 32 · 112 · 112 = 401,408 numbers come out. `kernel` holds what PyTorch's x86 kernel gave. (The filters were learned
# from the photo's own patches for this course.)
#
# Put `s_in * (x - zx)` and `s_w * w` into a convolution: both scales leave the sum, and what stays is an integer,
# `acc = Σ (x - zx) * w`, in steps of `s_in * s_w`.

# %%
stem = data.load("photo_stem")
mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
x = (stem["photo"] / np.float32(255) - mean[:, None, None]) / std[:, None, None]
kernel, bias = stem["kernel"], stem["bias"]
q_in, q_out = QParams(*stem["q_in"]), QParams(*stem["q_out"])
print(x.shape, x.dtype, q_in, q_out, kernel.shape, kernel.dtype, sep="\n")
if ready("quantize", "quantize_weight_per_channel"):
    codes = quantize(x, q_in)
    w, s_w = quantize_weight_per_channel(stem["w"])


# %%
def one_output(x, zx, w, o, i, j, stride, padding):
    """The definition of one sum, product by product."""
    total = 0
    for c, a, b in np.ndindex(w.shape[1:]):
        row, column = i * stride + a - padding, j * stride + b - padding
        if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:  # outside is 0.0, which adds nothing
            total += (int(x[c, row, column]) - zx) * int(w[o, c, a, b])
    return total


# %% [markdown]
# ### **Exercise 4.4 · the integer convolution** — *hard · 20 min · 5 points*
#
# Write it for whole layers, with `groups` and with a zero point of the weights. For x = [[10, 20], [30, 41]], zx = 10 and
# w = [[1, 2], [3, -4]] the sum is 0·1 + 10·2 + 20·3 + 31·(-4) = -44.
#
# First write the loop that reads like the definition, and make the check pass. Keep a copy of it. Then make it fast:
# collect what each of the 9 places of the window meets as a slice with a stride, and let one matrix product add up. The
# check takes both; the cell after it times them.
#
# Three traps from public answers: `H // stride` is not the output's size (9 rows, kernel 3, stride 2, padding 1 give 5);
# `x - zx` in uint8 wraps around; padding is not code 0. (A layer's kernel is its small window of weights, PyTorch's kernel a
# routine: both words are in use.)


# %% nbgrader={"grade": false, "grade_id": "04_quantization-conv_acc", "locked": false, "schema_version": 3, "solution": true, "task": false}
def conv_acc(
    x: np.ndarray, zx: int, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1, zw: int = 0
) -> np.ndarray:
    """The integer part of a quantized convolution: exact sums of (x - zx) * (w - zw).

    Parameters
    ----------
    x : uint8 array (C, H, W)
        Codes of the input.
    zx : int
        The input's zero point. Padding stands for 0.0.
    w : int8 array (OC, C/groups, kh, kw)
        Codes of the weights. The kernel is not flipped.
    stride, padding : int
        The same for both axes; in pixels.
    groups : int
        Input and output channels form this many groups; each output sees the inputs of its own group.
    zw : int
        The weights' zero point.

    Returns
    -------
    int32 array (OC, Ho, Wo)
        Ho = (H + 2 * padding - kh) // stride + 1, and Wo likewise.

    Raises
    ------
    ValueError
        If C is not groups times w's second size, or OC is no multiple of groups.

    Examples
    --------
    >>> conv_acc(np.uint8([[[10, 20], [30, 41]]]), 10, np.int8([[[[1, 2], [3, -4]]]])).tolist()
    [[[-44]]]
    """
    ### BEGIN SOLUTION
    (C, H, W), (OC, per_group, kh, kw) = x.shape, w.shape
    if C != per_group * groups or OC % groups:
        raise ValueError(f"{C} channels into {OC} do not fit kernels of {per_group} channels in {groups} groups")
    Ho, Wo = (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1

    kernels = w.reshape(groups, OC // groups, -1).astype(np.float32) - np.float32(zw)
    largest = max(zx, 255 - zx) * np.abs(kernels).sum(axis=-1).max()
    dtype = np.float32 if largest < 2**24 else np.float64  # below 2²⁴ float32 holds every partial sum exactly

    padded = np.full((C, H + 2 * padding, W + 2 * padding), zx, np.uint8)
    padded[:, padding : padding + H, padding : padding + W] = x
    rows = [slice(i, i + stride * (Ho - 1) + 1, stride) for i in range(kh)]
    cols = [slice(j, j + stride * (Wo - 1) + 1, stride) for j in range(kw)]
    taps = [padded[:, r, c] for r in rows for c in cols]  # views: what each place of the kernel meets
    columns = np.subtract(np.stack(taps, axis=1), zx, dtype=dtype)
    acc = kernels.astype(dtype, copy=False) @ columns.reshape(groups, -1, Ho * Wo)
    return acc.astype(np.int32).reshape(OC, Ho, Wo)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-conv_acc-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("conv_acc")
### BEGIN HIDDEN TESTS
check("conv_acc", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Subtract both zero points first, in a type that holds -255 to 255. Then padding with 0 is right.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Loop: for each (o, i, j), multiply a window with `w[o]` and add up. Output o sees the channels from
# `o // (OC // groups) * (C // groups)` on. Fast: the codes that kernel place (a, b) meets are
# `padded[:, a : a + stride * (Ho - 1) + 1 : stride, …]`; stack them and multiply with `w.reshape(OC, -1)`.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `np.stack(taps, axis=1).reshape(groups, -1, Ho * Wo)` meets `w.reshape(groups, OC // groups, -1)` in one `@`. Floats go
# through fast libraries, integers do not: float32 is exact while max(zx, 255 - zx) · Σ|w| < 2²⁴, float64 always.
#
# </details>

# %%
# Try your own inputs here.

# %%
# The definition against your function, on the whole first layer. Which ratio do you expect?
if ready("quantize", "quantize_weight_per_channel", "conv_acc"):
    start = time.perf_counter()
    some = [one_output(codes, q_in.zero_point, w, o, 40, 50, 2, 1) for o in range(32)]
    loop = (time.perf_counter() - start) / 32 * kernel.size  # as long as all outputs would take
    start = time.perf_counter()
    acc = conv_acc(codes, q_in.zero_point, w, 2, 1)
    yours = time.perf_counter() - start
    print(f"definition {loop:.1f} s, yours {yours:.3f} s, ratio {loop / yours:,.0f}", some == acc[:, 40, 50].tolist())

# %% [markdown]
# ### **Exercise 4.5 · from sums to codes** — *hard · 15 min · 5 points · uses 4.4*
#
# The sums are in steps of `s_in * s_w`, the output in steps of `s_out`, and the bias in real units. With s_in = 0.02, s_w =
# 0.005, s_out = 0.05, bias 0.0125 and zero point 3: the sum 150 has steps of 0.0001, the bias is 125 of them, 275 ·
# 0.002 = 0.55 rounds to 1, and the code is 4.
#
# The kernel's order, each operation rounded to float32: `acc + bias / (s_in * s_w)`, times `(s_in * s_w) / s_out`, round,
# add the zero point, clamp to 0…255. A **ReLU** lets nothing below 0.0 pass, and 0.0 has the code `zo`.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-requantize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def requantize(
    acc: np.ndarray,
    bias: np.ndarray | None,
    s_in: float,
    s_w: np.ndarray | float,
    s_out: float,
    zo: int,
    relu: bool = False,
) -> np.ndarray:
    """Sums to output codes, rounded where PyTorch's x86 kernel rounds.

    Parameters
    ----------
    acc : int32 array (OC, …)
        Sums of codes, in units of s_in * s_w.
    bias : float32 array (OC,) or None
        In real units; None adds nothing.
    s_in, s_out : float
        Scales of input and output, taken as float32.
    s_w : float32 array (OC,), or one number for all channels
        Scales of the weights.
    zo : int
        The output's zero point.
    relu : bool
        Whether nothing below 0.0, that is below code zo, may come out.

    Returns
    -------
    uint8 array, the shape of acc
        In float32, each operation rounded: y = acc + bias / (s_in * s_w); y * (s_in * s_w / s_out); round (halves to
        even); + zo; clamp.

    Examples
    --------
    >>> acc = np.int32([[100, 150, 1000, -30000]])
    >>> requantize(acc, np.float32([0.0125]), 0.02, 0.005, 0.05, 3).tolist()
    [[3, 4, 5, 0]]
    """
    ### BEGIN SOLUTION
    per_channel = (-1, *[1] * (acc.ndim - 1))
    s_acc = np.float32(s_in) * np.asarray(s_w, np.float32).reshape(per_channel)
    y = acc.astype(np.float32)
    if bias is not None:
        y += bias.reshape(per_channel) / s_acc
    y *= s_acc / np.float32(s_out)
    np.rint(y, out=y)
    y += np.float32(zo)
    return np.clip(y, zo if relu else 0, 255, out=y).astype(np.uint8)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-requantize-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("requantize")
### BEGIN HIDDEN TESTS
check("requantize", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Six steps in the order of the text. Which of them need one number for each channel?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Reshape bias and scales to (OC, 1, 1), or as many ones as acc has further axes. Keep every number float32: a float64
# changes a code now and then.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `s_acc = np.float32(s_in) * s_w`, `y = (acc.astype(np.float32) + bias / s_acc) * (s_acc / np.float32(s_out))`,
# `np.clip(np.rint(y) + zo, zo if relu else 0, 255)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# **Break it on purpose.** Pad the photo with code 0 instead of the code of 0.0. Code 0 stands for -2.12: a very black
# frame. The map is darker where more of the 32 channels differ. Where will it be dark, and why not on all four sides?

# %%
LAYER = "quantize", "quantize_weight_per_channel", "conv_acc", "requantize"
NETWORK = *LAYER, "choose_qparams", "madd_pairs", "hit_rate", "qadd", "avgpool", "quantized_network"
if ready(*LAYER):

    def first_layer(codes, padding):
        acc = conv_acc(codes, q_in.zero_point, w, 2, padding)
        return requantize(acc, bias, q_in.scale, s_w, q_out.scale, q_out.zero_point, relu=True)

    black = np.pad(codes, ((0, 0), (1, 1), (1, 1)))  # code 0 all around
    plots.show_misses({"padded with code 0": first_layer(black, 0)}, first_layer(codes, 1))

# %% [markdown]
# At the top and the left only: with stride 2 the last window ends on the photo's last row.
#
# ## The public attempt
#
# Here is what the question did: a range of its own from the picture, `int()` for the zero point, float64, and no clamp at
# 255. Then it compared with `a.all() == b.all()`. Predict the first printed word, and the second.

# %%
if ready(*LAYER):

    def own_codes(qp):  # the zero point is added before rounding
        return np.clip(np.rint(x / qp.scale + qp.zero_point), 0, 255).astype(np.uint8)

    def attempt(codes, qp):
        acc = conv_acc(codes, qp.zero_point, w, 2, 1)
        multiplier, shift = np.float64(qp.scale) * s_w / q_out.scale, np.float64(bias) / q_out.scale
        return np.maximum(np.rint(acc * multiplier[:, None, None] + shift[:, None, None]), 0)


# %%
if ready(*LAYER):
    scale = (x.max() - x.min()) / np.float32(255)
    own = QParams(scale, int(-x.min() / scale))  # 110.916, cut to 110
    public = attempt(own_codes(own), own)
    print(public.all() == kernel.all(), np.array_equal(public, kernel), (public == kernel).mean())

# %% [markdown]
# True, False, 0.9095. `a.all()` asks whether *a* has no zero. Both have zeros, False equals False, and the comparison has
# said nothing. Count instead: 90.95 % are equal (with the asker's photo it was 92 %).
#
# Now remove the causes one by one. How much will the truncated zero point cost?

# %%
if ready(*LAYER):
    stages = {"the public attempt": public}
    rounded = QParams(own.scale, np.rint(-x.min() / own.scale))
    stages["zero point rounded"] = attempt(own_codes(rounded), rounded)
    stages["the network's scale"] = attempt(codes, q_in)
    stages["clamp at 255"] = np.minimum(stages["the network's scale"], 255)
    stages["float32 recipe"] = first_layer(codes, 1)
    for name, y in stages.items():
        off = np.abs(y - kernel.astype(int))
        print(f"{name:20} {100 * (off == 0).mean():8.4f} %  {(off == 1).sum():6} off by one, largest {off.max():.0f}")

# %% [markdown]
# - **The zero point** was wrong by one and cost one output: `x - zx` shifts as a whole. It costs where a range *ends*.
# - **The range** is the big one: the network keeps the scale and zero point of its **calibration**, a run over sample
#   pictures that recorded the ranges. With those of your picture the codes that go in differ by a few steps.
# - **The clamp** cost 397 outputs. A ReLU at code 0 was right only because `zo` is 0 here.
# - **float64** cost one. Adding the zero point early and a range without 0 cost nothing on this photo; your checks had
#   inputs where they do.
#
# The question also replayed one pixel with `weight[2]` while speaking of channel 1: print the index with the number. Its
# code no longer runs as it stands: `np.int` is gone, and `torch.tensor(t)` of a tensor warns (use `t.clone()`).
#
# 3.4 % are left, most of them off by more than one. Look at the worst: its 27 products, in pairs, in the kernel's order (row, column,
# channel).

# %%
if ready(*LAYER):
    miss = np.abs(stages["float32 recipe"].astype(int) - kernel)
    o, i, j = (int(n) for n in np.unravel_index(miss.argmax(), miss.shape))
    print((o, i, j), "yours", stages["float32 recipe"][o, i, j], "kernel", kernel[o, i, j])
    patch = codes[:, 2 * i - 1 : 2 * i + 2, 2 * j - 1 : 2 * j + 2]
    plots.show_pairs(patch.transpose(1, 2, 0).ravel(), w[o].transpose(1, 2, 0).ravel())

# %% [markdown]
# ## Sixteen bits for two products
#
# 235·127 + 243·110 = 56,575 does not fit into 16 bits. x86 CPUs have an instruction, `vpmaddubsw`, that multiplies 32
# pairs of bytes at once and adds neighbors in **int16, saturating**: what is above 32,767 becomes 32,767. Newer CPUs with
# **VNNI** add four products in 32 bits instead. That is the "depends on the hardware": an exact rule, not noise.
#
# The instruction takes unsigned times signed bytes, so the kernel feeds it *raw* codes and corrects for the zero point
# afterwards, with `zx * Σ w`.
#
# ### **Exercise 4.6 · sixteen bits for two products** — *medium · 12 min · 4 points*
#
# Multiply and add as that instruction does. For x = (211, 171, 200, 180) and w = (71, 107, -90, -100) the pairs are
# 33,278 and -36,000; they become 32,767 and -32,768, and the result is -1. The exact sum is -2,722.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-madd_pairs", "locked": false, "schema_version": 3, "solution": true, "task": false}
def madd_pairs(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Multiply and add as an x86 CPU without VNNI does: in pairs whose sum is kept in 16 bits.

    Parameters
    ----------
    x : uint8 array (…, K)
        Raw codes: no zero point is subtracted.
    w : int8 array (…, K)
        Raw codes. Leading axes broadcast against those of x.

    Returns
    -------
    int32 array (…)
        The products are added in adjacent pairs (0, 1), (2, 3), …; each pair's sum is clamped to -32768…32767; the
        pairs are added in int32. With odd K the last product stands alone.

    Examples
    --------
    >>> madd_pairs(np.uint8([211, 171, 200, 180]), np.int8([71, 107, -90, -100])).item()
    -1
    """
    ### BEGIN SOLUTION
    products = x.astype(np.int32) * w
    pairs = products[..., 0::2].copy()
    pairs[..., : products.shape[-1] // 2] += products[..., 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=-1, dtype=np.int32)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-madd_pairs-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("madd_pairs")
### BEGIN HIDDEN TESTS
check("madd_pairs", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Products, pairs, clamp, total. In which type is each?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `products[..., 0::2]` holds the first of each pair, `products[..., 1::2]` the second. With odd K the second is shorter.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `pairs = products[..., 0::2].copy()`, `pairs[..., : K // 2] += products[..., 1::2]`,
# `np.clip(pairs, -32768, 32767).sum(axis=-1, dtype=np.int32)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Put it into a convolution: windows of raw codes, channel fastest, padding with `zx`, which takes part in pairs. Pairs
# never cross from one group to the next. How many misses will be left?


# %%
def saturating_acc(x, zx, w, stride=1, padding=0, groups=1):
    around = (padding, padding)
    padded = np.pad(x, ((0, 0), around, around), constant_values=zx)
    windows = sliding_window_view(padded, w.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
    acc = []
    for inputs, kernels in zip(np.split(windows, groups), np.split(w, groups), strict=True):
        patches = inputs.transpose(1, 2, 3, 4, 0).reshape(*inputs.shape[1:3], -1)  # row, column, channel
        for k in kernels.transpose(0, 2, 3, 1).reshape(len(kernels), -1):
            acc.append(madd_pairs(patches, k) - zx * k.sum(dtype=np.int32))
    return np.stack(acc)


# %%
if ready(*LAYER, "madd_pairs"):
    acc = saturating_acc(codes, q_in.zero_point, w, 2, 1)
    scales = q_in.scale, s_w, q_out.scale
    stages["saturating pairs"] = requantize(acc, bias, *scales, q_out.zero_point, relu=True)
    plots.show_misses(stages, kernel)

# %% [markdown]
# 100.0000 %: all 401,408 codes.
#
# ### **Exercise 4.7 · count misses, explain misses** — *hard · 21 min · 7 points · uses 4.6*
#
# Two instruments to keep. `hit_rate` is the share of equal places. `(a == b).mean()` did that until now, but it broadcasts
# (3 places against 1 "work") and gives nan for nothing: raise a ValueError there. (1, 2, 3, 4) against (1, 2, 0, 4): 0.75.
#
# `explain_misses` lists each miss with its kind. It looks for a saturated pair first, then asks whether the codes differ
# by one. For the output above it says (11, 11, 67), got 148, want 55, "saturation", pair ((2, 2, 0), (2, 2, 1)).


# %% nbgrader={"grade": false, "grade_id": "04_quantization-hit_rate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def hit_rate(a: np.ndarray, b: np.ndarray) -> float:
    """Share of places at which two arrays are equal.

    Parameters
    ----------
    a, b : arrays of one shape

    Returns
    -------
    float
        From 0.0 to 1.0, a Python number.

    Raises
    ------
    ValueError
        If the shapes differ, or there is nothing to compare.

    Examples
    --------
    >>> hit_rate(np.uint8([1, 2, 3, 4]), np.uint8([1, 2, 0, 4]))
    0.75
    """
    ### BEGIN SOLUTION
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"shapes {a.shape} and {b.shape}: nothing to compare place by place")
    return float(np.mean(a == b))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-hit_rate-check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("hit_rate")
### BEGIN HIDDEN TESTS
check("hit_rate", hidden=True)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "04_quantization-explain_misses", "locked": false, "schema_version": 3, "solution": true, "task": false}
def explain_misses(
    got: np.ndarray, want: np.ndarray, x: np.ndarray, w: np.ndarray, zx: int, stride: int, padding: int
) -> list[dict]:
    """Why outputs of a convolution (groups = 1) differ from the saturating kernel's.

    Parameters
    ----------
    got, want : uint8 arrays (OC, Ho, Wo)
        Your codes and the kernel's.
    x : uint8 array (C, H, W)
        The input's codes.
    w : int8 array (OC, C, kh, kw)
    zx : int
        The input's zero point, which also fills the padding.
    stride, padding : int

    Returns
    -------
    list of dict
        One for each place where got and want differ, in reading order, with the keys
        `index`: tuple (o, i, j); `got`, `want`: int;
        `kind`: "saturation" if some pair of products leaves -32768…32767, else "rounding" if the codes differ by one,
        else "other";
        `pair`: the first such pair as ((row, column, channel), (row, column, channel)) within the kernel, else None.
        Pairs are adjacent in the order (row, column, channel), channel fastest; an odd last product stands alone.

    Examples
    --------
    >>> codes, w = np.uint8([[[255, 255]]]), np.int8([[[[127, 127]]]])
    >>> explain_misses(np.uint8([[[9]]]), np.uint8([[[5]]]), codes, w, 0, 1, 0)
    [{'index': (0, 0, 0), 'got': 9, 'want': 5, 'kind': 'saturation', 'pair': ((0, 0, 0), (0, 1, 0))}]
    """
    ### BEGIN SOLUTION
    kh, kw = w.shape[2:]
    padded = np.pad(x.astype(np.int32), ((0, 0), (padding, padding), (padding, padding)), constant_values=zx)
    places = [(i, j, c) for i in range(kh) for j in range(kw) for c in range(len(x))]  # channel fastest
    misses = []
    for o, i, j in np.argwhere(got != want).tolist():
        patch = padded[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
        products = (patch * w[o]).transpose(1, 2, 0).ravel()
        sums = products[: products.size // 2 * 2].reshape(-1, 2).sum(axis=1)
        saturated = np.flatnonzero((sums < -(2**15)) | (sums > 2**15 - 1))
        pair = (places[2 * saturated[0]], places[2 * saturated[0] + 1]) if saturated.size else None
        g, e = int(got[o, i, j]), int(want[o, i, j])
        kind = "saturation" if pair else "rounding" if abs(g - e) == 1 else "other"
        misses.append({"index": (o, i, j), "got": g, "want": e, "kind": kind, "pair": pair})
    return misses
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-explain_misses-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("explain_misses")
### BEGIN HIDDEN TESTS
check("explain_misses", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# For a miss at (o, i, j): which codes lie in its window, and in which order does the kernel multiply them? Convert before
# you subtract codes.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `np.argwhere(got != want).tolist()` gives the places in reading order. Pad with zx, cut the window at `i * stride`,
# multiply with `w[o]` as int32, and move the channel to the last axis before you flatten.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `products = (patch * w[o]).transpose(1, 2, 0).ravel()`; sums of `products[0::2]` and `products[1::2]` over their common
# length; product k is at row k // (kw · C), column k // C % kw, channel k % C.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# Let it explain what the float32 recipe missed. Which kinds will there be? Then ask *your* machine: the cell after it
# prints which engines your PyTorch has, and what each gives for this layer. **qnnpack** adds exactly and rounds the bias to
# an integer; **onednn** pairs inside each pixel, leaves padding out, and adds the bias in real units, which
# changes a code now and then. **x86** is onednn on a CPU with VNNI and fbgemm on others.

# %%
if ready(*LAYER, "hit_rate", "explain_misses"):
    yours = stages["float32 recipe"]
    found = explain_misses(yours, kernel, codes, w, q_in.zero_point, 2, 1)
    kinds = [entry["kind"] for entry in found]
    print(len(found), "misses:", {kind: kinds.count(kind) for kind in set(kinds)})
    print(max(found, key=lambda entry: abs(entry["got"] - entry["want"])))

# %%
engines.report()
if ready(*LAYER, "madd_pairs", "hit_rate"):
    for name in engines.available():
        live = engines.conv2d(name, codes, q_in, w, s_w, bias, q_out, stride=2, padding=1, relu=True)
        exact, pairs = (hit_rate(stages[key], live) for key in ("float32 recipe", "saturating pairs"))
        print(f"{name:8} exact sums {100 * exact:8.4f} %   saturating pairs {100 * pairs:8.4f} %")

# %% [markdown]
# ## Integers only
#
# Who builds hardware has no float32. The multiplier `m = s_in * s_w / s_out` becomes an integer `m0` of 31 bits and a
# shift: `m = m0 / 2³¹ / 2^shift` (Jacob et al. 2018). The bias becomes an integer too, in steps of `s_in * s_w`.
#
# ### **Exercise 4.8 · integers only** — *hard · 20 min · 7 points · uses 4.5*
#
# `quantize_multiplier(1 / 3)` is (1431655765, 1): 1/3 = 0.6667 / 2, and 0.6667 · 2³¹ rounds to m0. `requantize_fixed`
# rounds twice. With m = ¼, so m0 = 2³⁰ and shift 1, the sum 6 becomes 6 · ½ = 3 after the multiplication, 3 / 2 = 1.5 rounds
# to 2, and with zero point 100 the code is 102. The sum -1 becomes -½, which goes *up* to 0; the second rounding sends
# halves *away* from zero.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-quantize_multiplier", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize_multiplier(m: float) -> tuple[int, int]:
    """A multiplier as an integer and a shift: m = m0 / 2**31 / 2**shift.

    Parameters
    ----------
    m : float
        Positive.

    Returns
    -------
    m0 : int
        From 2**30 to below 2**31, rounded.
    shift : int
        Negative where m is 1 or more.

    Raises
    ------
    ValueError
        If m is not above 0, or is nan or infinite.

    Examples
    --------
    >>> quantize_multiplier(0.25)
    (1073741824, 1)
    """
    ### BEGIN SOLUTION
    if not 0 < m < np.inf:
        raise ValueError(f"a multiplier is positive and finite, this one is {m}")
    fraction, exponent = np.frexp(m)  # m = fraction * 2**exponent, 1/2 <= fraction < 1
    m0, shift = int(np.rint(fraction * 2**31)), -int(exponent)
    return (m0, shift) if m0 < 2**31 else (2**30, shift - 1)  # the fraction may round up to 1
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-quantize_multiplier-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("quantize_multiplier")
### BEGIN HIDDEN TESTS
check("quantize_multiplier", hidden=True)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "04_quantization-requantize_fixed", "locked": false, "schema_version": 3, "solution": true, "task": false}
def requantize_fixed(acc: np.ndarray, m0: int, shift: int, zo: int) -> np.ndarray:
    """Sums to output codes with integers only.

    Parameters
    ----------
    acc : int32 array, any shape
    m0 : int
        From 2**30 to below 2**31.
    shift : int
        0 or more.
    zo : int
        The output's zero point.

    Returns
    -------
    uint8 array, the shape of acc
        Two roundings to the nearest integer: acc * m0 / 2**31, halves up; then that / 2**shift, halves away from zero.
        Then + zo, clamped to 0…255. No float takes part.

    Examples
    --------
    >>> requantize_fixed(np.int32([-6, 1, 6, 4000]), 2**30, 1, 100).tolist()
    [98, 101, 102, 255]
    """
    ### BEGIN SOLUTION
    high = (acc.astype(np.int64) * m0 + 2**30) >> 31  # a shift rounds down, so half is added before it
    half = (1 << shift) >> 1
    rounded = np.sign(high) * ((np.abs(high) + half) >> shift)
    return np.clip(rounded + zo, 0, 255).astype(np.uint8)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-requantize_fixed-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("requantize_fixed")
### BEGIN HIDDEN TESTS
check("requantize_fixed", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# How often can you double m until it lies between ½ and 1? A right shift rounds down: what do you add before it?
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# `np.frexp(m)` gives fraction and exponent. If the fraction times 2³¹ rounds to 2³¹, halve it. The product of a sum and m0
# needs int64.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `high = (acc.astype(np.int64) * m0 + 2**30) >> 31`; then `np.sign(high) * ((np.abs(high) + half) >> shift)` with
# `half = (1 << shift) >> 1`.
#
# </details>

# %%
# Try your own inputs here.

# %%
# The first layer with integers only. How often will it differ from the float32 recipe, and by how much?
if ready(*LAYER, "hit_rate", "quantize_multiplier", "requantize_fixed"):
    s_acc = np.float64(q_in.scale) * s_w
    acc = conv_acc(codes, q_in.zero_point, w, 2, 1) + np.rint(bias / s_acc).astype(np.int32)[:, None, None]
    factors = [quantize_multiplier(m) for m in s_acc / q_out.scale]
    integers = np.stack([requantize_fixed(a, *f, q_out.zero_point) for a, f in zip(acc, factors, strict=True)])
    off = np.abs(integers.astype(int) - stages["float32 recipe"])
    print(f"float32 recipe {100 * (off == 0).mean():.4f} %, never off by more than {off.max()}")
    print(f"kernel         {100 * hit_rate(integers, kernel):.4f} %")

# %% [markdown]
# ## The other operations
#
# ### **Exercise 4.9 · addition and average** — *medium · 16 min · 8 points · uses 4.2*
#
# A network also **adds** two tensors, each with parameters of its own. Code 0 with (0.02, 10) is -0.2, code 255 with (0.03,
# 20) is 7.05; their sum 6.85 in steps of 0.05 is 137, and with zero point 12 the code is 149. The kernel uses a **fused
# multiply-add**: `scale * code + (-scale * zero_point)`, rounded to float32 once. float64 holds product and sum exactly, so
# compute there and convert at the end.
#
# The **average** of a channel keeps its parameters. (1, 2, 2, 5) has the mean 2.5. With zero point 0 that rounds to 2. With
# zero point 1 it is 1.5 steps, which round to 2, and the code is 3.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-qadd", "locked": false, "schema_version": 3, "solution": true, "task": false}
def qadd(a: np.ndarray, qa: QParams, b: np.ndarray, qb: QParams, qout: QParams, relu: bool = False) -> np.ndarray:
    """Add two quantized tensors.

    Parameters
    ----------
    a, b : uint8 arrays of one shape
    qa, qb, qout : QParams
        Of a, of b, and of the result.
    relu : bool
        Whether nothing below 0.0 may come out.

    Returns
    -------
    uint8 array, the shape of a
        Each code becomes the real number scale * code + (-scale * zero_point): the parenthesis in float32, the rest
        rounded to float32 once, as a fused multiply-add does. Their sum, in float32, is quantized: times the reciprocal
        of the scale, rounded (halves to even), plus the zero point, clamped.

    Examples
    --------
    >>> a, b = np.uint8([0, 10, 255]), np.uint8([255, 20, 255])
    >>> qadd(a, QParams(0.02, 10), b, QParams(0.03, 20), QParams(0.05, 12)).tolist()
    [149, 12, 251]
    """

    ### BEGIN SOLUTION
    def real(q: np.ndarray, qp: QParams) -> np.ndarray:
        offset = -qp.scale * np.float32(qp.zero_point)
        return (q * np.float64(qp.scale) + offset).astype(np.float32)  # exact in float64, then rounded once

    total = real(a, qa) + real(b, qb)
    steps = np.rint((np.maximum(total, 0) if relu else total) * (np.float32(1) / qout.scale))
    return np.clip(steps + qout.zero_point, 0, 255).astype(np.uint8)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-qadd-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("qadd")
### BEGIN HIDDEN TESTS
check("qadd", hidden=True)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "04_quantization-avgpool", "locked": false, "schema_version": 3, "solution": true, "task": false}
def avgpool(x: np.ndarray, qp: QParams) -> np.ndarray:
    """The average of each channel, in codes with the same parameters.

    Parameters
    ----------
    x : uint8 array (C, H, W)
    qp : QParams
        Of x and of the result.

    Returns
    -------
    uint8 array (C,)
        The sum of (code - zero_point), in float32, times float32's 1 / (H * W), rounded (halves to even), plus the zero
        point, clamped.

    Examples
    --------
    >>> avgpool(np.uint8([[[1, 2], [2, 5]]]), QParams(0.1, 1)).tolist()
    [3]
    """
    ### BEGIN SOLUTION
    n = x[0].size
    steps = x.sum(axis=(1, 2), dtype=np.int32) - n * qp.zero_point
    mean = steps.astype(np.float32) * (np.float32(1) / np.float32(n))
    return np.clip(np.rint(mean) + qp.zero_point, 0, 255).astype(np.uint8)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-avgpool-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("avgpool")
### BEGIN HIDDEN TESTS
check("avgpool", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# Codes cannot be added, real numbers can. Codes cannot be averaged either, unless you subtract something first.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# Two real tensors in float32, their sum in float32, ReLU as `np.maximum(total, 0)`, then the four steps of `quantize`.
# Average: an integer sum of `code - zero_point`, times float32's 1 / n.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `(q * np.float64(qp.scale) + offset).astype(np.float32)` with `offset = -qp.scale * np.float32(qp.zero_point)`;
# `x.sum(axis=(1, 2), dtype=np.int32) - n * qp.zero_point`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ### **Exercise 4.10 · a whole network** — *medium · 15 min · 5 points · uses 4.4, 4.5 and 4.9*
#
# A network is a list of layers, each a dict. Run them one after the other with the functions in `ops`, and keep every
# output: `add_from` = 3 means the output of `layers[3]`. A linear layer is a 1 × 1 convolution of a 1 × 1 image.
#
# Most cases use stand-ins for the operations, with arithmetic of their own, so that only your wiring counts. The part
# *together* uses your own.


# %% nbgrader={"grade": false, "grade_id": "04_quantization-quantized_network", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantized_network(x: np.ndarray, layers: list[dict], ops: dict[str, Callable]) -> np.ndarray:
    """Run a quantized network, layer after layer.

    Parameters
    ----------
    x : uint8 array (1, 8, 8), or any (C, H, W) that the first layer takes
        Codes of the input.
    layers : list of dict
        Each with `op`: "conv", "linear", "add" or "avgpool"; `q_in`, `q_out` (QParams); `stride`, `padding`, `groups`
        (int); `relu` (bool); `add_from`: None, or the index of the earlier layer whose output is added.
        "conv" and "linear" have `w` (int8 (OC, C/groups, kh, kw) or (OC, K)), `s_w` and `bias` (float32 (OC,)).
        The input of a layer is the output of the one before.
    ops : dict
        Your functions: "conv_acc", "requantize", "qadd", "avgpool".

    Returns
    -------
    uint8 array
        The last layer's output: (10,) after a linear layer of 10.

    Notes
    -----
    A linear layer is a 1 × 1 convolution of a 1 × 1 image and uses the same two functions.
    """
    ### BEGIN SOLUTION
    outputs: list[np.ndarray] = []
    for layer in layers:
        q_in, q_out = layer["q_in"], layer["q_out"]
        if layer["op"] == "add":
            other = layer["add_from"]
            x = ops["qadd"](x, q_in, outputs[other], layers[other]["q_out"], q_out, layer["relu"])
        elif layer["op"] == "avgpool":
            x = ops["avgpool"](x, q_in)
        else:
            linear, w = layer["op"] == "linear", layer["w"]
            if linear:  # a 1×1 convolution of a 1×1 image
                x, w = x.reshape(-1, 1, 1), w.reshape(*w.shape, 1, 1)
            acc = ops["conv_acc"](x, q_in.zero_point, w, layer["stride"], layer["padding"], layer["groups"])
            scales = q_in.scale, layer["s_w"], q_out.scale
            x = ops["requantize"](acc, layer["bias"], *scales, q_out.zero_point, layer["relu"])
            x = x.ravel() if linear else x
        outputs.append(x)
    return x
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "04_quantization-quantized_network-check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check("quantized_network")
### BEGIN HIDDEN TESTS
check("quantized_network", hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Hint 1 · nudge</summary>
#
# A loop over layers, a list of outputs, and four kinds of layer, two of which are nearly the same.
#
# </details>
#
# <details><summary>Hint 2 · method</summary>
#
# The added output was made with the q_out of *its* layer. A linear layer reshapes x to (-1, 1, 1) and w to (OC, K, 1, 1),
# and flattens what comes out.
#
# </details>
#
# <details><summary>Hint 3 · almost code</summary>
#
# `acc = ops["conv_acc"](x, q_in.zero_point, w, stride, padding, groups)`, then `ops["requantize"](acc, bias, q_in.scale, s_w,
# q_out.scale, q_out.zero_point, relu)`.
#
# </details>

# %%
# Try your own inputs here.

# %% [markdown]
# ## Digits, from float32 to your own integers
#
# A MobileNet in miniature reads handwritten digits of 8 × 8 pixels: 8,442 weights, trained on 1,347 digits, tested on 450
# others. It is loaded; set `TRAIN` to True to train your own in about ten seconds (the frozen logits further down belong to
# the loaded one). Each layer remembers the range of its outputs on the training digits.

# %%
TRAIN = False
digits = data.load("digits")
pixels = torch.from_numpy(digits["images"][:, None]).float() / 16
float_layers = load_layers(data.load("digits_cnn"))
if TRAIN:
    model = digits_cnn.DigitsCNN()
    digits_cnn.train(model, pixels[:1347], torch.from_numpy(digits["labels"][:1347]).long(), progress=tqdm)
    float_layers = digits_cnn.float_layers(model)
    for layer, output in zip(float_layers, digits_cnn.float_outputs(pixels[:1347], float_layers), strict=True):
        layer["range"] = np.float32([output.min(), output.max()])


# %%
def quantize_layers(layers, bits=8):
    wider, quantized = 255 / (2**bits - 1), []  # with 7 bits the activations' codes end at 127
    q_in = choose_qparams(0, wider)  # brightness, 0 to 1
    for layer in layers:
        low, high = min(float(layer["range"][0]), 0), max(float(layer["range"][1]), 0)
        q_out = q_in if layer["op"] == "avgpool" else choose_qparams(low, low + (high - low) * wider)
        w, s_w = quantize_weight_per_channel(layer["w"]) if "w" in layer else (None, None)
        quantized.append(layer | {"w": w, "s_w": s_w, "q_in": q_in, "q_out": q_out})
        q_in = q_out
    return quantized


# %% [markdown]
# Next, four networks on the 450 digits: float32; your 8-bit integers; 8 bits with saturating pairs, as an x86 CPU without
# VNNI runs them; and 7-bit activations, which cannot saturate: 2 · 127 · 127 = 32,258. Which is best, which worst? Are your
# logits equal to the frozen ones in every bit?

# %%
if ready(*NETWORK):
    OPS = {"conv_acc": conv_acc, "requantize": requantize, "qadd": qadd, "avgpool": avgpool}

    def logits(layers, **others):
        codes = quantize(pixels[1347:].numpy(), layers[0]["q_in"])
        return np.stack([quantized_network(image, layers, OPS | others) for image in tqdm(codes)])

    eight, seven = quantize_layers(float_layers), quantize_layers(float_layers, bits=7)
    results = {"8 bits": logits(eight), "7 bits": logits(seven)}
    results["8 bits, saturating"] = logits(eight, conv_acc=saturating_acc)

# %%
if ready(*NETWORK):
    results = {"float32": digits_cnn.float_outputs(pixels[1347:], float_layers)[-1].numpy()} | results
    for name, scores in results.items():
        print(f"{name:20} {100 * (scores.argmax(axis=1) == digits['labels'][1347:]).mean():.2f} % right")
    frozen = data.load("digits_cnn_int8")
    for name, key in (("8 bits", "exact"), ("8 bits, saturating", "saturating")):
        print(f"{name:20} {100 * hit_rate(results[name], frozen[key]):.4f} % of the frozen logits")

# %% [markdown]
# ## A real MobileNet, layer by layer
#
# torchvision has a quantized MobileNetV2 with 64 operations. Its weights here are random, its ranges calibrated on the
# photo; set `PRETRAINED` to True to download trained ones (14 MB; the old argument `pretrained=` is gone). Without a
# network they stay random: the last line says which you have.
#
# To get at a layer's input and output, hang a **forward hook** on it: PyTorch calls `hook(module, inputs, output)` after
# each run of the module. The input that counts is the one that the network's own first step quantized.

# %%
PRETRAINED = False
if mobilenet.here():
    image = torch.from_numpy(x)[None]
    images = torch.cat([image, image.flip(3), image.roll(40, 2)])
    network = mobilenet.mobilenet_v2(images, PRETRAINED)
    networks = {bits: mobilenet.quantized(network, images, reduce_range=bits == 7) for bits in (8, 7)}
    print("weights:", network.weights)

# %%
if mobilenet.here():
    seen = {}
    first = networks[8].features[0][0]
    handle = first.register_forward_hook(lambda module, inputs, output: seen.update(x=inputs[0], y=output))
    with engines.engine("x86"), torch.no_grad():
        networks[8](image)
    handle.remove()  # or it goes on watching
    for name, t in seen.items():
        print(name, tuple(t.shape), t.q_scale(), t.q_zero_point(), t.int_repr()[0, 0, 60, 50:55].tolist())

# %% [markdown]
# `mobilenet.steps` hangs such hooks on every layer. Each of your layers gets PyTorch's own input and must give PyTorch's own
# output. **`reduce_range`**, the default for x86, keeps activations to 7 bits. What will the two lines look like on a CPU
# without VNNI? (With VNNI both stay near 100 %: onednn's other roundings are left. With a loop in `conv_acc` this takes
# minutes: the bar tells.)

# %%
if ready(*NETWORK) and mobilenet.here():
    rates = {}
    for bits, quantized in networks.items():
        found = rates.setdefault(f"{bits}-bit activations", [])
        for layer, *before, after in tqdm(mobilenet.steps(quantized, image)):
            yours = qadd(*before, layer["q_out"]) if layer["op"] == "add" else quantized_network(*before, [layer], OPS)
            found.append(hit_rate(yours, after))
    print("weights:", network.weights)
    plots.show_hit_rates([layer["op"] for layer in mobilenet.layers(networks[8])], rates)

# %% [markdown]
# ## Five questions
#
# <details><summary>1. Which code pads a quantized image?</summary>
#
# The zero point: the code of 0.0.
#
# </details>
#
# <details><summary>2. What does <code>a.all() == b.all()</code> compare?</summary>
#
# Two answers to "has it no zero?". Use `np.array_equal(a, b)`, or count with `(a == b).mean()`.
#
# </details>
#
# <details><summary>3. Why was the public attempt off on 9 of 100 outputs?</summary>
#
# Mostly because it quantized the input with its own range. The rest were saturated pairs and a missing clamp.
#
# </details>
#
# <details><summary>4. When does an x86 kernel give a sum that is not the sum?</summary>
#
# When two neighboring products leave 16 bits, on a CPU without VNNI. 7-bit activations rule it out.
#
# </details>
#
# <details><summary>5. In which unit is the bias added?</summary>
#
# In steps of `s_in * s_w`, the unit of the sum.
#
# </details>
#
# ## What you can now do
#
# - Choose parameters, code tensors and weights, and know which rounding happens where.
# - Run convolutions, additions, averages and whole networks on integers, bit for bit.
# - Count and explain misses; tell rounding from saturation; read a layer with hooks.
#
# ## Keep your work
#
# - **Binder** forgets everything after a pause of ten minutes. Download this notebook: *File → Download*. Upload it
#   again next time.
# - **Colab** opens a copy that is yours once you choose *File → Save a copy in Drive*.
# - **On your own machine** the file is saved where you opened it.
#
# ← [Chapter 3 · Optimization](../03_optimization/optimization.ipynb) · [Chapter 5 · ODE callbacks](../05_ode_callbacks/ode_callbacks.ipynb) →
