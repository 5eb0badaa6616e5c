"""Suppressions: findings that are meant, by code, by comment, by an earlier report."""

from __future__ import annotations

import io
import os
import re
import sys
import tokenize
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

from whynan.config import ALLOWABLE
from whynan.errors import UsageError
from whynan.records import Finding, Member
from whynan.report.json import parse_report
from whynan.rules.catalogue import rules
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import file_of_site
from whynan.source.syntax import lines_of

# -- What is meant: findings that the user allows, by code, name or family ---------------------------------------------


@dataclass(slots=True)
class Allowance:
    """A code, a prefix of one (``WN5``) or a rule's name, the reason, and how many findings it has excused."""

    pattern: str
    reason: str
    used: int = 0

    def fits(self, code: str, name: str) -> bool:
        """Whether a rule of this code and name is one of those that are allowed."""
        return code.startswith(self.pattern) or name == self.pattern


def allowance(pattern: object, reason: object) -> Allowance:
    """An allowance as the program states it; raises ``UsageError`` for a pattern that fits no rule, or no reason."""
    made = Allowance(pattern, "") if isinstance(pattern, str) and ALLOWABLE.fullmatch(pattern) else None
    known = (("WN000", "unexplained"), *((rule.code, rule.name) for rule in rules()))
    if made is None or not any(made.fits(code, name) for code, name in known):
        raise UsageError(
            f"allow({pattern!r}): no rule has this code or name",
            "give a rule's code, the start of one, or its name: allow('WN501', reason='...')",
        )
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"allow({pattern!r}) has no reason", "say why it is meant: allow(..., reason='...')")
    made.reason = reason
    return made


class Allowances:
    """The allowances whose blocks are open: those entered while no trace runs hold for the next."""

    def __init__(self) -> None:
        self.open: list[Allowance] = []

    @contextmanager
    def region(self, allowance: Allowance) -> Generator[Allowance]:
        """An allowance for as long as the block runs."""
        self.open.append(allowance)
        try:
            yield allowance
        finally:
            self.open.remove(allowance)


def numbered(allowance: Allowance, known: list[Allowance]) -> int:
    """The number of an allowance among those of a run; one of the same pattern and reason is the same."""
    for number, other in enumerate(known):
        if (other.pattern, other.reason) == (allowance.pattern, allowance.reason):
            return number
    known.append(Allowance(allowance.pattern, allowance.reason))
    return len(known) - 1


def recognised(finding: Finding) -> list[tuple[str, str]]:
    """Code and name of the rules that recognise a finding, that which explains it first.

    What is allowed by the rule of its operation stays so when a rule of what surrounds it explains it better.
    """
    names = {rule.code: rule.name for rule in rules()} if finding.matched else {}
    return [(finding.rule, finding.name), *((code, names.get(code, "")) for code in finding.matched)]


def excuse_finding(finding: Finding, allowances: list[Allowance], scope: Collection[int]) -> Finding:
    """The finding, marked where an allowance in whose scope it was born covers a rule that recognises it."""
    for number in scope:
        allowance = allowances[number]
        if any(allowance.fits(code, name) for code, name in recognised(finding)):
            allowance.used += 1
            return finding.model_copy(update={"allowed": allowance.reason, "severity": "info"})
    return finding


# -- An earlier report whose findings are known: born at the same expression, of the same rule -------------------------


