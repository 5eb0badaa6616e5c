"""The events of a trace that was read: segments and the tables that they name lines of."""

# pyright: strict

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from whynan.traces import format as layout
from whynan.traces.documents import SiteLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from whynan.traces.opening import Folder

_HEADER: Final = 1 << 10
_NAMED: Final = {"operator": "operators", "node": "nodes", "module": "modules", "site": "sites"}


class Events:
    """All events of a trace, each segment read when it is asked for.

    Raises ``UsageError`` for a segment that is none, when made, and for one that names what is not there, when read.
    """

    def __init__(self, folder: Folder, *, whole: bool) -> None:
        self._folder = folder
        self._whole = whole
        self._names = folder.segments()
        self._counts = [self._count(name) for name in self._names]

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        last = -1
        for name in self._names:
            segment = self._segment(name)
            self._check(name, segment, last)
            last = int(segment["ordinal"][-1])
            yield segment

    @cached_property
    def operators(self) -> tuple[str | None, ...]:
        """Names of operators by number."""
        return self._texts(layout.OPERATORS)

    @cached_property
    def nodes(self) -> tuple[str | None, ...]:
        """Names of the types of autograd nodes by number; 0 is none."""
        return self._texts(layout.NODES)

    @cached_property
    def modules(self) -> tuple[str | None, ...]:
        """Paths of modules by number; 0 is none, and so is one that the program had let go of."""
        return self._texts(layout.MODULES)

    @cached_property
    def sites(self) -> tuple[SiteLine | None, ...]:
        """Places by number; 0 is none."""
        found: list[SiteLine | None] = []
        for held in self._lines(layout.SITES):
            found.append(None if held is None else self._folder.validated(layout.SITES, held, SiteLine))
        return tuple(found)

    def _lines(self, table: str) -> Iterator[Any]:
        for line in self._folder.lines(table, whole=self._whole):
            yield self._folder.parsed(table, line)

    def _texts(self, table: str) -> tuple[str | None, ...]:
        found = tuple(self._lines(table))
        if not all(held is None or isinstance(held, str) for held in found):
            raise self._folder.refused(table, "a line of it is no text")
        return found

    def _open(self, name: str) -> BinaryIO:
        file = self._folder.open(name, layout.SEGMENT * layout.event_dtype().itemsize + _HEADER)
        if file is None:
            raise self._folder.refused(name, "it is gone")
        return file

    def _count(self, name: str) -> int:
        with self._open(name) as file:
            return self._header(name, file)

    def _header(self, name: str, file: BinaryIO) -> int:
        """The number of events that a segment tells of and has."""
        from numpy.lib import format as npy

        try:
            npy.read_magic(file)
            shape, fortran, dtype = npy.read_array_header_1_0(file, max_header_size=_HEADER)
        except Exception as error:
            # whatever a header can make its parser raise
            raise self._folder.refused(name, "it is no npy file") from error
        start, size = file.tell(), file.seek(0, 2)
        file.seek(start)
        if dtype != layout.event_dtype() or fortran or len(shape) != 1:
            raise self._folder.refused(name, "it holds something else than events")
        if not 0 < shape[0] <= layout.SEGMENT:
            raise self._folder.refused(name, f"it tells of {shape[0]:,} events")
        if size - start != shape[0] * dtype.itemsize:
            raise self._folder.refused(name, f"it tells of {shape[0]:,} events and does not hold as many")
        return shape[0]

    def _segment(self, name: str) -> NDArray[np.void]:
        import numpy as np

        with self._open(name) as file:
            count = self._header(name, file)
            data = file.read()
        if len(data) != count * layout.event_dtype().itemsize:
            raise self._folder.refused(name, "it has changed while it was read")
        return np.frombuffer(data, layout.event_dtype())

    def _check(self, name: str, segment: NDArray[np.void], last: int) -> None:
        ordinals = segment["ordinal"]
        if int(ordinals[0]) <= last or not bool((ordinals[1:] > ordinals[:-1]).all()):
            raise self._folder.refused(name, "its ordinals do not rise")
        if int(segment["phase"].max()) >= len(layout.PHASES):
            raise self._folder.refused(name, f"it names phase {int(segment['phase'].max())}, which there is not")
        for field, table in _NAMED.items():
            most = int(segment[field].max())
            if most >= len(getattr(self, table)):
                raise self._folder.refused(name, f"it names line {most} of {table}.jsonl, which there is not")
