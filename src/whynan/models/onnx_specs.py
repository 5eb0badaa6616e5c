"""What ``name=...`` gives an input: a file, one number everywhere, or numbers to be generated."""

# pyright: strict

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from whynan.errors import UsageError

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
