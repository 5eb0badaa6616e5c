"""The folder of a capsule: written beside its place and moved there whole; read only where it is what whynan writes."""

# pyright: strict

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import BaseModel

from whynan.errors import UsageError
from whynan.traces.opening import Folder
from whynan.traces.private import private

if TYPE_CHECKING:
    from collections.abc import Generator

M = TypeVar("M", bound=BaseModel)

DOCUMENT: Final = "capsule.json"
REPORT: Final = "report.json"
TENSORS: Final = "operands.safetensors"
SCRIPT: Final = "repro.py"
SOURCE: Final = "source.txt"
NODE: Final = "node.onnx"
VISITS: Final = "visits"
VISITS_DOCUMENT: Final = "visits.json"
VISITS_TENSORS: Final = "tensors.safetensors"
MOST_DOCUMENT: Final = 64 << 20
MOST_TENSORS: Final = 4 << 30
_LONGEST: Final = 160
_WHAT: Final = "give a folder that --capsule has written"


def check_free(path: str, option: str = "--capsule") -> None:
    """Raise ``UsageError`` where a new folder could not be made, before anything depends on it."""
    place = os.path.abspath(path)
    above = os.path.dirname(place)
    if os.path.lexists(place) and not (os.path.isdir(place) and not os.path.islink(place)):
        raise UsageError(f"{option} {path} is no folder", "name a new one")
    if not os.path.isdir(above):
        raise UsageError(f"{option} {path}: there is no directory {above}", "make it first, or name another")
    try:
        if os.path.isdir(place) and os.listdir(place):
            raise UsageError(f"{option} {path} is not empty", "name a new folder, or delete that one")
        os.rmdir(tempfile.mkdtemp(dir=above, prefix=".whynan-"))
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written ({error.strerror})", "name another folder") from None


@contextmanager
def new_folder(path: str) -> Generator[str]:
    """A folder to write into, which becomes that of the path once all is written; else nothing is left of it."""
    place = os.path.abspath(path)
    made = tempfile.mkdtemp(dir=os.path.dirname(place), prefix=".whynan-")
    try:
        yield made
        with suppress(FileNotFoundError):
            os.rmdir(place)
        os.rename(made, place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def put(folder: str, name: str, data: bytes) -> None:
    """Write a file that is its owner's alone."""
    with open(os.path.join(folder, name), "xb", opener=private) as file:
        file.write(data)


def move(folder: str, path: str) -> None:
    """Move a capsule to its place, which may be on another disk."""
    with new_folder(path) as made:
        for name in os.listdir(folder):
            held = os.path.join(folder, name)
            shutil.copytree(held, os.path.join(made, name)) if os.path.isdir(held) else shutil.copy(held, made)


class CapsuleFolder(Folder):
    """The folder of a capsule; what is in it that should not be is refused with one ``UsageError``."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            super().__init__(directory)
        except UsageError as error:
            raise UsageError(error.what, _WHAT) from None
        if os.path.islink(directory):
            raise UsageError(f"{self.shown} is a link", "give the folder itself")

    def refused(self, name: str, why: str) -> UsageError:
        """The error for a file of the folder."""
        short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
        return UsageError(f"{os.path.join(self.shown, name)} is no part of a capsule ({short})", _WHAT)

    def needed(self, name: str, most: int) -> bytes:
        """The content of a file that has to be there."""
        content = self.read(name, most)
        if content is None:
            raise self.refused(name, "it is not there")
        return content

    def told(self, name: str, kind: type[M], schema: str) -> M:
        """The document of a file that has to be there."""
        held = self.parsed(name, self.needed(name, MOST_DOCUMENT))
        if not isinstance(held, dict):
            raise self.refused(name, "it holds no JSON object")
        found = cast("dict[str, Any]", held).get("schema")
        if found != schema:
            raise self.refused(name, f"its schema is {found!r}, not {schema}")
        return self.validated(name, held, kind)

    def inner(self, name: str) -> CapsuleFolder | None:
        """A folder in this one; None where there is none."""
        path = os.path.join(self.shown, name)
        if not os.path.lexists(path):
            return None
        if os.path.islink(path) or not os.path.isdir(path):
            raise self.refused(name, "it is no folder")
        return CapsuleFolder(path)
