"""The totals count what passed, by what it is, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

import whynan
from tests.rules.totals import lines, noted
from whynan.rules.catalogue import rules


@dataclass
class Told:
    nodeid: str
    outcome: str = "passed"
    when: str = "call"
    user_properties: list[tuple[str, Any]] = field(default_factory=list)


def test_each_kind_of_test_is_counted_once_it_has_passed() -> None:
    report = whynan.explain(lambda: torch.zeros(2).log())
    told = [
        Told("tests/rules/test_wn201.py::test_it_says_what_happened[a]", user_properties=[noted(report)]),
        Told("tests/rules/test_wn201.py::test_it_says_what_happened[a]", when="setup"),
        Told("tests/rules/test_wn201.py::test_it_says_what_happened[b]", outcome="failed"),
        Told("tests/rules/test_wn201.py::test_the_healthy_twin_is_clean[c]"),
        Told("tests/rules/test_onnx_hazards.py::test_it_says_what_happened[d]"),
        Told("tests/rules/test_onnx_hazards.py::test_the_healthy_twin_has_no_finding[d]"),
        Told("tests/unit/test_config.py::test_it_says_what_happened[e]"),
    ]
    assert lines(told) == [
        f"rules {len(rules())}",
        "triggers 1",
        "healthy twins 2",
        "ONNX forms 1",
        "births explained by a rule 1/1, 100.0%",
    ]


def test_what_no_rule_explains_lowers_the_share() -> None:
    report = whynan.explain(lambda: torch.zeros(2).log())
    unexplained = report.model_copy(update={"findings": (report.findings[0].model_copy(update={"rule": "WN000"}),)})
    told = [Told("tests/rules/test_wn201.py::test_it_says_what_happened", user_properties=[noted(unexplained)])]
    assert lines(told)[-1] == "births explained by a rule 0/1, 0.0%"


def test_a_run_without_tests_of_rules_has_no_totals() -> None:
    assert lines([Told("tests/unit/test_config.py::test_it_reads")]) == []
