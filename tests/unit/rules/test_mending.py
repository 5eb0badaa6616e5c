"""What a rule's page says of the fixes that are tried."""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.intents import fix_titles, guard, setting


def rule(*titles: str) -> Rule:
    """A rule with a guard of each title."""
    fixes = tuple(guard(title, "log(x)", f"log(x + {title})") for title in titles)
    return Rule("ACME201", "black-pixel", lambda _: None, fixes=fixes)


def test_a_page_lists_titles_and_kinds_best_first() -> None:
    found = Rule("ACME201", "black-pixel", lambda _: None, fixes=(guard("b", "log(x)", "x"), setting("eps=1e-4")))
    assert fix_titles(found) == ("b (guard)", "eps=1e-4 (setting)")


def test_a_title_that_several_fixes_have_stands_once() -> None:
    assert fix_titles(rule("1", "1", "2")) == ("1 (guard)", "2 (guard)")


def test_many_are_counted() -> None:
    assert fix_titles(rule(*"12345678"))[-2:] == ("6 (guard)", "and 2 more")


def test_a_rule_without_fixes_lists_none() -> None:
    assert fix_titles(rule()) == ()
