"""Contents of a checkpoint: each tensor counted once, each bad number with its path; masks are literals."""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from whynan.models.checkpoint.pickles import StandIn, Wrapper, plain, tensor_of
from whynan.models.counting import NOTHING, Counted, UncountableError, count_elements, layout_of
from whynan.records.checkpoint import Meaning, Stored
from whynan.traces.json import escape_surrogates

# -- Which infinities of a checkpoint are meant: masks, start values of a search for an extreme, settings --------------


_LAST: Final = re.compile(r"([^.\[\]]*)(\[[^\]]*\])*$")
_BOOKKEEPING: Final = re.compile(r"(callbacks|loops|hyper_parameters|hparams|config|args)\b")
"""Where a trainer keeps what is no weight, at the root of its document."""

_MINIMUM: Final = frozenset("min mins minimum minval minvals".split())
_MAXIMUM: Final = frozenset("max maxs maximum maxval maxvals".split())


class Allowances:
    """Names, or patterns of names, of tensors whose bad numbers are meant."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._used = dict.fromkeys(patterns, False)

    def find(self, name: str) -> str | None:
        """The pattern that a name fits."""
        found = next((p for p in self._used if name == p or fnmatchcase(name, p)), None)
        if found is not None:
            self._used[found] = True
        return found

    @property
    def unused(self) -> tuple[str, ...]:
        """The patterns that excused nothing."""
        return tuple(pattern for pattern, used in self._used.items() if not used)


def literal(
    name: str, counts: Mapping[str, int], ends: tuple[float | None, float | None], shape: Sequence[int] | None
) -> Meaning | None:
    """Why the infinities of a tensor are meant; None where they are not, or a NaN is among them."""
    n, up, down = counts["n"], counts["n_posinf"], counts["n_neginf"]
    if counts["n_nan"] or not up + down:
        return None
    last = _last(name)
    words = set(re.split(r"[^a-z]+", last))
    if up == n and words & _MINIMUM:
        return "the start of a minimum"
    if down == n and words & _MAXIMUM:
        return "the start of a maximum"
    if n == 1 and ("best" in words or _BOOKKEEPING.match(name)):
        return "a start value"
    if down and not up and ends == (0, 0) and ("mask" in last or _is_square(shape)):
        return "a mask of 0 and -Inf"
    return None


def literal_number(counts: Mapping[str, int]) -> Meaning | None:
    """What infinite bare numbers are taken for; a NaN never is."""
    return None if counts["n_nan"] else "taken for a setting or a start value"


def _last(name: str) -> str:
    found = _LAST.search(name)
    return found[1].lower() if found else ""


def _is_square(shape: Sequence[int] | None) -> bool:
    return shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] > 1


# -- What a checkpoint holds, as records: each tensor counted once, each number that is not finite ---------------------


class Unread(NamedTuple):
    """A tensor that the library of its file cannot read: its type, shape, and why."""

    dtype: str
    shape: tuple[int, ...]
    why: str


Held: TypeAlias = "Tensor | Numbers | Unread"


class Contents:
    """The records of one checkpoint, as its files are walked through."""

    def __init__(self, allowances: Allowances, tick: Callable[[int], None] | None = None) -> None:
        self.tensors: list[Stored] = []
        self.numbers: list[Stored] = []
        self._allowances = allowances
        self._tick = tick
        self._shared: dict[Any, Stored] = {}

    def forget(self) -> None:
        """A file is done with, and its memory may be another tensor's now."""
        self._shared.clear()

    def add(self, name: str, value: Held, file: str | None) -> None:
        """One thing that was found in a file."""
        if isinstance(value, Unread):
            unread = Stored(name=name, file=file, dtype=value.dtype, shape=value.shape, unread=value.why)
            self.tensors.append(unread)
            return
        if isinstance(value, Tensor):
            self._tensor(name, value, file)
        else:
            self._number(name, value, file)

    def _tensor(self, name: str, tensor: Tensor, file: str | None) -> None:
        memory = _memory(tensor)
        first = None if memory is None else self._shared.get(memory)
        if first is not None:
            self.tensors.append(first.model_copy(update={"name": name, "file": file, "same_as": first.name}))
            return
        try:
            found, unread = count_elements(tensor, self._tick), None
        except UncountableError as error:
            found, unread = NOTHING, str(error)
        stored = self._judged(name, found, file, tensor, unread)
        self.tensors.append(stored)
        if memory is not None:
            self._shared[memory] = stored

    def _judged(self, name: str, found: Counted, file: str | None, tensor: Tensor, unread: str | None) -> Stored:
        counts, low, high = found
        shape = None if tensor.is_nested else tuple(tensor.shape)
        why = self._allowed(name, counts) or literal(name, counts, (low, high), shape)
        return Stored(
            name=name,
            file=file,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=shape,
            layout=layout_of(tensor),
            finite_min=low,
            finite_max=high,
            bad=why is None and _is_bad(counts),
            literal=why,
            unread=unread,
            **cast("dict[str, Any]", counts),
        )

    def _number(self, name: str, numbers: Numbers, file: str | None) -> None:
        counts = _counts(numbers)
        finite = [number for number in numbers if not isinstance(number, float) or math.isfinite(number)]
        why = self._allowed(name, counts) or literal_number(counts)
        self.numbers.append(
            Stored(
                name=name,
                file=file,
                dtype="number",
                shape=(len(numbers),) if len(numbers) > 1 else (),
                layout="number",
                finite_min=min(finite, default=None),
                finite_max=max(finite, default=None),
                bad=why is None,
                literal=why,
                **cast("dict[str, Any]", counts),
            )
        )

    def _allowed(self, name: str, counts: dict[str, int]) -> str | None:
        pattern = self._allowances.find(name) if _is_bad(counts) else None
        return None if pattern is None else f"allowed by {pattern}"


