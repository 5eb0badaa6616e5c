"""Copies of the package in which one function does something else first: fails, or does the program harm."""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass
from pathlib import Path

import whynan

PACKAGE = Path(whynan.__file__).parent


@dataclass(frozen=True)
class Change:
    """What a function does before anything else.

    Args:
        file: inside the package.
        function: its qualified name; None for the module itself, at its end.
        statement: one or more statements.
        call: at which of its calls, from 1; 0 for every one.
    """

    file: str
    function: str | None
    statement: str = 'raise RuntimeError("planted")'
    call: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.function or 'import'}" + (f" call {self.call}" if self.call > 1 else "")


class Copy:
    """A copy of the package that Python finds first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(PACKAGE, folder / "whynan")
        self._changed: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which it is found."""
        return {"PYTHONPATH": str(self.folder)}

    def make(self, *changes: Change) -> None:
        """Plant changes, in place of the last ones."""
        for name in self._changed:
            shutil.copy2(PACKAGE / name, self.folder / "whynan" / name)
        self._changed = [change.file for change in changes]
        for change in changes:
            original = (PACKAGE / change.file).read_text(encoding="utf-8")
            (self.folder / "whynan" / change.file).write_text(changed(original, change), encoding="utf-8")


def changed(source: str, change: Change) -> str:
    """A module's text with a change in it; raises ``LookupError`` where there is no such function."""
    if change.function is None:
        return f"{source}\n{change.statement}\n"
    function = _find(ast.parse(source), change.function)
    first = function.body[1] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body[0]
    lines, indent = source.splitlines(keepends=True), " " * first.col_offset
    planted = change.statement.splitlines()
    if change.call:
        planted = [f"if next(_planted_calls) == {change.call}:", *(f"    {line}" for line in planted)]
    lines[first.lineno - 1 : first.lineno - 1] = [f"{indent}{line}\n" for line in planted]
    # decorators and defaults run before the end of the module does, calls of the function after it
    return "".join([*lines, '\n_planted_calls = __import__("itertools").count(1)\n'])


def _find(module: ast.Module, name: str) -> ast.FunctionDef:
    inside: ast.Module | ast.ClassDef | ast.FunctionDef = module
    for part in name.split("."):
        for node in ast.walk(inside) if part is name.split(".")[-1] else ast.iter_child_nodes(inside):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part:
                inside = node
                break
        else:
            raise LookupError(f"there is no {part} on the way to {name}")
    assert isinstance(inside, ast.FunctionDef)
    return inside


@dataclass(frozen=True)
class Failure:
    """A function that fails, a program that comes by it, by its name, and in how many of its processes."""

    change: Change
    program: str = "-m shapes.fit"
    sample: bool = False
    times: int = 1

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.change} in {self.program}"


def _fails(file: str, function: str | None, *, call: int = 1, sample: bool = False, where: str = "") -> Failure:
    return Failure(Change(file, function, call=call), where or "-m shapes.fit", sample)


_MEMORY = Change("capture/torch/tracer.py", "Tracer.record_event", 'raise MemoryError("planted")', 51)

