"""A library of the program's that lies outside of its working directory."""

from __future__ import annotations

import torch


def geheim_distance(point: torch.Tensor) -> torch.Tensor:
    """A norm whose gradient is NaN at the origin."""
    point = point.requires_grad_()
    return point.pow(2).sum().sqrt()
