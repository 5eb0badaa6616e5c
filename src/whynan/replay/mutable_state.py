"""What the mutable things hold that can be reached from a program's names, and which gradients tensors have."""

from __future__ import annotations

import builtins
import functools
import gc
import io
import operator
import queue
import random
import re
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from whynan.capture.torch.shadow_memory import is_wrapped
from whynan.replay.class_lookup import (
    UNBOUND,
    frame_name,
    identities,
    is_a,
    is_shared,
    iterates,
    layout,
    module_of,
    namespace_of,
    owner_of_class,
    slot_of,
)
from whynan.source.ownership import Owner, owner_of


class Gradients:
    """Which gradients some tensors have, whether they require one, and which memory they are over; by reference."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            self._taken = [(t, t.grad, t.requires_grad, t.data) for t in tensors if t.is_leaf]

    @classmethod
    def snapshot(cls, parameters: Iterable[Tensor]) -> Gradients:
        """Take those of the leaves among some tensors."""
        return cls(parameters)

    def restore(self) -> None:
        """Have the same objects be the gradients again."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            for tensor, grad, requires, data in self._taken:
                if not tensor.is_leaf:
                    tensor.detach_()
                moved = not _same_memory(tensor, data)
                if tensor.grad is not grad or moved:
                    tensor.grad = None
                if moved:
                    tensor.data = data
                if tensor.requires_grad != requires:
                    tensor.requires_grad_(requires)
                if tensor.grad is not grad:
                    tensor.grad = grad


def _same_memory(tensor: Tensor, data: Tensor) -> bool:
    if tensor.dtype != data.dtype or tensor.layout != data.layout or tensor.is_nested != data.is_nested:
        return False
    if tensor.is_nested and tensor.layout is torch.strided:
        # torch refuses to tell its shape
        return tensor.data_ptr() == data.data_ptr()
    if tensor.shape != data.shape:
        return False
    if tensor.layout is not torch.strided:
        return True
    return tensor.data_ptr() == data.data_ptr() and tensor.stride() == data.stride()


OBJECTS: Final = 200_000
DEPTH: Final = 5  # four below the values of names, for what is handed over are their dicts
ARRAY_BYTES: Final = 1 << 20  # a NumPy array of more is taken for data, which a step reads

_PLAIN: Final = identities((int, float, str, bytes, bool, complex, type(None), type(Ellipsis), range, slice))
_OPAQUE: Final = identities((
    types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, io.TextIOWrapper, io.BufferedReader,
    io.BufferedWriter, io.BufferedRandom, io.FileIO, queue.Queue,
))  # fmt: skip
_TWISTER: Final[Any] = random.Random.__base__
"""What is written in C of Python's generators."""
_ANYWHERE: Final = identities((torch.nn.Module, torch.optim.Optimizer, torch.Tensor))
_FIXED: Final = identities((tuple, frozenset))
_SCOPES: Final = identities((dict, types.ModuleType))


