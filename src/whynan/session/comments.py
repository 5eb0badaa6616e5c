"""``# whynan: allow WN213``: what the program's own source says is meant, where it is born."""

# pyright: strict

from __future__ import annotations

import io
import re
import sys
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from whynan.config import ALLOWABLE
from whynan.session.allow import recognised
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import file_of_site
from whynan.source.syntax import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records import Finding

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
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    sources = (file for file in (main, *files) if isinstance(file, str) and file.endswith(".py"))
    named = dict.fromkeys(file_of_site(file) for file in sources if owner_of(file) is Owner.USER)
    return [comment for file in named for comment in comments_of(file)]


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
