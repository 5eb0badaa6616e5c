"""One checkpoint, file by file: what it holds, how old it says it is, and what of it was not loaded."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.models import safetensors_files, torch_files
from whynan.models.contents import Contents
from whynan.models.naming import excerpt, spelled
from whynan.models.order import steps_of
from whynan.models.trainer_log import LOG, read_log
from whynan.models.walking import contents
from whynan.records.checkpoint import Checkpoint, Logged, StoredForm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.models.contents import Held
    from whynan.models.files import Form
    from whynan.models.folders import Members, Part
    from whynan.models.literals import Allowances
    from whynan.records.base import Number

_READ: Final = ("builtins.", "collections.", "copyreg.", "torch.nested.", "torch._dynamo.", "numpy.")
"""Modules whose classes need no mention: all that their objects hold is read."""
_FORMS: Final[dict[Form, StoredForm]] = {"zip": "torch", "legacy": "torch-legacy", "safetensors": "safetensors"}
_SHOWN: Final = 3


def examined(
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
        files=tuple(spelled(part.name) for part in members.parts if part.name is not None),
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
        notes=(*map(spelled, members.notes), *_missing(members, {stored.name for stored in held.tensors})),
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
        for name, numbers in contents(log.rest):
            self.contents.add(name, numbers, LOG)

    def part(self, part: Part) -> None:
        """What one file holds."""
        if part.form == "safetensors":
            with safetensors_files.opened(part.path) as file:
                self._all(file.contents(), part, file.steps())
            return
        opened = torch_files.opened(part.path, part.form)
        self._all(contents(opened.document), part, steps_of(opened.document))
        named = (name for name in opened.unloaded if not name.startswith(_READ))
        self.unloaded.update(dict.fromkeys(map(spelled, named)))

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
    lacking = sorted(spelled(name) for index in members.indices for name in index.tensors if spelled(name) not in found)
    return [f"the index names tensors that no shard holds: {excerpt(lacking, _SHOWN)}"] if lacking else []
