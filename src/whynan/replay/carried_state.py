"""What moves from step to step beside the names of a frame: counters, positions, buffers, generators of numbers.

A step's code may read an attribute that the step itself changes (where a loader of one's own stands, how often a module
was called). Which ones move is learnt in the first steps, by looking through everything; from then on each mark keeps
the values of those alone. What objects of libraries hold (whether a loader is at its end, how many backwards were made
since a step) is learnt likewise, and put back only where a replay without that has failed.
"""

from __future__ import annotations

import random
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from whynan.capture.torch.shadow_memory import owns_elements
from whynan.replay.open_files import go_to, is_read, position
from whynan.replay.snapshot import same_bits
from whynan.source.ownership import Owner, owner_of

_LOOKS: Final = frozenset((1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000))
"""The marks at which everything is looked through."""
_FIRST: Final = 2
"""At so many, ahead of the first step, all is kept: what an optimizer stands in is made after the first of them."""
_MOST: Final = 20_000
_MOST_BENEATH: Final = 4_000
"""The same of what objects of libraries hold."""
_MOST_KEPT: Final = 256
"""So many places of theirs are read at each mark."""
_LONGEST: Final = 256
_LONGEST_LIST: Final = 4096
_NUMBERS: Final = 64
"""A tensor of more elements in a list is data, and nothing that is held beyond its time."""
_BUFFER: Final = 1 << 16
_BUFFERS: Final = 1 << 22
"""Of so many elements, and so many together, are the tensors that are kept before it is known which of them move."""
_DEEPEST: Final = 6
_STATISTICS: Final = ("running_mean", "running_var")
"""The buffers that a normalisation writes without another version of them."""
_PLAIN: Final = (int, float, bool, str, type(None))


class Slot(NamedTuple):
    """A place that holds something: how it is read, and written."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


Key: TypeAlias = tuple[int, Any]
"""An object, and the name of one of its places."""


class CarriedState:
    """The places that have been seen to change between marks, and the generators of numbers that the program holds."""

    def __init__(self) -> None:
        self._marks = 0
        self._seen: dict[Key, tuple[Any, Any]] = {}
        self._slots: dict[Key, Slot] = {}
        self._statistics: dict[Key, tuple[Slot, Tensor]] = {}
        """The running statistics of normalisations, which are read together."""
        self._read: list[tuple[Slot, Any]] = []
        self._beneath: dict[Key, Slot] = {}
        """Those of libraries."""
        self._seen_beneath: dict[Key, tuple[weakref.ref[Any], Any]] = {}

    def now(self, roots: Callable[[], Iterable[dict[str, Any]]], *, behind_step: bool = True) -> list[tuple[Slot, Any]]:
        """The places that move, with what they hold at this mark; `roots` gives the program's names.

        `behind_step`: modules may have been called since the last mark, which move their statistics.
        """
        self._marks += 1
        first: list[Slot] = []
        if self._marks in _LOOKS:
            found = self._look(roots())
            first = found if self._marks <= _FIRST else []
        if self._statistics and (behind_step or len(self._read) != len(self._statistics)):
            slots, tensors = zip(*self._statistics.values(), strict=True)
            with torch.no_grad():
                self._read = [*zip(slots, torch._foreach_mul(tensors, 1.0), strict=True)]
        return [*((slot, slot.read()) for slot in (*first, *self._slots.values())), *self._read]

    def beneath(self, roots: Callable[[], Iterable[dict[str, Any]]]) -> Callable[[], list[tuple[Slot, Any]]]:
        """What gives the places that move in libraries, with what they hold now.

        One that has moved since the last look, and never before, is given what it held then.
        """
        kept = [(slot, slot.read()) for slot in self._beneath.values()]
        return lambda: [*kept, *self._moved_since(roots())]

    def _moved_since(self, roots: Iterable[dict[str, Any]]) -> Iterator[tuple[Slot, Any]]:
        for key, holder, value, slot in _places(roots, beneath=True):
            before = self._seen_beneath.get(key)
            if slot is None or key in self._beneath or before is None or before[0]() is not holder:
                continue
            if before[1] != value:
                yield slot, before[1]

    def _look(self, roots: Iterable[dict[str, Any]]) -> list[Slot]:
        """Learn what has moved since the last look; gives what may move, of the tensors as many as can be kept."""
        seen: dict[Key, tuple[Any, Any]] = {}
        found, left, roots = list[Slot](), _BUFFERS, list(roots)
        for key, holder, value, slot in _places(roots):
            if slot is not None and value is _WITHOUT_VERSION:
                self._statistics.setdefault(key, (slot, holder))
                continue
            if slot is not None and isinstance(holder, Tensor) and holder.numel() <= min(left, _BUFFER):
                found.append(slot)
                left -= holder.numel()
            elif slot is not None and not isinstance(holder, Tensor) and value is not _ALWAYS:
                found.append(slot)
            if slot is not None and value is _ALWAYS:
                self._slots.setdefault(key, slot)
            elif slot is not None:
                seen[key] = holder, value
                before = self._seen.get(key)
                if before is not None and before[0] is holder and before[1] != value:
                    self._slots.setdefault(key, slot)
        self._seen = seen
        self._look_beneath(roots)
        return found

    def _look_beneath(self, roots: Iterable[dict[str, Any]]) -> None:
        """The same of what libraries hold, whose objects are not held for it."""
        seen: dict[Key, tuple[weakref.ref[Any], Any]] = {}
        for key, holder, value, slot in _places(roots, beneath=True):
            if slot is None or key in self._seen or not isinstance(value, _PLAIN):
                continue
            with suppress(TypeError):
                seen[key] = weakref.ref(holder), value
            before = self._seen_beneath.get(key)
            moved = before is not None and before[0]() is holder and before[1] != value
            if moved and len(self._beneath) < _MOST_KEPT:
                self._beneath.setdefault(key, slot)
        self._seen_beneath = seen


def attributes_of(value: object) -> list[tuple[Slot, Any]]:
    """The numbers that an object of a library's holds by itself, as a trainer keeps the sum of its losses."""
    attributes = _attributes(value)
    found: list[tuple[Slot, Any]] = []
    if isinstance(value, (type, nn.Module)) or type(attributes) is not dict:
        return found
    for key, held in list(attributes.items()):
        if isinstance(held, Tensor):
            if held.numel() <= _NUMBERS and _is_written_alone(held):
                found += [_pair(_of_key(attributes, key)), _pair(_of_tensor(held))]
        elif isinstance(held, _PLAIN):
            found.append(_pair(_of_key(attributes, key)))
    return found


