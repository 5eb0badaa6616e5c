"""The post-mortem: what each of several checkpoints holds, in order, and which is the first bad one."""

# pyright: strict

from __future__ import annotations

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import torch

from whynan.errors import UsageError
from whynan.models.examining import examined
from whynan.models.folders import Members, members
from whynan.models.literals import Allowances
from whynan.models.naming import distinct, short_names, spelled
from whynan.models.order import ordered
from whynan.records.checkpoint import Checkpoint, Checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

_ANY: Final = "give the files or folders of checkpoints"


class Progress(Protocol):
    """Who is told how the work goes on."""

    def begin(self, total: int) -> None:
        """So many bytes are to be looked at."""
        ...

    def advance(self, size: int) -> None:
        """So many more have been."""
        ...


def read(paths: Sequence[str], *, allow: Sequence[str] = (), progress: Progress | None = None) -> Checkpoints:
    """What the checkpoints at some paths hold, in order.

    Of several, one that cannot be read is told of among the others; raises ``UsageError`` where none can be.

    Args:
        paths: of files, of indices of shards, or of folders of these.
        allow: names, or patterns of names, of tensors whose bad numbers are meant.
        progress: is told how much there is to look at, and how much has been.
    """
    if not paths:
        raise UsageError("there is nothing to look at", _ANY)
    with warnings.catch_warnings():
        # torch's warnings are for those who write what is only looked at here
        warnings.simplefilter("ignore")
        return _read(paths, Allowances(allow), progress)


def _read(paths: Sequence[str], allowances: Allowances, progress: Progress | None) -> Checkpoints:
    wanted = distinct(paths)
    found = [_members(Path(path)) for path in wanted]
    if progress is not None:
        progress.begin(sum(made.size for made in found if isinstance(made, Members)))
    tick = None if progress is None else progress.advance
    checkpoints: list[Checkpoint] = []
    errors: list[UsageError] = []
    for path, name, made in zip(wanted, short_names(wanted), found, strict=True):
        try:
            if isinstance(made, UsageError):
                raise made
            checkpoints.append(examined(name, spelled(path), made, allowances, tick))
        except UsageError as error:
            errors.append(error)
            checkpoints.append(
                Checkpoint(name=name, path=spelled(path), form=None, verdict="unreadable", error=spelled(str(error)))
            )
    if len(errors) == len(checkpoints):
        raise errors[0]
    return _compared(checkpoints, allowances)


def _members(path: Path) -> Members | UsageError:
    try:
        return members(path)
    except UsageError as error:
        return error


def _compared(checkpoints: list[Checkpoint], allowances: Allowances) -> Checkpoints:
    order = None
    if len(checkpoints) > 1:
        checkpoints, order = ordered(checkpoints)
    verdicts = [checkpoint.verdict for checkpoint in checkpoints]
    first_bad = verdicts.index("nonfinite") if "nonfinite" in verdicts else None
    good = [place for place, verdict in enumerate(verdicts[:first_bad]) if verdict == "clean"]
    return Checkpoints(
        verdict="clean" if first_bad is None else "nonfinite",
        versions={"whynan": version("whynan"), "torch": str(torch.__version__)},
        order=order,
        first_bad=first_bad,
        last_good=good[-1] if good and first_bad is not None else None,
        unused_allows=allowances.unused,
        checkpoints=tuple(checkpoints),
    )
