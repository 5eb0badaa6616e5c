"""All rules, of this package and of installed distributions; the most specific that recognises a birth explains it."""

# pyright: strict

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

import whynan.rules
from whynan.rules.base import OUTCOME, Mode, Reading, Rule
from whynan.rules.page import Page, read
from whynan.rules.plugins import Held, brought
from whynan.rules.scale import in_vain
from whynan.rules.selection import also_left_out
from whynan.rules.underflow import underflow
from whynan.rules.unexplained import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Finding


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(held.rule for held in _held().values())


@cache
def _held() -> dict[str, Held]:
    """Every rule and its page, by code."""
    found: list[Held] = []
    for module in pkgutil.iter_modules(whynan.rules.__path__):
        if module.name.startswith("wn"):
            loaded = importlib.import_module(f"whynan.rules.{module.name}")
            assert isinstance(loaded.RULE, Rule)
            found.append(Held(loaded.RULE, loaded.__doc__ or ""))
    found += brought([held.rule for held in found])
    return {held.rule.code: held for held in sorted(found, key=lambda held: held.rule.code)}


def forget() -> None:
    """Discover the rules again when they are next asked for: something was installed."""
    _held.cache_clear()
    rules.cache_clear()


def distribution(code: str) -> str | None:
    """The distribution that brings a rule; None for whynan's own; raises ``KeyError`` for an unknown code."""
    return _held()[code].distribution


def page(code: str) -> str:
    """The page of a rule: its module's docstring; raises ``KeyError`` for an unknown code."""
    return _held()[code].doc


def parsed(code: str) -> Page:
    """The page of a rule by sections, with its examples; raises ``KeyError`` for an unknown code."""
    return read(page(code))


def readings(mode: Mode, allowed: Iterable[str] = ()) -> frozenset[Reading]:
    """What the rules of silent damage that are live in a mode have to be read for them.

    `allowed`: codes, starts of codes and names of what is meant in the whole run, for which nothing is read.
    """
    meant = tuple(allowed)
    asked = (rule for rule in rules() if mode in rule.modes)
    wanted = (rule for rule in asked if not any(rule.code.startswith(m) or rule.name == m for m in meant))
    return frozenset(reading for rule in wanted for reading in rule.reads)


def explain(finding: Finding) -> Finding:
    """The finding with rule, message and explanation; what no rule explains is WN000, with all its facts.

    What is around it has been told then, and is let go of. Silent damage that no rule knows is no finding: WN000 with
    nothing said.
    """
    silent = finding.damage is not None
    asked = (rule for rule in rules() if bool(rule.reads) == silent)
    matches = [(made, rule) for rule in asked if (made := rule.match(finding)) is not None]
    if not matches and silent:
        return finding.model_copy(update={"around": None})
    if not matches:
        message, explanation = facts_of(finding)
        return finding.model_copy(update={"message": message, "explanation": explanation, "around": None})
    # sorting is stable: of equally specific rules the one with the lower code speaks
    matches.sort(key=lambda m: -m[0].specificity)
    best, rule = matches[0]
    return finding.model_copy(
        update={
            "rule": rule.code,
            "name": rule.name,
            "message": best.message,
            "explanation": best.explanation
            + underflow(finding)
            + also_left_out(finding, rule.code)
            + (in_vain(finding) if best.specificity > OUTCOME else ""),
            "matched": tuple(r.code for _, r in matches[1:]),
            "around": None,
        }
    )