def _pair(slot: Slot) -> tuple[Slot, Any]:
    return slot, slot.read()


def _attributes(value: object) -> Any:
    """The attributes of an object, for which no code of the program's is run."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def _of_key(held: dict[Any, Any], key: Any) -> Slot:
    def write(value: Any) -> None:
        if value is _NOTHING:
            held.pop(key, None)
        else:
            held[key] = value

    return Slot(lambda: held.get(key, _NOTHING), write)


def _of_place(held: list[Any], number: int) -> Slot:
    def write(value: Any) -> None:
        if value is not _NOTHING and number < len(held):
            held[number] = value

    return Slot(lambda: held[number] if number < len(held) else _NOTHING, write)


def _is_plain(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor that has numbers; one that a lazy module has yet to make has none."""
    return isinstance(value, Tensor) and not is_lazy(value)


def _is_written_alone(tensor: Tensor) -> bool:
    """Whether a tensor is no other's view, and nothing that is trained or computed."""
    is_computed = not _is_plain(tensor) or tensor.requires_grad or not tensor.is_leaf
    return not is_computed and owns_elements(tensor) and not tensor.is_inference()


_ALWAYS: Final = object()
_WITHOUT_VERSION: Final = object()
_NOTHING: Final = object()


def assign(values: list[tuple[Slot, Any]]) -> None:
    """Have the places hold that; one that cannot be written leaves none of the others as it is."""
    failed: list[Exception] = []
    for slot, value in values:
        try:
            slot.write(value)
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0]


def _places(roots: Iterable[dict[str, Any]], *, beneath: bool = False) -> Iterator[tuple[Key, Any, Any, Slot | None]]:
    """Every place that may move, reached from some names: its key, what it is in, what tells that it has changed.

    `beneath`: through objects of libraries, too.
    """
    known: set[int] = set()
    waiting: deque[tuple[Any, int]] = deque((value, 0) for names in roots for value in list(names.values()))
    while waiting and len(known) < (_MOST_BENEATH if beneath else _MOST):
        value, depth = waiting.popleft()
        if id(value) in known or isinstance(value, _PLAIN):
            continue
        known.add(id(value))
        if isinstance(value, Tensor):
            if _is_written_alone(value):
                yield (id(value), None), value, value._version, _of_tensor(value)
        elif is_read(value):
            yield (id(value), None), value, _ALWAYS, _of_file(value)
        elif (slot := _of_generator(value)) is not None:
            yield (id(value), None), value, _ALWAYS, slot
        elif depth < _DEEPEST:
            if isinstance(value, nn.Module):
                # however deep a network is, its buffers are no deeper
                buffers: dict[str, Any] = value.__dict__.get("_buffers", {})
                held = (*value.__dict__.get("_modules", {}).values(), *buffers.values())
                waiting.extend((inner, depth) for inner in held)
                for statistics in map(buffers.get, _STATISTICS):
                    if _is_plain(statistics) and statistics.numel() <= _BUFFER and id(statistics) not in known:
                        known.add(id(statistics))
                        yield (id(statistics), None), statistics, _WITHOUT_VERSION, _of_tensor(statistics)
            if type(value) is list and _holds_numbers(value):
                yield (id(value), None), value, [v if isinstance(v, _PLAIN) else id(v) for v in value], _of_list(value)
            for key, inner, slot in _inner_values(value, beneath=beneath):
                if isinstance(inner, _PLAIN):
                    yield (id(value), key), value, inner, slot
                    continue
                if slot is not None and _is_plain(inner) and inner.numel() <= _BUFFER:
                    # one that is computed would hold its graph
                    yield (id(value), key), value, id(inner), slot if _is_written_alone(inner) else None
                waiting.append((inner, depth + 1))


