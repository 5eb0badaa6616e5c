"""Each row of the operator tables is well formed and of an operator that there is, and no other table says more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx
import pytest
import torch

import whynan
from tests.unit.architecture import sources
from whynan.ops.table import ONNX, TORCH, Table

PACKAGE = Path(whynan.__file__).parent
TABLES = [pytest.param(TORCH, id="torch"), pytest.param(ONNX, id="onnx")]
_WORD = r"[A-Za-z_]\w*"
_ROW = re.compile(
    rf"""{_WORD}(\ [A-Za-z][\w-]*)*                          # name, flags
         (\ [A-Za-z][\w-]*=("[^"]+"|[^\s"]+))*\Z             # columns
     """,
    re.VERBOSE,
)
_TOLD = re.compile(r"#   (\S+(?: \S+)*)(?:  |$)")
MOST = 4
"""So many operators may be named together without being a table."""

OTHERS = {
    "verify.oracle": "how each is computed exactly: functions by name",
    "capture.provenance.chain:_COMPUTED": "functions by name",
    "capture.torch.provenance.selections:_PASSES": "functions by name",
    "compare.sides.kernels:KERNELS": "functions by name",
    "compare.hazards:HAZARDS": "explanations by name",
    "compare.hazards:_SAME": "explanations by name",
    "compare.spelling:_SPELLINGS": "one word for torch's and ONNX's operator, where they mean the same",
    "expr.from_trace:_READERS": "functions by name",
    "expr.normal:_FORMS": "functions by name, of terms",
    "fixes.onnx.formulas:FORMULAS": "formulas by name, made of operators that ONNX has",
    "fixes.onnx.write:_PLAIN": "functions by name",
    "source.decisions.values:TESTS": "functions by name",
    "rules.wn1.wn105_inf_in_product_sum:RULE": "a formula for each, in the order in which they are offered",
    "rules.wn1.wn106_function_of_infinity:RULE": "a formula for each, in the order in which they are offered",
    "expr.from_python:_PLAIN": "Python's own functions",
    "source.exporter_metadata:_BUILTIN": "Python's own functions",
    "source.decisions.values:_SAME": "calls on a number of Python's or NumPy's",
    "source.decisions.values:_KEPT": "calls on a container",
    "models.onnx.specs:Generator": "words of the command line",
    "models.onnx.specs:_DEFAULTS": "words of the command line",
    "models.onnx.specs:_USAGE": "words of the command line",
}
"""Lists of names that are also operators', by room or by module and variable, and why they are no rows."""


