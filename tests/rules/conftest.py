"""A rule is tested on a program that runs into its hazard, and on the one that its page recommends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import whynan
from tests.rules.totals import noted
from whynan import Report

Program = Callable[[], object]


@pytest.fixture
def explained(request: pytest.FixtureRequest) -> Callable[[Program], Report]:
    """What whynan says of a program, counted among the totals."""

    def read(program: Program) -> Report:
        report = whynan.explain(program)
        request.node.user_properties.append(noted(report))
        return report

    return read


@pytest.fixture
def first(explained: Callable[[Program], Report]) -> Callable[[Program], dict[str, str]]:
    """What the first finding of a program says."""

    def read(program: Program) -> dict[str, str]:
        report = explained(program)
        assert report.verdict == "nonfinite", report
        finding = report.findings[0]
        return {key: getattr(finding, key) for key in ("rule", "name", "message", "explanation")}

    return read


@pytest.fixture
def warned() -> Callable[[Program], dict[str, str]]:
    """What the first warning of a program in which nothing bad was born says."""

    def read(program: Program) -> dict[str, str]:
        torch.manual_seed(0)
        report = whynan.explain(program)
        assert report.verdict == "damaged", report
        finding = report.damaging[0]
        assert (finding.severity, finding.birth) == ("warning", None)
        return {key: getattr(finding, key) for key in ("rule", "name", "message", "explanation")}

    return read


@pytest.fixture
def saying(first: Callable[[Program], dict[str, str]]) -> Callable[[Program, str], list[str]]:
    """The messages of a rule among all findings of a program."""

    def read(program: Program, rule: str) -> list[str]:
        return [f.message for f in whynan.explain(program).findings if f.rule == rule]

    return read


@pytest.fixture
def clean() -> Callable[[Program], bool]:
    """Whether a program has nothing to report."""

    def read(program: Program) -> bool:
        report = whynan.explain(program)
        assert report.verdict == "clean", report
        return True

    return read