class ObjectSnapshot:
    """What is held by the mutable things that can be reached from some objects, put back in place.

    Looked into are the containers of Python's and what inherits from them, instances (their ``__dict__`` and slots),
    the classes, functions and closures of the program's own, generators of random numbers and streams in memory. A
    module or an optimizer is looked into from its own level on, wherever it is found, and a module through all of its
    parts. No code of the program's runs but the ``__hash__`` and ``__eq__`` of a key, in a dict that has changed.

    `depth`: so many containers down. `limit`: so many objects, beyond which nothing more is looked at.
    """

    def __init__(self, roots: Iterable[Any], *, depth: int = DEPTH, limit: int = OBJECTS) -> None:
        self.exceeded = False
        """Whether there was more than the limit lets see."""
        self.iterators: list[Any] = []
        """Iterators and generators that have not ended: they cannot be put back."""
        self.large: list[Any] = []
        """NumPy arrays whose elements were not copied."""
        self.failed: list[Exception] = []
        """Why something could not be put back."""
        self.tensors: list[Tensor] = []
        self._undo: list[Callable[[], object]] = []
        self._alive: dict[int, Any] = {}
        self._waiting: deque[tuple[Any, int]] = deque()
        self._depth = depth
        self._limit = limit
        with _paused_collection():
            for root in roots:
                # a frame's names from Python 3.13 on
                self._add(dict(root) if type(root).__name__ == "FrameLocalsProxy" else root, 0)
            while self._waiting and not self.exceeded:
                self._look(*self._waiting.popleft())
        self._gradients = Gradients(self.tensors)

    def reached(self) -> list[Any]:
        """All that was looked at."""
        return list(self._alive.values())

    def restore(self) -> None:
        """Have everything hold what it held, the containers themselves being the same."""
        for undo in self._undo:
            try:
                try:
                    undo()
                except Exception:
                    undo()
            except Exception as error:
                self.failed.append(error)
        self._gradients.restore()

    def _add(self, value: Any, depth: int) -> None:
        kind = type(value)
        if value is vars(builtins):
            # it is in the names of each module
            return
        if id(kind) in _PLAIN or id(value) in self._alive or (depth > self._depth and not is_a(kind, _ANYWHERE)):
            return
        if len(self._alive) >= self._limit:
            self.exceeded = True
            return
        self._alive[id(value)] = value
        self._waiting.append((value, depth))

    def _look(self, value: Any, depth: int) -> None:
        kind = type(value)
        if is_a(kind, torch.Tensor):
            is_known = kind is torch.Tensor or is_a(kind, torch.nn.Parameter)
            if is_known and not is_wrapped(value) and not is_lazy(value):
                self.tensors.append(value)
            return
        if is_a(kind, _OPAQUE) or str(module_of(kind)).partition(".")[0] == "whynan":
            # what whynan notes meanwhile is to stay
            return
        if is_a(kind, _ANYWHERE):
            depth = 0
        if not self._take_stateful(value, kind) and not self._take_code(value, kind, depth):
            self._take_container(value, kind, depth)
            self._take_instance(value, kind, depth)

    def _take_stateful(self, value: Any, kind: type) -> bool:
        """What has a state of its own, by its own class's means."""
        frame = frame_name(kind)
        if frame is not None:
            if getattr(value, frame) is not None:
                self.iterators.append(value)
            return True
        if is_a(kind, torch.Generator):
            self._undo.append(functools.partial(value.set_state, value.get_state()))
        elif is_a(kind, random.Random):
            self._undo.append(functools.partial(_TWISTER.setstate, value, _TWISTER.getstate(value)))
            # the second of two normal numbers is an attribute, as is what a subclass has
            return False
        elif str(module_of(kind)).partition(".")[0] == "numpy":
            self._take_numpy(value, kind)
        elif kind is io.StringIO or kind is io.BytesIO:
            if not value.closed:
                self._undo.append(functools.partial(value.__setstate__, value.__getstate__()))
        elif iterates(kind):
            self.iterators.append(value)
        else:
            return False
        return True

    def _take_numpy(self, value: Any, kind: type) -> None:
        if kind.__name__ == "Generator":
            bits = value.bit_generator
            self._undo.append(functools.partial(setattr, bits, "state", bits.state))
        elif kind.__name__ == "RandomState":
            self._undo.append(functools.partial(value.set_state, value.get_state(legacy=False)))
        elif kind.__name__ == "ndarray" and value.flags.writeable:
            if value.nbytes > ARRAY_BYTES or value.dtype.hasobject:
                self.large.append(value)
            else:
                self._undo.append(functools.partial(value.__setitem__, Ellipsis, value.copy()))

    def _take_code(self, value: Any, kind: type, depth: int) -> bool:
        """What functions, methods and classes of the program's hold."""
        if kind is types.FunctionType:
            if owner_of(value.__code__.co_filename) is Owner.USER:
                self._take_dict(value.__dict__, depth)
                self._add(value.__defaults__, depth)
                self._add(value.__kwdefaults__, depth)
                for cell in value.__closure__ or ():
                    self._add(cell, depth)
        elif kind is types.CellType:
            self._take_cell(value, depth)
        elif kind is types.MethodType:
            self._add(value.__self__, depth)
            self._add(value.__func__, depth)
        elif kind is functools.partial:
            for part in (value.func, value.args, value.keywords):
                self._add(part, depth)
        elif is_a(kind, type):
            self._take_class(value, depth)
        else:
            return False
        return True

    def _take_cell(self, cell: Any, depth: int) -> None:
        try:
            held = cell.cell_contents
        except ValueError:
            held = UNBOUND

        def put_back() -> None:
            if held is UNBOUND:
                del cell.cell_contents
            else:
                cell.cell_contents = held

        self._undo.append(put_back)
        self._add(held, depth + 1)

    def _take_class(self, cls: Any, depth: int) -> None:
        namespace = namespace_of(cls)
        if owner_of_class(cls) is not Owner.USER:
            return
        held = dict(namespace)

        def put_back() -> None:
            now = dict(namespace_of(cls))
            for name in now.keys() - held.keys():
                type.__delattr__(cls, name)
            for name, was in held.items():
                if now.get(name, UNBOUND) is not was:
                    type.__setattr__(cls, name, was)

        self._undo.append(put_back)
        for value in held.values():
            self._add(value, depth + 1)

    def _take_container(self, value: Any, kind: type, depth: int) -> None:
        if is_a(kind, dict):
            self._take_dict(value, depth)
        elif is_a(kind, list):
            self._take_items(value, list.__getitem__(value, slice(None)), list.__iter__, _set_list, depth)
        elif is_a(kind, deque):
            self._take_items(value, list(deque.__iter__(value)), deque.__iter__, _set_deque, depth)
        elif is_a(kind, set):
            self._take_items(value, list(set.__iter__(value)), set.__iter__, _set_set, depth)
        elif is_a(kind, bytearray):
            held = bytearray.__getitem__(value, slice(None))
            self._undo.append(lambda: bytearray.__setitem__(value, slice(None), held))
        elif is_a(kind, _FIXED):
            each = tuple.__iter__(value) if is_a(kind, tuple) else frozenset.__iter__(value)
            for one in each:
                self._add(one, depth + 1)

    def _take_items(
        self,
        value: Any,
        held: list[Any],
        each: Callable[[Any], Iterator[Any]],
        write: Callable[[Any, list[Any]], None],
        depth: int,
    ) -> None:
        def put_back() -> None:
            if not _identical(list(each(value)), held):
                write(value, held)

        self._undo.append(put_back)
        for one in held:
            self._add(one, depth + 1)

    def _take_dict(self, value: Any, depth: int) -> None:
        """A dict, or the names of an instance, or of a function."""
        self._alive.setdefault(id(value), value)
        is_ordered = is_a(type(value), OrderedDict)
        pairs: Any = OrderedDict.items if is_ordered else dict.items
        held = list(pairs(value))
        write = _set_ordered if is_ordered else _set_dict
        if type(value) is dict and is_a(type(value.get("__builtins__")), _SCOPES):
            write = _set_globals

        flat = [*chain.from_iterable(held)]

        def put_back() -> None:
            now = [*chain.from_iterable(pairs(value))]
            if _identical(now, flat):
                return
            if not _identical(now[::2], flat[::2]):
                write(value, held)
            else:
                for (key, was), is_now in zip(held, now[1::2], strict=True):
                    if was is not is_now:
                        dict.__setitem__(value, key, was)

        self._undo.append(put_back)
        for one in flat:
            self._add(one, depth + 1)

    def _take_instance(self, value: Any, kind: type, depth: int) -> None:
        names, slots = layout(kind)
        if names is not None:
            held: Any = names.__get__(value)
            if is_shared(kind, held):
                return
            if type(held) is dict and id(held) not in self._alive:
                self._take_dict(held, depth)
        for slot in slots:
            self._take_slot(value, slot, depth)

    def _take_slot(self, value: Any, slot: Any, depth: int) -> None:
        held = slot_of(slot, value)

        def put_back() -> None:
            if slot_of(slot, value) is not held:
                if held is UNBOUND:
                    slot.__delete__(value)
                else:
                    slot.__set__(value, held)

        self._undo.append(put_back)
        self._add(held, depth + 1)


