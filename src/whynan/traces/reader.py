"""The reader of a trace: nothing in its folder is believed before it was checked."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from whynan.errors import UsageError
from whynan.records import Coverage, Note, Range
from whynan.traces import format as layout
from whynan.traces.facts import Trace
from whynan.traces.format import NO_FACTS, FactsDocument, Meant, RunDocument, SiteLine
from whynan.traces.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from whynan.records import Run
    from whynan.traces.format import SessionPart


# -- The files of a folder from anywhere: opened only where they are plain, small enough and really in it --------------


M = TypeVar("M", bound=BaseModel)

_LONGEST: Final = 160
_MEGABYTE: Final = 1 << 20


class Folder:
    """The folder of a trace; what is in it that should not be is refused with one ``UsageError``."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(directory)
        self.shown = os.fspath(directory)
        if not os.path.isdir(self._path):
            there = os.path.lexists(self._path)
            what = f"{self.shown} is no folder" if there else f"there is no folder {self.shown}"
            raise UsageError(what, f"give one that whynan wrote, of schema {layout.SCHEMA}")

    def refusal(self, name: str, why: str) -> UsageError:
        """The error for a file of the folder."""
        short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
        return UsageError(
            f"{os.path.join(self.shown, name)} is no part of a whynan trace ({short})",
            f"give a folder that whynan wrote, of schema {layout.SCHEMA}",
        )

    def open(self, name: str, most: int) -> BinaryIO | None:
        """A file of at most so many bytes, open for reading; None where there is none."""
        path = os.path.join(self._path, name)
        # a pipe would not be opened before somebody writes to it
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        if os.path.islink(path):
            raise self.refusal(name, "it is a link")
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror or "it cannot be opened"
            raise self.refusal(name, why) from None
        file = cast("BinaryIO", os.fdopen(descriptor, "rb", closefd=True)) if _plain(descriptor) else None
        if file is None:
            os.close(descriptor)
            raise self.refusal(name, "it is no plain file")
        if os.fstat(descriptor).st_size > most:
            file.close()
            raise self.refusal(name, f"it is larger than {most // _MEGABYTE} MiB")
        return file

    def read(self, name: str, most: int) -> bytes | None:
        """The content of a file of at most so many bytes; None where there is none."""
        file = self.open(name, most)
        if file is None:
            return None
        with file:
            try:
                return file.read(most)
            except OSError as error:
                raise self.refusal(name, error.strerror or "it cannot be read") from None

    def lines(self, name: str, *, whole: bool) -> list[bytes]:
        """The lines of a table; none where there is no table. `whole`: the last one has to have its end."""
        data = self.read(name, layout.MOST_TABLE_BYTES) or b""
        lines = data.split(b"\n")
        torn = lines.pop()
        if torn and whole:
            raise self.refusal(name, "its last line is cut off")
        if len(lines) > layout.MOST_LINES or max(map(len, lines), default=0) > layout.MOST_LINE_BYTES:
            raise self.refusal(name, "it has more or longer lines than whynan writes")
        return lines

    def parsed(self, name: str, text: bytes) -> Any:
        """What a JSON text of a file says."""
        try:
            return parse_json(text)
        except ValueError as error:
            raise self.refusal(name, str(error)) from error
        except MemoryError as error:
            raise self.refusal(name, "it does not fit into memory") from error

    def document(self, name: str, kind: type[M]) -> M | None:
        """The document of a file; None where there is no such file."""
        text = self.read(name, layout.MOST_DOCUMENT_BYTES)
        if text is None:
            return None
        held = self.parsed(name, text)
        if not isinstance(held, dict):
            raise self.refusal(name, "it holds no JSON object")
        version = cast("dict[str, Any]", held).get("schema")
        if version != layout.SCHEMA:
            raise self.refusal(name, f"its schema is {_short(version)}")
        return self.validated(name, held, kind)

    def validated(self, name: str, held: Any, kind: type[M]) -> M:
        """A part of a file, if it is one in every field."""
        try:
            return kind.model_validate(held, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].replace("valid tuple", "valid list")
            raise self.refusal(name, f"{place or 'the document'}: {message}") from None

    def last(self, pattern: str) -> str | None:
        """The last of the traces in this folder that are numbered from 1, as a path; None where there is none."""
        path = None
        for number in itertools.count(1):
            inner = os.path.join(self._path, pattern.format(number))
            run = os.path.join(inner, layout.RUN)
            if os.path.islink(inner) or not os.path.lexists(run):
                break
            path = os.path.join(self.shown, pattern.format(number))
        return path

    def segments(self) -> list[str]:
        """The segments of events, in order; what a killed run has left half written is passed over."""
        folder = os.path.join(self._path, layout.EVENTS)
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise self.refusal(layout.EVENTS, "it is no folder")
            try:
                entries = os.listdir(folder)
            except OSError as error:
                raise self.refusal(layout.EVENTS, error.strerror or "it cannot be read") from None
            names = sorted(entry for entry in entries if not entry.endswith(layout.TEMPORARY))
            for number, name in enumerate(names):
                if name != layout.segment_name(number):
                    raise self.refusal(os.path.join(layout.EVENTS, name), "it is out of the order of the segments")
            return [os.path.join(layout.EVENTS, name) for name in names]
        return []


