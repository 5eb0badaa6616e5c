"""The registry of rules, their families and pages, with those of plug-ins; the most specific match wins."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Final

import whynan.rules
from whynan.errors import UsageError
from whynan.records import Finding
from whynan.rules.base import OUTCOME, Explanation, Mode, Reading, Rule, facts_of
from whynan.rules.facts import underflow
from whynan.rules.wording import product_hint, selection_hint, skipped_steps_text

# -- The families of rules: what the character behind the letters of a code stands for ---------------------------------


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


# -- A rule's page: the sections of its module's docstring, and its two examples, which are programs that run ----------


SECTIONS: Final = ("What it is", "Why it breaks", "Example", "Fix", "When it is fine", "References")
"""The headings of every page, in this order."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the first line of the docstring, the text under each heading, and the code of both examples.

    The examples assume ``torch``, ``nn``, ``F`` (``torch.nn.functional``), ``np`` (NumPy) and ``inf``.
    """

    summary: str
    sections: dict[str, str]
    bad: str
    good: str


def read(doc: str) -> Page:
    """The page that a docstring holds; raises ``ValueError`` if a section or an example is missing."""
    lines = inspect.cleandoc(doc).splitlines()
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines[1:]:
        if line in SECTIONS:
            current = found[line] = []
        else:
            current.append(line)
    if tuple(found) != SECTIONS:
        raise ValueError(f"a page has the sections {', '.join(SECTIONS)}; this one has {', '.join(found)}")
    sections = {name: _block(text) for name, text in found.items()}
    bad, separator, good = sections["Example"].partition("\nGood::\n")
    if not separator or not bad.startswith("Bad::\n"):
        raise ValueError("an example is 'Bad::' with its code, then 'Good::' with its code")
    return Page(lines[0], sections, _block(bad.removeprefix("Bad::\n").splitlines()), _block(good.splitlines()))


def _block(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")


# -- Plug-ins: the rules of other distributions, whose modules are named by entry points of the group
# ``whynan.rules``
#
# What a distribution has may be broken. Then a warning names it, and the rest goes on without that rule.


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
    return Entry(replace(rule, match=_guarded_match(rule, distribution)), page, distribution)


def _guarded_match(rule: Rule, distribution: str) -> Callable[[Finding], Explanation | None]:
    """The function of a rule, which recognises nothing any more once it has failed."""
    failed = False

    def match(finding: Finding) -> Explanation | None:
        nonlocal failed
        try:
            return None if failed else _check_explanation(rule.match(finding))
        except Exception as error:
            failed = True
            _warn(
                f"whynan goes on without {rule.code} of {distribution}, which failed",
                f"{type(error).__name__}: {error}",
            )
            return None

    return match


def _check_explanation(found: object) -> Explanation | None:
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


# -- The registry of rules, of this package and of plug-ins; the most specific that recognises a birth explains it -----


_NEAR: Final = 3
_MODULE: Final = re.compile(r"\.wn[0-9x]\.wn[0-9x][0-9]{2}_")
_UNEXPLAINED: Final = ("wn000", "unexplained")


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(entry.rule for entry in _entries().values())


@cache
def _entries() -> dict[str, Entry]:
    """Every rule and its page, by code."""
    names = [module.name for module in pkgutil.walk_packages(whynan.rules.__path__, "whynan.rules.")]
    loaded = [importlib.import_module(name) for name in names if _MODULE.search(name)]
    found = [Entry(module.RULE, module.__doc__ or "") for module in loaded]
    found += plugins([entry.rule for entry in found])
    return {entry.rule.code: entry for entry in sorted(found, key=lambda entry: entry.rule.code)}


def clear_rule_cache() -> None:
    """Discover the rules again when they are next asked for: something was installed."""
    _entries.cache_clear()
    rules.cache_clear()


def distribution(code: str) -> str | None:
    """The distribution that has a rule; None for whynan's own; raises ``KeyError`` for an unknown code."""
    return _entries()[code].distribution


def page(code: str) -> str:
    """The page of a rule: its module's docstring; raises ``KeyError`` for an unknown code."""
    return _entries()[code].page


def parsed_page(code: str) -> Page:
    """The page of a rule by sections, with its examples; raises ``KeyError`` for an unknown code."""
    return read(page(code))


def find_rules(wanted: str) -> Rule | tuple[Rule, ...]:
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
            + selection_hint(finding, rule.code)
            + product_hint(finding, rule.code)
            + (skipped_steps_text(finding) if best.specificity > OUTCOME else ""),
            "matched": tuple(r.code for _, r in matches[1:]),
            "around": None,
        }
    )
