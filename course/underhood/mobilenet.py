"""torchvision's MobileNetV2, quantized, and taken apart into the list of layers that chapter 4's functions run."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from .engines import available, engine
from .quantization import QParams

# torchvision's QuantizableMobileNetV2, float or converted: its modules are known at run time only
Network: TypeAlias = Any


def here() -> bool:
    """Whether this machine can quantize and run the network; prints why not."""
    try:
        import torch.ao.quantization  # noqa: F401
        import torchvision.models.quantization  # noqa: F401
    except ImportError as error:
        print(f"Skipped: torch's quantized networks are not here ({error}). Your own functions do not need them.")
        return False
    if "x86" not in available():
        print("Skipped: this build of torch has no x86 engine. Your own functions do not need it.")
        return False
    return True


@torch.no_grad()
def mobilenet_v2(images: Tensor, pretrained: bool = False, seed: int = 0) -> Network:
    """The float network in evaluation mode, its batch normalization folded in, ready to be quantized.

    Parameters
    ----------
    images
        float32 (N, 3, 224, 224), normalized. Without pretrained weights they set the statistics of every batch
        normalization, so that random weights give activations as well spread as trained ones.
    pretrained
        Download torchvision's ImageNet weights (14 MB). Where that fails the weights stay random, and a sentence says so.
    seed
        Of the random weights.

    Returns
    -------
    Network
        Its attribute `weights` says which it has: "random" or "trained on ImageNet".
    """
    from torchvision.models.quantization import mobilenet_v2 as build

    with engine("fbgemm"):
        torch.manual_seed(seed)
        model = build(weights=None, quantize=False)
        state = trained_weights() if pretrained else {}
        model.weights = "trained on ImageNet" if state else "random"
        if state:
            model.load_state_dict(state)
        else:
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.momentum = None  # an average over everything that passes
            model.train()
            for image in images:  # one after the other: less memory
                model(image[None])
        model.eval()
        model.fuse_model(is_qat=False)
        return model


def trained_weights() -> dict[str, Tensor]:
    """torchvision's ImageNet weights by name, from its cache or downloaded; prints why and returns none where that fails.

    Where nobody answers for half a minute, that is a failure too.
    """
    from torchvision.models import MobileNet_V2_Weights

    weights = MobileNet_V2_Weights.IMAGENET1K_V1
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        return dict(weights.get_state_dict(progress=True, check_hash=True))
    except (OSError, RuntimeError, EOFError, HTTPException, UnpicklingError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        file = Path(torch.hub.get_dir(), "checkpoints", Path(weights.url).name)
        step = f"delete {file}, which is damaged" if file.exists() else "check the network"
        print(
            f"The trained weights are not here ({reason}), so they stay random. Next step: {step}, then run this cell again."
        )
        return {}
    finally:
        socket.setdefaulttimeout(before)


@torch.no_grad()
def quantized(model: Network, images: Tensor, name: str = "x86", reduce_range: bool = True) -> Network:
    """A quantized copy of the float network `model`, packed for the engine `name`.

    Parameters
    ----------
    model
        From `mobilenet_v2`.
    images
        float32 (N, 3, 224, 224): the smallest and the largest value that each layer gives for them set its range.
    reduce_range
        Whether activations keep to the codes 0 to 127, torch's default for x86: then no pair of products can saturate.
    """
    from torch.ao import quantization

    with engine(name):
        observer = quantization.MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=reduce_range)
        model.qconfig = quantization.QConfig(observer, quantization.default_per_channel_weight_observer)
        watched = quantization.prepare(model)
        watched(images)
        return quantization.convert(watched)


def modules(model: Network) -> list[tuple[str, Any, int | None]]:
    """The quantized network's operations in the order in which they run: kind, module, index of the layer it adds.

    Kinds are "conv", "add", "avgpool" and "linear"; the average is no module of its own: the network stands for it.
    """
    steps: list[tuple[str, Any, int | None]] = []
    for block in model.features:
        before = len(steps) - 1
        steps += [("conv", module, None) for module in block.modules() if hasattr(module, "weight")]
        if getattr(block, "use_res_connect", False):
            steps.append(("add", block.skip_add, before))
    return [*steps, ("avgpool", model, None), ("linear", model.classifier[1], None)]


def layers(model: Network) -> list[dict]:
    """The quantized network as a list of layers, arrays and numbers only: see `underhood.quantization.load_layers`."""
    listed: list[dict] = []
    q_in = QParams(np.float32(model.quant.scale.item()), int(model.quant.zero_point))
    for op, module, add_from in modules(model):
        plain = {"op": op, "stride": 1, "padding": 0, "groups": 1, "relu": False, "add_from": add_from, "q_in": q_in}
        q_out = q_in if op == "avgpool" else QParams(np.float32(module.scale), module.zero_point)
        layer = plain | {"q_out": q_out}
        if op == "conv":
            layer |= {"stride": module.stride[0], "padding": module.padding[0], "groups": module.groups}
            layer["relu"] = "ReLU" in type(module).__name__
        if op in ("conv", "linear"):
            weight = module.weight()
            layer["w"] = weight.int_repr().numpy()
            layer["s_w"] = weight.q_per_channel_scales().numpy().astype(np.float32)
            layer["bias"] = module.bias().detach().numpy()
        listed.append(layer)
        q_in = q_out
    return listed


@torch.no_grad()
def outputs(model: Network, image: Tensor, name: str = "x86") -> tuple[np.ndarray, list[np.ndarray]]:
    """The codes of the quantized `image` (1, 3, 224, 224) and of what each operation of `modules(model)` gives.

    Convolutions and the classifier are watched by forward hooks. Additions and the average are calls of no module: they
    are the input of what follows them.
    """
    seen: dict[nn.Module, tuple[np.ndarray, np.ndarray]] = {}

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[module] = inputs[0].int_repr().numpy()[0], output.int_repr().numpy()[0]

    steps = modules(model)
    watched = [module for op, module, _ in steps if op in ("conv", "linear")]
    handles = [module.register_forward_hook(watch) for module in watched]
    try:
        with engine(name):
            model(image)
    finally:
        for handle in handles:
            handle.remove()
    results = []
    for (op, module, _), (_, after, _) in zip(steps, [*steps[1:], steps[-1]], strict=True):
        results.append(seen[module][1] if op in ("conv", "linear") else seen[after][0])
    return seen[steps[0][1]][0], results


def steps(model: Network, image: Tensor, name: str = "x86") -> list[tuple]:
    """Each operation of the network with the codes that go in and come out.

    Returns
    -------
    list of tuple
        Layer (see `layers`), input, output; for an addition: layer, input, its `QParams`, what is added, its `QParams`,
        output.
    """
    x, results = outputs(model, image, name)
    found: list[tuple] = []
    listed = layers(model)
    for layer, before, after in zip(listed, [x, *results[:-1]], results, strict=True):
        other = layer["add_from"]
        added = () if other is None else (layer["q_in"], results[other], listed[other]["q_out"])
        found.append((layer, before, *added, after))
    return found


def timed(model: Network, image: Tensor, name: str) -> Callable[[], None]:
    """A function of no arguments that runs `model` on `image` once, on the engine `name`, for a stopwatch."""

    @torch.no_grad()
    def run() -> None:
        with engine(name):
            model(image)

    return run
