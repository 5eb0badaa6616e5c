"""Which elements of a tensor are bad, of every dtype of NumPy's and ml_dtypes'; and the tensors within a value."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whynan.capture.onnx.execution import Tensor, Value
    from whynan.records.base import Number

Mask: TypeAlias = NDArray[np.bool_]
Key: TypeAlias = tuple[int, ...]
"""Which operand or output, and where within a sequence."""

_EXPONENTS: Final = {"float16": np.uint16(0x7C00), "bfloat16": np.uint16(0x7F80)}
"""Of two bytes: the bits that are all set in what is no number."""
_NAMES: Final = {"object": "string", "str": "string"}


def dtype_name(dtype: Any) -> str:
    """``float32``, ``bfloat16``, ``string``."""
    found = np.dtype(dtype)
    return "string" if found.kind in "OUS" else _NAMES.get(found.name, found.name)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor of numbers, a scalar of NumPy's included."""
    kind: np.dtype[Any] | None = getattr(value, "dtype", None)
    return isinstance(kind, np.dtype) and kind.kind not in "OUS"


def floating(value: Any) -> bool:
    """Whether a value is a tensor that can hold a bad number."""
    if not is_array(value):
        return False
    kind: np.dtype[Any] = value.dtype
    return kind.kind in "fc" or kind.name.startswith(("float", "bfloat"))


def bad_mask(tensor: Tensor) -> Mask:
    """Which elements are NaN or infinite."""
    finite = np.asarray(np.isfinite(tensor))
    return np.logical_not(finite, out=finite)


def nan_mask(tensor: Tensor) -> Mask:
    """Which elements are NaN."""
    return np.asarray(np.isnan(tensor))


def is_bad(tensor: Tensor) -> bool:
    """Whether a floating tensor holds a NaN or an Inf."""
    if not tensor.size:
        return False
    if tensor.dtype.char in "fd":
        # least and greatest carry a NaN, and are faster than a mask of all elements
        return not (np.isfinite(tensor.min()) and np.isfinite(tensor.max()))
    exponent = _EXPONENTS.get(tensor.dtype.name)
    if exponent is not None:
        return bool(((tensor.view(np.uint16) & exponent) == exponent).any())
    return not bool(np.isfinite(tensor).all())


def constant_like(tensor: Tensor, number: float) -> Tensor:
    """A number as a tensor without dimensions, of the dtype of another."""
    return np.asarray(number).astype(tensor.dtype)


def tensors(value: Value, key: Key) -> Iterator[tuple[Key, Tensor]]:
    """Every tensor of numbers of a value, through sequences, with its key."""
    if isinstance(value, list):
        for i, part in enumerate(value):
            yield from tensors(part, (*key, i))
    elif is_array(value):
        yield key, np.asarray(value)


def mapped(value: Value, key: Key, function: Callable[[Key, Tensor], Tensor]) -> Value:
    """A value of which each tensor is replaced."""
    if isinstance(value, list):
        return [mapped(part, (*key, i), function) for i, part in enumerate(value)]
    return function(key, np.asarray(value)) if is_array(value) else value


def first_index(mask: Mask) -> tuple[int, ...] | None:
    """The first true element in row-major order."""
    if not mask.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask.reshape(-1))), mask.shape))


def number(value: Any) -> Number | bool | str:
    """An element as a number of Python's; a complex one as text."""
    kind: np.dtype[Any] = np.asarray(value).dtype
    if kind.kind == "b":
        return bool(value)
    if kind.kind == "c":
        plain = complex(value)
        return f"{plain.real:g}{plain.imag:+g}j"
    return int(value) if "int" in kind.name else float(value)


def at(tensor: Tensor, index: tuple[int, ...]) -> Number | bool | str:
    """The value of one element."""
    return number(tensor[index])


def finite_range(region: Tensor) -> tuple[Number | None, Number | None]:
    """Least and greatest of a region, what is NaN left aside; NaN where it holds nothing else."""
    if not region.size or region.dtype.kind in "cb" or not is_array(region):
        return None, None
    flat = region.reshape(-1)
    if floating(flat):
        flat = flat.astype(np.float64)
        known = flat[~np.isnan(flat)]
        if not known.size:
            return float("nan"), float("nan")
        return float(known.min()), float(known.max())
    wide = flat.astype(np.int64) if flat.dtype.kind == "V" else flat
    return int(wide.min()), int(wide.max())
