"""A pull request is Markdown in which what strangers have written is text: no markup, HTML, table or mention."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from tests.unit.report.programs import finding, report
from whynan.records import Fix, FixVerdict, Site
from whynan.report.escape import code_block, code_span, markdown
from whynan.report.fixes.proposals import offers
from whynan.report.fixes.pull_request import pull_request

PARSER = MarkdownIt("commonmark").enable("table").enable("strikethrough")
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](http://evil.example)",
    "![a](http://evil.example/x.png)",
    "`code` ``more`` ```",
    "| a | b |\n|---|---|\n| c | d |",
    "# a heading",
    "- a list\n1. another",
    "**bold** _it_ ~~gone~~",
    "&lt;b&gt; &#64;",
    "a\\*b\\",
    "\x1b[2J\u202e",
    "````\n```diff",
    "> a quote",
)
COMMENT = "<!-- -->"


def text_of(source: str) -> tuple[str, set[str]]:
    """What is read where Markdown is shown, and the kinds of what stands in it."""
    kinds, texts = set[str](), list[str]()
    for token in PARSER.parse(source):
        for part in token.children or [token]:
            if part.content != COMMENT:
                kinds.add(part.type)
                texts.append(part.content)
    return "".join(texts), kinds - {"paragraph_open", "paragraph_close", "inline"}


def spelled(text: str) -> str:
    return text.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_text(text: str) -> None:
    read, kinds = text_of(f"said: {markdown(text)}")
    assert read == f"said: {spelled(text)}"
    assert kinds <= {"text", "text_special"}


@pytest.mark.parametrize("text", HOSTILE)
def test_without_it_they_would_be_more(text: str) -> None:
    read, kinds = text_of(text)
    assert read != spelled(text) or kinds - {"text", "text_special"}


@pytest.mark.parametrize("text", [*HOSTILE, " ", "`", "``"])
def test_code_in_a_line_is_code(text: str) -> None:
    read, kinds = text_of(f"of {code_span(text)}.")
    assert read == f"of {spelled(text)}."
    assert kinds <= {"text", "code_inline"}


@pytest.mark.parametrize("text", [*HOSTILE, "\ta = 1\r\n"])
def test_a_block_of_code_is_one_block(text: str) -> None:
    (block,) = PARSER.parse(code_block(text, "diff"))
    assert (block.type, block.info) == ("fence", "diff")
    lines = text.rstrip("\n").split("\n")
    assert block.content == "".join(f"{spelled(line.rstrip(chr(13)))}\n" for line in lines)


@pytest.mark.parametrize("text", ["by @somebody", "as in #12", "see https://evil.example"])
def test_nothing_is_linked(text: str) -> None:
    # what GitHub links it looks for in the text behind the markup
    assert not re.search(r"@\w|#\d|://\w", markdown(text))
    assert text_of(markdown(text))[0] == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_whole_request_has_the_parts_that_it_should(text: str) -> None:
    site = Site(file=f"{text}.py", line=1, column=1, code=text, function=text)
    fix = Fix(title=text, kind="source", patch=f"@@\n-{text}\n+x\n", verdict=FixVerdict(status="verified", why=text))
    found = finding(site=site, message=text, explanation=text, name=text, fixes=(fix,))
    made = report(found, run={"command": f"{text}.py"})
    title, _, body = pull_request(made, offers(made)[0]).partition("\n\n")
    assert "\n" not in title
    tokens = PARSER.parse(body)
    assert [tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open"] == [
        "The bug",
        "The mechanism",
        "The change",
        "The proof",
        "How to reproduce it",
    ]
    inner = {part.type for token in tokens for part in token.children or () if part.content != COMMENT}
    assert inner <= {"text", "text_special", "code_inline", "strong_open", "strong_close"}
    assert {token.type for token in tokens if token.type.startswith(("html", "table", "blockquote"))} == set()
