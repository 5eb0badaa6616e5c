"""NumPy's arrays as provenance sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.capture.onnx.counts import bad_mask as bad_mask
from whynan.capture.onnx.counts import constant_like
from whynan.capture.onnx.counts import dtype_name as dtype_name
from whynan.capture.onnx.counts import first_index as first_index
from whynan.capture.onnx.counts import is_floating as is_floating
from whynan.capture.onnx.counts import nan_mask as nan_mask
from whynan.capture.onnx.counts import value_at as value_at

if TYPE_CHECKING:
    from whynan.capture.onnx.counts import Mask
    from whynan.capture.onnx.execution import Tensor
    from whynan.capture.onnx.provenance.labels import Plane


def empty_mask(tensor: Tensor) -> Mask:
    """A mask of the shape of an array, true nowhere."""
    return np.zeros(tensor.shape, dtype=np.bool_)


def label_plane(mask: Mask, chosen: Plane | int, other: Plane | int = 0) -> Plane:
    """A plane: the labels `chosen` where a mask is true, and `other` elsewhere."""
    return np.where(mask, chosen, other).astype(np.int32, copy=False)


def beside(array: Any, _like: Any) -> Any:
    """The array: all are on the host."""
    return array


def broadcast_plane(array: Any, shape: tuple[int, ...]) -> Any:
    """A mask or plane under broadcasting; None where it does not fit."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        return None


def fill_where(tensor: Tensor, mask: Mask, number: float) -> Tensor:
    """A copy of an array with a number where a mask is true."""
    return np.where(mask, constant_like(tensor, number), tensor)


def vary_where(tensor: Tensor, mask: Mask) -> Tensor:
    """A copy of an array with a different number from 0 to 1 at each place where a mask is true."""
    rising = np.linspace(0, 1, tensor.size).reshape(tensor.shape).astype(tensor.dtype)
    return np.where(mask, rising, tensor)


def opposite_sign_mask(first: Tensor, second: Tensor) -> Mask:
    """Where one number is the other with its sign turned."""
    return np.asarray(first == -second)


def difference_mask(exact: Tensor, tensor: Tensor, relative: float, least: float) -> Mask:
    """Where its elements are farther than both bounds from the exact ones in float64, and these are finite."""
    with np.errstate(all="ignore"):
        difference = np.abs(exact - tensor.astype(np.float64))
        return (difference > relative * np.abs(exact)) & (difference > least) & np.isfinite(exact)
