"""The files of a folder from anywhere: opened only where they are plain, small enough and really in it."""

# pyright: strict

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from whynan.errors import UsageError
from whynan.traces import format as layout
from whynan.traces.parsing import parsed

if TYPE_CHECKING:
    from typing import BinaryIO

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

    def refused(self, name: str, why: str) -> UsageError:
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
            raise self.refused(name, "it is a link")
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror or "it cannot be opened"
            raise self.refused(name, why) from None
        file = cast("BinaryIO", os.fdopen(descriptor, "rb", closefd=True)) if _plain(descriptor) else None
        if file is None:
            os.close(descriptor)
            raise self.refused(name, "it is no plain file")
        if os.fstat(descriptor).st_size > most:
            file.close()
            raise self.refused(name, f"it is larger than {most // _MEGABYTE} MiB")
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
                raise self.refused(name, error.strerror or "it cannot be read") from None

    def lines(self, name: str, *, whole: bool) -> list[bytes]:
        """The lines of a table; none where there is no table. `whole`: the last one has to have its end."""
        data = self.read(name, layout.MOST_TABLE_BYTES) or b""
        lines = data.split(b"\n")
        torn = lines.pop()
        if torn and whole:
            raise self.refused(name, "its last line is cut off")
        if len(lines) > layout.MOST_LINES or max(map(len, lines), default=0) > layout.MOST_LINE_BYTES:
            raise self.refused(name, "it has more or longer lines than whynan writes")
        return lines

    def parsed(self, name: str, text: bytes) -> Any:
        """What a JSON text of a file says."""
        try:
            return parsed(text)
        except ValueError as error:
            raise self.refused(name, str(error)) from error
        except MemoryError as error:
            raise self.refused(name, "it does not fit into memory") from error

    def document(self, name: str, kind: type[M]) -> M | None:
        """The document of a file; None where there is no such file."""
        text = self.read(name, layout.MOST_DOCUMENT_BYTES)
        if text is None:
            return None
        held = self.parsed(name, text)
        if not isinstance(held, dict):
            raise self.refused(name, "it holds no JSON object")
        version = cast("dict[str, Any]", held).get("schema")
        if version != layout.SCHEMA:
            raise self.refused(name, f"its schema is {_short(version)}")
        return self.validated(name, held, kind)

    def validated(self, name: str, held: Any, kind: type[M]) -> M:
        """A part of a file, if it is one in every field."""
        try:
            return kind.model_validate(held, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].replace("valid tuple", "valid list")
            raise self.refused(name, f"{place or 'the document'}: {message}") from None

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
                raise self.refused(layout.EVENTS, "it is no folder")
            try:
                entries = os.listdir(folder)
            except OSError as error:
                raise self.refused(layout.EVENTS, error.strerror or "it cannot be read") from None
            names = sorted(entry for entry in entries if not entry.endswith(layout.TEMPORARY))
            for number, name in enumerate(names):
                if name != layout.segment_name(number):
                    raise self.refused(os.path.join(layout.EVENTS, name), "it is out of the order of the segments")
            return [os.path.join(layout.EVENTS, name) for name in names]
        return []


def _plain(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < _LONGEST else f"{text[:_LONGEST]}..."