def _plain(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < _LONGEST else f"{text[:_LONGEST]}..."


# -- The events of a trace that was read: segments and the tables that they name lines of ------------------------------


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

    @property
    def last_step(self) -> int:
        """The step of the last event; 0 where there is no event, or it is of no step."""
        return int(self._segment(self._names[-1])["step"][-1]) if self._names else 0

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
            raise self._folder.refusal(table, "a line of it is no text")
        return found

    def _open(self, name: str) -> BinaryIO:
        file = self._folder.open(name, layout.SEGMENT * layout.event_dtype().itemsize + _HEADER)
        if file is None:
            raise self._folder.refusal(name, "it is gone")
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
            raise self._folder.refusal(name, "it is no npy file") from error
        start, size = file.tell(), file.seek(0, 2)
        file.seek(start)
        if dtype != layout.event_dtype() or fortran or len(shape) != 1:
            raise self._folder.refusal(name, "it holds something else than events")
        if not 0 < shape[0] <= layout.SEGMENT:
            raise self._folder.refusal(name, f"it tells of {shape[0]:,} events")
        if size - start != shape[0] * dtype.itemsize:
            raise self._folder.refusal(name, f"it tells of {shape[0]:,} events and does not hold as many")
        return shape[0]

    def _segment(self, name: str) -> NDArray[np.void]:
        import numpy as np

        with self._open(name) as file:
            count = self._header(name, file)
            data = file.read()
        if len(data) != count * layout.event_dtype().itemsize:
            raise self._folder.refusal(name, "it has changed while it was read")
        return np.frombuffer(data, layout.event_dtype())

    def _check(self, name: str, segment: NDArray[np.void], last: int) -> None:
        ordinals = segment["ordinal"]
        if int(ordinals[0]) <= last or not bool((ordinals[1:] > ordinals[:-1]).all()):
            raise self._folder.refusal(name, "its ordinals do not rise")
        if int(segment["phase"].max()) >= len(layout.PHASES):
            raise self._folder.refusal(name, f"it names phase {int(segment['phase'].max())}, which there is not")
        for field, table in _NAMED.items():
            most = int(segment[field].max())
            if most >= len(getattr(self, table)):
                raise self._folder.refusal(name, f"it names line {most} of {table}.jsonl, which there is not")


# -- A trace as it is read: nothing in its folder is believed before it was looked at ----------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trace that was read: what was found, of what run, what was meant, and every event."""

    run: Run
    session: SessionPart
    options: dict[str, bool | int | float | str | None]
    started: str
    ended: str | None
    """None where the run did not end its trace."""
    trace: Trace
    allowances: tuple[Meant, ...]
    sources: dict[str, str]
    """SHA-256 of source files at the time of the run."""
    events: Events


def read_trace(directory: str | os.PathLike[str]) -> Recorded:
    """Read the folder of a trace; raises ``UsageError`` that names the first thing that is wrong with it."""
    folder = Folder(directory)
    known = folder.document(layout.RUN, RunDocument)
    if known is None:
        what = f"the folder {folder.shown} is no whynan trace (it has no {layout.RUN})"
        raise UsageError(what, f"give one that whynan wrote, of schema {layout.SCHEMA}")
    finished = known.ended is not None
    facts = folder.document(layout.FACTS, FactsDocument)
    events = Events(folder, whole=finished)
    if facts is not None:
        _check(folder, facts)
    trace = Trace([], [], Coverage(typed_notes=(NO_FACTS,)), failed=True) if facts is None else facts.trace()
    trace.ranges = _ranges(folder, 0 if facts is None else facts.ranges)
    if not finished:
        trace.coverage = _so_far(trace.coverage, len(events))
    return Recorded(
        run=known.run,
        session=known.session,
        options=known.options,
        started=known.started,
        ended=known.ended,
        trace=trace,
        allowances=() if facts is None else facts.allowances,
        sources={} if facts is None else {source.file: source.sha256 for source in facts.sources},
        events=events,
    )


def _so_far(coverage: Coverage, events: int) -> Coverage:
    """What was looked at by a run that did not end its trace: its segments may go on where its facts end."""
    seen = max(coverage.events, events)
    noted = coverage.with_notes(Note.create("unfinished", events=seen))
    return noted.model_copy(update={"events": seen, "eager": max(coverage.eager, events)})


def _ranges(folder: Folder, count: int) -> tuple[Range, ...]:
    if not count:
        return ()
    lines = folder.lines(layout.RANGES, whole=False)
    if len(lines) < count:
        raise folder.refusal(layout.RANGES, f"it has {len(lines):,} lines of {count:,}")
    held = (folder.parsed(layout.RANGES, line) for line in lines[:count])
    return tuple(folder.validated(layout.RANGES, line, Range) for line in held)


def _check(folder: Folder, facts: FactsDocument) -> None:
    """Whether everything that the facts name is there."""
    labels = {birth.label for birth in facts.births}
    if len(labels) < len(facts.births):
        raise folder.refusal(layout.FACTS, "two births have one label")
    named = {label for birth in facts.births for label in birth.causes}
    for sink in (*facts.sinks, *facts.unexplained):
        named.update(sink.labels, *sink.counts)
    if missing := named - labels:
        raise folder.refusal(layout.FACTS, f"it names birth {min(missing)}, which there is not")
    scopes = {number for one in (*facts.births, *facts.silent) for number in one.scope}
    if max(scopes, default=-1) >= len(facts.allowances):
        raise folder.refusal(layout.FACTS, f"it names allowance {max(scopes)}, which there is not")
