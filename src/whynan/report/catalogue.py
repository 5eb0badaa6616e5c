"""The catalogue of rules: a table of all, the page of one, and the document for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, get_args

from whynan.report.json import schema as published
from whynan.report.page import Page
from whynan.report.terminal import print_page
from whynan.rules.base import Mode, Reading, Rule
from whynan.rules.catalogue import SECTIONS, distribution, families, parsed_page, title
from whynan.rules.intents import fix_titles

if TYPE_CHECKING:
    from collections.abc import Sequence

# -- The catalogue of rules as text: all of them in a table, and the page of one ---------------------------------------


_BESIDE: Final = 30
"""Cells that a sentence needs beside a name; with fewer it stands below."""
_INDENT: Final = 4


def show(told: Rule | tuple[Rule, ...], *, family: str | None = None, to: TextIO | None = None) -> None:
    """Print the page of a rule, or a table of several, as wide as the terminal and in its encoding.

    `family`: the one that was asked for; `to`: another stream to print to.
    """

    def text(width: int | None, color: bool, encoding: str) -> str:
        return render(told, family=family, width=width, color=color, encoding=encoding)

    print_page(text, to)


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
    page = Page(width, encoding)
    if isinstance(told, Rule):
        _page(page, told)
    else:
        _table(page, told, family)
    return page.finish(color=color)


class Entry(Protocol):
    """What has a code, a name and an explanation, and no page."""

    @property
    def code(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def explanation(self) -> str: ...


def show_entries(told: Sequence[Entry], title: str, to: TextIO | None = None) -> None:
    """Print entries one below the other, under a title."""

    def text(width: int | None, color: bool, encoding: str) -> str:
        page = Page(width, encoding)
        for number, entry in enumerate(told):
            if number:
                page.blank()
            page.heading(f"{entry.code} {entry.name}", title, "bold")
            page.entry("", entry.explanation, at=_INDENT)
        return page.finish(color=color)

    print_page(text, to)


def summary(rule: Rule) -> str:
    """The one line that says what a rule is about."""
    return parsed_page(rule.code).summary.removeprefix(f"{rule.code} {rule.name}: ").rstrip(".")


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
    held = parsed_page(rule.code)
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
    found = fix_titles(rule)
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


# -- The catalogue of rules as a document for machines, and its published schema ---------------------------------------


SCHEMA: Final = "whynan.rules/1"
SCHEMA_FILE: Final = "whynan.rules-1.json"
_TEXT: Final = {"type": "string", "minLength": 1}
_PERHAPS: Final = {"anyOf": [_TEXT, {"type": "null"}], "default": None}


def to_json(told: Rule | tuple[Rule, ...]) -> str:
    """What is known of a rule, or a list of that for several: code, name, families, versions, and the page."""
    document = _document(told) if isinstance(told, Rule) else [_document(rule) for rule in told]
    return json.dumps(document, indent=2)


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document."""
    return published(SCHEMA_FILE)


def make_schema() -> dict[str, Any]:
    """The schema of an object for a rule, or of a list of them."""
    family = _object({"code": _TEXT, "name": _TEXT})
    rule = _object(
        {
            "code": {"type": "string", "pattern": "^[A-Z]{2,8}[0-9X][0-9]{2}$"},
            "name": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            "family": family,
            "also": {"type": "array", "items": family},
            "since": _TEXT,
            "torch": _PERHAPS,
            "reads": _some(Reading),
            "modes": _some(Mode),
            "distribution": _PERHAPS,
            "summary": _TEXT,
            "sections": _object(dict.fromkeys(SECTIONS, _TEXT)),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "Rules",
        "anyOf": [{"$ref": "#/$defs/Rule"}, {"type": "array", "items": {"$ref": "#/$defs/Rule"}}],
        "$defs": {"Rule": rule},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _some(words: Any) -> dict[str, Any]:
    """A list of some of the words of a ``Literal``, each at most once."""
    return {"type": "array", "items": {"enum": list(get_args(words))}, "uniqueItems": True}


def _document(rule: Rule) -> dict[str, Any]:
    own, *also = ({"code": start, "name": title(start)} for start in families(rule))
    return {
        "code": rule.code,
        "name": rule.name,
        "family": own,
        "also": also,
        "since": rule.since,
        "torch": rule.torch,
        "reads": rule.reads,
        "modes": rule.modes,
        "distribution": distribution(rule.code),
        "summary": summary(rule),
        "sections": parsed_page(rule.code).sections,
    }
