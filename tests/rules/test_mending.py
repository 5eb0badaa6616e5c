"""What is said to mend a hazard does: it is finite where the hazard is not, and the same where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.evaluating import names, operator
from tests.rules.operands import OPERANDS
from tests.rules.trying import dtypes_of, tried
from whynan.records.intents import FixIntent
from whynan.rules.catalogue import rules

WITHOUT = {"WN001", "WN002", "WN003", "WN004", "WN108", "WN119", "WN810"}
"""Rules of data, of memory, of what a program writes on purpose, and of what became of a birth of another rule."""
FIXES = [(rule.code, fix) for rule in rules() for fix in rule.fixes if fix.kind != "setting"]
TRIED = [
    pytest.param(rule.code, fix, dtype, id=f"{rule.code}-{i}-{dtype}")
    for rule in rules()
    for i, fix in enumerate(rule.fixes)
    if fix.kind != "setting" and not rule.reads
    for dtype in dtypes_of(fix)
]


def intent(code: str, pattern: str) -> FixIntent:
    """The first fix of a rule that looks for an expression."""
    return next(fix for owner, fix in FIXES if owner == code and fix.pattern == pattern)


def test_every_rule_says_what_mends_it_but_those_of_what_no_expression_can() -> None:
    assert {rule.code for rule in rules() if not rule.fixes} == WITHOUT


@pytest.mark.parametrize(("code", "fix"), FIXES, ids=[f"{code}-{fix.title}" for code, fix in FIXES])
def test_both_expressions_are_of_the_language(code: str, fix: FixIntent) -> None:
    called, variables = names(fix.pattern)
    made, read = names(fix.replacement)
    for name in called | made:
        operator(name)
    assert read <= variables
    assert fix.pattern != fix.replacement


def test_a_setting_has_no_expression_and_an_argument() -> None:
    settings = [fix for rule in rules() for fix in rule.fixes if fix.kind == "setting"]
    assert settings
    assert not any(fix.pattern or fix.replacement for fix in settings)


def test_no_rule_says_the_same_twice() -> None:
    for rule in rules():
        pairs = [(fix.pattern, fix.replacement) for fix in rule.fixes if fix.kind != "setting"]
        assert len(pairs) == len(set(pairs)), rule.code


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "fix", "dtype"), TRIED)
def test_it_mends_and_keeps(code: str, fix: FixIntent, dtype: str) -> None:
    assert tried(code, fix, dtype) == []


def test_all_operands_are_used() -> None:
    used = {f"{code} {fix.pattern}" for code, fix in FIXES} | {fix.pattern for _, fix in FIXES}
    assert set(OPERANDS) - used == set()


@pytest.mark.parametrize(
    ("code", "pattern", "wrong", "said"),
    [
        ("WN206", "log(softmax(x, d))", "log(softmax(x, d) + 1e-6)", "invented value"),
        ("WN206", "log(softmax(x, d))", "log_softmax(detach(x), d)", "none any more"),
        ("WN206", "log(softmax(x, d))", "clamp(log(softmax(x, d)), min=-100)", "not finite"),
        ("WN207", "log(sigmoid(x))", "0 * x", "invented value"),
        ("WN210", "x * log(x)", "xlogy(x, x)", "not finite"),
        ("WN301", "sqrt(x)", "sqrt(clamp(x, min=0))", "not finite"),
        ("WN301", "sqrt(x)", "sqrt(x + 1e-6)", "became"),
        ("WN401", "atan2(y, x)", "atan2(y, x + 1e-7)", "invented value"),
        ("WN402", "acos(x)", "acos(clamp(x, min=-1 + 1e-4, max=1 - 1e-4))", "invented value"),
        ("WN101", "a / b", "a / (b + 1e-6)", "became"),
    ],
)
def test_what_does_not_mend_is_found(code: str, pattern: str, wrong: str, said: str) -> None:
    planted = replace(intent(code, pattern), replacement=wrong)
    assert any(said in line for line in tried(code, planted, "float32"))
