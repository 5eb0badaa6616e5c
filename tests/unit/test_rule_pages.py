"""The pages of the rules in the documentation: what the docstrings say, up to date, and readable as Markdown."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from whynan.rules.catalogue import families, parsed_page, rules, title
from whynan.rules.intents import fix_titles

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS.parent / "scripts" / "make_rules.py"))
pages: Callable[[], dict[str, str]] = SCRIPT["pages"]
MADE = pages()
RULES = {rule.code: rule for rule in rules()}


def stale(folder: Path) -> set[str]:
    """The files of a folder that are not what the rules say."""
    there = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    return {name for name in there | MADE if there.get(name) != MADE.get(name)}


def test_the_pages_are_those_of_the_rules() -> None:
    assert stale(DOCS / "rules") == set(), "python scripts/make_rules.py writes them"


def test_a_page_that_is_changed_missing_or_of_no_rule_is_noticed(tmp_path: Path) -> None:
    SCRIPT["main"](tmp_path)
    assert stale(tmp_path) == set()
    (tmp_path / "WN201.md").write_text("changed", "utf-8")
    (tmp_path / "WN202.md").unlink()
    (tmp_path / "WN999.md").write_text("", "utf-8")
    assert stale(tmp_path) == {"WN201.md", "WN202.md", "WN999.md"}
    SCRIPT["main"](tmp_path)
    assert stale(tmp_path) == set()


def told(markdown: str) -> dict[str, str]:
    """What a reader of a page sees under each heading, without marks."""
    found: dict[str, str] = {}
    heading = False
    for token in MarkdownIt().parse(markdown):
        if token.type == "inline":
            children = token.children or []
            text = "".join(child.content if child.type == "text" else " " for child in children)
            assert all(child.type in ("text", "softbreak", "link_open", "link_close") for child in children), text
            if heading:
                found[text] = ""
            else:
                found[[*found][-1]] += f" {text}"
        elif token.type == "fence":
            found[[*found][-1]] += f" {token.content}"
        else:
            heading = token.type == "heading_open"
            assert token.type.startswith(("heading", "paragraph", "bullet_list", "list_item")), token.type
    return {name: " ".join(text.split()) for name, text in found.items()}


@pytest.mark.parametrize("code", [rule.code for rule in rules()])
def test_a_reader_sees_what_the_docstring_says(code: str) -> None:
    page, held = told(MADE[f"{code}.md"]), parsed_page(code)
    for name, text in held.sections.items():
        expected = f"Bad:\n{held.bad}\nGood:\n{held.good}" if name == "Example" else text
        if name == "Fix" and (fixes := fix_titles(RULES[code])):
            expected += " Tried in this order, and shown with a verdict only: " + " ".join(fixes)
        assert page[name] == " ".join(expected.split())


@pytest.mark.parametrize(
    "text", ["a * b * c", "- 1", "1. x", "# x", "_x_", "x_y", "|x|", "a [b](c)", "<b>", "`x`", "x\n---"]
)
def test_prose_is_not_taken_for_markdown(text: str) -> None:
    assert told(f"# a\n\n{SCRIPT['_text'](text)}") == {"a": " ".join(text.split())}


def test_the_index_has_every_rule_under_every_family_of_it() -> None:
    parts = re.split(r"^## ", MADE["README.md"], flags=re.MULTILINE)[1:]
    listed = {(part.split()[0], code) for part in parts for code in re.findall(r"^\| \[(\w+)\]\(\1\.md\)", part, re.M)}
    assert listed == {(start, rule.code) for rule in rules() for start in families(rule)}
    assert {part.splitlines()[0] for part in parts} == {f"{start} {title(start)}" for start, _ in listed}


def test_every_link_leads_somewhere() -> None:
    for name, text in MADE.items():
        for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", text):
            assert (DOCS / "rules" / target).exists(), f"{name}: {target}"
            if anchor:
                headings = re.findall(r"^## (.*)$", (DOCS / "rules" / target).read_text("utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