Key = tuple[str, str, str | None, tuple[str, str | None, str | None] | None]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier report found, in words that outlive a change elsewhere in the file: no line numbers."""

    path: str
    known: frozenset[Key]

    @classmethod
    def read(cls, path: str) -> Self:
        """The findings of a saved report; raises ``UsageError`` where there is none."""
        if os.path.exists(path) and not os.path.isfile(path):
            # it is read twice: before the program starts, and in its process
            raise UsageError(f"--baseline {path} is no file", "give a report that --json wrote")
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(
                f"--baseline {path} cannot be read ({error.strerror})", "give a report that --json wrote"
            ) from None
        try:
            report = parse_report(data)
        except UsageError as error:
            raise UsageError(f"--baseline {path}: {error.what}", error.hint) from None
        return cls(path, frozenset(key for f in (*report.findings, *report.damaging) for key in _keys(f)))

    def knows(self, finding: Finding) -> bool:
        """Whether the earlier run had this finding too."""
        return _key(finding) in self.known


def _keys(finding: Finding) -> list[Key]:
    """Those of all births that a finding tells of."""
    return [_key(finding), *map(_key, finding.also)]


def _key(birth: Finding | Member) -> Key:
    site = birth.site
    place = None if site is None else (site.file, site.function, site.code)
    return birth.rule, birth.phase, birth.op, place


# -- ``# whynan: allow WN213``: what the program's own source says is meant, where it is born --------------------------


_MARK: Final = "whynan: allow"
_COMMENT: Final = re.compile(
    r"(?:^|\s)#\s*whynan:\s*allow\b(?P<patterns>\s+[\w-]+(?:\s*,\s*[\w-]+)*)?(?P<reason>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment: the lines that it speaks of, the codes, starts of codes or names that it allows, and its reason."""

    file: str
    line: int
    last: int
    patterns: tuple[str, ...]
    reason: str

    def fits(self, finding: Finding) -> bool:
        """Whether it stands at the expression of a finding and names its rule."""
        site = finding.site
        if site is None:
            return False
        first, last = site.line, site.end_line or site.line
        near = first <= self.last and self.line <= last
        legal = [p for p in self.patterns if ALLOWABLE.fullmatch(p)]
        return near and any(code.startswith(p) or name == p for code, name in recognised(finding) for p in legal)

    def __str__(self) -> str:
        patterns = f" {', '.join(self.patterns)}" if self.patterns else ""
        return f"# {_MARK}{patterns} at {self.file}:{self.line}"


def comment_at(finding: Finding, known: Sequence[Comment] | None = None) -> Comment | None:
    """The comment that says a finding is meant: on a line of its expression, or alone on the line above.

    `known`: the comments of a run that is not this one.
    """
    site = finding.site
    if site is None or site.file.startswith("<"):
        return None
    there = comments_of(site.file) if known is None else [c for c in known if c.file == site.file]
    return next((c for c in there if c.fits(finding)), None)


def all_comments(main: str | None) -> list[Comment]:
    """Those of every file of the user's that is loaded; of the script too, whose name Python forgets as it ends."""
    return [comment for file in user_files(main) for comment in comments_of(file)]


def user_files(main: str | None) -> tuple[str, ...]:
    """The files of the user's that are loaded, and the script, as sites name them."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    sources = (file for file in (main, *files) if isinstance(file, str) and file.endswith(".py"))
    return tuple(dict.fromkeys(file_of_site(file) for file in sources if owner_of(file) is Owner.USER))


@lru_cache(maxsize=1024)
def comments_of(file: str) -> tuple[Comment, ...]:
    """The comments of a file, by tokens: what merely looks like one inside a string is none."""
    text = "".join(lines_of(file))
    if "whynan:" not in text:
        return ()
    found: list[Comment] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            made = _comment(file, token) if token.type == tokenize.COMMENT else None
            if made is not None:
                found.append(made)
    except (tokenize.TokenError, SyntaxError):
        return tuple(found)
    return tuple(found)


def _comment(file: str, token: tokenize.TokenInfo) -> Comment | None:
    matched = _COMMENT.search(token.string)
    if matched is None:
        return None
    line = token.start[0]
    alone = not token.line[: token.start[1]].strip()
    patterns = tuple(p.strip() for p in (matched["patterns"] or "").split(",") if p.strip())
    reason = matched["reason"].strip(" :-—–()") or f"by the comment at line {line}"
    return Comment(file, line, line + 1 if alone else line, patterns, reason)
