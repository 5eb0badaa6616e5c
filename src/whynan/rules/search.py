"""Rules by what a user calls them: a code, a name, or the start of a code."""

# pyright: strict

from __future__ import annotations

import difflib
from typing import Final

from whynan.errors import UsageError
from whynan.rules.base import Rule
from whynan.rules.catalogue import rules
from whynan.rules.families import families

_NEAR: Final = 3
_UNEXPLAINED: Final = ("wn000", "unexplained")


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
