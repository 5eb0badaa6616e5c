"""PyTorch's tensors as provenance sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from whynan.capture.torch.provenance.interventions import is_floating as is_floating
from whynan.capture.torch.provenance.labels import PLANE_DTYPE
from whynan.capture.torch.provenance.operands import dtype_name as dtype_name
from whynan.capture.torch.provenance.operands import first_index as first_index
from whynan.capture.torch.provenance.operands import value_at as value_at
from whynan.capture.torch.shadow_memory import bad_mask as bad_mask
from whynan.capture.torch.shadow_memory import computable
from whynan.capture.torch.shadow_memory import nan_mask as nan_mask

if TYPE_CHECKING:
    from torch import Tensor


def empty_mask(tensor: Tensor) -> Tensor:
    """A mask of the shape of a tensor, true nowhere."""
    return torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)


def label_plane(mask: Tensor, chosen: Tensor | int, other: Tensor | int = 0) -> Tensor:
    """A plane: the labels `chosen` where a mask is true, and `other` elsewhere."""
    return torch.where(mask, chosen, other).to(PLANE_DTYPE)


def beside(array: Tensor, like: Tensor) -> Tensor:
    """The same tensor on the device of another one."""
    return array.to(like.device)


def broadcast_plane(array: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """A mask or plane under broadcasting; None where it does not fit."""
    try:
        return array.expand(shape)
    except RuntimeError:
        return None


def fill_where(tensor: Tensor, mask: Tensor, number: float) -> Tensor:
    """A copy of a tensor with a number where a mask is true."""
    return torch.where(mask, torch.full((), number, dtype=tensor.dtype, device=tensor.device), tensor)


def vary_where(tensor: Tensor, mask: Tensor) -> Tensor:
    """A copy of a tensor with a different number from 0 to 1 at each place where a mask is true."""
    rising = torch.linspace(0, 1, tensor.numel(), device=tensor.device).reshape(tensor.shape)
    return torch.where(mask, rising.to(tensor.dtype), tensor)


def opposite_sign_mask(first: Tensor, second: Tensor) -> Tensor:
    """Where one number is the other with its sign turned."""
    return computable(first) == -computable(second)


def difference_mask(exact: Tensor, tensor: Tensor, relative: float, least: float) -> Tensor:
    """Where its elements are farther than both bounds from the exact ones in float64, and these are finite."""
    difference = (exact - tensor.to(torch.float64)).abs()
    return (difference > relative * exact.abs()) & (difference > least) & torch.isfinite(exact)
