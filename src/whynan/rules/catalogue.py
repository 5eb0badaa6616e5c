"""All rules, discovered in this package; the most specific one that recognises a birth explains it."""

# pyright: strict

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

import whynan.rules
from whynan.rules.base import Rule
from whynan.rules.page import Page, read
from whynan.rules.underflow import underflow
from whynan.rules.unexplained import facts_of

if TYPE_CHECKING:
    from whynan.records import Finding


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    found: list[Rule] = []
    for module in pkgutil.iter_modules(whynan.rules.__path__):
        if module.name.startswith("wn"):
            rule = importlib.import_module(f"whynan.rules.{module.name}").RULE
            assert isinstance(rule, Rule)
            found.append(rule)
    return tuple(sorted(found, key=lambda r: r.code))


def page(code: str) -> str:
    """The page of a rule: its module's docstring; raises ``KeyError`` for an unknown code."""
    for module in pkgutil.iter_modules(whynan.rules.__path__):
        if module.name.startswith(code.lower() + "_"):
            return importlib.import_module(f"whynan.rules.{module.name}").__doc__ or ""
    raise KeyError(code)


def parsed(code: str) -> Page:
    """The page of a rule by sections, with its examples; raises ``KeyError`` for an unknown code."""
    return read(page(code))


def explain(finding: Finding) -> Finding:
    """The finding with rule, message and explanation; what no rule explains is WN000, with all its facts."""
    matches = [(made, rule) for rule in rules() if (made := rule.match(finding)) is not None]
    if not matches:
        message, explanation = facts_of(finding)
        return finding.model_copy(update={"message": message, "explanation": explanation})
    # sorting is stable: of equally specific rules the one with the lower code speaks
    matches.sort(key=lambda m: -m[0].specificity)
    best, rule = matches[0]
    return finding.model_copy(
        update={
            "rule": rule.code,
            "name": rule.name,
            "message": best.message,
            "explanation": best.explanation + underflow(finding),
            "matched": tuple(r.code for _, r in matches[1:]),
        }
    )
