"""Which files make up the checkpoint that a path names: one file, the shards of an index, or a folder's files."""

# pyright: strict

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.errors import UsageError
from whynan.models.files import INDEX, StrangerError, form_of, unreadable
from whynan.models.naming import excerpt
from whynan.models.shards import Index, read_index
from whynan.models.trainer_log import LOG

if TYPE_CHECKING:
    from pathlib import Path

    from whynan.models.files import Form

SUFFIXES: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")
_SETTINGS: Final = "training_args.bin"
"""The settings of transformers' trainer: objects, and no tensor."""
_DISTRIBUTED: Final = ".distcp"
_SHOWN: Final = 3


class Part(NamedTuple):
    """One file of a checkpoint, how it is written, and what it is called there; None where it is the whole of it."""

    path: Path
    form: Form
    name: str | None


class Members(NamedTuple):
    """The files of a checkpoint, the indices that name some of them, its log, and what was left out."""

    parts: tuple[Part, ...]
    indices: tuple[Index, ...] = ()
    log: Path | None = None
    notes: tuple[str, ...] = ()
    folder: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(_size(part.path) for part in self.parts)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        # a training may have removed it since: who opens it will say so
        return 0


def members(path: Path) -> Members:
    """What to read for a path; raises ``UsageError`` where there is no checkpoint."""
    if os.path.isdir(path):
        return _folder(path)
    form = form_of(path)
    if form != "index":
        return Members((Part(path, form, None),))
    index = read_index(path)
    return Members(_parts(index.shards), (index,))


def _folder(folder: Path) -> Members:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error
    indices = tuple(read_index(folder / name) for name in names if name.endswith(INDEX) and _holds_weights(name))
    shards = tuple(dict.fromkeys(shard for index in indices for shard in index.shards))
    single = [folder / n for n in names if n.endswith(SUFFIXES) and n != _SETTINGS and os.path.isfile(folder / n)]
    others, strangers = _sorted_out([file for file in single if file not in shards])
    if not shards and not others:
        raise strangers[0] if strangers else _nothing_in(folder, names)
    log = folder / LOG
    notes = (*(f"not read: {stranger.what}" for stranger in strangers), *_notes(folder, names))
    return Members((*_parts(shards), *others), indices, log if log.is_file() else None, notes, folder=True)


def _sorted_out(files: list[Path]) -> tuple[list[Part], list[StrangerError]]:
    """The checkpoints among files, and what the others are."""
    parts: list[Part] = []
    strangers: list[StrangerError] = []
    for file in files:
        try:
            parts.append(Part(file, form_of(file), file.name))
        except StrangerError as error:
            strangers.append(error)
    return parts, strangers


def _holds_weights(name: str) -> bool:
    return name.removesuffix(INDEX).endswith(SUFFIXES)


def _parts(files: tuple[Path, ...]) -> tuple[Part, ...]:
    return tuple(Part(file, form_of(file), file.name) for file in files)


def _notes(folder: Path, names: list[str]) -> list[str]:
    """What in a folder is more of the checkpoint, and is not read."""
    more = [name for name in names if os.path.isdir(folder / name) and _within(folder / name)]
    distributed = sum(name.endswith(_DISTRIBUTED) for name in names)
    notes = [f"not looked at: the folder {excerpt(more, _SHOWN)}, which may hold more of it"] if more else []
    if distributed:
        notes.append(f"not looked at: {distributed} files of torch.distributed.checkpoint")
    return notes


def _nothing_in(folder: Path, names: list[str]) -> UsageError:
    inner = [name for name in names if os.path.isdir(folder / name) and _within(folder / name)]
    if any(name.endswith(_DISTRIBUTED) for name in names):
        return UsageError(
            f"{folder} is a checkpoint of torch.distributed.checkpoint, which whynan does not read",
            "convert it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE",
        )
    if inner:
        given = excerpt([os.path.join(folder, name) for name in inner], _SHOWN)
        return UsageError(f"{folder} holds no checkpoint, but folders of them", f"give {given}")
    endings = ", ".join(SUFFIXES)
    return UsageError(f"{folder} holds no checkpoint", f"give a folder with a file that ends in {endings}")


def _within(folder: Path) -> bool:
    try:
        return any(name.endswith((*SUFFIXES, _DISTRIBUTED)) for name in os.listdir(folder))
    except OSError:
        return False
