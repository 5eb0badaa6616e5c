"""Reading silent damage: what kind it is, of how much, and what the element was before."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.records import Damage, DamageKind, Finding, Operand


def damage_of(finding: Finding, kind: DamageKind) -> Damage | None:
    """The damage of a finding, if it is of this kind."""
    return finding.damage if finding.damage is not None and finding.damage.kind == kind else None


def source(finding: Finding) -> Operand | None:
    """What the element was before; None where that is not known."""
    return finding.element.operands[0] if finding.element.operands else None


def was(finding: Finding) -> float | None:
    """The value of the element before; None where that is not known."""
    found = source(finding)
    known = None if found is None else found.value
    return float(known) if isinstance(known, (int, float)) else None


def share(damage: Damage) -> str:
    """``47 of 100 values (47%)``."""
    if damage.concerned >= damage.total:
        return f"all {damage.total:,} values" if damage.total > 1 else "the value"
    return f"{damage.concerned:,} of {damage.total:,} values ({100 * damage.concerned / damage.total:.3g}%)"


def others(damage: Damage) -> str:
    """``, and so are 3 more of 100``; nothing for one."""
    more = damage.concerned - 1
    return f", as {'is' if more == 1 else 'are'} {more:,} more of {damage.total:,}" if more else ""
