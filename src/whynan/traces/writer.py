"""The writer of a trace: a folder of its owner's, in which a reader finds whole files."""

from __future__ import annotations

import errno
import io
import os
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from whynan.errors import UsageError
from whynan.records import Note
from whynan.traces import format as layout
from whynan.traces.format import FactsDocument, Meant, RunDocument, json_of
from whynan.traces.redaction import FACTS, Pseudonyms, Redaction, alias, node, operator, redacted_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from whynan.records import Coverage, Run
    from whynan.traces.facts import Trace
    from whynan.traces.format import SessionPart


# -- Files that only their owner can read ------------------------------------------------------------------------------


def open_private(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: a new file is its owner's alone, and through a link nothing is opened."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


# -- A trace as it is written: a folder of its owner's, in which a reader finds whole files whenever the run ends ------


T = TypeVar("T")

_MEGABYTE: Final = 1 << 20
DEFAULT_BUDGET: Final = 4 << 30
_HINT: Final = "name a new folder"
_TREATMENTS: Final = {layout.OPERATORS: operator, layout.NODES: node, layout.MODULES: alias("module")}


class TraceWriter:
    """Writes one trace into a folder of its own; a write that fails ends the trace, and never the run.

    Args:
        directory: a new folder, or one that is empty; it is made, and readable by its owner only.
        redact: leave out source text, values, names and paths.
        budget: bytes of events; what comes after them is left out, and the facts say so.

    Raises:
        UsageError: the folder holds something, is no folder, belongs to somebody else or cannot be made.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, redact: bool = False, budget: int = DEFAULT_BUDGET
    ) -> None:
        self.shown = os.fspath(directory)
        self.note: Note | None = None
        """What the report of the run says of a trace that had to stop."""
        self.left_out: Note | None = None
        """What it says of events for which there was no room."""
        self.events = 0
        """Events in complete segments."""
        self.meant: Callable[[], tuple[Meant, ...]] = tuple
        """The allowances of the run so far."""
        self.names = Pseudonyms() if redact else None
        self.replays = 0
        """How many replays have been recorded in it."""
        self.last: Trace | None = None
        """The facts that were written last."""
        self._directory = os.path.abspath(directory)
        self._segments = 0
        self._bytes = 0
        self._budget = budget
        self._sizes: dict[str, int] = {}
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._writing = False
        self._run: RunDocument | None = None
        make_folder(directory)

    # -- what is written -----------------------------------------------------------------------------------------

    def begin(self, run: Run, options: Mapping[str, bool | int | float | str | None]) -> None:
        """Write of what run this is, before its first event."""
        self._run = RunDocument(pid=self._pid, started=_now(), options=dict(options), run=run)
        self._document(layout.RUN, self._run)

    def end(self, run: Run, session: SessionPart | None = None) -> None:
        """Write how the run has ended; may be called again by whoever knows more of one of them."""
        known = self._run or RunDocument(pid=self._pid, started=_now(), run=run)
        update = {"ended": known.ended or _now(), "run": run, "session": session or known.session}
        self._run = known.model_copy(update=update)
        self._document(layout.RUN, self._run)

    def facts(self, trace: Trace, sources: Mapping[str, str], ranges: int) -> bool:
        """Write all that is known, in place of what was; whether it was written.

        `sources`: SHA-256 of source files. `ranges`: the lines of ranges that belong to it.
        """
        told = replace(trace, ranges=())
        if self.names is not None:
            told, sources = redacted_facts(told, self.names), dict[str, str]()
        done = self._document(layout.FACTS, FactsDocument.of(told, self.meant(), sources, ranges))
        if done:
            self.last = trace
        return done

    def report(self, text: str) -> bool:
        """Write the report of a redacted run as it was given out; whether it was written."""
        return self._guarded(lambda: self._whole(layout.REPORT, text.encode()))

    def inner(self, name: str) -> TraceWriter | None:
        """A trace in a folder of this one's, which is to be told of in place of it; None where none can be written."""
        made: list[TraceWriter] = []

        def make() -> None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, layout.REPORT))
            writer = TraceWriter(os.path.join(self._directory, name), budget=self._budget)
            writer.names = self.names
            made.append(writer)

        self._guarded(make)
        return made[0] if made else None

    def append(self, table: str, lines: Sequence[str]) -> bool:
        """Add lines to a table; whether they were written."""
        data = "".join(f"{line}\n" for line in lines).encode()
        return not data or self._guarded(lambda: self._append(table, data))

    def segment(self, events: NDArray[np.void]) -> bool:
        """Write a segment of events, whose tables have been written; whether it was."""
        if self._bytes + events.nbytes > self._budget and self.left_out is None:
            megabytes = self._budget // _MEGABYTE
            self.left_out = Note.create("trace_full", folder=self.shown, events=self.events, megabytes=megabytes)
        if not len(events) or self.left_out is not None or not self._guarded(lambda: self._segment(events)):
            return False
        self._segments += 1
        self._bytes += events.nbytes
        self.events += len(events)
        return True

    def with_notes(self, coverage: Coverage) -> Coverage:
        """What a report says of its coverage, and of what this trace of it had to leave out."""
        return coverage.with_notes(*(note for note in (self.left_out, self.note) if note is not None))

    def redact_record(self, record: T) -> T:
        """A site or range as it may be written."""
        return record if self.names is None else Redaction(FACTS, self.names).redact(record)

    def name(self, table: str, name: str | None) -> str | None:
        """A name of a table as it may be written."""
        return name if self.names is None else _TREATMENTS[table](Redaction(FACTS, self.names), name, None)

    # -- how -----------------------------------------------------------------------------------------------------

    def _document(self, name: str, document: FactsDocument | RunDocument) -> bool:
        def write() -> None:
            data = json_of(document).encode()
            _check_size(len(data), layout.MOST_DOCUMENT_BYTES, name)
            self._whole(name, data)

        return self._guarded(write)

    def _segment(self, events: NDArray[np.void]) -> None:
        from numpy.lib import format as npy

        with suppress(FileExistsError):
            os.mkdir(os.path.join(self._directory, layout.EVENTS), 0o700)
        # not to the file itself: numpy does not notice when a disk takes only a part of it
        made = io.BytesIO()
        npy.write_array(made, events, version=(1, 0), allow_pickle=False)
        self._whole(os.path.join(layout.EVENTS, layout.segment_name(self._segments)), made.getbuffer())

    def _whole(self, name: str, data: bytes | memoryview) -> None:
        """A file that a reader finds complete or not at all."""
        path = os.path.join(self._directory, name)
        temporary = f"{path}.{self._pid}{layout.TEMPORARY}"
        try:
            with open(temporary, "wb", opener=open_private) as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _append(self, table: str, data: bytes) -> None:
        size = self._sizes.get(table, 0)
        _check_size(size + len(data), layout.MOST_TABLE_BYTES, table)
        path = os.path.join(self._directory, table)
        # at the place where the last whole line has ended, whatever an interrupted write has left behind it
        with open(path, "r+b" if size else "wb", opener=open_private) as file:
            file.seek(size)
            file.write(data)
            file.truncate()
        self._sizes[table] = size + len(data)

    def _guarded(self, write: Callable[[], None]) -> bool:
        """Write, unless the trace has stopped; a child that the run has forked writes nothing."""
        if self.note is not None or os.getpid() != self._pid:
            return False
        with self._lock:
            if self._writing:
                # a signal's handler has come between
                return False
            self._writing = True
            try:
                write()
            except OSError as error:
                self._stop(error.strerror or type(error).__name__)
                return False
            finally:
                self._writing = False
        return True

    def _stop(self, why: str) -> None:
        self.note = Note.create("trace_stopped", folder=self.shown, events=self.events, why=why)


def _check_size(size: int, most: int, name: str) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"{name} outgrew {most // _MEGABYTE} MiB")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_folder(directory: str | os.PathLike[str]) -> None:
    """Make the folder of a trace, or take one that is empty and ours; raises ``UsageError`` as ``TraceWriter`` does."""
    path, shown = os.path.abspath(directory), os.fspath(directory)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        if os.path.islink(path) or not os.path.isdir(path):
            raise UsageError(f"{shown} is no folder", _HINT)
        if os.listdir(path):
            raise UsageError(f"the folder {shown} is not empty", f"{_HINT}, for a trace is written over nothing")
        owner = os.stat(path).st_uid
        if owner != getattr(os, "geteuid", lambda: owner)():
            raise UsageError(f"the folder {shown} belongs to somebody else", _HINT)
        os.chmod(path, 0o700)
    except OSError as error:
        raise UsageError(f"the folder {shown} cannot be made ({error.strerror})", _HINT) from None
