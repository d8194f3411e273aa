"""Builders of chapter 1: tensors in a special memory layout."""

from __future__ import annotations

import torch


def transposed(data: torch.Tensor) -> torch.Tensor:
    """The tensor with its last two axes exchanged: a view whose memory is not in reading order."""
    return data.transpose(-1, -2)


def every_other(data: torch.Tensor) -> torch.Tensor:
    """Every second element along the last axis: a view with stride 2."""
    return data[..., ::2]
