"""Tensor files: ``torch.save`` with ``weights_only=True``, and safetensors."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import safetensors
import torch
from torch import Tensor, serialization

from whynan.errors import UsageError
from whynan.models.checkpoint.contents import Unread
from whynan.models.checkpoint.files import Form, damaged
from whynan.models.checkpoint.order import steps_of
from whynan.models.checkpoint.pickles import Cast, Kind, kinds
from whynan.models.strangers import unreadable
from whynan.records.base import Number

# -- Files of ``torch.save``: opened with ``weights_only=True``, with stand-ins for the classes that it refuses --------


_LEGACY_PICKLES: Final = 4
"""Of an old file: a magic number, a version, the writer's system, and then what was saved."""
_RUNS_CODE: Final = re.compile(
    r"(builtins\.(eval|exec|compile|__import__|open|breakpoint|input)"
    r"|(os|posix|nt|sys|subprocess|pty|socket|shutil|importlib|runpy|ctypes|code|pdb|webbrowser)\..*)"
)
"""What nobody's tensors need: to name it is to want something run."""
_SAVE_ANEW: Final = "where you trust it, load it, and save its state_dict() with torch.save"
_BROKEN: Final = "Failed to load pickle data"
"""How torch after 2.13 begins to tell of a pickle that ends too early, or makes no sense."""
_MEANINGS: Final = {
    "Unsupported operand": "it was saved with another pickle protocol than 2",
    "Only persistent_load of storage": "it holds a whole module, with its source",
}
"""What some errors of torch's mean for the file."""
_LONGEST: Final = 160


class Opened(NamedTuple):
    """What a file holds, and the names of the classes that were not loaded for it."""

    document: Any
    unloaded: tuple[str, ...]


def load_document(path: Path, form: Form) -> Opened:
    """The document of a file, its tensors mapped from the disk where the format allows it.

    Nothing of the file is run. Raises ``UsageError`` where it cannot be read.
    """
    try:
        with _nothing_allowed():
            named = _named_in_zip(path) if form == "zip" else _named_in_legacy(path)
            _refuse_code(path, named)
            stand_ins = Cast(named)
            with serialization.safe_globals(stand_ins.globals()):
                document = torch.load(path, map_location="cpu", weights_only=True, mmap=form == "zip")
        return Opened(document, stand_ins.used)
    except UsageError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except pickle.UnpicklingError as error:
        if _BROKEN in str(error):
            raise damaged(path, _reason(error)) from error
        raise UsageError(f"{path} cannot be read without running it ({_reason(error)})", _SAVE_ANEW) from error
    except Exception as error:
        # a file that was altered can make torch's reader fail anywhere
        raise damaged(path, _reason(error)) from error


def _named_in_zip(path: Path) -> Mapping[str, Kind]:
    """The classes in an archive that torch does not know; raises ``UsageError`` if it is none of ``torch.save``."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = archive.infolist()
            names = {entry.filename.partition("/")[2] for entry in held}
            if "constants.pkl" in names:
                raise UsageError(f"{path} is a TorchScript archive", "save its state_dict() with torch.save")
            if "data.pkl" not in names:
                raise UsageError(f"{path} is a zip archive without a checkpoint", "give a file that torch.save wrote")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in held):
                raise UsageError(f"{path} was packed anew, with compression", "unpack it and pack it with zip -0")
            if not serialization.get_unsafe_globals_in_checkpoint(path):
                return {}
            inside = next(e for e in held if e.filename.partition("/")[2] == "data.pkl")
            with archive.open(inside) as pickled:
                return kinds(pickled)
    except zipfile.BadZipFile as error:
        raise damaged(path, str(error)) from error


def _named_in_legacy(path: Path) -> Mapping[str, Kind]:
    found: dict[str, Kind] = {}
    with open(path, "rb") as file:
        for _ in range(_LEGACY_PICKLES):
            found.update(kinds(file))
    return found


def _refuse_code(path: Path, named: Mapping[str, Kind]) -> None:
    asked = sorted(name for name in named if _RUNS_CODE.fullmatch(name))
    if asked:
        raise UsageError(
            f"{path} asks to run {asked[0]} when it is opened, and is not opened",
            "it may be an attack: do not load it, and ask whoever made it",
        )


@contextmanager
def _nothing_allowed() -> Generator[None]:
    """Classes that other modules have allowed for themselves are not loaded here."""
    before = cast("Any", serialization).get_safe_globals()
    serialization.clear_safe_globals()
    try:
        yield
    finally:
        serialization.clear_safe_globals()
        cast("Any", serialization).add_safe_globals(before)


def _reason(error: Exception) -> str:
    """The sentence in an error's text that says what happened; torch puts advice around it."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    for sign, meaning in _MEANINGS.items():
        if sign in text:
            return meaning
    first = re.split(r"\.(?:\s|$)", text.strip())[0] or type(error).__name__
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."


# -- Files of safetensors: a header that its library checks, and tensors mapped from the disk one by one ---------------


class SafeFile:
    """An open file of safetensors."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def steps(self) -> dict[str, Number]:
        """What its metadata says of how far the training had come."""
        return steps_of(self._handle.metadata())

    def contents(self) -> Iterator[tuple[str, Tensor | Unread]]:
        """Each tensor, in the order in which they lie in the file."""
        # safetensors before 0.5 gives names in the order of the header only
        names = getattr(self._handle, "offset_keys", self._handle.keys)()
        for name in names:
            yield name, self._tensor(name)

    def _tensor(self, name: str) -> Tensor | Unread:
        try:
            return self._handle.get_tensor(name)
        except safetensors.SafetensorError as error:
            held = self._handle.get_slice(name)
            return Unread(held.get_dtype(), tuple(held.get_shape()), str(error))


@contextmanager
def open_safetensors(path: Path) -> Generator[SafeFile]:
    """A file, open for as long as it is looked at; raises ``UsageError`` where it is not what it says it is."""
    try:
        with cast("Any", safetensors).safe_open(str(path), framework="pt", device="cpu") as handle:
            yield SafeFile(handle)
    except OSError as error:
        raise unreadable(path, error) from error
    except safetensors.SafetensorError as error:
        raise damaged(path, str(error).removeprefix("Error while deserializing header: ")) from error
