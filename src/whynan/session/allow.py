"""What is meant: findings that the user allows, by code, name or family."""

# pyright: strict

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whynan.config import ALLOWABLE
from whynan.errors import UsageError
from whynan.rules.catalogue import rules

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from whynan.records import Finding


@dataclass(slots=True)
class Allowance:
    """A code, a prefix of one (``WN5``) or a rule's name, the reason, and how many findings it has excused."""

    pattern: str
    reason: str
    used: int = 0

    def fits(self, code: str, name: str) -> bool:
        """Whether a rule of this code and name is one of those that are allowed."""
        return code.startswith(self.pattern) or name == self.pattern


def allowance(pattern: object, reason: object) -> Allowance:
    """An allowance as the program states it; raises ``UsageError`` for a pattern that fits no rule, or no reason."""
    made = Allowance(pattern, "") if isinstance(pattern, str) and ALLOWABLE.fullmatch(pattern) else None
    known = (("WN000", "unexplained"), *((rule.code, rule.name) for rule in rules()))
    if made is None or not any(made.fits(code, name) for code, name in known):
        raise UsageError(
            f"allow({pattern!r}): no rule has this code or name",
            "give a rule's code, the start of one, or its name: allow('WN501', reason='...')",
        )
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"allow({pattern!r}) has no reason", "say why it is meant: allow(..., reason='...')")
    made.reason = reason
    return made


class Allowances:
    """The allowances whose blocks are open: those entered while no trace runs hold for the next."""

    def __init__(self) -> None:
        self.open: list[Allowance] = []

    @contextmanager
    def region(self, allowance: Allowance) -> Generator[Allowance]:
        """An allowance for as long as the block runs."""
        self.open.append(allowance)
        try:
            yield allowance
        finally:
            self.open.remove(allowance)


def numbered(allowance: Allowance, known: list[Allowance]) -> int:
    """The number of an allowance among those of a run; one of the same pattern and reason is the same."""
    for number, other in enumerate(known):
        if (other.pattern, other.reason) == (allowance.pattern, allowance.reason):
            return number
    known.append(Allowance(allowance.pattern, allowance.reason))
    return len(known) - 1


def recognised(finding: Finding) -> list[tuple[str, str]]:
    """Code and name of the rules that recognise a finding, that which explains it first.

    What is allowed by the rule of its operation stays so when a rule of what surrounds it explains it better.
    """
    names = {rule.code: rule.name for rule in rules()} if finding.matched else {}
    return [(finding.rule, finding.name), *((code, names.get(code, "")) for code in finding.matched)]


def excused(finding: Finding, allowances: list[Allowance], scope: Collection[int]) -> Finding:
    """The finding, marked where an allowance in whose scope it was born covers a rule that recognises it."""
    for number in scope:
        allowance = allowances[number]
        if any(allowance.fits(code, name) for code, name in recognised(finding)):
            allowance.used += 1
            return finding.model_copy(update={"allowed": allowance.reason, "severity": "info"})
    return finding