def rows(table: Table) -> list[str]:
    return [line for line in table.path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def told(table: Table) -> set[str]:
    """The flags and columns that the head of a table explains."""
    head = [line for line in table.path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    explained = head[next(i for i, line in enumerate(head) if line.startswith("# Flags")) :]
    return {word for line in explained if (found := _TOLD.match(line)) is not None for word in found[1].split()}


@cache
def operators() -> frozenset[str]:
    """The names of ATen's operators, of ONNX's, and of the tables' rows."""
    aten = {s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    schemas = {schema.name for schema in onnx.defs.get_all_schemas()}
    return frozenset(aten | schemas | set(TORCH.rows) | set(ONNX.rows))


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_well_formed_and_in_its_place(table: Table) -> None:
    assert [row for row in rows(table) if _ROW.match(row) is None] == []
    names = [row.split()[0] for row in rows(table)]
    assert names == sorted(set(names))
    assert list(table.rows) == names
    for row in rows(table):
        words = [word.partition("=")[0] for word in re.sub(r'"[^"]*"', "", row).split()[1:]]
        assert len(words) == len(set(words)), row


@pytest.mark.parametrize("row", ["add  pointwise", "add role=a b", 'add noun="a b', "add =x", "2d pointwise"])
def test_a_row_that_is_not_well_formed_is_noticed(row: str) -> None:
    assert _ROW.match(row) is None


@pytest.mark.parametrize("table", TABLES)
def test_the_head_explains_every_flag_and_every_column_and_no_more(table: Table) -> None:
    known = {word for row in table.rows.values() for word in (*row.flags, *row.columns)}
    assert known - told(table) == set()
    assert told(table) - known == set()


def test_every_operator_of_pytorch_is_there() -> None:
    aten = {s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas()} | set(dir(torch.ops.aten))
    homes = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.special)

    def is_there(name: str) -> bool:
        return not aten.isdisjoint({name, f"__{name}__", f"_foreach_{name}"}) or any(hasattr(h, name) for h in homes)

    assert [name for name in TORCH.rows if not is_there(name)] == []
    assert not is_there("sofmax")


def test_every_function_is_where_its_row_says() -> None:
    for name, home in TORCH.column("in").items():
        found = torch.Tensor if home == "Tensor" else torch
        for part in home.split(".") if home != "Tensor" else ():
            found = getattr(found, part)
        assert hasattr(found, name), (name, home)


def test_every_operator_of_onnx_has_a_row_and_there_are_no_others() -> None:
    schemas = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert set(ONNX.rows) - ONNX.having("runtime", "kernel") >= schemas
    assert set(ONNX.rows) - ONNX.having("runtime", "kernel") - schemas == set()
    assert not ONNX.having("runtime", "kernel") & schemas


def test_a_table_is_read_when_it_is_first_asked() -> None:
    table = Table(ONNX.path.name)
    assert "rows" not in vars(table)
    assert "Add" in table.having("pointwise")
    with pytest.raises(KeyError):
        table.having("pointwise", "linewise")


def asked(package: Path) -> set[str]:
    """The flags and columns that the package names."""
    found = {"pole", "role", "runtime"}  # by the table itself, and by these tests
    for path in sources(package).values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in ("having", "column", "lists", "numbers", "names", "bases"):
                    found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found


@pytest.mark.breadth
def test_every_flag_and_every_column_is_asked_for() -> None:
    assert (told(TORCH) | told(ONNX)) - asked(PACKAGE) == set()


# -- No other table ----------------------------------------------------------------------------------------------------


def _words(node: ast.expr | ast.pattern) -> list[str]:
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [word for text in texts for word in text.split()]


def _lists(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, list[str]]]:
    """The strings of each literal, by the variable or the function that it belongs to; an inner one by itself too."""
    for node in ast.iter_child_nodes(tree):
        inner = owner
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # documentation
        if not owner and isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = node.name
        elif not owner and isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            inner = ast.unparse(target)
        if isinstance(node, ast.Dict):
            yield inner, [word for key in node.keys if key is not None for word in _words(key)]
            yield inner, [word for value in node.values for word in _words(value)]
        elif isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Constant | ast.MatchOr):
            yield inner, _words(node)
        yield from _lists(node, inner)


def other_tables(text: str) -> set[str]:
    """The variables and functions of a module that list five or more operators by their names."""
    found = ((owner, words) for owner, words in _lists(ast.parse(text)))
    known = ((owner, words, [word for word in words if word in operators()]) for owner, words in found)
    return {owner for owner, words, names in known if len(set(names)) > MOST and 2 * len(names) >= len(words)}


def test_there_is_no_other_table_of_operators() -> None:
    found = {
        f"{module.removeprefix('whynan.')}:{owner}"
        for module, path in sources(PACKAGE).items()
        for owner in other_tables(path.read_text(encoding="utf-8"))
    }
    excused = {name: next((reason for reason in OTHERS if name.startswith(reason)), None) for name in found}
    assert sorted(name for name, reason in excused.items() if reason is None) == []
    assert set(OTHERS) - set(excused.values()) == set()


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ('NAMES = frozenset("exp log sin cos tan".split())', "NAMES"),
        ('NAMES: dict[str, int] = {"exp": 1, "log": 2, "sin": 3, "cos": 4, "tan": 5}', "NAMES"),
        ('NAMES = {1: "exp", 2: "log", 3: "sin", 4: "cos", 5: "tan"}', "NAMES"),
        ('NAMES = {**dict.fromkeys(("exp", "log", "sin", "cos", "tan"), 1), "sinks": 2}', "NAMES"),
        ('def f(op):\n    """Of op."""\n    return op in ("Exp", "Log", "Sin", "Cos", "Tan")', "f"),
        ('def f(op):\n    match op:\n        case "exp" | "log" | "sin" | "cos" | "tan":\n            return 1', "f"),
        ('class C:\n    names = ["exp", "log", "sin", "cos", "tan", "and", "words"]', "C"),
        ('NAMES = frozenset("exp log sin cos".split())', None),
        ('def f(op):\n    """exp log sin cos tan"""', None),
        ('NAMES = ("loss", "exp", "log", "sin", "cos", "tan", "guard", "lane", "step", "batch", "sink")', None),
    ],
)
def test_a_planted_table_is_caught(text: str, owner: str | None) -> None:
    assert other_tables(text) == ({owner} if owner else set())
