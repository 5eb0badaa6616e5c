"""The families of rules: what the character behind the letters of a code stands for."""

# pyright: strict

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from whynan.rules.base import Rule

FAMILIES: Final = {
    "0": "data and memory",
    "1": "division and normalisation",
    "2": "logarithm and exponential",
    "3": "roots and powers",
    "4": "angles and inverse functions",
    "5": "softmax, attention and masks",
    "6": "reductions and statistics",
    "7": "precision",
    "8": "training loop",
    "9": "linear algebra",
    "X": "export and runtime",
}
"""What each family is about, by its character."""

CODE: Final = re.compile(r"(?P<letters>[A-Z]{2,8})(?P<family>[0-9X])[0-9]{2}")
"""A whole code: whose rule it is (``WN``: whynan's own), its family, and its number there."""
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""A name: the pattern, in words with hyphens."""


def family(code: str) -> str:
    """The start of a code that all of its family share: ``WN2``; raises ``ValueError`` for what is no code."""
    found = CODE.fullmatch(code)
    if found is None:
        raise ValueError(f"{code!r} is no code: two to eight capital letters, a digit or X, two digits")
    return f"{found['letters']}{found['family']}"


def title(family: str) -> str:
    """What a family is about: ``WN2`` is logarithm and exponential."""
    return FAMILIES[family[-1]]


def families(rule: Rule) -> tuple[str, ...]:
    """The family of a rule's code first, then those that it belongs to as well."""
    return (family(rule.code), *rule.also)