@contextmanager
def _paused_collection() -> Generator[None]:
    """Make many small objects that all stay, without the collector going over them, and the program's, meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _identical(now: list[Any], held: list[Any]) -> bool:
    return len(now) == len(held) and all(map(operator.is_, now, held))


def _set_list(value: Any, held: list[Any]) -> None:
    list.__setitem__(value, slice(None), held)


def _set_deque(value: Any, held: list[Any]) -> None:
    deque.clear(value)
    deque.extend(value, held)


def _set_set(value: Any, held: list[Any]) -> None:
    set.clear(value)
    set.update(value, held)


def _set_dict(value: Any, held: list[tuple[Any, Any]]) -> None:
    dict.clear(value)
    for key, one in held:
        dict.__setitem__(value, key, one)


def _set_globals(value: Any, held: list[tuple[Any, Any]]) -> None:
    """Not empty for a moment, for threads; and what torch.compile has put there it counts on."""
    before = dict(held)
    for name in [n for n in value if n not in before and not _of_compile(n)]:
        del value[name]
    value.update(before)


def _of_compile(name: object) -> bool:
    return isinstance(name, str) and (name.startswith("__") or re.search(r"_\d+_c\d+$", name) is not None)


def _set_ordered(value: Any, held: list[tuple[Any, Any]]) -> None:
    OrderedDict.clear(value)
    for key, one in held:
        OrderedDict.__setitem__(value, key, one)
