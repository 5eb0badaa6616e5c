"""Every module, function and file that the pages for contributors name exists, and every room has its line there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import whynan
from tests.unit.architecture import sources

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
FILES = sources(Path(whynan.__file__).parent)
_NAME = re.compile(r"\bwhynan(?:\.\w+)+(?::\w+(?:\.\w+)*)?")
_PATH = re.compile(r"`((?:src|tests|scripts|docs|benchmarks)/[\w./-]*)`")
_ROOM = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def names(text: str) -> list[str]:
    """The modules that a page names, with what it names in them: ``whynan.a.b:Class.method``."""
    return list(dict.fromkeys(_NAME.findall(text)))


def wrong(text: str) -> list[str]:
    """The modules, functions, files and folders that a page names and that do not exist."""
    modules = [name for name in names(text) if not exists(name)]
    return modules + [path for path in dict.fromkeys(_PATH.findall(text)) if not (ROOT / path).exists()]


def exists(name: str) -> bool:
    """Whether a module is there, and defines what is named in it."""
    module, _, inside = name.partition(":")
    if module not in FILES:
        return False
    tree: ast.Module | ast.ClassDef = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for part in inside.split(".") if inside else ():
        found = defined(tree, part)
        if found is None:
            return False
        tree = found if isinstance(found, ast.ClassDef) else ast.Module([], [])
    return True


def defined(scope: ast.Module | ast.ClassDef, name: str) -> ast.stmt | None:
    """The statement of a module or class that defines a name."""
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


@pytest.mark.parametrize("page", [PAGE, CONTRIBUTING], ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    assert wrong(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("right", "planted"),
    [
        ("whynan.analysis.fates:roots", "whynan.analysis.fates:branches"),
        ("whynan.analysis.fates:Root.fate", "whynan.analysis.fates:Root.fait"),
        ("whynan.analysis.fates:Root.fate", "whynan.analysis.fates:Root.fate.fate"),
        ("whynan.analysis.findings:judge_births", "whynan.analysis.nowhere:findings_of"),
        ("whynan.ops.names:meaning", "whynan.ops.names:meanings"),
        ("`whynan.report.json`", "`whynan.report.nowhere`"),
        ("`scripts/new_rule.py`", "`scripts/no_rule.py`"),
        ("`src/whynan/rules/`", "`src/whynan/laws/`"),
    ],
)
def test_a_planted_wrong_name_is_found(right: str, planted: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert right in text
    assert wrong(text.replace(right, planted, 1)) == [planted.strip("`")]


def test_the_page_leads_through_every_room_between_program_and_report() -> None:
    rooms = {name.split(".")[1] for name in names(PAGE.read_text(encoding="utf-8"))}
    assert {"capture", "source", "analysis", "rules", "fixes", "verify", "records", "report"} <= rooms
    assert sum(":" in name for name in names(PAGE.read_text(encoding="utf-8"))) > 30


def test_every_room_has_a_line() -> None:
    named = set(_ROOM.findall(CONTRIBUTING.read_text(encoding="utf-8")))
    rooms = {name.split(".")[1] for name in FILES if "." in name} - {"__main__"}
    assert rooms - named == set()
