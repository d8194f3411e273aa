"""The small network that chapter 4 trains, quantizes and runs: MobileNetV2 in miniature, for 8x8 digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by itself, narrow by 1x1, add the input where its shape fits.

    Source: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", figure 4.

    Parameters
    ----------
    inside, hidden, outside
        Channels of the input, between the two 1x1 convolutions, and of the output.
    stride
        Of the depthwise convolution, in pixels.
    """

    def __init__(self, inside: int, hidden: int, outside: int, stride: int) -> None:
        super().__init__()
        self.adds = stride == 1 and inside == outside
        self.convs = nn.Sequential(
            *conv(inside, hidden, 1),
            *conv(hidden, hidden, 3, stride, groups=hidden),
            *conv(hidden, outside, 1, relu=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.convs(x)
        return x + y if self.adds else y


def conv(inside: int, outside: int, k: int, stride: int = 1, groups: int = 1, relu: bool = True) -> list[nn.Module]:
    """A convolution without a bias, its batch normalization and, where asked for, a ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(inside, outside, k, stride, padding=k // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
    ]
    return [*layers, nn.ReLU()] if relu else layers


class DigitsCNN(nn.Module):
    """(N, 1, 8, 8) float32 in [0, 1] to (N, 10) logits. 8,442 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv(1, 16, 3))
        self.blocks = nn.ModuleList(
            [InvertedResidual(16, 32, 16, 1), InvertedResidual(16, 48, 24, 2), InvertedResidual(24, 64, 24, 1)]
        )
        self.classify = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classify(x.mean(dim=(2, 3)))


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: int = 12,
    batch_size: int = 32,
    lr: float = 0.02,
    seed: int = 0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> None:
    """Fit `model` to x (N, 1, 8, 8) and y (N,) by Adam and cross-entropy, the learning rate falling to 0.

    `progress` wraps the range of epochs: pass `tqdm` for a bar. The model is left in evaluation mode.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in progress(range(epochs)):
        for rows in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        schedule.step()
    model.eval()


def fold(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one Conv2d that stands for the Conv2d `conv` and the BatchNorm2d `norm` after training."""
    gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return conv.weight * gain[:, None, None, None], norm.bias - norm.running_mean * gain


@torch.no_grad()
def float_layers(model: DigitsCNN) -> list[dict]:
    """The trained model as a list of layers, batch normalization folded in: see `underhood.quantization`."""
    layers: list[dict] = []

    def convolutions(modules: Any) -> Iterator[dict]:
        for i, module in enumerate(modules):
            if isinstance(module, nn.Conv2d):
                w, bias = fold(module, modules[i + 1])
                relu = i + 2 < len(modules) and isinstance(modules[i + 2], nn.ReLU)
                geometry = {"stride": module.stride[0], "padding": module.padding[0], "groups": module.groups}
                yield {"op": "conv", "w": w.numpy(), "bias": bias.numpy(), **geometry, "relu": relu, "add_from": None}

    plain = {"stride": 1, "padding": 0, "groups": 1, "relu": False, "add_from": None}
    layers += convolutions(model.stem)
    for block in model.blocks:
        before = len(layers) - 1
        layers += convolutions(block.convs)
        if block.adds:
            layers.append({"op": "add", **plain, "add_from": before})
    layers.append({"op": "avgpool", **plain})
    w, bias = model.classify.weight, model.classify.bias
    return [*layers, {"op": "linear", "w": w.numpy().copy(), "bias": bias.numpy().copy(), **plain}]


@torch.no_grad()
def float_outputs(x: Tensor, layers: list[dict]) -> list[Tensor]:
    """What every layer of a float network gives for x (N, 1, 8, 8); the last one's are the logits (N, 10)."""
    outputs: list[Tensor] = []
    for layer in layers:
        match layer["op"]:
            case "conv":
                w, bias = torch.from_numpy(layer["w"]), torch.from_numpy(layer["bias"])
                x = F.conv2d(x, w, bias, layer["stride"], layer["padding"], groups=layer["groups"])
            case "linear":
                x = F.linear(x, torch.from_numpy(layer["w"]), torch.from_numpy(layer["bias"]))
            case "add":
                x = x + outputs[layer["add_from"]]
            case "avgpool":
                x = x.mean(dim=(2, 3))
        if layer["relu"]:
            x = x.relu()
        outputs.append(x)
    return outputs
