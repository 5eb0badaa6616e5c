"""Files of a checkpoint: one file, the shards of an index, a trainer's folder; anything else is refused."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from whynan.errors import UsageError
from whynan.models.checkpoint.order import steps_of
from whynan.models.listing import excerpt
from whynan.models.strangers import STRANGERS, unreadable
from whynan.records.base import Number
from whynan.records.checkpoint import Logged

# -- What kind of file a path names, by how it begins; whatever is no checkpoint is refused with the reason ------------


Form: TypeAlias = Literal["zip", "legacy", "safetensors", "index"]
"""How a checkpoint is written: by ``torch.save``, by that of PyTorch before 1.6, by safetensors, or in shards."""

INDEX: Final = ".index.json"
_HEAD: Final = 512
_MAGIC: Final = bytes.fromhex("8a0a6cfc9c46f9206aa85019")
"""How pickle writes the number that PyTorch's old files begin with."""
_LONGEST_HEADER: Final = 100_000_000
"""Of a safetensors file, in bytes; its library refuses longer ones."""
_ANY: Final = "give a file of torch.save or safetensors, the .index.json of a sharded one, or a folder of these"


class StrangerError(UsageError):
    """A file is something else than a checkpoint."""


def form_of(path: Path) -> Form:
    """How the checkpoint in a file is written.

    Raises ``UsageError`` where nothing is to be read, ``StrangerError`` where it is something else.
    """
    head = head_of(path)
    if not head:
        raise UsageError(f"{path} is empty", "it was never written to its end; use the checkpoint before it")
    if path.name.endswith(INDEX):
        return "index"
    if path.suffix == ".safetensors" or _begins_as_safetensors(head):
        return "safetensors"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head[:1] == b"\x80" and head[2:].startswith(_MAGIC):
        return "legacy"
    raise _stranger(path, head)


def head_of(path: Path) -> bytes:
    """The first bytes of a regular file; raises ``UsageError`` where there is none to be read."""
    try:
        # a pipe would never end, and a device never begin
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{path} is no regular file", _ANY)
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path} does not exist", _ANY) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise UsageError(f"{path} is no path ({error})", _ANY) from error


def damaged(path: Path, why: str) -> UsageError:
    """What to say of a checkpoint that is not as it was written."""
    return UsageError(f"{path} is cut off or damaged ({why})", "copy it anew, or use the checkpoint before it")


def _begins_as_safetensors(head: bytes) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _LONGEST_HEADER


def _stranger(path: Path, head: bytes) -> StrangerError:
    for beginning, what, hint in STRANGERS:
        if head.startswith(beginning):
            return StrangerError(f"{path} {what}", hint or _ANY)
    if head[257:262] == b"ustar":
        return StrangerError(f"{path} is a tar archive", "unpack it, and give the checkpoint that was in it")
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return StrangerError(
            f"{path} is a plain pickle, and could only be read by running it",
            "where you trust it, load it and save the tensors with torch.save",
        )
    return StrangerError(f"{path} is no checkpoint that whynan reads", _ANY)


# -- The index of a sharded checkpoint: which files it consists of, none of them outside its folder --------------------


_LARGEST: Final = 1 << 28
"""Bytes of an index that is read; a million tensors take a third of it."""


class Index(NamedTuple):
    """The shards of a checkpoint, in the order of the index, and the tensors that it says they hold."""

    shards: tuple[Path, ...]
    tensors: frozenset[str]


def read_index(path: Path) -> Index:
    """The shards that an index names; raises ``UsageError`` for one that is none, or that leads out of its folder."""
    shard_of = _weight_map(path)
    names = dict.fromkeys(shard_of.values())
    return Index(tuple(_shard(path, name) for name in names), frozenset(shard_of))


def _weight_map(path: Path) -> dict[str, str]:
    document: Any = None
    try:
        if path.stat().st_size <= _LARGEST:
            document = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError):
        pass
    held: Any = cast("dict[str, Any]", document).get("weight_map") if isinstance(document, dict) else None
    if not isinstance(held, dict) or not held:
        raise UsageError(f"{path} is no index of shards (it has no weight_map)", "copy it anew, or give a shard itself")
    shard_of = cast("dict[str, Any]", held)
    if not all(isinstance(name, str) for name in shard_of.values()):
        raise UsageError(f"{path} names a shard by what is no text", "copy it anew, or give a shard itself")
    return shard_of


def _shard(index: Path, name: str) -> Path:
    shard = index.parent / name
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name or not _lies_in(shard, index.parent):
        raise UsageError(
            f"{index} names a shard outside its folder ({name})", "it may be an attack: give the shards themselves"
        )
    if not shard.exists():
        raise UsageError(f"{shard} does not exist, and {index.name} names it", "fetch the missing shard")
    return shard


def _lies_in(file: Path, folder: Path) -> bool:
    """Whether a file, links followed, lies in a folder; the cache of Hugging Face keeps its files beside it."""
    target, home = os.path.dirname(os.path.realpath(file)), os.path.realpath(folder)
    snapshots, repository = os.path.dirname(home), os.path.dirname(os.path.dirname(home))
    cached = os.path.basename(snapshots) == "snapshots" and target == os.path.join(repository, "blobs")
    return target == home or cached


# -- What the trainer of transformers writes beside a checkpoint: how far it had come, and what it logged on the way


LOG: Final = "trainer_state.json"
_HISTORY: Final = "log_history"


class TrainerLog(NamedTuple):
    """Steps, the bad numbers of the history, and the rest of the document."""

    steps: dict[str, Number]
    logged: tuple[Logged, ...]
    rest: dict[str, Any]


def read_log(path: Path) -> TrainerLog:
    """The log of a training; its history is the past, and a bad number in it no fault of the checkpoint."""
    try:
        document: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is no JSON") from error
    held = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    history = held.get(_HISTORY)
    listed = cast("list[Any]", history if isinstance(history, list) else [])
    entries = cast("list[dict[str, Any]]", [entry for entry in listed if isinstance(entry, dict)])
    rest = {name: value for name, value in held.items() if name != _HISTORY}
    return TrainerLog(steps_of(held), _logged(entries), rest)


def _logged(entries: list[dict[str, Any]]) -> tuple[Logged, ...]:
    counts: dict[str, int] = {}
    bad: dict[str, list[tuple[float, Any]]] = {}
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, float):
                counts[name] = counts.get(name, 0) + 1
                if not math.isfinite(value):
                    bad.setdefault(name, []).append((value, entry.get("step")))
    return tuple(
        Logged(
            name=name,
            n=counts[name],
            n_bad=len(found),
            first=found[0][0],
            step=found[0][1] if isinstance(found[0][1], int) else None,
        )
        for name, found in bad.items()
    )


# -- Which files make up the checkpoint that a path names: one file, the shards of an index, or a folder's files -------


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
    more = [name for name in names if os.path.isdir(folder / name) and _has_checkpoint_files(folder / name)]
    distributed = sum(name.endswith(_DISTRIBUTED) for name in names)
    notes = [f"not looked at: the folder {excerpt(more, _SHOWN)}, which may hold more of it"] if more else []
    if distributed:
        notes.append(f"not looked at: {distributed} files of torch.distributed.checkpoint")
    return notes


def _nothing_in(folder: Path, names: list[str]) -> UsageError:
    inner = [name for name in names if os.path.isdir(folder / name) and _has_checkpoint_files(folder / name)]
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


def _has_checkpoint_files(folder: Path) -> bool:
    try:
        return any(name.endswith((*SUFFIXES, _DISTRIBUTED)) for name in os.listdir(folder))
    except OSError:
        return False
