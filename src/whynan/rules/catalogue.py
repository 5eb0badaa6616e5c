"""All rules, discovered in this package; the most specific one that recognises a birth explains it."""

# pyright: strict

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

import whynan.rules
from whynan.floats import format_value
from whynan.rules.base import Rule
from whynan.rules.facts import given

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


def explain(finding: Finding) -> Finding:
    """The finding with rule, message and explanation; what no rule explains is WN000, with all its facts."""
    matches = [(made, rule) for rule in rules() if (made := rule.match(finding)) is not None]
    if not matches:
        return finding.model_copy(update={"message": facts(finding), "explanation": unknown(finding)})
    matches.sort(key=lambda m: -m[0].specificity)
    best, rule = matches[0]
    return finding.model_copy(
        update={
            "rule": rule.code,
            "name": rule.name,
            "message": best.message,
            "explanation": best.explanation,
            "matched": tuple(r.code for _, r in matches[1:]),
        }
    )


def facts(finding: Finding) -> str:
    """The sentence of a birth that no rule explains: operation, operands, result."""
    operands = given(finding)
    result = format_value(finding.element.value)
    of = f" of {operands}" if operands else ""
    return f"{finding.op or 'a value that entered'}{of} gives {result}"


def unknown(finding: Finding) -> str:
    """What is not known of a birth that no rule explains."""
    gone = [o.expression or o.name for o in finding.element.operands if o.value is None and o.origin == "gone"]
    text = "No rule of this version explains this birth; its facts are above."
    if gone:
        plural = "values of" if len(gone) > 1 else "value of"
        text += f" The {plural} {' and '.join(gone)} was overwritten or freed: explain(..., rerun=True) may recover it."
    return text
