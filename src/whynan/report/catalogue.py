"""The catalogue of rules as text: all of them in a table, and the page of one."""

# pyright: strict

from __future__ import annotations

import shutil
from typing import Final, TextIO

from whynan.report.layout import Page
from whynan.report.terminal import put
from whynan.rules.base import Rule
from whynan.rules.catalogue import distribution, parsed
from whynan.rules.families import families, title
from whynan.rules.mending import mended_by

_UNSEEN: Final = 100
"""The width where no terminal says another."""
_WIDEST: Final = 120
_BESIDE: Final = 30
"""Cells that a sentence needs beside a name; with fewer it stands below."""
_INDENT: Final = 4


def show(told: Rule | tuple[Rule, ...], *, family: str | None = None, to: TextIO | None = None) -> None:
    """Print the page of a rule, or a table of several, as wide as the terminal and in its encoding.

    `family`: the one that was asked for; `to`: another stream to print to.
    """

    def text(width: int | None, color: bool, encoding: str) -> str:
        return render(told, family=family, width=width, color=color, encoding=encoding)

    put(text, to)


def render(
    told: Rule | tuple[Rule, ...],
    *,
    family: str | None = None,
    width: int | None = None,
    color: bool = False,
    encoding: str = "utf-8",
) -> str:
    """The page of a rule, or a table of several, as text of lines at most `width` cells wide.

    Where no `family` was asked for, each rule stands under that of its code.
    """
    page = Page(width or min(shutil.get_terminal_size((_UNSEEN, 24)).columns, _WIDEST), encoding)
    if isinstance(told, Rule):
        _page(page, told)
    else:
        _table(page, told, family)
    return page.finish(color=color)


def summary(rule: Rule) -> str:
    """The one line that says what a rule is about."""
    return parsed(rule.code).summary.removeprefix(f"{rule.code} {rule.name}: ").rstrip(".")


def _table(page: Page, told: tuple[Rule, ...], family: str | None) -> None:
    # names are ASCII: as many cells as characters
    beside = 2 + max(len(f"{rule.code} {rule.name}") for rule in told) + 2
    shown: str | None = None
    for rule in told:
        start = family or families(rule)[0]
        if start != shown:
            if shown is not None:
                page.blank()
            page.line((start, "bold"), f" {title(start)}")
            shown = start
        if page.width - beside >= _BESIDE:
            page.entry(f"{rule.code} {rule.name}", summary(rule), at=beside)
        else:
            page.line(f"  {rule.code} {rule.name}")
            page.entry("", summary(rule), at=_INDENT)


def _page(page: Page, rule: Rule) -> None:
    held = parsed(rule.code)
    page.heading(f"{rule.code} {rule.name}", ", ".join(title(start) for start in families(rule)), "bold")
    page.line(summary(rule))
    for name, text in held.sections.items():
        page.blank()
        page.line((name, "cyan"))
        if name == "Example":
            _examples(page, held.bad, held.good)
            continue
        for paragraph in text.split("\n\n"):
            page.entry("", " ".join(paragraph.split()), at=_INDENT)
        if name == "Fix":
            _fixes(page, rule)
    page.blank()
    page.line((_versions(rule), "dim"))


def _fixes(page: Page, rule: Rule) -> None:
    """What is tried where the rule has explained a birth; each is shown with its verdict only."""
    found = mended_by(rule)
    if found:
        page.entry("", "Tried, and shown with a verdict:", at=_INDENT)
    for line in found:
        page.entry("", f"- {line}", at=_INDENT)


def _examples(page: Page, bad: str, good: str) -> None:
    for label, style, code in (("Bad", "red", bad), ("Good", "green", good)):
        page.entry("", (label, style), at=_INDENT)
        for line in code.splitlines():
            page.verbatim(line, at=2 * _INDENT)


def _versions(rule: Rule) -> str:
    bites = f"; torch: {rule.torch}" if rule.torch is not None else ""
    of = distribution(rule.code)
    return f"{f'of {of}, ' if of is not None else ''}since {rule.since}{bites}{_asks(rule)}"


def _asks(rule: Rule) -> str:
    """What a rule of silent damage reads, and where it is live."""
    return f"; reads {' and '.join(rule.reads)}, in {' and '.join(rule.modes)} mode" if rule.reads else ""
