"""Write the pages of the rules as Markdown, one a rule, and their index, from the docstrings of their modules."""

from __future__ import annotations

import re
from pathlib import Path

from whynan.report.catalogue import summary
from whynan.rules.base import Rule
from whynan.rules.catalogue import distribution, families, parsed_page, rules, title
from whynan.rules.intents import fix_titles

FOLDER = Path(__file__).parents[1] / "docs" / "rules"
INDEX = "README.md"

_MARKS = re.compile(r"[\\`*<\[\]|]|(?<!\w)_|_(?!\w)")
_LEADING = re.compile(r"^(\s*(?:\d+(?=[.)]))?)([-+#>~=.)])", re.MULTILINE)


def pages() -> dict[str, str]:
    """The text of every file of the folder, by its name; of whynan's own rules, whatever else is installed."""
    own = [rule for rule in rules() if distribution(rule.code) is None]
    return {INDEX: index(own)} | {f"{rule.code}.md": page(rule) for rule in own}


def page(rule: Rule) -> str:
    """The page of a rule."""
    held = parsed_page(rule.code)
    starts = ", ".join(f"[{start} {title(start)}]({INDEX}#{_anchor(start)})" for start in families(rule))
    bites = f" PyTorch: {_text(rule.torch)}." if rule.torch is not None else ""
    parts = [
        f"# {rule.code} {rule.name}",
        f"In one line: {_text(summary(rule))}.",
        f"{starts}. Since {rule.since}.{bites}",
    ]
    for name, text in held.sections.items():
        parts.append(f"## {name}")
        if name == "Fix":
            parts += [_text(text), *_fixes(rule)]
            continue
        parts += [f"Bad:\n\n{_code(held.bad)}", f"Good:\n\n{_code(held.good)}"] if name == "Example" else [_text(text)]
    return "\n\n".join(parts) + "\n"


def _fixes(rule: Rule) -> list[str]:
    """What is tried where the rule has explained a birth, best first."""
    found = fix_titles(rule)
    lines = "\n".join(f"- {_text(line)}" for line in found)
    return [f"Tried in this order, and shown with a verdict only:\n\n{lines}"] if found else []


def index(own: list[Rule]) -> str:
    """The index: the rules by families, those of two families under both."""
    parts = [
        "# The rules",
        "Each rule explains one hazard. `whynan rules WN201` shows its page in the terminal.\n"
        "[The table of hazards](../hazards.md) says which rule explains what, and\n"
        "[rules of your own](../writing-rules.md) how to add one. The hazards of exports, WNX01 to WNX16, stand\n"
        "in [the page of diff](../diff.md).",
    ]
    for start in sorted({start for rule in own for start in families(rule)}):
        rows = [
            f"| [{rule.code}]({rule.code}.md) | {rule.name} | {_text(summary(rule))} |"
            for rule in own
            if start in families(rule)
        ]
        parts.append(f"## {start} {title(start)}")
        parts.append("\n".join(["| code | name | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def main(folder: Path = FOLDER) -> None:
    """Write the folder, and take away the pages of rules that are no more."""
    folder.mkdir(exist_ok=True)
    made = pages()
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")


def _text(text: str) -> str:
    """Prose in which nothing is taken for Markdown."""
    return _LEADING.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", text))


def _code(code: str) -> str:
    return f"```python\n{code}\n```"


def _anchor(start: str) -> str:
    """The anchor of a family's heading: small letters, and hyphens for spaces."""
    return re.sub(r"[^a-z0-9 ]", "", f"{start} {title(start)}".lower()).replace(" ", "-")


if __name__ == "__main__":
    main()
