"""The totals of the tests of rules, printed at the end of a run: what each test notes travels with its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from whynan.records import Report
from whynan.rules.catalogue import distribution, rules

BIRTHS = "births of rules"
_KINDS = {"test_it_says_what_happened": "triggers", "test_the_healthy_twin": "healthy twins"}


class Outcome(Protocol):
    """What of a test's report is read."""

    nodeid: str
    outcome: str
    when: str
    user_properties: list[tuple[str, Any]]


def noted(report: Report) -> tuple[str, list[int]]:
    """Of a report how many births it tells of, and how many of them a rule explains."""
    told = (*report.findings, *report.damaging)
    return BIRTHS, [len(told), sum(finding.rule != "WN000" for finding in told)]


def lines(outcomes: Iterable[Outcome]) -> list[str]:
    """The totals of those that have passed; nothing where none of them tests a rule."""
    seen: Counter[str] = Counter()
    births, explained = 0, 0
    for outcome in outcomes:
        if outcome.when != "call" or outcome.outcome != "passed":
            continue
        for key, value in outcome.user_properties:
            if key == BIRTHS:
                births, explained = births + value[0], explained + value[1]
        if (kind := _kind(outcome.nodeid)) is not None:
            seen[kind] += 1
    if not seen:
        return []
    share = f", {explained / births:.1%}" if births else ""
    return [
        f"rules {sum(distribution(rule.code) is None for rule in rules())}",
        *(f"{kind} {seen[kind]}" for kind in ("triggers", "healthy twins", "ONNX forms")),
        f"births explained by a rule {explained}/{births}{share}",
    ]


def _kind(nodeid: str) -> str | None:
    """What a test of a rule is, by its name."""
    file, _, name = nodeid.partition("::")
    if "tests/rules/" not in file:
        return None
    found = next((kind for start, kind in _KINDS.items() if name.startswith(start)), None)
    return "ONNX forms" if found == "triggers" and "/test_onnx_" in file else found
