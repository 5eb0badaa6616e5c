"""NumPy arrays and scalars in a pickle, read from what they would have been made from."""

# pyright: strict

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import torch

from whynan.models.stand_ins import StandIn

if TYPE_CHECKING:
    from torch import Tensor

_ARRAY: Final = re.compile(r"numpy\.(_?core)\.(multiarray|numeric)\.(_reconstruct|_frombuffer)")
_SCALAR: Final = re.compile(r"numpy\.(_?core)\.multiarray\.scalar")
_PLAIN: Final = re.compile(r"[biufc]\d{1,2}")


def tensor_of(held: StandIn) -> Tensor | None:
    """The tensor of an array's or scalar's stand-in; None where it is neither, or holds no plain numbers."""
    try:
        array = _array(held) if _ARRAY.fullmatch(held.name) else _scalar(held) if _SCALAR.fullmatch(held.name) else None
        return None if array is None else cast("Any", torch).from_numpy(array)
    except (TypeError, ValueError, IndexError, AttributeError):
        return None


def _array(held: StandIn) -> Any:
    _, shape, dtype, fortran, data = held.state
    read = np.frombuffer(cast("bytes", data), _dtype(dtype)).reshape(shape, order="F" if fortran else "C")
    return _native(read)


def _scalar(held: StandIn) -> Any:
    dtype, data = held.arguments
    return _native(np.frombuffer(cast("bytes", data), _dtype(dtype)).reshape(()))


def _native(array: Any) -> Any:
    """A copy that may be written to, in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), order="K", copy=True)


def _dtype(held: Any) -> np.dtype[Any]:
    name, order = held.arguments[0], held.state[1]
    if not _PLAIN.fullmatch(name) or order not in ("<", ">", "|", "="):
        raise ValueError(name)
    return np.dtype(name).newbyteorder(order)
