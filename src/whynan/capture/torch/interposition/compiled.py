"""Compiled regions: they stay compiled, and what enters and leaves them is looked at.

A graph that inductor has compiled runs no operation that a dispatch mode could see. Each of its executions is one
event here, whose operands are the inputs that are still alive and whose outputs are checked like any other's.
"""

from __future__ import annotations

import functools
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.event_log import MASK
from whynan.capture.torch.interposition.wrappers import DOORS, call_fenced
from whynan.capture.torch.operators import Operator
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.tracer import Tracer

_DOORS = ("patches", "wrappers", "data_loading", "compiled")
_HOME = "torch._inductor.output_code"


def _refuse_rerun(*_: Any) -> Any:
    """A region is never run again: it may write what is the user's."""
    raise NotImplementedError("a compiled region is not asked again")


_OPERATOR = Operator(_refuse_rerun)
_OPERATOR.name = "inductor.compiled_region"
_OPERATOR.base = "compiled_region"


def last_script_graph() -> Any:
    """The graph that TorchScript has last run in this thread, as it was optimised; None where it has run none."""
    return torch._C._last_executed_optimized_graph()  # pyright: ignore[reportAttributeAccessIssue]


def keep_from_dynamo() -> None:
    """Tell dynamo, if it is loaded, that our frames are none of the program's.

    What runs after a graph break runs under dynamo's eyes, and so does what we do there. The doors are left out:
    dynamo looks through them, and finds ``is_compiling`` there.
    """
    rules = _loaded("trace_rules")
    if rules is None:
        return
    package = Path(__file__).parents[3]
    if str(package / "__init__.py") not in rules.SKIP_DIRS:
        rules.SKIP_DIRS += _without_doors(package)
        rules._recompile_re()
    home = _loaded("eval_frame")
    for code in DOORS if hasattr(home, "skip_code") else ():
        # compiled by itself, a door would be called by what it was compiled to
        home.skip_code(code)


def _without_doors(folder: Path) -> list[str]:
    """The folders of a package in which no door is, and the other files of those in which one is."""
    if not any(path.stem in _DOORS for path in folder.rglob("*.py")):
        return [str(folder)]
    files = [str(path) for path in folder.glob("*.py") if path.stem not in _DOORS]
    return files + [path for inner in folder.iterdir() if inner.is_dir() for path in _without_doors(inner)]


def _loaded(name: str) -> Any:
    """A module of dynamo's; None where dynamo is not loaded, or in the midst of it."""
    whole: Any = sys.modules.get("torch._dynamo")
    if whole is None or getattr(getattr(whole, "__spec__", None), "_initializing", False):
        return None
    return sys.modules.get(f"torch._dynamo.{name}")


def know_dynamo() -> None:
    """Before anything is put in the place of what dynamo knows by what it is, have it know that."""
    _handlers()


def _handlers() -> dict[Any, Any]:
    """What dynamo does at some functions, by what these are; it makes the table once, from what it finds in place."""
    home = _loaded("variables.torch")
    made: Any = getattr(getattr(home, "TorchInGraphFunctionVariable", None), "_get_handlers", None)
    return made() if made is not None else {}


def known_by_dynamo(original: Any, door: Any) -> None:
    """A door has been taken off: where dynamo knows it by what it is, because it came meanwhile, it is told again."""
    known: Any = getattr(_loaded("trace_rules"), "get_torch_obj_rule_map", None)
    if known is None:
        return
    for table in (known(), _handlers()):
        if door in table:
            table[original] = table.pop(door)


def watch_regions(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Look at every execution of a compiled graph, those included that are compiled during the trace."""
    keep_from_dynamo()
    if _HOME in sys.modules:
        _watch(tracer, replace)
        return
    watched, context = False, tracer.context

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:
            nonlocal watched
            made = original(*args, **kwargs)
            if context.active:
                call_fenced(context.fail, keep_from_dynamo)
            if context.active and not watched and kwargs.get("backend", "inductor") == "inductor":
                watched = True
                call_fenced(context.fail, _watch, tracer, replace)
            return made

        return compile_

    replace(torch, "compile", make)


def _watch(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    context = tracer.context

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def call(graph: Any, inputs: Any) -> Any:
            held: list[Callable[[], Any]] | None = None
            if context.active:
                # the graph frees its inputs as it goes: only labels that may be needed are worth holding on to them
                held = call_fenced(context.fail, _references, inputs, weak=not context.any_marked)
            out = original(graph, inputs)
            if held is not None and context.active:
                call_fenced(context.fail, _ran, tracer, held, out)
            return out

        return call

    __import__(_HOME)
    replace(sys.modules[_HOME].CompiledFxGraph, "__call__", make)


def _references(inputs: Any, *, weak: bool) -> list[Callable[[], Any]]:
    tensors = [v for v in inputs if type(v) in (torch.Tensor, torch.nn.Parameter)]
    return [weakref.ref(t) if weak else functools.partial(_itself, t) for t in tensors]


def _itself(tensor: Any) -> Any:
    return tensor


def _ran(tracer: Tracer, held: list[Callable[[], Any]], out: Any) -> None:
    inputs = tuple(v for r in held if (v := r()) is not None)
    outputs = [t for t in (out if isinstance(out, (list, tuple)) else [out]) if type(t) is torch.Tensor]
    context = tracer.context
    context.compiled_regions += 1
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        tracer.record_event(_OPERATOR, inputs, {}, outputs, None)
    site, _ = context.sites.resolve(context.rows.sites[(context.ordinal - 1) & MASK], None)
    file, line = (None, None) if site is None else (site.file, site.line)
    context.notes[Note.create("compiled_region", file=file, line=line)] = None
