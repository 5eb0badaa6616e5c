"""What a function's names were, statement by statement, in a run that was made to tell."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Visit:
    """One time that a function came to the statement at ``line``: what its expressions were before it ran.

    ``values`` holds names and chains of attributes that were tensors (copies, detached; ``needs_grad`` names those that
    required grad), numbers, strings, booleans, None, or tuples and lists of these; what was anything else is missing.
    """

    line: int
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    needs_grad: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Visits:
    """All that was kept of one function of one file, in order of time; ``left_out`` by the budget of memory."""

    path: str
    sha256: str
    function: str | None
    visits: tuple[Visit, ...] = ()
    left_out: int = 0
