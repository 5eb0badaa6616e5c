"""Proof of a change of how a program trains: run from its start, it has to learn where the program had failed."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final

from whynan.fixes.python import training_changes
from whynan.floats import format_value
from whynan.records import FixVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from whynan.fixes.python import TrainingChange
    from whynan.records import Finding
    from whynan.training.course import Course

TWICE: Final = "what was float16 is float32, and takes twice the memory"
_RUNAWAY: Final = 100.0
"""So many times what it was before grows a loss or a gradient of a training that diverges."""
_GROWTH: Final = 3.0
_FEW: Final = 3
"""A training that fails so soon shows no growth."""
_WINDOW: Final = 10
_DEVIATIONS: Final = 2.0
"""So many standard deviations of what new data do to it may a loss at the end be above one at first."""
_ENOUGH: Final = 8
"""Of fewer losses it is not known what new data do to them."""
_SAME: Final = 0.01
"""So near, relative, are losses in float16 and in float32."""
_MOST: Final = 8
"""So many changes are tried."""
_CLIPPINGS: Final = 2
"""So many of them clip gradients."""


def changes_of(
    finding: Finding, texts: Mapping[str, str], course_of: Callable[..., Course | str]
) -> Iterator[tuple[TrainingChange, FixVerdict]]:
    """The changes of how a program trains that may mend an overflow in it, or what float16 is too narrow for.

    Each has its verdict.

    ``texts``: of the user's files that the program has loaded. ``course_of``: the steps of the program, with another
    text of a file if one is given.
    """
    is_half = finding.element.dtype == "float16"
    is_too_large = finding.birth == "overflow" or finding.rule == "WN701"
    if not is_half and (not is_too_large or finding.step is None or finding.step < 2):
        return
    first = course_of()
    if isinstance(first, str) or not first.losses:
        return
    found = [change for path, text in texts.items() for change in training_changes(path, text)]
    if is_half:
        tried = [change for change in found if change.kind == "float32"]
    elif not _diverges(first):
        return
    else:
        # the steps of a training that went well for long stay as they are
        went_well = first.wanted > 2 * _WINDOW
        least = median(first.norms[: first.wanted // 2]) if went_well else min(first.norms)
        clipped = [c for c in found if c.kind == "clipping" and c.largest >= least]
        slower = [c for c in found if c.kind == "rate"]
        tried = [*clipped, *slower] if went_well else [*slower, *clipped]
    clippings = courses = least_parts = 0
    idle: set[tuple[str, int]] = set()
    for change in tried:
        is_enough = clippings == _CLIPPINGS if change.kind == "clipping" else 0 < least_parts < change.parts
        if courses == _MOST or is_enough or change.place in idle:
            continue
        courses += 1
        course = course_of(change.path, change.before, change.edited)
        if not isinstance(course, str):
            clippings += change.kind == "clipping"
            yield change, _verdict(change, first, course)
            if course.losses[:-1] == first.losses[:-1] and len(course.losses) == len(first.losses):
                # that rate is not the one that trains
                idle.add(change.place)
            as_soon = course.bad is not None and len(course.losses) == first.wanted and not _diverges(course)
            if as_soon and change.kind == "rate" and course.losses[:-1] != first.losses[:-1]:
                # other steps have led to the same failure: smaller ones will
                least_parts = change.parts


def _diverges(first: Course) -> bool:
    """Whether a training ran away before it failed, or failed too soon to show it."""
    losses, norms = ([v for v in row if math.isfinite(v)] for row in (first.losses, first.norms))
    # what falls without a bound is another thing
    falls = len(losses) > 1 and max(losses[-_FEW:]) <= median(losses[: len(losses) // 2])
    if falls or first.losses[-1] == -math.inf or not losses:
        return False
    if first.wanted <= _FEW:
        return True
    rows = (row for row in (losses, norms) if len(row) > 1)
    return any(max(row[-_FEW:]) >= _RUNAWAY * abs(median(row[: len(row) // 2])) for row in rows)


def _verdict(change: TrainingChange, first: Course, course: Course) -> FixVerdict:
    """The verdict on a change by the steps that the program makes with it."""
    why = _against(change, first, course)
    if why is not None:
        return FixVerdict(status="rejected", why=why)
    begins, ends = (format_value(value, digits=3) for value in (course.losses[0], _last(course.losses)))
    made = len(course.losses)
    said = f"run with it from its start, the program makes {made:,} steps where it failed at step {first.wanted:,}: "
    said += f"all are finite, and the loss, {begins} at first, is {ends} in the last of them"
    return FixVerdict(
        status="guarded", forward_finite=True, backward_finite=True, why=f"{_choice(change, course)}; {said}"
    )


def _choice(change: TrainingChange, course: Course) -> str:
    """What a change gives in place of what."""
    match change.kind:
        case "rate":
            return f"the learning rate is {change.title.partition(' of ')[0]} of what it was"
        case "clipping":
            clipped = sum(_is_clipped(change, norm) and norm > 0 for norm in course.norms)
            return f"the gradients of {clipped:,} of {len(course.norms):,} steps are shortened, and those of no other"
        case "float32":
            return TWICE


def _against(change: TrainingChange, first: Course, course: Course) -> str | None:
    """What speaks against a change, if anything does."""
    losses, norms = course.losses, course.norms
    if course.bad is not None:
        return course.bad
    if not losses or not all(map(math.isfinite, losses)):
        return "with it there are steps whose loss is not known"
    if len(losses) < first.wanted and losses[-1] >= min(losses[:-1], default=-math.inf):
        return "with it the program ends before it comes as far as without it"
    near = _SAME if change.kind == "float32" else 0.0
    if not near and losses[0] != first.losses[0]:
        return "with it the first loss is another one already, before any step is made"
    if abs(losses[0] - first.losses[0]) > near * abs(first.losses[0]):
        return f"with it the first loss is {losses[0]:.4g}, which was {first.losses[0]:.4g}"
    last, before = _last(losses), [loss for loss in first.losses if math.isfinite(loss)]
    least = min(losses[0], median(before) if before else losses[0])
    if least < last and _rises(losses, least, len(before)):
        return f"with it the loss is {last:.4g} at last, and {least:.4g} was reached before"
    if max(losses) > _RUNAWAY * max(abs(losses[0]), abs(median(losses))):
        return f"with it the loss rises to {max(losses):.4g} on its way"
    window = _window(norms)
    if change.kind == "clipping" and 2 * sum(_is_clipped(change, n) for n in norms[-window:]) > window:
        return "with it the gradients stay as large as they may be"
    if not course.moves or not any(norms):
        return "with it no weight moves"
    as_far = len(losses) >= change.parts * first.wanted
    if change.kind == "rate" and not as_far and median(norms[-window:]) > _GROWTH * max(norms[:window]):
        return "with it the gradients grow on, and it may fail later"
    return None


def _rises(losses: Sequence[float], least: float, count: int) -> bool:
    """Whether losses are at the end above their own beginning, or above the least of a count, by more than noise."""
    window, last = _window(losses), _last(losses)
    spread = _DEVIATIONS * _noise(losses)
    began = median(losses[:window]) + spread * math.sqrt(2 / window)
    return last > min(began, least + spread * math.sqrt(1 / window + 1 / max(1, count)))


def _noise(losses: Sequence[float]) -> float:
    """The standard deviation of losses about their trend: of second differences, which a straight line has none of."""
    if len(losses) < _ENOUGH:
        return 0.0
    differences = [abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    return 1.4826 * median(differences) / math.sqrt(6)


def _is_clipped(change: TrainingChange, norm: float) -> bool:
    """Whether the gradients of a step were made shorter: of a norm that is Inf they become 0."""
    return norm >= 0.999 * change.largest or norm == 0


def _last(losses: Sequence[float]) -> float:
    """The loss at the end, of several steps where there are such."""
    return median(losses[-_window(losses) :])


def _window(row: Sequence[float]) -> int:
    return max(1, min(_WINDOW, len(row) // 2))
