"""An edit that is no expression: of a constant, or of the dtype that some nodes compute in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.fixes.graph.editing import Edit
    from whynan.records.intents import FixKind


@dataclass(frozen=True, slots=True)
class Special:
    """What was edited, what the edited part reads and gives, and how it reads before and after."""

    title: str
    kind: FixKind
    edit: Edit
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    patch: str
