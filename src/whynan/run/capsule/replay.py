"""``whynan replay``: the recorded operator on the recorded tensors, compared with the run and explained anew."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from whynan.capsule import Capsule, OperationReplay, open_capsule
from whynan.capsule.document import Packed
from whynan.capsule.folder import SCRIPT
from whynan.errors import UsageError
from whynan.records import ChainLink, Coverage, Element, Finding, Note, Reach, Report
from whynan.rules.catalogue import explain
from whynan.run.versions import versions

# -- A capsule run again: the recorded operator on the recorded tensors, compared with the run and explained anew ------


NO_OPERATION: Final = "{path} holds no operation to run ({why})"
SAME_BITS: Final = Note.create("same_bits")
_COMPARED: Final = ("torch", "onnx", "onnxruntime")


def replay_capsule(directory: str, *, modules: Sequence[str] = ()) -> Report:
    """Run what a capsule holds and report on it; ``clean`` where the bad number is not reproduced.

    `modules`: those of the user's that register the operators of a library, to be imported first. Raises ``UsageError``
    where the folder is no capsule, or holds nothing that can be run here.
    """
    capsule = open_capsule(directory)
    operation = capsule.document.operation
    if operation is None:
        what = NO_OPERATION.format(path=capsule.directory, why=capsule.document.why or "nothing was packed")
        raise UsageError(what, "run the program again with --capsule and more --memory, or --mode trace")
    for name in modules:
        _import(name)
    if isinstance(operation, Packed):
        from whynan.run.capsule.torch import run_again
    else:
        from whynan.run.capsule.onnx import run_again
    return _replay_report(capsule, run_again(capsule))


def _import(name: str) -> None:
    try:
        import_module(name)
    except Exception as error:
        raise UsageError(
            f"--import {name} failed ({type(error).__name__}: {error})", "name a module that this Python can import"
        ) from None


def _replay_report(capsule: Capsule, again: OperationReplay) -> Report:
    """The report of a replay: the finding of the run, with what is seen now."""
    report, run = capsule.report, capsule.report.run
    here = versions()
    notes = [Note.create("other_device", old=old, new=new) for old, new in again.moved]
    notes += [
        Note.create("other_version", package=name, here=here[name], there=run.versions[name])
        for name in _COMPARED
        if name in here and name in run.versions and here[name] != run.versions[name]
    ]
    operation = capsule.document.operation
    if isinstance(operation, Packed) and operation.cut is not None:
        notes.append(Note.create("operands_cut"))
    changed = Note.create("other_bits", count=again.changed, total=again.total)
    notes.append(changed if again.changed else SAME_BITS)
    if again.element is None:
        notes.append(_not_reproduced(capsule.finding, again.value))
    found = () if again.element is None else (_finding(capsule.finding, again.element),)
    status = run.exit_status.model_copy(update={"script": 0, "whynan": 1 if found else 0})
    told = {
        "command": f"replay {capsule.directory}",
        "exit_status": status,
        "versions": here,
        "device": again.device,
        "replay": type(run.replay)(),
        "history": (),
        "exception": None,
    }
    return type(report)(
        verdict="nonfinite" if found else "clean",
        run=run.model_copy(update=told),
        findings=found,
        coverage=Coverage(events=1, eager=1, typed_notes=tuple(notes)),
    )


def _not_reproduced(finding: Finding, value: float | None) -> Note:
    index, was = finding.element.index, finding.element.value
    was_nan = was is not None and math.isnan(was)
    return Note.create(
        "not_reproduced", index=index, result=value, was_nan=was_nan, was_inf=was is not None and not was_nan
    )


def _finding(finding: Finding, element: Element) -> Finding:
    """The finding of the run, explained from what is seen now: it reaches what the operation gives."""
    way = tuple(link for link in finding.chain if link.role in ("cause", "birth"))
    total = element.total
    reach = Reach(kind="output", name=None, bad=element.count, total=total, value=element.value)
    left = ChainLink(role="sink", op=None, phase=None, typed_summary=Note.create("operation_result"))
    bare = finding.model_copy(
        update={
            "rule": "WN000",
            "name": "unexplained",
            "severity": "error",
            "fate": "escaped",
            "element": element,
            "chain": (*way, left),
            "reaches": (reach,),
            "message": "",
            "explanation": "",
            "matched": (),
            "fixes": (),
            "occurrences": 1,
            "scale_fall": None,
            "allowed": None,
        }
    )
    return explain(bare)


# -- The script of a capsule, run because its user says so -------------------------------------------------------------


def run_script(directory: str) -> None:
    """Run the ``repro.py`` of a capsule in a Python of its own; raises ``UsageError`` where that fails."""
    capsule = open_capsule(directory)
    path = os.path.join(capsule.directory, SCRIPT)
    if not capsule.script:
        raise UsageError(f"there is no {path}", "leave out --run-script")
    sys.stdout.flush()
    status = subprocess.run([sys.executable, path], check=False).returncode
    if status:
        raise UsageError(f"{path} ended with status {status}", "leave out --run-script, or see what it printed")
