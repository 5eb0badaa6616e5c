"""Fidelity of a replay: the signature of a bad step, bit for bit, and operands from a faithful second run."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from whynan.records import Note, Replay
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.records import Finding, Operand, Report
    from whynan.training.guard import Guard


# -- Operand values that were gone, taken from a second and faithful run -----------------------------------------------


_OTHER_FORMULAS: Final = ("other_values_formula", "other_gradient_formula")


def with_rerun(first: Report, second: Report, *, identical: bool, failed: bool = False) -> Report:
    """The first run's report with what the second run knows of the same events; nothing from an unfaithful one.

    `failed`: an error of our own cut the second run short.
    """
    if failed:
        return without_rerun(first, FAILED)
    why = _difference(first, second, identical=identical)
    replay = Replay(kind="rerun", faithful=why is None, typed_why=why or Note.create("rerun_identical"))
    run = first.run.model_copy(update={"replay": replay})
    if why is not None:
        return first.model_copy(update={"run": run})
    filled = {
        name: tuple(_filled(a, b) for a, b in zip(getattr(first, name), getattr(second, name), strict=True))
        for name in ("findings", "damaging", "absorbed")
    }
    return first.model_copy(update={"run": run, **filled})


def without_rerun(first: Report, why: Note) -> Report:
    """The first run's report where there is no second one to learn from, and why."""
    run = first.run.model_copy(update={"replay": Replay(kind="rerun", faithful=False, typed_why=why)})
    if why != FAILED:
        return first.model_copy(update={"run": run})
    return first.model_copy(update={"run": run, "coverage": first.coverage.with_notes(FAILED)})


def _difference(first: Report, second: Report, *, identical: bool) -> Note | None:
    if not identical:
        return Note.create("other_values")
    changed = next((n for n in first.coverage.typed_notes if n.kind in _OTHER_FORMULAS), None)
    if changed is not None:
        return changed
    if first.coverage.events != second.coverage.events:
        return Note.create("other_events", second=second.coverage.events, first=first.coverage.events)
    for name in ("findings", "damaging", "absorbed"):
        if [_key(f) for f in getattr(first, name)] != [_key(f) for f in getattr(second, name)]:
            return Note.create("other_births")
    return None


def _key(finding: Finding) -> tuple[object, ...]:
    element = finding.element
    return finding.op, finding.phase, finding.birth, finding.site, element.index, element.count, str(element.value)


def _filled(first: Finding, second: Finding) -> Finding:
    operands = tuple(_fill_operand(a, b) for a, b in zip(first.element.operands, second.element.operands, strict=True))
    forward = (
        tuple(
            b.model_copy(update={"origin": "rerun"}) if a.value is None and b.value is not None else a
            for a, b in zip(first.forward_operands, second.forward_operands, strict=True)
        )
        if len(first.forward_operands) == len(second.forward_operands)
        else first.forward_operands
    )
    chain = second.chain if len(second.chain) > len(first.chain) else first.chain
    element = first.element.model_copy(update={"operands": operands})
    updated = first.model_copy(update={"element": element, "forward_operands": forward, "chain": chain})
    if operands == first.element.operands and forward == first.forward_operands:
        return updated
    # the sentence was made without the values that are known now
    return updated.model_copy(update={"message": second.message, "explanation": second.explanation})


def _fill_operand(first: Operand, second: Operand) -> Operand:
    if first.value is None and second.value is not None:
        return second.model_copy(update={"origin": "rerun"})
    return first


# -- A bad step, told from any other: which step of which optimizer, its losses bit for bit, its bad gradients ---------


@dataclass(frozen=True)
class StepSignature:
    """What has to be the same for a step to be the same.

    `optimizer`: its place among those that have tried a step, by their first one. `losses`: their bits. `bad`: the
    place of each parameter whose gradient is bad, and a digest of which of its elements are. `weights`, `random`:
    digests of the parameters before the step and of torch's random state. Where all is NaN, the rest says little.
    """

    optimizer: int
    step: int
    losses: tuple[str, ...]
    bad: tuple[tuple[int, str], ...]
    weights: str
    random: str

    @classmethod
    def of_fault(cls, fault: Fault, guard: Guard) -> Self:
        """That of a bad step of a program that is watched."""
        import torch

        weights = fault.parameters()
        places = {id(p): place for place, p in enumerate(weights)}
        losses = tuple(bits.hex() for bits in fault.judged.losses)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():  # pyright: ignore
            bad = sorted((places[id(p)], _digest(mask)) for p, mask in fault.judged.bad)
            moved, random = _digest(*weights), _digest(torch.get_rng_state())
        return cls(place_of(fault.optimizer, guard), fault.step, losses, tuple(bad), moved, random)

    @classmethod
    def from_document(cls, stored: Mapping[str, Any]) -> Self:
        """The one that ``stored()`` gave in another process."""
        bad = tuple((int(place), str(digest)) for place, digest in stored["bad"])
        losses = tuple(str(bits) for bits in stored["losses"])
        weights, random = str(stored["weights"]), str(stored["random"])
        return cls(int(stored["optimizer"]), int(stored["step"]), losses, bad, weights, random)

    def to_document(self) -> dict[str, Any]:
        """It as a document for another process."""
        return asdict(self)


def place_of(optimizer: Any, guard: Guard) -> int:
    """The place of an optimizer among those that have tried a step; -1 where it has tried none."""
    return next((place for place, known in enumerate(guard.optimizers()) if known is optimizer), -1)


def _digest(*tensors: Any) -> str:
    """Of shapes, types and bits."""
    from torch import uint8

    digest = hashlib.blake2b(digest_size=32)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode("ascii"))
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy())
    return digest.hexdigest()
