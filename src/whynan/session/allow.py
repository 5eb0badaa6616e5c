"""What is meant: findings that the user allows, by code, name or family."""

# pyright: strict

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.records import Finding


@dataclass(slots=True)
class Allowance:
    """A code, a prefix of one (``WN5``) or a rule's name, the reason, and what it has excused."""

    pattern: str
    reason: str
    start: int | None = None
    end: int | None = None
    used: int = 0

    def covers(self, finding: Finding, ordinal: int | None) -> bool:
        """Whether a finding is allowed: by its rule, and inside the region where one is set."""
        inside = (
            self.start is None
            or ordinal is None
            or (self.start <= ordinal and (self.end is None or ordinal < self.end))
        )
        return inside and (finding.rule.startswith(self.pattern) or finding.name == self.pattern)


class Allowances:
    """The allowances of the running trace; those entered while none runs hold for the next."""

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
