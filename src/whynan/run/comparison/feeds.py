"""Inputs of a comparison: arrays for both sides, read, given or made up, and which input of B is which of A."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from whynan.errors import UsageError
from whynan.run.comparison.sources import OnnxSource, TorchSource, names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.compare.sides.operations import Array
    from whynan.run.comparison.sources import Source

_HOW: Final = "give FILE.npz or NAME=FILE.npy with arrays by input name, or --random SEED"


@dataclass(frozen=True, slots=True)
class Feeds:
    """Arrays for both sides, and of each input of B that of A; ``notes`` are what had to be done for that."""

    a: dict[str, Array]
    b: dict[str, Array]
    pairs: dict[str, str]
    notes: tuple[str, ...]


def read_arrays(items: Sequence[str]) -> dict[str, Array]:
    """The arrays of files: ``.npz``, a folder of ``.npy``, or ``NAME=FILE.npy``."""
    found: dict[str, Array] = {}
    for item in items:
        name, equals, path = item.partition("=")
        if equals and not os.path.exists(item):
            found[name] = _single(name, path)
        elif os.path.isdir(item):
            for file in sorted(os.listdir(item)):
                if file.endswith(".npy"):
                    name = file.removesuffix(".npy")
                    found[name] = _single(name, os.path.join(item, file))
        else:
            held = _load(item)
            if not isinstance(held, Mapping):
                raise UsageError(f"{item} holds one array without a name", f"say for which input: NAME={item}")
            found.update(cast("Mapping[str, Array]", held))
    return found


def _single(name: str, path: str) -> Array:
    """The one array of a file."""
    held = _load(path)
    if not isinstance(held, dict):
        return held
    if len(held) != 1:
        raise UsageError(f"{path} holds {len(held)} arrays, and {name} is one", f"give {path} without {name}=")
    return next(iter(held.values()))


def _load(path: str) -> Array | dict[str, Array]:
    try:
        held: Any = np.load(path, allow_pickle=False)
        return dict(held) if hasattr(held, "files") else held
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({' '.join(str(error).split())[:120]})", _HOW) from None


def as_arrays(inputs: Any, source: Source) -> dict[str, Array]:
    """What a program gives as inputs: a dictionary by name, one array, or a sequence in order."""
    if isinstance(inputs, Mapping):
        return {str(name): _as_array(value) for name, value in cast("Mapping[Any, Any]", inputs).items()}
    several = list(cast("Sequence[Any]", inputs)) if isinstance(inputs, list | tuple) else [inputs]
    if isinstance(source, TorchSource):
        source.take(len(several))
    names = names_of(source)
    if len(several) > len(names):
        raise UsageError(f"{len(several)} inputs are given, and {source.label} takes {len(names)}", ", ".join(names))
    return {name: _as_array(value) for name, value in zip(names, several, strict=False)}


def _as_array(value: Any) -> Array:
    if hasattr(value, "detach"):
        from whynan.compare.sides.torch import to_numpy

        return to_numpy(value)
    return np.asarray(value)


def feeds_of(a: Source, b: Source, given: Mapping[str, Array], seed: int | None) -> Feeds:
    """The inputs of both sides; raises ``UsageError`` where they have none in common, or one is missing."""
    for source in (a, b):
        if isinstance(source, TorchSource):
            source.take(len(given))
    known = {*names_of(a), *names_of(b)}
    if unknown := [name for name in given if name not in known]:
        raise UsageError(
            f"{unknown[0]} is an input of neither side", f"A takes {_listed(a.inputs)}; B takes {_listed(b.inputs)}"
        )
    pairs = _pairs(a, b, given)
    notes: list[str] = []
    ours: dict[str, Array] = {}
    theirs: dict[str, Array] = {}
    shapes = {**_named(b), **_named(a)}
    for there, here in pairs.items():
        value = given.get(here, given.get(there))
        if value is None:
            value = _made(here, there, shapes, seed)
        ours[here] = _typed(a, here, value, notes)
        theirs[there] = _typed(b, there, value, notes)
    renamed = {there: here for there, here in pairs.items() if there != here}
    if renamed:
        told = ", ".join(f"{there} of B is {here} of A" for there, here in list(renamed.items())[:4])
        notes.append(f"inputs were paired in their order: {told}")
    return Feeds(ours, theirs, pairs, tuple(dict.fromkeys(notes)))


def _pairs(a: Source, b: Source, given: Mapping[str, Array]) -> dict[str, str]:
    """Of each input of B that of A: of one name, else in order."""
    ours = [*a.inputs, *(name for name in names_of(a) if name in given and name not in a.inputs)]
    theirs = [*b.inputs, *(name for name in names_of(b) if name in given and name not in b.inputs)]
    pairs = {name: name for name in theirs if name in ours}
    here = [name for name in ours if name not in pairs]
    there = [name for name in theirs if name not in pairs]
    if len(here) != len(there):
        raise UsageError(
            f"A takes {_listed(a.inputs)}, and B {_listed(b.inputs)}: they have not the same inputs",
            "compare programs of one signature",
        )
    return {**pairs, **dict(zip(there, here, strict=True))}


def _named(source: Source) -> dict[str, tuple[str, tuple[int, ...]]]:
    return source.shapes() or {}


def _made(here: str, there: str, shapes: Mapping[str, tuple[str, tuple[int, ...]]], seed: int | None) -> Array:
    """Numbers drawn from a seed, in the shape that a side declares."""
    if seed is None:
        raise UsageError(f"nothing is given for the input {here}", _HOW)
    known = shapes.get(here, shapes.get(there))
    if known is None:
        raise UsageError(
            f"the shape of the input {here} is not known, so that it cannot be made up", "give it: -i inputs.npz"
        )
    dtype, shape = known
    draw = np.random.default_rng([seed, zlib.crc32(there.encode())])
    if dtype.startswith(("float", "bfloat")):
        return draw.normal(size=shape).astype(np.float32 if dtype == "bfloat16" else dtype)
    return draw.integers(0, 2, shape).astype(dtype)


def _typed(source: Source, name: str, value: Array, notes: list[str]) -> Array:
    """A value in the dtype that a side takes; what had to be cast is said."""
    if not isinstance(source, OnnxSource):
        return value
    declared = (source.shapes() or {}).get(name)
    if declared is None or declared[0] == value.dtype.name or declared[0] == "string":
        return value
    from whynan.models.onnx.model import dtype_of

    wanted = dtype_of(declared[0])
    if wanted.kind in "iu" and value.dtype.kind == "f" and bool((value != np.floor(value)).any()):
        raise UsageError(f"{name} of {source.label} is {wanted.name}, and fractions are given", "give whole numbers")
    what = f"{name} of {source.label} is {wanted.name}, and {value.dtype.name} is given"
    if value.dtype.kind not in "fiub" and value.dtype.name not in ("bfloat16", wanted.name):
        raise UsageError(what, "give real numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = value.astype(wanted)
        if wanted.kind in "iu" and not np.array_equal(cast.astype(np.float64), value.astype(np.float64)):
            raise UsageError(f"{what} that does not fit", f"give numbers of {wanted.name}")
    notes.append(f"{name} was given as {value.dtype.name}, and {source.label} takes {wanted.name}: it was cast")
    return cast


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6]) or "nothing"
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"