def _is_bad(counts: dict[str, int]) -> bool:
    return counts["n_nan"] + counts["n_posinf"] + counts["n_neginf"] > 0


def _memory(tensor: Tensor) -> Any:
    """Which elements of which memory a tensor shows; None where it has none of its own."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return None
    where = tensor.untyped_storage().data_ptr()
    if not where or not tensor.numel():
        return None
    return where, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj()


def _counts(numbers: Numbers) -> dict[str, int]:
    floats = [number for number in numbers if isinstance(number, float)]
    return {
        "n": len(numbers),
        "n_nan": sum(map(math.isnan, floats)),
        "n_posinf": floats.count(math.inf),
        "n_neginf": floats.count(-math.inf),
        "n_zero": sum(not number for number in numbers),
        "n_subnormal": sum(0 < abs(number) < 2**-1022 for number in floats),
    }


# -- From a document to what it holds: every tensor and every bad number, with its path --------------------------------


Numbers: TypeAlias = list[float]
"""A bare number, or the numbers of a list."""

_MODULE: Final = ("_parameters", "_buffers", "_modules")
_LONGEST_KEY: Final = 120


class Place:
    """A part of a path, and the place before it; spelled out only where it is asked for."""

    __slots__ = ("_before", "_part")

    def __init__(self, before: Place | None, part: str) -> None:
        self._before = before
        self._part = part

    def __str__(self) -> str:
        parts: list[str] = []
        place: Place | None = self
        while place is not None:
            parts.append(place._part)
            place = place._before
        return escape_surrogates("".join(reversed(parts)).removeprefix("."))


def walk_document(document: Any) -> Iterator[tuple[str, Tensor | Numbers]]:
    """Each tensor of a document, and each number that is not finite (with its neighbours, where it is in a list).

    In the order of the document. A container that lies in several places is entered at the first.
    """
    entered: set[int] = set()
    waiting: list[tuple[Place | None, Any]] = [(None, document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, StandIn) and (array := tensor_of(value)) is not None:
            yield _place_text(place), array
        elif isinstance(value, Tensor) and not isinstance(value, Wrapper):
            yield _place_text(place), plain(value)
        elif isinstance(value, float | complex):
            if not cmath.isfinite(value):
                yield _place_text(place), _parts([value])
        elif _is_container(value) and id(value) not in entered:
            entered.add(id(value))
            if numbers := _bad_list(value):
                yield _place_text(place), numbers
            else:
                waiting += [(Place(place, part), held) for part, held in _children(value)][::-1]


def _place_text(place: Place | None) -> str:
    return "(the whole file)" if place is None else str(place)


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | set | frozenset | StandIn | Tensor)


def _bad_list(value: Any) -> Numbers:
    """The numbers of a list of nothing else, if one of them is bad."""
    if not isinstance(value, list | tuple) or not value:
        return []
    held = cast("list[Any]", value)
    if not all(isinstance(number, int | float | complex) for number in held):
        return []
    # a whole number can be too large to be asked whether it is finite
    bad = any(isinstance(number, float | complex) and not cmath.isfinite(number) for number in held)
    return _parts(held) if bad else []


def _parts(held: list[Any]) -> Numbers:
    parts: list[float] = []
    for number in held:
        parts += [number.real, number.imag] if isinstance(number, complex) else [number]
    return parts


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, StandIn):
        yield from _attributes(value)
    elif isinstance(value, Tensor):
        # of a wrapper only these are elements: the rest tells of shape and placement
        yield from ((_part(name), held) for name, held in vars(value).items() if isinstance(held, Tensor | StandIn))
    elif isinstance(value, dict):
        for key, held in _items(value):
            yield _part(key), held
    else:
        for number, held in enumerate(cast("list[Any]", value)):
            yield f"[{number}]", held


def _items(held: Any) -> Iterable[tuple[Any, Any]]:
    """The items of a mapping, whose attributes may have any name."""
    return cast("Any", dict).items(held)


def _attributes(held: StandIn) -> Iterator[tuple[str, Any]]:
    """What an object holds; of a module under the names that its state_dict would have."""
    for state in _states(held.state):
        if not isinstance(state, dict):
            yield ".state", state
            continue
        named = cast("dict[Any, Any]", state)
        module = all(part in named and isinstance(named[part], dict) for part in _MODULE)
        for key, inner in _items(named):
            if module and key in _MODULE:
                yield from ((_part(name), below) for name, below in _items(inner))
            else:
                yield _part(key), inner
    for number, argument in enumerate(held.arguments):
        yield f"[{number}]", argument


def _states(state: Any) -> list[Any]:
    """The state of an object; one with slots has two."""
    if isinstance(state, tuple):
        pair = cast("tuple[Any, ...]", state)
        if len(pair) == 2 and all(half is None or isinstance(half, dict) for half in pair):
            return [half for half in pair if half is not None]
    return [] if state is None else [state]


def _part(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}"
    if isinstance(key, int) and key.bit_length() <= 64:
        return f"[{key}]"
    if isinstance(key, float | bytes | None):
        text = repr(key)
        return f"[{text}]" if len(text) <= _LONGEST_KEY else f"[{text[:_LONGEST_KEY]}...]"
    return f"[{key.name if isinstance(key, StandIn) else type(key).__name__}]"
