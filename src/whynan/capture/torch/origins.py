"""Where tensors come from that no operation made: a batch of a loader, an array of NumPy's, a file.

What is known is kept on the storage of the tensor, or of an array that a tensor may be made of later, and asked for
only if a bad value comes in with it. Nothing that is kept holds a tensor, an array or an object of the program's.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.identities import Identities
from whynan.capture.torch.layouts import Layout, layout_of
from whynan.capture.torch.parts import MOST, Way, parts_of, spelled
from whynan.capture.torch.planes import strided
from whynan.capture.torch.rows import address
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext

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


class Known(NamedTuple):
    """A tensor that came in: with what, and where in that it was found."""

    source: Source
    way: Way | None


@dataclass(slots=True)
class Views:
    """What is known of the tensors over one storage, by how they lie in it, in one trace: that of this first event."""

    trace: int
    known: dict[Layout, Known]


class Found(NamedTuple):
    """What the marked elements of a tensor came in with, their rows in it, and how many rows there are."""

    known: Known
    rows: list[int]
    of: int


class Array(NamedTuple):
    """An array that came in: the address and the size in bytes of its memory, and how it lies there."""

    start: int
    size: int
    layout: Layout
    known: Known


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
            known = Known(source, way)
            if isinstance(part, torch.Tensor):
                self._keep(part, known)
            else:
                self._note_array(part, known)

    def note_array(self, tensor: Tensor, site: int) -> None:
        """Remember that a tensor is an array of NumPy's, and where it was made one."""
        if not self._known_of(tensor):
            self._keep(tensor, Known(Source(Data(kind="numpy"), site=site), None))

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

    def _note_array(self, array: Any, known: Known) -> None:
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
            changes["name"] = spelled(found.known.way) or None
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

    def _known_of(self, tensor: Tensor) -> dict[Layout, Known]:
        """What is known of the tensors over a tensor's storage."""
        try:
            views: Any = getattr(tensor.untyped_storage(), ORIGIN, None)
        except (RuntimeError, NotImplementedError, ValueError):
            return {}
        return views.known if type(views) is Views and views.trace == self.context.first else {}

    def _keep(self, tensor: Tensor, known: Known) -> None:
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
