"""The place in the source, however the code came to run."""

from __future__ import annotations

import importlib.util
import linecache
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import whynan
from tests.unit.capture.seen import code, only, traced
from whynan.records import Finding

SCRIPT = textwrap.dedent(
    """
    import torch, whynan

    def work(x):
        return 1 + torch.log(x) * 2

    with whynan.trace() as t:
        work(torch.zeros(1)).tolist()
    site = t.report.findings[0].site
    print(site.line, site.column, site.end_column, site.code, site.function, site.file, sep="|")
    """
)


def run(*arguments: str, cwd: Path) -> list[str]:
    """What a fresh interpreter prints, in fields."""
    result = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return result.stdout.strip().split("|")


@pytest.mark.process
def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    line, column, end, text, function, file = run("script.py", cwd=tmp_path)
    assert (line, column, end) == ("5", "16", "28")
    assert (text, function) == ("torch.log(x)", "work")
    assert Path(file).name == "script.py"


@pytest.mark.process
def test_a_script_without_column_tables(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    line, column, end, _, function, _ = run("-X", "no_debug_ranges", "script.py", cwd=tmp_path)
    assert (line, column, end, function) == ("5", "None", "None", "work")


@pytest.mark.process
def test_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "__init__.py").touch()
    (package / "inner" / "__main__.py").write_text(SCRIPT)
    line, column, *_, file = run("-m", "mine.inner", cwd=tmp_path)
    assert (line, column) == ("5", "16")
    assert Path(file).parts[-3:] == ("mine", "inner", "__main__.py")


def executed(source: str, name: str) -> Finding:
    """The finding of code that is compiled and executed under a name."""
    space: dict[str, Any] = {"torch": torch}
    return only(traced(lambda: exec(compile(source, name, "exec"), space)))


def test_executed_code_whose_source_nobody_has() -> None:
    site = executed("x = torch.zeros(1)\ny = torch.log(x)\ny.tolist()\n", "<string>").site
    assert site is not None
    assert (site.file, site.line, site.code) == ("<string>", 2, None)


def test_a_cell_of_a_notebook() -> None:
    source = "x = torch.zeros(1)\ny = 1 + torch.log(x)\ny.tolist()\n"
    name = "<ipython-input-7-0123456789ab>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        site = executed(source, name).site
    finally:
        del linecache.cache[name]
    assert site is not None
    assert (site.line, site.column, site.code) == (2, 9, "torch.log(x)")


def test_a_lambda() -> None:
    work = lambda x: (x + 0, torch.log(x))[1]
    finding = only(traced(lambda: work(torch.zeros(1)).tolist()))
    assert code(finding) == "torch.log(x)"
    assert finding.site is not None
    assert (finding.site.function or "").endswith("<lambda>")


def test_a_comprehension_and_a_generator() -> None:
    def work() -> list[float]:
        return [v.log().item() for v in (torch.zeros(1) for _ in range(2))]

    finding = only(traced(work))
    assert code(finding) == "v.log()"
    assert finding.occurrences == 2


def test_an_expression_over_several_lines() -> None:
    def work() -> None:
        x = torch.zeros(1)
        torch.log(
            x
            + 0.0
        ).tolist()  # fmt: skip

    site = only(traced(work)).site
    assert site is not None
    assert site.end_line is not None
    assert site.end_line - site.line == 3
    assert (site.code or "").startswith("torch.log(")


def test_columns_count_characters_not_bytes() -> None:
    def work(größe: torch.Tensor) -> None:
        ä = "öäü", torch.log(größe)
        ä[1].tolist()

    site = only(traced(lambda: work(torch.zeros(1)))).site
    assert site is not None
    assert site.code == "torch.log(größe)"
    assert site.column == 20


def test_two_operations_of_one_line_are_told_apart() -> None:
    def work(x: torch.Tensor, y: torch.Tensor) -> None:
        (x.log() + y.log()).tolist()

    assert code(only(traced(lambda: work(torch.ones(1), torch.zeros(1))))) == "y.log()"
    assert code(only(traced(lambda: work(torch.zeros(1), torch.ones(1))))) == "x.log()"


TAGGED = """
import torch

class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

def pool(x):
    return torch.log(x.as_subclass(Tagged)).sum()
"""
"""A library with a kind of tensor of its own, whose override is called below its code."""


@pytest.mark.parametrize(
    ("source", "line", "expression"),
    [
        ("import torch\n\ndef pool(x):\n    return torch.log(x).sum()\n", 4, "torch.log(x)"),
        (TAGGED, 10, "torch.log(x.as_subclass(Tagged))"),
    ],
)
def test_a_fault_in_a_library_has_both_places(tmp_path: Path, source: str, line: int, expression: str) -> None:
    library = tmp_path / "site-packages" / "pooling.py"
    library.parent.mkdir()
    library.write_text(source)
    specification = importlib.util.spec_from_file_location("pooling", library)
    assert specification is not None
    assert specification.loader is not None
    pooling = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(pooling)

    finding = only(traced(lambda: pooling.pool(torch.zeros(1)).tolist()))
    assert code(finding) == "pooling.pool(torch.zeros(1))"
    inner = finding.library_site
    assert inner is not None
    assert (Path(inner.file).name, inner.line, inner.function) == ("pooling.py", line, "pool")
    assert inner.code == expression


def test_torch_itself_is_no_library() -> None:
    def work() -> None:
        scores = torch.full((1, 2), -torch.inf)
        F.softmax(scores, dim=-1).tolist()

    finding = only(traced(work))
    assert code(finding) == "F.softmax(scores, dim=-1)"
    assert finding.library_site is None


def test_a_method_of_a_tensor_is_no_library() -> None:
    assert only(traced(lambda: torch.zeros(1).log().tolist())).library_site is None


def test_the_module_path_is_that_of_the_innermost_module() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.log()

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Identity(), Inner()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    site = only(whynan.explain(Outer(), torch.zeros(1))).site
    assert site is not None
    assert site.module == "layers.1"
    assert site.function is not None
    assert site.function.endswith("Inner.forward")


@pytest.mark.parametrize("times", [1, 5])
def test_what_happens_again_at_one_place_is_one_finding(times: int) -> None:
    def work() -> None:
        for _ in range(times):
            torch.zeros(1).log().tolist()

    assert only(traced(work)).occurrences == times


def test_one_module_called_in_two_places_lists_both() -> None:
    class Root(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Log()
            self.b = Log()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x), self.b(x)

    class Log(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.log()

    finding = only(whynan.explain(Root(), torch.zeros(1)))
    assert finding.modules == ("a", "b")
    assert finding.occurrences == 2
