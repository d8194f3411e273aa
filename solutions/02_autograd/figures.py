"""The picture that opens chapter 2: sin⟨x, y⟩ computed forward, and its gradient on the way back."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from underhood.plots import style


def draw(folder: Path) -> None:
    """Write `there_and_back.png`."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = torch.tensor([5.0, 6.0, 7.0], requires_grad=True)
    product = x * y
    inner = product.sum()
    f = torch.sin(inner)
    for tensor in (product, inner, f):
        tensor.retain_grad()
    f.backward()
    boxes = {
        "x": (x, 0.0, 0.85),
        "y": (y, 0.0, -0.85),
        "x · y": (product, 3.1, 0.0),
        "sum": (inner, 5.9, 0.0),
        "sin": (f, 8.2, 0.0),
    }
    with style():
        figure, axes = plt.subplots(figsize=(8.6, 3.0))
        axes.set(xlim=(-1.2, 9.1), ylim=(-1.5, 1.6))
        axes.axis("off")
        frames = {}
        for name, (tensor, at, height) in boxes.items():
            text = f"{name}\nvalue {_numbers(tensor)}\ngradient {_numbers(tensor.grad)}"
            box = {"boxstyle": "round,pad=0.4", "fc": "0.86" if name in "xy" else "white", "ec": "black"}
            frames[name] = axes.text(at, height, text, ha="center", va="center", bbox=box, fontsize=9)
        axes.text(6.2, 1.2, "solid: values, forward\ndashed: gradients, backward", ha="center", va="center")
        figure.canvas.draw()  # the frames have their sizes from here on
        patches = {name: text.get_bbox_patch() for name, text in frames.items()}
        for start, stop in (("x", "x · y"), ("y", "x · y"), ("x · y", "sum"), ("sum", "sin")):
            for line, tail, head in (("-", start, stop), ("--", stop, start)):
                arrow = {"arrowstyle": "-|>", "ls": line, "lw": 1.3, "fc": "black", "shrinkA": 3, "shrinkB": 3}
                arrow |= {"patchA": patches[tail], "patchB": patches[head], "connectionstyle": "arc3,rad=-0.25"}
                axes.annotate("", boxes[head][1:], boxes[tail][1:], arrowprops=arrow)
        figure.savefig(folder / "there_and_back.png", dpi=90, metadata={"Software": None})
    plt.close(figure)


def _numbers(tensor: torch.Tensor) -> str:
    words = [f"{number:.4g}" for number in tensor.detach().reshape(-1).tolist()]
    return words[0] if tensor.dim() == 0 else f"[{' '.join(words)}]"
