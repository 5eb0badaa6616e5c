"""What the program makes, a few statements on, of what a guard gives: where that was finite it has to stay as it is.

A quotient that is Inf may be healthy where it is bounded or an arctangent is taken of it, and a NaN where it is left
out of a mean.
"""

# pyright: basic

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError
from whynan.fixes.candidates import Declined
from whynan.floats import format_value
from whynan.run.proof.local_proof import alike, cures, recorded_trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whynan.fixes.candidates import Candidate
    from whynan.verify.in_place.visits import Visits

_MOST_BEHIND: Final = 3
_MOST_VISITS: Final = 4
_TOLERANCE: Final = 1e-3


def moved_behind(candidate: Candidate, before: str, visits: Visits) -> str | None:
    """Why a guard is none: of what was finite behind it, it moves something; None where it is not seen to do so.

    Looked at on what was recorded, and with each input as it was beside other values of the others.

    Args:
        candidate: of the file.
        before: the text that `visits` were recorded of.
    """
    for further in range(_MOST_BEHIND + 1):
        line = candidate.original.line
        pair = alike(before, candidate.edited, candidate.path, line, visits, further=further)
        if isinstance(pair, Declined):
            return None
        try:
            tried = recorded_trial(replace(candidate, original=pair[0], repaired=pair[1]), visits)
        except UsageError:
            return None
        if isinstance(tried, str):
            continue
        for given in tried.given[:_MOST_VISITS]:
            for inputs in _mixed(given):
                moved = _moved(_outputs(tried.before, inputs), _outputs(tried.after, inputs))
                if moved is not None:
                    count, total, old, new = moved
                    what = f"{format_value(old, digits=4)} becomes {format_value(new, digits=4)}"
                    return f"moves {count:,} of {total:,} elements that are finite behind it: {what}"
    return None


def seen_behind(candidate: Candidate, before: str, visits: Visits) -> Candidate | None:
    """A candidate of the statements in which all that it leaves is finite again; None where there are none."""
    for further in range(_MOST_BEHIND + 1):
        pair = alike(before, candidate.edited, candidate.path, candidate.original.line, visits, further=further)
        if isinstance(pair, Declined):
            return None
        wider = replace(candidate, original=pair[0], repaired=pair[1])
        if cures(wider, visits):
            return wider
    return None


def _mixed(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Inputs as they were, and with the elements of one of them in another order."""
    import torch

    yield given
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
            rolled = value.detach().roll(1).requires_grad_(value.requires_grad)
            yield {**given, name: rolled}


def _outputs(function: Any, given: Mapping[str, Any]) -> list[Any]:
    """The floating-point outputs of a formula; none where it raises."""
    import torch

    from whynan.verify.torch_program import outcome

    try:
        outputs = outcome(function, given).outputs
    except Exception:
        # the judge says why
        return []
    return [one for one in outputs if isinstance(one, torch.Tensor) and one.is_floating_point()]


def _moved(before: list[Any], after: list[Any]) -> tuple[int, int, float, float] | None:
    """How many finite elements of how many became another, and one of them before and after."""
    import torch

    for old, new in zip(before, after, strict=False):
        if old.shape != new.shape or old.dtype != new.dtype:
            return None
        finite = torch.isfinite(old)
        bound = _TOLERANCE * old.abs() + torch.finfo(old.dtype).tiny
        wrong = finite & ~((new - old).abs() <= bound)
        if bool(wrong.any()):
            return int(wrong.sum()), int(finite.sum()), float(old[wrong][0]), float(new[wrong][0])
    return None
