"""The post-mortem: what each checkpoint holds, in order, and the first in which a tensor is bad."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import torch

from whynan.errors import UsageError
from whynan.models.checkpoint.contents import Allowances, Contents, Held, walk_document
from whynan.models.checkpoint.files import LOG, Form, Members, Part, members, read_log
from whynan.models.checkpoint.order import order_checkpoints, steps_of
from whynan.models.checkpoint.tensors import load_document, open_safetensors
from whynan.models.listing import distinct, excerpt, short_names
from whynan.records.base import Number
from whynan.records.checkpoint import Checkpoint, Checkpoints, Logged, StoredForm
from whynan.traces.json import escape_surrogates
from whynan.version import own_version

# -- One checkpoint, file by file: what it holds, how old it says it is, and what of it was not loaded -----------------


_READ: Final = ("builtins.", "collections.", "copyreg.", "torch.nested.", "torch._dynamo.", "numpy.")
"""Modules whose classes need no mention: all that their objects hold is read."""
_FORMS: Final[dict[Form, StoredForm]] = {"zip": "torch", "legacy": "torch-legacy", "safetensors": "safetensors"}
_SHOWN: Final = 3


def inspect_checkpoint(
    name: str, path: str, members: Members, allowances: Allowances, tick: Callable[[int], None] | None = None
) -> Checkpoint:
    """What a checkpoint holds; raises ``UsageError`` where a part of it cannot be read."""
    reading = _Reading(allowances, tick)
    if members.log is not None:
        reading.log(members)
    for part in members.parts:
        reading.part(part)
    held = reading.contents
    bad = sum(stored.bad and stored.same_as is None for stored in held.tensors)
    bad_numbers = sum(stored.bad for stored in held.numbers)
    return Checkpoint(
        name=name,
        path=path,
        form=_form(members),
        files=tuple(escape_surrogates(part.name) for part in members.parts if part.name is not None),
        size=members.size,
        steps=reading.steps,
        verdict="nonfinite" if bad or bad_numbers else "clean",
        n_tensors=sum(stored.same_as is None for stored in held.tensors),
        n_bad=bad,
        n_bad_numbers=bad_numbers,
        tensors=tuple(held.tensors),
        numbers=tuple(held.numbers),
        logged=reading.logged,
        unloaded=tuple(reading.unloaded),
        notes=(*map(escape_surrogates, members.notes), *_missing(members, {stored.name for stored in held.tensors})),
    )


class _Reading:
    """What the files of one checkpoint have told so far."""

    def __init__(self, allowances: Allowances, tick: Callable[[int], None] | None) -> None:
        self.contents = Contents(allowances, tick)
        self.steps: dict[str, Number] = {}
        self.logged: tuple[Logged, ...] = ()
        self.unloaded: dict[str, None] = {}

    def log(self, members: Members) -> None:
        """What the trainer wrote beside the checkpoint."""
        assert members.log is not None
        log = read_log(members.log)
        self.steps, self.logged = log.steps, log.logged
        for name, numbers in walk_document(log.rest):
            self.contents.add(name, numbers, LOG)

    def part(self, part: Part) -> None:
        """What one file holds."""
        if part.form == "safetensors":
            with open_safetensors(part.path) as file:
                self._all(file.contents(), part, file.steps())
            return
        document = load_document(part.path, part.form)
        self._all(walk_document(document.document), part, steps_of(document.document))
        named = (name for name in document.unloaded if not name.startswith(_READ))
        self.unloaded.update(dict.fromkeys(map(escape_surrogates, named)))

    def _all(self, found: Iterable[tuple[str, Held]], part: Part, steps: dict[str, Number]) -> None:
        # what lies nearer to the root of the checkpoint knows better
        self.steps = {**steps, **self.steps}
        for name, value in found:
            self.contents.add(name, value, part.name)
        self.contents.forget()


def _form(members: Members) -> StoredForm:
    if members.folder:
        return "folder"
    return "sharded" if members.indices else _FORMS[members.parts[0].form]


def _missing(members: Members, found: set[str]) -> list[str]:
    """What the indices promise and the shards do not hold."""
    lacking = sorted(
        escape_surrogates(name)
        for index in members.indices
        for name in index.tensors
        if escape_surrogates(name) not in found
    )
    return [f"the index names tensors that no shard holds: {excerpt(lacking, _SHOWN)}"] if lacking else []


# -- The post-mortem: what each of several checkpoints holds, in order, and which is the first bad one -----------------


_ANY: Final = "give the files or folders of checkpoints"


class Progress(Protocol):
    """Who is told how the work goes on."""

    def begin(self, total: int) -> None:
        """So many bytes are to be looked at."""
        ...

    def advance(self, size: int) -> None:
        """So many more have been."""
        ...


def read_checkpoints(
    paths: Sequence[str], *, allow: Sequence[str] = (), progress: Progress | None = None
) -> Checkpoints:
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
            checkpoints.append(inspect_checkpoint(name, escape_surrogates(path), made, allowances, tick))
        except UsageError as error:
            errors.append(error)
            checkpoints.append(
                Checkpoint(
                    name=name,
                    path=escape_surrogates(path),
                    form=None,
                    verdict="unreadable",
                    error=escape_surrogates(str(error)),
                )
            )
    if len(errors) == len(checkpoints):
        raise errors[0]
    return _comparison(checkpoints, allowances)


def _members(path: Path) -> Members | UsageError:
    try:
        return members(path)
    except UsageError as error:
        return error


def _comparison(checkpoints: list[Checkpoint], allowances: Allowances) -> Checkpoints:
    order = None
    if len(checkpoints) > 1:
        checkpoints, order = order_checkpoints(checkpoints)
    verdicts = [checkpoint.verdict for checkpoint in checkpoints]
    first_bad = verdicts.index("nonfinite") if "nonfinite" in verdicts else None
    good = [place for place, verdict in enumerate(verdicts[:first_bad]) if verdict == "clean"]
    return Checkpoints(
        verdict="clean" if first_bad is None else "nonfinite",
        versions={"whynan": own_version(), "torch": str(torch.__version__)},
        order=order,
        first_bad=first_bad,
        last_good=good[-1] if good and first_bad is not None else None,
        unused_allows=allowances.unused,
        checkpoints=tuple(checkpoints),
    )