FAILURES = [
    # before the program begins
    _fails("run/runner.py", "attach", sample=True),
    _fails("run/isolation.py", "Isolation.begin"),
    # as torch is loaded
    _fails("run/runner.py", "_Finder._listen"),
    _fails("run/isolation.py", "Isolation.__enter__"),
    _fails("run/isolation.py", "Isolation.__exit__"),
    _fails("run/isolation.py", "Isolation._names_beside"),
    _fails("run/controller.py", None, sample=True),
    _fails("run/controller.py", "Controller.begin"),
    _fails("run/region.py", "Region.__enter__"),
    _fails("capture/torch/__init__.py", None, sample=True),
    _fails("capture/torch/capture.py", "Capture._enter"),
    _fails("capture/torch/interposition/patches.py", "Patches.install"),
    _fails("capture/torch/interposition/patches.py", "Patches._before"),
    # while the program runs
    _fails("capture/torch/tracer.py", "Tracer.record_event", call=50, sample=True),
    Failure(_MEMORY),
    _fails("capture/torch/interposition/patches.py", "_module_starts", call=3),
    _fails("capture/torch/interposition/patches.py", "_module_returned", call=2),
    _fails("capture/torch/interposition/patches.py", "_engine_starts", call=2),
    _fails("capture/torch/interposition/patches.py", "_engine_ends", call=2),
    _fails("capture/torch/interposition/patches.py", "_step_starts", call=2),
    _fails("capture/torch/interposition/patches.py", "_step_ends", call=3),
    _fails("capture/torch/interposition/wrappers.py", "call_untraced", call=7),
    _fails("capture/torch/tracer.py", "Tracer.record_event", call=9, where="own_functions.py"),
    _fails("capture/torch/interposition/threads.py", "_enter", where="threaded.py"),
    _fails("capture/torch/interposition/threads.py", "_leave", where="threaded.py"),
    _fails("capture/torch/tracer.py", "Tracer.record_event", call=90, where="threaded.py"),
    _fails("capture/torch/interposition/data_loading.py", "_gives", call=2, where="loaded.py"),
    Failure(Change("run/controller.py", "Controller.after_fork"), "forked.py torch", times=5),
    # at the first bad number
    _fails("capture/torch/interposition/wrappers.py", "StopCondition.has_new_fatal_sink", where="log_of_zero.py"),
    _fails("run/controller.py", "Controller._errors", where="log_of_zero.py"),
    _fails("run/region.py", "Region.preview", where="log_of_zero.py", sample=True),
    # as it ends
    _fails("run/controller.py", "Controller.end"),
    _fails("run/stop.py", "_hide", where="exits.py exception torch"),
    _fails("run/controller.py", "Controller._final"),
    _fails("run/controller.py", "Controller._exit_status"),
    _fails("run/region.py", "Region.end"),
    _fails("run/guarded_capture.py", "GuardedCapture.stop"),
    _fails("capture/torch/capture.py", "Capture._leave"),
    _fails("capture/torch/capture.py", "Capture._finish"),
    _fails("capture/torch/interposition/patches.py", "Patches.remove"),
    _fails("capture/torch/sinks/sinks.py", "Sinks.finish"),
    _fails("run/pipeline.py", "report_of", sample=True),
    _fails("run/pipeline.py", "report_of", where="exits.py exception torch"),
    _fails("run/pipeline.py", "report_of", where="exits.py keyboard torch"),
    _fails("run/output/delivery.py", "Delivery.deliver"),
    _fails("report/json.py", "to_json"),
]
"""Where something of whynan's own fails, in the order in which a run comes by."""

_OFF_BY_ONE = """\
if getattr(out, "is_floating_point", bool)() and out.dim() == 1 and out.is_contiguous():
    out.data.mul_(1 + 2**-23)"""

HARMS = {
    "a word on the standard output": (
        Change("run/runner.py", "attach", 'print("whynan")', 0),
        "exits.py end",
        "stdout",
    ),
    "a folder that stays on the path": (
        Change("run/runner.py", "attach", 'sys.path.insert(0, "boot")', 0),
        "identity.py one --two '' -m -c --json=x",
        "stdout",
    ),
    "a variable that stays in the environment": (
        Change("run/runner.py", "attach", 'import os; os.environ["WHYNAN"] = "1"', 0),
        "identity.py one --two '' -m -c --json=x",
        "stdout",
    ),
    "a report though none is wanted": (
        Change("run/runner.py", "Run.end", 'sys.stderr.write("clean")', 0),
        "exits.py end",
        "stderr",
    ),
    "another exit status": (
        Change("run/runner.py", "_die_of_interrupt", "return", 0),
        "exits.py keyboard",
        "exit status",
    ),
    "a file that stays": (
        Change("run/runner.py", "Run.end", 'open("left", "w").close()', 0),
        "exits.py end",
        "files",
    ),
    "a temporary file that stays": (
        Change("run/runner.py", "launch", "import tempfile; tempfile.mkstemp()", 0),
        "exits.py end",
        "temporary",
    ),
    "a random number drawn": (
        Change("run/controller.py", "Controller.begin", "import random; random.random()", 0),
        "drawn.py",
        "stdout",
    ),
    "a value that differs in one bit": (
        Change("capture/torch/tracer.py", "Tracer.record_event", _OFF_BY_ONE, 0),
        "-m shapes.fit",
        "stdout",
    ),
    "frames that show": (
        Change("capture/torch/interposition/wrappers.py", "strip_own_frames", "return", 0),
        "own_functions.py",
        "stderr",
    ),
}
"""What a run must never do, each planted, with a program that shows it and where."""
