"""Plug-ins: the rules of other distributions, whose modules are named by entry points of the group ``whynan.rules``.

What a distribution has may be broken. Then a warning names it, and the rest goes on without that rule.
"""

# pyright: strict

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.rules.base import Explanation, Rule
from whynan.rules.families import CODE, FAMILIES, NAME
from whynan.rules.page import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.records import Finding


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule, the docstring that is its page, and the distribution that has it; None for whynan's own."""

    rule: Rule
    page: str
    distribution: str | None = None


def plugins(own: Iterable[Rule]) -> list[Entry]:
    """The rules of installed distributions, whose codes and names are neither those of `own` nor of each other."""
    owners = {key: "whynan" for rule in own for key in (rule.code, rule.name)}
    found: list[Entry] = []
    for distribution, point in _points():
        try:
            entry = _load(point, distribution)
            keys = entry.rule.code, entry.rule.name
            for key in keys:
                if key in owners:
                    raise ValueError(f"{key} is a rule of {owners[key]} already")
        except (Exception, SystemExit) as error:
            _warn(f"whynan leaves out rules of {distribution}", f"{point.name} ({type(error).__name__}: {error})")
            continue
        owners |= dict.fromkeys(keys, distribution)
        found.append(entry)
    return found


def _points() -> list[tuple[str, metadata.EntryPoint]]:
    """The entry points by the name of their distribution, which stands before each."""
    try:
        points = metadata.entry_points(group="whynan.rules")
        named = [(f"{p.dist.name} {p.dist.version}" if p.dist else "a distribution without a name", p) for p in points]
        return sorted(named, key=lambda one: (one[0], one[1].name))
    except Exception as error:
        _warn("whynan leaves out all rules of other distributions", f"{type(error).__name__}: {error}")
        return []


def _load(point: metadata.EntryPoint, distribution: str) -> Entry:
    """The rule of a module; raises ``TypeError`` or ``ValueError`` for anything else, and what the import raises."""
    module = point.load()
    rule: object = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        raise TypeError(f"{point.value} is no module with a RULE")
    code = CODE.fullmatch(rule.code)
    if code is None or code["letters"] == "WN":
        raise ValueError(
            f"{rule.code!r} is no code for it: two to eight capital letters, not WN, a digit or X, two digits"
        )
    if not NAME.fullmatch(rule.name):
        raise ValueError(f"{rule.name!r} is no name: small letters and digits, in words with hyphens")
    if unknown := [start for start in rule.also if start[-1:] not in FAMILIES]:
        raise ValueError(f"{unknown[0]!r} is no family")
    page: str = module.__doc__ or ""
    if not read(page).summary.startswith(f"{rule.code} {rule.name}: "):
        raise ValueError(f"its page does not begin with '{rule.code} {rule.name}: '")
    return Entry(replace(rule, match=_guarded(rule, distribution)), page, distribution)


def _guarded(rule: Rule, distribution: str) -> Callable[[Finding], Explanation | None]:
    """The function of a rule, which recognises nothing any more once it has failed."""
    failed = False

    def match(finding: Finding) -> Explanation | None:
        nonlocal failed
        try:
            return None if failed else _checked(rule.match(finding))
        except Exception as error:
            failed = True
            _warn(
                f"whynan goes on without {rule.code} of {distribution}, which failed",
                f"{type(error).__name__}: {error}",
            )
            return None

    return match


def _checked(found: object) -> Explanation | None:
    """What a rule has made; raises ``TypeError`` where that is no explanation."""
    if found is None:
        return None
    if isinstance(found, Explanation):
        texts = found.message, found.explanation
        if all(type(text) is str for text in texts) and type(found.specificity) is int:
            return found
    raise TypeError(f"{found!r} is no explanation")


def _warn(what: str, why: str) -> None:
    # names and texts come from strangers: as harmless, and as short, as in an error's line
    line = str(UsageError(what, why))
    try:
        warnings.warn(line, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        # where warnings are errors (-W error, pytest's filterwarnings) this one would take the run down
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.warn(line, RuntimeWarning, stacklevel=2)
