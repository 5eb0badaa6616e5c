"""A rule is tested on a program that runs into its hazard, and on the one that its page recommends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import whynan

Program = Callable[[], object]


@pytest.fixture
def first() -> Callable[[Program], dict[str, str]]:
    """What the first finding of a program says."""

    def read(program: Program) -> dict[str, str]:
        report = whynan.explain(program)
        assert report.verdict == "nonfinite", report
        finding = report.findings[0]
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
