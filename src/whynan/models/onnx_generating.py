"""Values made for the inputs of a model, of any dtype: drawn from a seed, or one value in every element."""

# pyright: strict

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.errors import UsageError
from whynan.models.onnx_arrays import most_bytes
from whynan.models.onnx_specs import Filled, Generated
from whynan.models.onnx_types import STRING, dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POSITIVE: Final = "float8_e8m0fnu"
"""The dtype that has no sign."""
_SMALLER: Final = "give dimensions in brackets that fit into memory"


def guess(dtype: str) -> Generated:
    """What is generated where nothing is said: small whole numbers, or those of a normal distribution."""
    if dtype.startswith(("float", "bfloat", "complex")):
        return Generated("normal", (0.0, 1.0), None, "normal(0,1)")
    return Generated("randint", (0, 2), None, "randint(0,2)")


def make(spec: Generated | Filled, name: str, dtype: str, dims: tuple[int, ...], seed: int) -> NDArray[Any]:
    """An array; that of one input does not depend on what else is generated."""
    kind = dtype_of(dtype)
    if math.prod(dims) * max(kind.itemsize, 8) > most_bytes():
        raise UsageError(f"{name} of {list(dims)} is larger than this machine's memory", _SMALLER)
    try:
        if isinstance(spec, Filled):
            return _filled(spec, name, dtype, dims)
        return _generated(spec, name, dtype, dims, seed)
    except (MemoryError, ValueError) as error:
        raise UsageError(f"{name} of {list(dims)} cannot be made", _SMALLER) from error


def _filled(spec: Filled, name: str, dtype: str, dims: tuple[int, ...]) -> NDArray[Any]:
    value = spec.value
    text = isinstance(value, str)
    wrong = UsageError(f"{name}={spec.text} is no {dtype}", _legal(dtype))
    if text != (dtype == STRING):
        raise wrong
    if text:
        return np.full(dims, value, object)
    whole = isinstance(value, int)
    if dtype == "bool" and value not in (0, 1):
        raise wrong
    if (dtype.startswith(("int", "uint")) or dtype == "bool") and not whole:
        raise wrong
    if isinstance(value, bool) and dtype != "bool":
        raise wrong
    if not _holds(dtype, value):
        raise UsageError(f"{name}={spec.text} is out of the range of {dtype}", _legal(dtype))
    return np.full(dims, value, dtype_of(dtype))


def _legal(dtype: str) -> str:
    if dtype == STRING:
        return "give a text in quotes, as in name='text'"
    if dtype == "bool":
        return "give true or false"
    return f"give a number that {dtype} can hold, or an array of numpy.save"


def _holds(dtype: str, value: float | int) -> bool:
    """Whether a dtype holds a number, rounded if it has to be."""
    kind = dtype_of(dtype)
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(value).astype(kind)
        if isinstance(value, int) and not dtype.startswith(("float", "bfloat", "complex")):
            return int(made) == value
        if isinstance(value, int):
            return bool(np.isfinite(made.astype(np.complex128)))
        back = complex(made.astype(np.complex128)).real
        if math.isnan(value):
            return math.isnan(back)
        return not math.isnan(back) and math.isinf(back) == math.isinf(value)
    except (OverflowError, TypeError, ValueError):
        return False


def _generated(spec: Generated, name: str, dtype: str, dims: tuple[int, ...], seed: int) -> NDArray[Any]:
    kind = dtype_of(dtype)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode("utf-8", "surrogatepass"))])
    match spec.generator:
        case "zeros" | "ones" if dtype == STRING:
            raise _unfit(spec, name, dtype)
        case "zeros":
            return np.zeros(dims, kind)
        case "ones":
            return np.ones(dims, kind)
        case "randint":
            return _whole(spec, name, dtype, rng.integers(int(spec.arguments[0]), int(spec.arguments[1]), dims))
        case "uniform" | "normal":
            if not dtype.startswith(("float", "bfloat", "complex")):
                raise _unfit(spec, name, dtype)
            return _real(spec, name, dtype, dims, rng)


def _unfit(spec: Generated, name: str, dtype: str) -> UsageError:
    return UsageError(f"{name}={spec.text} makes no {dtype}", f"give {name}=randint(low,high) or a file")


def _whole(spec: Generated, name: str, dtype: str, drawn: NDArray[np.int64]) -> NDArray[Any]:
    if dtype == STRING:
        return np.array([str(number) for number in drawn.ravel()], object).reshape(drawn.shape)
    if dtype == "bool" and not (spec.arguments[0] >= 0 and spec.arguments[1] <= 2):
        raise _unheld(spec, name, dtype)
    ends = (int(spec.arguments[0]), int(spec.arguments[1]) - 1)
    if dtype != "bool" and not all(_holds(dtype, end) for end in ends):
        raise _unheld(spec, name, dtype)
    return drawn.astype(dtype_of(dtype))


def _real(spec: Generated, name: str, dtype: str, dims: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    drawn: NDArray[Any] = _drawn(spec, dims, rng)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * _drawn(spec, dims, rng)
    if dtype == _POSITIVE:
        drawn = np.abs(drawn)
    with np.errstate(all="ignore"):
        made = drawn.astype(dtype_of(dtype))
    if not np.isfinite(made.astype(np.complex128)).all():
        raise _unheld(spec, name, dtype)
    return made


def _drawn(spec: Generated, dims: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    first, second = spec.arguments
    if spec.generator == "normal":
        return rng.normal(first, second, dims)
    if math.isfinite(float(second) - float(first)):
        return rng.uniform(first, second, dims)
    # wider than any number: each end has its share
    share = rng.random(dims)
    return first * (1.0 - share) + second * share


def _unheld(spec: Generated, name: str, dtype: str) -> UsageError:
    return UsageError(f"{name}={spec.text} makes numbers that {dtype} cannot hold", "give a narrower range")