def _inner_values(value: Any, *, beneath: bool) -> Iterator[tuple[Any, Any, Slot | None]]:
    """What an object holds: attributes, items, what a function closes over."""
    kind = type(value)
    if kind is dict or (kind is list and not _holds_numbers(value)):
        if len(value) <= _LONGEST:
            for key, inner in list(value.items() if kind is dict else enumerate(value)):
                yield key, inner, _of_key(value, key) if kind is dict else _of_place(value, key)
    elif kind is list or kind is tuple:
        yield from ((key, inner, None) for key, inner in enumerate(value[:_LONGEST]))
    elif kind is types.FunctionType:
        if owner_of(value.__code__.co_filename) is Owner.USER:
            yield from _closed_over(value)
    elif kind is types.MethodType:
        yield 0, value.__self__, None
        yield 1, value.__func__, None
    elif isinstance(value, nn.Module) or _owner(kind) is Owner.USER or (beneath and _owner(kind) is Owner.LIBRARY):
        attributes = _attributes(value)
        # those of a class are no dict that could be written
        is_written = type(attributes) is dict
        for key, inner in list(attributes.items()):
            yield key, inner, _of_key(attributes, key) if is_written else None


def _closed_over(function: types.FunctionType) -> Iterator[tuple[Any, Any, Slot | None]]:
    for number, cell in enumerate(function.__closure__ or ()):
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        yield number, inner, Slot(lambda c=cell: c.cell_contents, lambda v, c=cell: setattr(c, "cell_contents", v))


def _owner(kind: type) -> Owner | None:
    """Whose a class is; None where that is not known."""
    module: Any = sys.modules.get(kind.__module__)
    file: Any = getattr(module, "__file__", None)
    return owner_of(file) if isinstance(file, str) else None


def _holds_numbers(held: list[Any]) -> bool:
    """Whether a list holds nothing but numbers and words, and tensors of a few numbers."""
    if len(held) > _LONGEST_LIST:
        return False
    return all(isinstance(v, _PLAIN) or (isinstance(v, Tensor) and v.numel() <= _NUMBERS) for v in held)


def _of_list(held: list[Any]) -> Slot:
    """What is in a list, as the steps of an episode are until one is made of them; one that has grown long stays."""

    def write(items: list[Any] | None) -> None:
        if items is not None:
            held[:] = items

    return Slot(lambda: held[:] if _holds_numbers(held) else None, write)


def _of_tensor(tensor: Tensor) -> Slot:
    def write(value: Tensor) -> None:
        # another version is refused by a graph that has saved it, and it is put back before that is differentiated
        if not same_bits([tensor], [value]):
            tensor.data.copy_(value)

    return Slot(lambda: tensor.detach().clone(), write)


def _of_file(file: Any) -> Slot:
    """The place where one is in a file; the file may go."""
    reference = weakref.ref(file)

    def read() -> int | None:
        held = reference()
        return position(held) if held is not None and is_read(held) else None

    def write(at: int | None) -> None:
        held = reference()
        if held is not None:
            go_to(held, at)

    return Slot(read, write)


def _of_generator(value: Any) -> Slot | None:
    """The place of a generator's state, if it is one."""
    if isinstance(value, torch.Generator):
        return Slot(value.get_state, value.set_state)
    if isinstance(value, random.Random):
        # that of the system has no state
        return None if isinstance(value, random.SystemRandom) else Slot(value.getstate, value.setstate)
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.Generator):
        bits = value.bit_generator
        return Slot(lambda: bits.state, lambda v: setattr(bits, "state", v))
    if numpy is not None and isinstance(value, numpy.RandomState):
        return Slot(value.get_state, value.set_state)
    return None
