"""The index of a sharded checkpoint: which files it consists of, none of them outside its folder."""

# pyright: strict

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from whynan.errors import UsageError
from whynan.models.files import unreadable

if TYPE_CHECKING:
    from pathlib import Path

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
