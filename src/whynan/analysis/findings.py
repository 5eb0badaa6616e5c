"""Findings: one per root, folded where site, operation, phase and kind agree; of silent damage too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whynan.analysis.chains import chain, reaches, sink_links
from whynan.analysis.fates import Root, literal_sinks, roots
from whynan.records import Finding, Reach
from whynan.records.notes import sentence
from whynan.traces.facts import STILL_HELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Fate, Verdict
    from whynan.traces import Birth, Silent, Sink, Trace


# -- From silent damage to findings: one where site, operation, phase and kind agree -----------------------------------


def silent_findings(silent: Iterable[Silent]) -> tuple[Finding, ...]:
    """Warnings of numbers that are finite and wrong; the first of those at one place stands for all of them."""
    first: dict[object, Finding] = {}
    for one in silent:
        key = _damage_key(one)
        made = _damage_finding(one)
        known = first.get(key)
        first[key] = made if known is None else _merge_occurrence(known, made)
    return tuple(first.values())


def _damage_key(one: Silent) -> object:
    event, site = one.event, one.event.site
    # where nobody knows the line, two nodes or two tensors are two places
    place = (event.node, one.element.tensor) if site is None else (site.file, site.line, site.column, site.end_column)
    return place, event.library_site, event.op, event.phase, event.grad_fn, one.damage.kind, one.scope


def _merge_occurrence(known: Finding, made: Finding) -> Finding:
    return known.model_copy(
        update={
            "occurrences": known.occurrences + made.occurrences,
            "modules": tuple(dict.fromkeys((*known.modules, *made.modules))),
            "reaches": tuple(dict.fromkeys((*known.reaches, *made.reaches))),
        }
    )


def _damage_finding(one: Silent) -> Finding:
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


# -- From a trace to findings: one per root, folded where site, operation, phase and kind agree, worst first -----------


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a trace by fate, and the verdict that follows from them.

    ``silent`` damage is not in the verdict yet: it counts only where a rule knows it.
    """

    escaped: tuple[Finding, ...]
    damaging: tuple[Finding, ...]
    absorbed: tuple[Finding, ...]
    verdict: Verdict
    births: tuple[Birth, ...]
    silent: tuple[Finding, ...] = ()


def judge_births(trace: Trace) -> Findings:
    """Judge every birth of a trace."""
    by_label = {b.label: b for b in trace.births}
    judged = [(root, _judge(root)) for root in roots(trace)]
    made: dict[Fate, list[tuple[Root, Finding]]] = {"escaped": [], "damaging": [], "absorbed": []}
    told = {_event_key(root) for root, (fate, _) in judged if fate == "escaped"}
    for root, (fate, sinks) in judged:
        if root.birth.label_kind == "literal" and fate != "escaped":
            continue
        if fate == "absorbed" and _event_key(root) in told:
            # other elements of that event escaped, and their finding counts these
            continue
        severity = _severity(fate, sinks, fatal_seen=trace.fatal_seen)
        made[fate].append((root, _finding(root, fate, severity, sinks, by_label)))
    escaped = sorted(made["escaped"], key=_severity_order)
    errors = any(f.severity == "error" for _, f in escaped)
    warnings = bool(escaped or made["damaging"])
    return Findings(
        escaped=_deduplicate(escaped),
        damaging=_deduplicate(made["damaging"]),
        absorbed=_deduplicate(made["absorbed"]),
        verdict=_verdict(trace, errors=errors, warnings=warnings),
        births=tuple(root.birth for root, _ in escaped),
        silent=silent_findings(trace.silent),
    )


def _event_key(root: Root) -> tuple[object, ...]:
    """The event of a birth, and which of its outputs and kinds."""
    birth, element = root.birth, root.birth.element
    return birth.label_kind, birth.event.ordinal, birth.kind, element.output, element.list_index, element.tensor


def _judge(root: Root) -> tuple[Fate, list[Sink]]:
    """The fate of a root and the sinks that decide it; a literal that merely leaves is no finding."""
    if root.birth.label_kind == "literal":
        sinks = literal_sinks(root)
        return ("escaped", sinks) if sinks else ("absorbed", [])
    if root.fatal or root.observed:
        # what merely still holds the value is worth a word only where nothing worse is known
        seen = [s for s in root.observed if not (root.fatal and s.name == STILL_HELD)]
        return "escaped", [*root.fatal, *seen]
    return root.fate, root.damaged


