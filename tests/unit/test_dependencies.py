"""The page of dependencies has a row for each that ``pyproject.toml`` names, and for no other."""

from __future__ import annotations

import re

from scripts.dependencies import ROOT, required

PAGE = (ROOT / "docs" / "dependencies.md").read_text("utf-8")


def rows(page: str) -> list[str]:
    """The first column of the first table."""
    table = page.split("\n\n## ")[0]
    return [found[1] for line in table.splitlines() if (found := re.match(r"\| ([\w-]+) \|", line))][1:]


def test_each_dependency_has_its_row() -> None:
    assert sorted(rows(PAGE)) == sorted(required())


def test_a_row_that_is_missing_is_noticed() -> None:
    assert "click" not in rows(PAGE.replace("| click |", "| tick |"))


def test_what_the_page_names_is_imported_somewhere() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    modules = {"python-flint": "flint", "onnx-ir": "onnx_ir"}
    unused = [name for name in required() if not re.search(rf"\b{modules.get(name, name)}\b", source)]
    assert not unused
