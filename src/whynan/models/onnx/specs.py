"""Input specifications (``name=...``): a file, one number everywhere, or generated numbers."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whynan.errors import UsageError
from whynan.models.onnx.arrays import most_bytes
from whynan.models.onnx.model import STRING, dtype_of

# -- What ``name=...`` gives an input: a file, one number everywhere, or numbers to be generated -----------------------


Generator: TypeAlias = Literal["zeros", "ones", "uniform", "normal", "randint"]

HOW: Final = (
    "give FILE.npz, a folder of .npy files or of test data (input_0.pb), name=FILE.npy, name=FILE.pb, "
    "name=uniform(-1,1)[1,3,224,224] (or normal, randint, zeros, ones), name=3.5, or --random SEED"
)
_VALUES: Final = (
    "a value is FILE.npy, FILE.npz or FILE.pb, a number, true, false, none, 'text', zeros, ones, uniform(low,high), "
    "normal(mean,deviation) or randint(low,high), with dimensions in brackets as in zeros[1,3]"
)
_SUFFIXES: Final = (".npy", ".npz", ".pb")
_DIMS: Final = re.compile(r"(?P<value>.*?)\s*\[(?P<dims>[^\[\]]*)\]", re.DOTALL)
_CALL: Final = re.compile(r"(?P<name>[a-z]+)(?:\((?P<arguments>[^()]*)\))?")
_NUMBER: Final = re.compile(r"[+-]?(?:inf|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_DEFAULTS: Final[dict[Generator, tuple[float, ...]]] = {
    "zeros": (),
    "ones": (),
    "uniform": (0.0, 1.0),
    "normal": (0.0, 1.0),
    "randint": (0, 2),
}


@dataclass(frozen=True, slots=True)
class Generated:
    """Numbers to be made; ``dims`` is None where those of the model are meant, ``text`` what was written."""

    generator: Generator
    arguments: tuple[float, ...]
    dims: tuple[int, ...] | None
    text: str


@dataclass(frozen=True, slots=True)
class Filled:
    """The same value in every element."""

    value: float | bool | str
    dims: tuple[int, ...] | None
    text: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """What an optional holds that holds nothing."""

    text: str = "none"


@dataclass(frozen=True, slots=True)
class InFile:
    """The content of a file."""

    path: Path


Spec: TypeAlias = Generated | Filled | Nothing | InFile


def spec_of(name: str, text: str) -> Spec:
    """What the text behind ``name=`` asks for; raises ``UsageError`` where it is nothing that is known."""
    if text.endswith(_SUFFIXES):
        return InFile(Path(text))
    found = _DIMS.fullmatch(text)
    value, dims = (found["value"], _dims(name, text, found["dims"])) if found else (text, None)
    value = value.strip()
    if quoted := _QUOTED.fullmatch(value):
        return Filled(quoted[1] if quoted[1] is not None else quoted[2], dims, text)
    if value in ("true", "false"):
        return Filled(value == "true", dims, text)
    if value == "none" and dims is None:
        return Nothing()
    if _NUMBER.fullmatch(value):
        return Filled(_number(value), dims, text)
    call = _CALL.fullmatch(value)
    generator: Generator | None = next((known for known in _DEFAULTS if call and call["name"] == known), None)
    if call is None or generator is None:
        raise UsageError(f"{name}={text} is no value of an input", _VALUES)
    return Generated(generator, _arguments(name, text, generator, call["arguments"]), dims, text)


def _number(text: str) -> float:
    """An ``int`` where it is written as one, whatever its size."""
    digits = text.lstrip("+-")
    # Python refuses to read more digits than 4,300
    return int(text) if digits.isdigit() and len(digits) <= 40 else float(text)


def _dims(name: str, text: str, inner: str) -> tuple[int, ...]:
    parts = [part.strip() for part in inner.split(",")] if inner.strip() else []
    if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        raise UsageError(f"{name}={text} has dimensions that are no numbers", "write them as in zeros[1,3,224,224]")
    return tuple(map(int, parts))


def _arguments(name: str, text: str, generator: Generator, inner: str | None) -> tuple[float, ...]:
    default = _DEFAULTS[generator]
    if inner is None or (not inner.strip() and not default):
        return default
    parts = [part.strip() for part in inner.split(",")]
    wrong = UsageError(f"{name}={text} is not how {generator} is written", _USAGE[generator])
    if len(parts) != len(default) or not all(map(_NUMBER.fullmatch, parts)):
        raise wrong
    low, high = (_number(part) for part in parts)
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise wrong
    if not _sensible(generator, low, high):
        raise wrong
    return low, high


def _sensible(generator: Generator, low: float, high: float) -> bool:
    match generator:
        case "uniform":
            return low <= high
        case "normal":
            return high >= 0
        case _:
            whole = isinstance(low, int) and isinstance(high, int)
            return whole and low < high and low >= -_LIMIT and high <= _LIMIT


_LIMIT: Final = 1 << 63
_USAGE: Final[dict[Generator, str]] = {
    "zeros": "write zeros or zeros[1,3]: it takes no arguments",
    "ones": "write ones or ones[1,3]: it takes no arguments",
    "uniform": "write uniform(low,high): two finite numbers, the first not above the second",
    "normal": "write normal(mean,deviation): two finite numbers, the second not below 0",
    "randint": "write randint(low,high): two whole numbers, of which high is never drawn and is above low",
}


# -- Values made for the inputs of a model, of any dtype: drawn from a seed, or one value in every element -------------


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
