"""Attribution: what makes a step bad, by replays of it under one other condition each."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.floats import format_value
from whynan.records.divergence import Attribution
from whynan.rules.wording import origin_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from whynan.records import Finding, Report
    from whynan.records.divergence import Source
    from whynan.training.replay import ReplayOutcome

_SECONDS: Final = 30.0
"""Of processor time, after which no further experiment is begun."""


class Step(NamedTuple):
    """A bad step that can be replayed.

    ``replay`` runs it within a context manager, eagerly or as it was compiled, and ``is_same`` says whether that was
    the same step bit for bit. ``compiled``: something of it was compiled. ``batch``, ``before``: the tensors that
    loaders gave for it, and copies of those of the step before it.
    """

    replay: Callable[..., ReplayOutcome]
    is_same: Callable[[ReplayOutcome], bool]
    compiled: bool
    batch: list[Tensor]
    before: list[Tensor]


def attributed(report: Report, step: Step) -> Report:
    """A report whose first finding says what makes the step bad: what holds first, and then what was ruled out."""
    if not report.findings:
        return report
    first = report.findings[0]
    found = sorted(_experiments(first, step), key=lambda one: (True, None, False).index(one.holds))
    told = first.model_copy(update={"attributions": tuple(found)})
    return report.model_copy(update={"findings": (told, *report.findings[1:])})


def _experiments(finding: Finding, step: Step) -> Iterator[Attribution]:
    began = time.process_time()
    for experiment in (_repeated, _from_data, _other_batch, _wider, _eager, _zeroed):
        if time.process_time() - began > _SECONDS:
            return
        yield from experiment(finding, step)


def _repeated(finding: Finding, step: Step) -> Iterator[Attribution]:
    del finding
    outcome = step.replay(nullcontext)
    if outcome.judged is None:
        yield Attribution(source="hardware", holds=None, evidence=_failed("run again", outcome))
    elif step.is_same(outcome):
        yield Attribution(source="hardware", holds=False, evidence="run again, the step gives the same bits")
    else:
        evidence = "run again without a change, the step gives other bits: the device, memory that nobody has written, "
        evidence += "or operations without a fixed order"
        yield Attribution(source="hardware", holds=None, evidence=evidence)


def _from_data(finding: Finding, step: Step) -> Iterator[Attribution]:
    del step
    if finding.birth == "entered" and origin_kind(finding) != "uninitialised":
        yield Attribution(source="data", evidence="no operation of the step bears the bad number: it came in with it")


def _other_batch(finding: Finding, step: Step) -> Iterator[Attribution]:
    from whynan.training.experiments import is_exchangeable, with_batch

    if finding.birth == "entered":
        return
    if not is_exchangeable(step.batch, step.before):
        evidence = "no DataLoader gave another batch of this shape for the step before"
        yield Attribution(source="data", holds=None, evidence=evidence)
        return
    outcome = step.replay(lambda: with_batch(step.batch, step.before))
    yield _told("data", "with the batch before, at the same weights,", outcome)


def _wider(finding: Finding, step: Step) -> Iterator[Attribution]:
    from whynan.training.experiments import InFloat64

    if finding.birth == "entered":
        return
    told = _told("precision", "in float64", step.replay(InFloat64))
    if told.holds is not False:
        yield told
    elif finding.birth == "overflow":
        # of a leaf the gradient has the format of the leaf all the same
        evidence = "in float64 the step is bad as well: the number is out of that range too, or out of its gradient's"
        yield told.model_copy(update={"holds": None, "evidence": evidence})
    else:
        yield told
        yield Attribution(source="mathematics", evidence=f"{told.evidence}, so that no wider format mends it")


def _eager(finding: Finding, step: Step) -> Iterator[Attribution]:
    del finding
    if step.compiled:
        yield _told("compiler", "without torch.compile", step.replay(nullcontext, eager=True))


def _zeroed(finding: Finding, step: Step) -> Iterator[Attribution]:
    from whynan.training.experiments import ZeroedMemory, in_one_order

    del finding
    outcome = step.replay(ZeroedMemory)
    yield (told := _told("memory", "with zeros in all memory that nothing has written", outcome))
    if not told.holds:
        # else it may be another number by chance
        yield _told("order", "with deterministic algorithms", step.replay(in_one_order))


def _told(source: Source, condition: str, outcome: ReplayOutcome) -> Attribution:
    """What a replay under a condition says of a source: it holds where the step is finite then."""
    judged = outcome.judged
    if judged is None:
        return Attribution(source=source, holds=None, evidence=_failed(condition, outcome))
    if not judged.is_good:
        return Attribution(source=source, holds=False, evidence=f"{condition} the step is bad as well")
    losses = ", ".join(format_value(number, digits=5) for number in judged.numbers[:3])
    return Attribution(source=source, evidence=f"{condition} the step is finite{losses and f', its loss {losses}'}")


def _failed(condition: str, outcome: ReplayOutcome) -> str:
    return f"not known: {condition} the replay has not come to the step, since {outcome.why}"
