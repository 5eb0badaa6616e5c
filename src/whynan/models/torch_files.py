"""Files of ``torch.save``: opened with ``weights_only=True``, with stand-ins for the classes that it refuses."""

# pyright: strict

from __future__ import annotations

import pickle
import re
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import serialization

from whynan.errors import UsageError
from whynan.models.files import damaged, unreadable
from whynan.models.pickles import kinds
from whynan.models.stand_ins import Cast

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from whynan.models.files import Form
    from whynan.models.pickles import Kind

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


def opened(path: Path, form: Form) -> Opened:
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
