"""The registry of rules, of this package and of plug-ins; the most specific that recognises a birth explains it."""

# pyright: strict

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Final

import whynan.rules
from whynan.errors import UsageError
from whynan.rules.base import OUTCOME, Mode, Reading, Rule
from whynan.rules.families import families
from whynan.rules.page import Page, read
from whynan.rules.plugins import Entry, plugins
from whynan.rules.scale import in_vain
from whynan.rules.selection import also_left_out
from whynan.rules.underflow import underflow
from whynan.rules.unexplained import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.records import Finding


_NEAR: Final = 3
_UNEXPLAINED: Final = ("wn000", "unexplained")


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(entry.rule for entry in _entries().values())


@cache
def _entries() -> dict[str, Entry]:
    """Every rule and its page, by code."""
    modules = [module.name for module in pkgutil.iter_modules(whynan.rules.__path__) if module.name.startswith("wn")]
    loaded = [importlib.import_module(f"whynan.rules.{name}") for name in modules]
    found = [Entry(module.RULE, module.__doc__ or "") for module in loaded]
    found += plugins([entry.rule for entry in found])
    return {entry.rule.code: entry for entry in sorted(found, key=lambda entry: entry.rule.code)}


def forget() -> None:
    """Discover the rules again when they are next asked for: something was installed."""
    _entries.cache_clear()
    rules.cache_clear()


def distribution(code: str) -> str | None:
    """The distribution that has a rule; None for whynan's own; raises ``KeyError`` for an unknown code."""
    return _entries()[code].distribution


def page(code: str) -> str:
    """The page of a rule: its module's docstring; raises ``KeyError`` for an unknown code."""
    return _entries()[code].page


def parsed(code: str) -> Page:
    """The page of a rule by sections, with its examples; raises ``KeyError`` for an unknown code."""
    return read(page(code))


def called(wanted: str) -> Rule | tuple[Rule, ...]:
    """The rule of a code or a name, or the rules of a family; letters may be small.

    Raises ``UsageError`` with what is nearest for anything else.
    """
    low = wanted.lower()
    for rule in rules():
        if low in (rule.code.lower(), rule.name):
            return rule
    if low in _UNEXPLAINED:
        raise UsageError("WN000 is no rule", "it stands where no rule explains a birth; the report has all its facts")
    held = tuple(rule for rule in rules() if low.upper() in families(rule))
    if not held:
        raise UsageError(f"no rule is called {wanted!r}", _nearest(low))
    return held


def names() -> tuple[str, ...]:
    """What ``called`` takes: families, codes and names, each once."""
    starts = dict.fromkeys(start for rule in rules() for start in families(rule))
    return (*sorted(starts), *(rule.code for rule in rules()), *(rule.name for rule in rules()))


def _nearest(low: str) -> str:
    # a long text is no name with a slip in it, and comparing it takes its time
    known = {name.lower(): name for name in names()}
    near = [known[name] for name in difflib.get_close_matches(low, known, _NEAR, 0.5)] if len(low) <= 80 else []
    return f"did you mean {_either(near)}?" if near else "whynan rules lists them all"


def _either(near: list[str]) -> str:
    return " or ".join([", ".join(near[:-1]), near[-1]] if len(near) > 1 else near)


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
