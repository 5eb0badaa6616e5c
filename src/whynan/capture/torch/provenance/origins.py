"""Origins of tensors that no operation made: a loader's batch, an array of NumPy's, a file."""

from __future__ import annotations

import itertools
import sys
import types
from collections import UserDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.event_log import address
from whynan.capture.torch.names import Identities
from whynan.capture.torch.shadow_memory import is_readable, strided
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext


# -- The tensors and arrays in what a loader or a file gives and the way to each; no method of the program's is
# called


Way = tuple["Way | None", str, Any]
"""The way to a part: to what holds it, how it is written (``.``, ``[``) and the key; text is made of it when asked."""

MOST: Final = 1 << 13
"""So many parts of a batch are looked through, tensors or not."""
_PLAIN: Final = frozenset((str, bytes, int, float, bool, complex, type(None)))
_KEYS: Final = frozenset((str, int, float, bool, type(None)))
_OPAQUE: Final = (type, types.ModuleType, types.FunctionType, types.MethodType, types.CodeType, types.FrameType)
_HELD_BY_MODULES: Final = ("_parameters", "_buffers", "_modules")


def parts_of(value: Any, prefix: str, most: int = MOST) -> Generator[tuple[Way, Any]]:
    """Tensors that can hold a NaN, and arrays of floating point, nearest first."""
    array: Any = getattr(sys.modules.get("numpy"), "ndarray", ())
    seen: set[int] = set()
    waiting: deque[tuple[Way, Any]] = deque([((None, "", prefix), value)])
    left = most
    while waiting:
        way, part = waiting.popleft()
        if isinstance(part, torch.Tensor):
            if is_readable(part):
                yield way, part
        elif isinstance(part, array):
            if part.dtype.kind in "fc":
                yield way, part
        elif id(part) not in seen and left > 0:
            seen.add(id(part))
            inner = _inside(part, left)
            left -= len(inner)
            waiting.extend(((way, form, key), v) for form, key, v in inner if type(v) not in _PLAIN)


def format_path(way: Way) -> str:
    """A way as a person writes it: ``batch[1].mask``, ``model['0.weight']``; ``0.weight`` in what has no name."""
    holder, form, key = way
    if holder is None:
        return str(key)
    start = format_path(holder)
    if not start:
        return str(key)
    return f"{start}[{key!r}]" if form == "[" else f"{start}.{key}"


def _inside(value: Any, most: int) -> list[tuple[str, Any, Any]]:
    """What a container or an object holds, read below every method that its class may have of its own."""
    if isinstance(value, _OPAQUE):
        return []
    if isinstance(value, list):
        return [("[", i, v) for i, v in enumerate(list.__getitem__(value, slice(0, most)))]
    if isinstance(value, tuple):
        inner = tuple.__getitem__(value, slice(0, most))
        names = getattr(type(value), "_fields", None)
        if isinstance(names, tuple) and len(names) >= len(inner):
            return [(".", name, v) for name, v in zip(names, inner, strict=False)]
        return [("[", i, v) for i, v in enumerate(inner)]
    if isinstance(value, dict):
        return [(*_key(k), v) for k, v in list(itertools.islice(dict.items(value), most))]
    held = _attributes(value)
    if issubclass(type(value), UserDict):
        data = held.get("data")
        return _inside(data, most) if isinstance(data, dict) else []
    if isinstance(value, torch.nn.Module):
        homes = [held.get(name) for name in _HELD_BY_MODULES]
        return [(".", k, v) for home in homes if isinstance(home, dict) for k, v in list(home.items())[:most]]
    return [(".", k, v) for k, v in itertools.islice(held.items(), most)]