def _severity_order(pair: tuple[Root, Finding]) -> tuple[bool, bool, int]:
    """Worst first: fatal before observed, what was born before what the program writes itself, then by time."""
    root, finding = pair
    return finding.severity != "error", finding.birth == "literal", root.birth.event.ordinal


def _severity(fate: Fate, sinks: list[Sink], *, fatal_seen: bool) -> str:
    if fate == "damaging":
        return "warning"
    if fate == "absorbed":
        return "info"
    return "error" if any(s.fatal for s in sinks) or not fatal_seen else "warning"


def _finding(root: Root, fate: Fate, severity: str, sinks: list[Sink], by_label: dict[int, Birth]) -> Finding:
    birth = root.birth
    event = birth.event
    causes = _sources(birth, by_label)
    return Finding.model_validate(
        {
            "severity": severity,
            "fate": fate,
            "birth": birth.kind,
            "phase": event.phase,
            "op": event.op,
            "grad_fn": event.grad_fn,
            "forward_op": event.forward_op,
            "step": event.step,
            "micro": event.micro,
            "site": event.site,
            "library_site": event.library_site,
            "node": event.node,
            "value": event.value,
            "made_of": event.made_of,
            "occurrences": birth.occurrences,
            "modules": tuple(birth.modules),
            "element": birth.element,
            "data": next((b.data for b in (birth, *causes) if b.data is not None), None),
            "forward_operands": birth.forward_operands,
            "origin": birth.note,
            "message": "" if birth.note is None else sentence(birth.note),
            "chain": chain(birth, causes, sinks, root.also),
            "reaches": reaches(sinks),
            "scale_fall": next((s.scale_fall for s in sinks if s.scale_fall is not None), None),
            "around": birth.around,
        }
    )


def _sources(birth: Birth, by_label: dict[int, Birth], known: frozenset[int] = frozenset()) -> list[Birth]:
    """What a birth was made from; of a literal that is named after what read it, where it was written."""
    found: dict[int, Birth] = {}
    for label in sorted(birth.causes - known):
        cause = by_label.get(label)
        if cause is not None:
            written = _sources(cause, by_label, known | {label}) if cause.label_kind == "literal" else []
            found |= {b.label: b for b in written or [cause]}
    return list(found.values())


def _deduplicate(findings: list[tuple[Root, Finding]]) -> tuple[Finding, ...]:
    """Roots equal in site, operation, phase and kind are one finding with a count and a list of modules."""
    first: dict[object, Finding] = {}
    events: dict[object, set[int]] = {}
    same: dict[object, list[Root]] = {}
    for root, finding in findings:
        site = finding.site
        place = (
            _strip_iterations(finding.node) if site is None else (site.file, site.line, site.column, site.end_column)
        )
        inner = finding.library_site
        library = None if inner is None else (inner.file, inner.line, inner.column)
        what = (finding.op, finding.phase, finding.birth, finding.grad_fn)
        key = (place, library, what, root.birth.note, root.birth.scope)
        known = first.get(key)
        same.setdefault(key, []).append(root)
        if known is None:
            first[key] = finding
            events[key] = {root.birth.event.ordinal}
            continue
        # several outputs of one event are one occurrence
        again = 0 if root.birth.event.ordinal in events[key] else finding.occurrences
        events[key].add(root.birth.event.ordinal)
        first[key] = known.model_copy(
            update={
                "occurrences": known.occurrences + again,
                "modules": tuple(dict.fromkeys((*known.modules, *finding.modules))),
            }
        )
    for key, roots_of_one in same.items():
        if len(roots_of_one) > 1:
            reached = _merged_reaches(roots_of_one)
            way = (link for link in first[key].chain if link.role != "sink" or link.site is not None)
            first[key] = first[key].model_copy(update={"reaches": reached, "chain": (*way, *sink_links(reached))})
    return tuple(first.values())


def _strip_iterations(node: str | None) -> str | None:
    """The way to a node through the bodies of an ONNX model, without the numbers of their iterations."""
    return None if node is None else re.sub(r"\[\d+\]/", "/", node)


def _merged_reaches(some: list[Root]) -> tuple[Reach, ...]:
    """What several roots reached together, each element counted once."""
    labels = frozenset(label for root in some for label in (root.birth.label, *root.folded))
    sinks = [sink.with_labels(labels) for root in some for sink in _judge(root)[1]]
    return reaches(sinks)


def _verdict(trace: Trace, *, errors: bool, warnings: bool) -> Verdict:
    if errors:
        return "nonfinite"
    if any(s.fatal for s in trace.unexplained) or (trace.failed and not warnings):
        return "inconclusive"
    return "damaged" if warnings else "clean"
