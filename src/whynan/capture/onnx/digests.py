"""A value in a few bytes, which differ where a bit of it does."""

# pyright: strict

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Value

Digest: TypeAlias = "tuple[Any, ...]"


def digest(value: Value) -> Digest:
    """Equal for two values where they are the same, bit for bit."""
    if value is None:
        return (None,)
    if isinstance(value, list):
        return ("sequence", *(digest(element) for element in value))
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        return "string", array.shape, hashlib.blake2b(repr(array.tolist()).encode()).digest()
    raw = np.asarray(array, order="C").reshape(-1).view(np.uint8)
    return array.dtype.name, array.shape, hashlib.blake2b(cast("Any", raw)).digest()
