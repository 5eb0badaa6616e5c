"""From silent damage to findings: one where site, operation, phase and kind agree."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.records import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.traces import Silent


def silent_findings(silent: Iterable[Silent]) -> tuple[Finding, ...]:
    """Warnings of numbers that are finite and wrong; the first of those at one place stands for all of them."""
    first: dict[object, Finding] = {}
    for one in silent:
        key = _key(one)
        made = _finding(one)
        known = first.get(key)
        first[key] = made if known is None else _again(known, made)
    return tuple(first.values())


def _key(one: Silent) -> object:
    event, site = one.event, one.event.site
    # where nobody knows the line, two nodes or two tensors are two places
    place = (event.node, one.element.tensor) if site is None else (site.file, site.line, site.column, site.end_column)
    return place, event.library_site, event.op, event.phase, event.grad_fn, one.damage.kind, one.scope


def _again(known: Finding, made: Finding) -> Finding:
    return known.model_copy(
        update={
            "occurrences": known.occurrences + made.occurrences,
            "modules": tuple(dict.fromkeys((*known.modules, *made.modules))),
            "reaches": tuple(dict.fromkeys((*known.reaches, *made.reaches))),
        }
    )


def _finding(one: Silent) -> Finding:
    event = one.event
    return Finding(
        severity="warning",
        fate="damaging",
        birth=None,
        phase=event.phase,
        op=event.op,
        grad_fn=event.grad_fn,
        forward_op=event.forward_op,
        step=event.step,
        micro=event.micro,
        site=event.site,
        library_site=event.library_site,
        node=event.node,
        value=event.value,
        made_of=event.made_of,
        occurrences=one.occurrences,
        modules=tuple(one.modules),
        element=one.element,
        damage=one.damage,
        reaches=one.reaches,
        around=one.around,
    )
