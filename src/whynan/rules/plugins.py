"""Rules of other distributions: modules named by entry points of the group ``whynan.rules``.

What a distribution brings may be broken. Then one warning names it, and the rest goes on without its rules.
"""

# pyright: strict

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Final

from whynan.errors import UsageError
from whynan.rules.base import Explanation, Rule
from whynan.rules.families import CODE, FAMILIES, NAME
from whynan.rules.page import read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from whynan.records import Finding

GROUP: Final = "whynan.rules"
"""The group of entry points, each of which names the module of one rule."""


@dataclass(frozen=True, slots=True)
class Held:
    """A rule, the docstring that is its page, and the distribution that brings it; None for whynan's own."""

    rule: Rule
    doc: str
    distribution: str | None = None


def brought(taken: Collection[Rule]) -> list[Held]:
    """The rules that installed distributions bring, beside those whose codes and names are taken."""
    owners = {key: "whynan" for rule in taken for key in (rule.code, rule.name)}
    found: list[Held] = []
    for distribution, points in _offers():
        wrong: list[str] = []
        for point in points:
            try:
                held = _loaded(point, distribution)
                _refuse_taken(held.rule, owners)
            except (Exception, SystemExit) as error:
                wrong.append(f"{point.name} ({type(error).__name__}: {error})")
                continue
            owners |= {held.rule.code: distribution, held.rule.name: distribution}
            found.append(held)
        if wrong:
            _warn(f"whynan leaves out rules of {distribution}", "; ".join(wrong))
    return found


def _offers() -> Iterator[tuple[str, list[metadata.EntryPoint]]]:
    """The distributions that have rules, by name, with their entry points; of two of one name the first on the path."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for distribution in metadata.distributions():
        try:
            points = list(distribution.entry_points.select(group=GROUP))
        except Exception:  # whose metadata nobody can read: it need not be one that has rules
            continue
        if points:
            found.setdefault(_name(distribution), points)
    for name in sorted(found):
        yield name, sorted(found[name], key=lambda point: point.name)


def _name(distribution: metadata.Distribution) -> str:
    try:
        return f"{distribution.metadata['Name']} {distribution.version}"
    except Exception:
        return "a distribution without a name"


def _loaded(point: metadata.EntryPoint, distribution: str) -> Held:
    """The rule of a module; raises ``TypeError`` or ``ValueError`` for anything else, and what the import raises."""
    module = point.load()
    rule: object = getattr(module, "RULE", None)
    if not isinstance(module, ModuleType) or not isinstance(rule, Rule):
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
    doc = module.__doc__ or ""
    if not read(doc).summary.startswith(f"{rule.code} {rule.name}: "):
        raise ValueError(f"its page does not begin with '{rule.code} {rule.name}: '")
    return Held(replace(rule, match=_Guarded(rule, distribution)), doc, distribution)


def _refuse_taken(rule: Rule, owners: dict[str, str]) -> None:
    for key in (rule.code, rule.name):
        if key in owners:
            raise ValueError(f"{key} is a rule of {owners[key]} already")


class _Guarded:
    """The function of a rule, which recognises nothing any more once it has failed."""

    def __init__(self, rule: Rule, distribution: str) -> None:
        self._rule = rule
        self._distribution = distribution
        self._failed = False

    def __call__(self, finding: Finding) -> Explanation | None:
        if self._failed:
            return None
        try:
            return _checked(self._rule.match(finding))
        except Exception as error:
            self._failed = True
            _warn(
                f"whynan goes on without {self._rule.code} of {self._distribution}, which failed",
                f"{type(error).__name__}: {error}",
            )
            return None


def _checked(found: object) -> Explanation | None:
    """What a rule has made; raises ``TypeError`` where that is no explanation."""
    if found is None:
        return None
    if (
        isinstance(found, Explanation)
        and all(type(text) is str for text in (found.message, found.explanation))
        and type(found.specificity) is int
    ):
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
