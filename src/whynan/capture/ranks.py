"""The rank of this process among those that train or infer together: of a launcher, or of a process group."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TOGETHER: Final = "one of several processes, which would have to run it again together"
_STARTERS: Final = (
    "multiprocessing.popen_fork",
    "multiprocessing.popen_forkserver",
    "multiprocessing.popen_spawn_posix",
    "multiprocessing.popen_spawn_win32",
    "torch.distributed.elastic.agent.server.local_elastic_agent",
)
"""Loaded by what starts processes, and by nothing else."""


class CollectiveRefused(BaseException):
    """A replay has come to a collective whose result was not kept; `why` ends a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Rank(NamedTuple):
    """The number of a process among so many."""

    number: int
    world: int


_spawned: tuple[Rank, tuple[str, int]] | None = None


def join_spawned(own: Rank, store: tuple[str, int]) -> None:
    """This process is one of several that a program under whynan has started; `store`: where that one serves one."""
    global _spawned
    _spawned = own, store


def spawned_store() -> tuple[str, int] | None:
    """Where the program serves a store that has started this process; None where a launcher has, or nobody."""
    return None if _spawned is None else _spawned[1]


def launched(environment: Mapping[str, str]) -> Rank | None:
    """The rank that a launcher (torchrun, Accelerate, DeepSpeed) has given a process; None where it is alone."""
    if _spawned is not None:
        return _spawned[0]
    try:
        rank = Rank(int(environment["RANK"]), int(environment["WORLD_SIZE"]))
    except (KeyError, ValueError):
        return None
    return rank if 0 <= rank.number < rank.world and rank.world > 1 else None


def rank() -> Rank | None:
    """The rank of this process, by its launcher or by its process group; None where it is alone."""
    given = launched(os.environ)
    if given is not None or not has_group():
        return given
    distributed = sys.modules["torch.distributed"]
    world = distributed.get_world_size()
    return Rank(distributed.get_rank(), world) if world > 1 else None


def has_group() -> bool:
    """Whether this process has joined a process group."""
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


_concerted = False


def act_in_concert() -> None:
    """From here on the ranks of this run tell each other what they find: one may be stopped, as all of them are."""
    global _concerted
    _concerted = True


def acts_blindly() -> bool:
    """Whether this process is one of several that do not hear of each other: it is not stopped, nor run again."""
    return not _concerted and is_one_of_several()


def is_one_of_several() -> bool:
    """Whether this process does together with others what it does: by itself it is not stopped, nor run again."""
    return rank() is not None


def has_started_others() -> bool:
    """Whether this process has started others, of which it knows nothing."""
    return any(name in sys.modules for name in _STARTERS)