def _attributes(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found.update(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        # slots, of which a dataclass names its own
        for name in getattr(type(value), "__dataclass_fields__", ()):
            try:
                found[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
    return found


def _key(key: Any) -> tuple[str, Any]:
    """How an entry of a dictionary is written; of a key that is no plain one only its type is kept."""
    if type(key) is str and key.isidentifier():
        return ".", key
    return "[", key if type(key) in _KEYS else type(key)


# -- How a tensor lies in its memory, and which of its rows the elements of another tensor over that memory are in -----


class Layout(NamedTuple):
    """Sizes and strides of a tensor or array; `start` is its first element's, in elements, from where its memory is."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    itemsize: int

    def rows(self, tensor: Tensor, mask: Tensor, shift: int = 0) -> list[int] | None:
        """The rows (places in the first dimension) that the marked elements of a tensor are in, from the least.

        `shift`: how many bytes after the tensor's memory this one begins. None where an element lies outside; empty
        where the layout does not tell.
        """
        if not shift and layout_of(tensor) == self:
            found = mask.reshape(self.shape[0], -1).any(1).nonzero().flatten().tolist() if self.shape else []
            return [int(row) for row in found]
        places = mask.nonzero().cpu()
        rest = places @ torch.tensor(tensor.stride(), dtype=torch.int64, device="cpu") + int(tensor.storage_offset())
        return self._rows_at(rest * tensor.element_size() - self.start * self.itemsize - shift)

    def _rows_at(self, rest: Tensor) -> list[int] | None:
        """The rows of places, in bytes from the first element."""
        row: Tensor | None = None
        certain = not self._overlaps()
        for dim in sorted(range(len(self.shape)), key=lambda d: -self.strides[d]):
            step = self.strides[dim] * self.itemsize
            index = torch.zeros_like(rest)
            if self.shape[dim] > 1 and step > 0:
                index = torch.div(rest, step, rounding_mode="floor").clamp(0, self.shape[dim] - 1)
                rest = rest - index * step
            if dim == 0:
                row = index
        if bool(((rest < 0) | (rest >= self.itemsize)).any()):
            return None
        return [int(r) for r in torch.unique(row).tolist()] if row is not None and certain else []

    def _overlaps(self) -> bool:
        """Whether two elements may share a place: an expanded dimension, a window that slides."""
        reach = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1:
                if stride < reach:
                    return True
                reach += (size - 1) * stride
        return False


def layout_of(tensor: Tensor) -> Layout:
    """The layout of a strided tensor."""
    return Layout(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.element_size())


# -- Where tensors come from that no operation made: a batch of a loader, an array of NumPy's, a file ------------------
#
# What is known is kept on the storage of the tensor, or of an array that a tensor may be made of later, and asked for
# only if a bad value comes in with it. Nothing that is kept holds a tensor, an array or an object of the program's.


ORIGIN: Final = "_whynan_origin"
MOST_ROWS: Final = 16
MOST_VIEWS: Final = 256
"""So many tensors over one storage are told apart, the latest: a dataset may give views of a single tensor."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of everything that came in together.

    `indices`: the entries of the dataset that the rows of a batch are. `site`: where an array was made a tensor, by its
    number. `in_rows`: whether the first dimension counts samples.
    """

    data: Data
    indices: tuple[int | str | None, ...] | None = None
    site: int = 0
    in_rows: bool = False


class TensorOrigin(NamedTuple):
    """A tensor that came in: with what, and where in that it was found."""

    source: Source
    way: Way | None


@dataclass(slots=True)
class Views:
    """What is known of the tensors over one storage, by how they lie in it, in one trace: that of this first event."""

    trace: int
    known: dict[Layout, TensorOrigin]


class Found(NamedTuple):
    """What the marked elements of a tensor came in with, their rows in it, and how many rows there are."""

    known: TensorOrigin
    rows: list[int]
    of: int


class Array(NamedTuple):
    """An array that came in: the address and the size in bytes of its memory, and how it lies there."""

    start: int
    size: int
    layout: Layout
    known: TensorOrigin


class Origins:
    """The origins of one trace."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self._arrays: Identities[Array] = Identities()

    def data_of(self, tensor: Tensor, mask: Tensor) -> Data | None:
        """What the report says of the marked elements of a tensor that came in."""
        came = next(self._holding(tensor, mask), None)
        if came is None or came.known.source.data.kind == "numpy":
            # an array that a loader gave, or that was read from a file, says more than that it was one
            behind = next(self._arrays_behind(tensor, mask), None)
            if came is None or behind is None:
                came = behind or came
            else:
                made = self._told(came)
                return self._told(behind).model_copy(update={"name": made.name, "site": made.site})
        return None if came is None else self._told(came)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor came in, or is an element of a greater one: no number of Python's that was wrapped."""
        return bool(self._known_of(tensor)) or tensor.untyped_storage().nbytes() > tensor.element_size()

    def value_at(self, number: int) -> Data:
        """A value that was given to ``torch.tensor`` at a site."""
        site, _ = self.context.sites.resolve(number, None)
        return Data(kind="value", site=site, name=self.context.sites.first_argument(number))

    def note(self, value: Any, source: Source, prefix: str = "", most: int = MOST) -> None:
        """Remember the origin of the tensors and arrays in a value."""
        for way, part in parts_of(value, prefix, most):
            known = TensorOrigin(source, way)
            if isinstance(part, torch.Tensor):
                self._keep(part, known)
            else:
                self._note_array(part, known)

    def note_array(self, tensor: Tensor, site: int) -> None:
        """Remember that a tensor is an array of NumPy's, and where it was made one."""
        if not self._known_of(tensor):
            self._keep(tensor, TensorOrigin(Source(Data(kind="numpy"), site=site), None))

    def explain_since(self, first: int, batch: Any) -> None:
        """Births of the fetch itself, whose values the batch holds now: they have its rows."""
        context = self.context
        for _, tensor in parts_of(batch, ""):
            state = context.state_of(tensor) if isinstance(tensor, torch.Tensor) else None
            if state is None or state.plane is None:
                continue
            plane = strided(state.plane, state.itemsize, tensor)
            for set_id in context.labels.present(plane):
                for label in context.labels.sets[set_id]:
                    birth = context.labels.birth(label)
                    if label >= first and (birth.data is None or birth.data.kind != "batch"):
                        birth.data = self.data_of(tensor, plane == set_id) or birth.data

    def _note_array(self, array: Any, known: TensorOrigin) -> None:
        size = array.itemsize
        if not array.size or any(s < 0 or s % size for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
            return
        strides = tuple(s // size for s in array.strides)
        extent = size * (1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)))
        start: int = array.__array_interface__["data"][0]
        self._arrays.set(array, Array(start, extent, Layout(tuple(array.shape), strides, 0, size), known))

    def _holding(self, tensor: Tensor, mask: Tensor) -> Iterator[Found]:
        """The tensors that came in and that hold the marked elements of a tensor, the latest first."""
        for layout, known in reversed(list(self._known_of(tensor).items())):
            rows = layout.rows(tensor, mask)
            if rows is not None:
                yield Found(known, rows, _count(layout))

    def _arrays_behind(self, tensor: Tensor, mask: Tensor) -> Iterator[Found]:
        """The arrays that came in and that hold the marked elements of a tensor over their memory."""
        if not tensor.is_cpu:
            return
        first = tensor.data_ptr()
        for array in reversed(self._arrays.values()):
            if array.start <= first < array.start + array.size:
                rows = array.layout.rows(tensor, mask, array.start - address(tensor))
                if rows is not None:
                    yield Found(array.known, rows, _count(array.layout))

    def _told(self, found: Found) -> Data:
        """The data of some elements in the words of the report: their rows, and the entries of the dataset."""
        source, changes = found.known.source, dict[str, Any]()
        if found.known.way is not None:
            changes["name"] = format_path(found.known.way) or None
        if source.in_rows and found.rows:
            rows = tuple(found.rows[:MOST_ROWS])
            known = source.indices if source.indices and len(source.indices) == found.of else ()
            entries = tuple(i for r in rows for i in known[r : r + 1] if i is not None)
            changes.update(rows=rows, n_rows=len(found.rows), indices=entries if len(entries) == len(rows) else ())
        if source.site:
            sites = self.context.sites
            changes["site"], _ = sites.resolve(source.site, None)
            changes["name"] = sites.first_argument(source.site)
        return source.data.model_copy(update=changes)

    def _known_of(self, tensor: Tensor) -> dict[Layout, TensorOrigin]:
        """What is known of the tensors over a tensor's storage."""
        try:
            views: Any = getattr(tensor.untyped_storage(), ORIGIN, None)
        except (RuntimeError, NotImplementedError, ValueError):
            return {}
        return views.known if type(views) is Views and views.trace == self.context.first else {}

    def _keep(self, tensor: Tensor, known: TensorOrigin) -> None:
        views = self._known_of(tensor)
        if not views:
            setattr(tensor.untyped_storage(), ORIGIN, Views(self.context.first, {layout_of(tensor): known}))
            return
        layout = layout_of(tensor)
        views.pop(layout, None)
        views[layout] = known
        for gone in list(itertools.islice(views, max(len(views) - MOST_VIEWS, 0))):
            views.pop(gone, None)


def _count(layout: Layout) -> int:
    return layout.shape[0] if layout.shape else 0
