"""The fixes of a report by the number that each is chosen by."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Finding, Fix, Report


@dataclass(frozen=True, slots=True)
class Offer:
    """One fix of a report by the number, from 1, that it is chosen by, and the finding that it mends."""

    number: int
    finding: Finding
    fix: Fix


def offers(report: Report) -> tuple[Offer, ...]:
    """The fixes of all that did harm, in the order of the findings; what was absorbed needs none.

    A change of the source that mends several findings is offered once, for the first of them.
    """
    found: list[tuple[Finding, Fix]] = []
    known: set[str] = set()
    for finding in (*report.findings, *report.damaging):
        for fix in finding.fixes:
            change = fix.patch if fix.kind == "source" else None
            if change is None or change not in known:
                found.append((finding, fix))
            known.update(() if change is None else (change,))
    return tuple(Offer(number, finding, fix) for number, (finding, fix) in enumerate(found, 1))


def best(told: Iterable[Offer], kind: str) -> Offer | None:
    """The fix that is made where none is chosen: the first verified one of a kind."""
    return next((o for o in told if o.fix.kind == kind and o.fix.verdict.status == "verified"), None)


def choice_of(report: Report, fix: Fix) -> str:
    """How a fix of the source, or one with the same change, is chosen: nothing where it is made without being asked."""
    told = offers(report)
    made = best(told, "source")
    number = next((o.number for o in told if o.fix.kind == "source" and o.fix.patch == fix.patch), None)
    return "" if number is None or (made is not None and made.number == number) else f" --choose {number}"
