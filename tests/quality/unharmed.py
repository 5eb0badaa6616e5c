"""Any call inside whynan's capture made to fail, and what the user's program then shows of it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import pkgutil
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.data import dataloader

import whynan
from tests.quality.unharmed_programs import Program, Values, seeded
from whynan.run import region

HOME = str(Path(whynan.__file__).parent)
# the capture, and what saves and puts back the state around the target of `explain`
WALKED = ("whynan.capture.", "whynan.run.call_target", "whynan.replay.snapshot", "whynan.replay.class_lookup")
FILES = tuple(name.removeprefix("whynan.").replace(".", "/") for name in WALKED)
OWN = "whynan met an error of its own"
# no functions of their own to speak of: parts of the function that they stand in
COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")
# Through these the user's own call goes, or torch calls them around it. Nothing of ours stands above them to catch what
# fails at their entry: each call that they make, but for the user's, is made to fail in its place.
DOORS = frozenset(
    [
        "TraceMode.__torch_dispatch__",
        "Patches._engine.<locals>.engine_run_backward",
        "Patches._module.<locals>.call",
        "Patches._optimizers.<locals>.before",
        "Patches._optimizers.<locals>.after",
        "Patches._new.<locals>.new",
        "StepHooks.install.<locals>.before",
        "StepHooks.install.<locals>.after",
        "StepHooks._call",
        "ModuleFilter.call",
        "ModuleFilter.run",
        "Attempts._stepped",
        "Attempts._count",
        "Attempts._scaler_step.<locals>.step",
        "_around.<locals>.call",
        "_fetching.<locals>.fetch",
        "raise_if_stopped",
        "call_fenced",
        "call_untraced_fenced",
        "make_wrapper.<locals>.make.<locals>.door",
        "make_trace_wrapper.<locals>.tell",
        "strip_own_frames",
        "watch_regions.<locals>.make.<locals>.compile_",
        "_watch.<locals>.make.<locals>.call",
    ]
)


# Stands for an operator: what it raises is a refusal.
REFUSALS = frozenset(["_refuse_rerun"])
# What fails in these is told, and changes nothing of what is seen of the run.
ASIDE = frozenset(["strip_own_frames", "_is_own_frame"])
# What cannot be copied for want of memory is told in the capsule that it is missing from.
KEEPING = frozenset(["capture/torch/kept_operations.py"])


class Forced(Exception):  # noqa: N818
    """A failure that nobody expects."""


class Place(NamedTuple):
    """A function of the capture, or a call that a door makes."""

    file: str
    function: str
    line: int
    calls: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.function}" + (f" calling {self.calls}" if self.calls else "")


def place_of(code: CodeType) -> Place | None:
    """Where a code object stands in the capture; None for one outside, for a class body, for a part of a function."""
    file = code.co_filename.removeprefix(HOME).lstrip("/") if code.co_filename.startswith(HOME) else ""
    own = file.startswith(FILES) and code.co_flags & inspect.CO_OPTIMIZED
    if not own or code.co_name in COMPREHENSIONS or code.co_name in REFUSALS:
        return None
    return Place(file, code.co_qualname, code.co_firstlineno)


def functions() -> dict[Place, str]:
    """Every function of every module of the capture, nested ones and lambdas included, and its module.

    An ONNX model is run in a process of its own, where there is no program to be harmed.
    """
    found: dict[Place, str] = {}
    for module in pkgutil.walk_packages(whynan.__path__, "whynan."):
        if module.name.startswith("whynan.capture.onnx") or not module.name.startswith(WALKED):
            continue
        spec = module.module_finder.find_spec(module.name)  # type: ignore[call-arg]
        waiting = [spec.loader.get_code(module.name)]  # type: ignore[union-attr]
        while waiting:
            code = waiting.pop()
            waiting += [c for c in code.co_consts if isinstance(c, CodeType)]
            place = place_of(code)
            if place is not None:
                found[place] = module.name
    return found


def _of_the_user(door: FrameType, callee: CodeType | str) -> bool:
    """Whether what a door calls is the user's own call."""
    original = door.f_locals.get("original", door.f_locals.get("func"))
    if isinstance(callee, str):
        return callee == getattr(original, "__name__", None)
    return callee in (getattr(original, "__code__", None), getattr(type(original).__call__, "__code__", None))


def _is_of_the_collector(frame: FrameType) -> bool:
    """Whether Python's garbage collector calls it, at any place: what it raises there nobody meets."""
    code = frame.f_code
    if any(getattr(callback, "__code__", None) is code for callback in gc.callbacks):
        return True
    # what a weak reference calls is given the reference, which is dead by then
    given = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return isinstance(given, weakref.ref) and given() is None


@dataclass
class Calls:
    """How often each place is come by in a program; at one of these times it may fail.

    Args:
        place: what is to fail; None only counts.
        number: at which of its calls, from 1.
        error: with what.
    """

    place: Place | None = None
    number: int = 0
    error: type[BaseException] = Forced
    seen: Counter[Place] = field(default_factory=Counter)
    fired: bool = False
    # doors in which the user's own call runs just now: what C code calls there has no other frame above it
    _inside: dict[int, FrameType] = field(default_factory=dict)
    _known: dict[int, tuple[CodeType, Place | None, bool]] = field(default_factory=dict)

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """A profile function: what it raises is raised by the call at hand."""
        if event == "call":
            place, door = self._place(frame.f_code)
            if place is not None and not door:
                self._met(place)
            elif place is None and frame.f_back is not None:
                self._from(frame.f_back, frame)
        elif event == "c_call":
            if self._place(frame.f_code)[1] and _of_the_user(frame, argument.__name__):
                self._inside[id(frame)] = frame
            self._from(frame, argument.__name__)
        elif event in ("c_return", "c_exception"):
            self._inside.pop(id(frame), None)

    def _place(self, code: CodeType) -> tuple[Place | None, bool]:
        known = self._known.get(id(code))
        if known is None:
            place = place_of(code)
            # the code object is kept, so that its id is its own
            known = self._known[id(code)] = code, place, place is not None and place.function in DOORS
        return known[1], known[2]

    def _from(self, caller: FrameType, called: FrameType | str) -> None:
        place, door = self._place(caller.f_code)
        if not door or place is None or (isinstance(called, FrameType) and _is_of_the_collector(called)):
            return
        callee = called.f_code if isinstance(called, FrameType) else called
        if id(caller) not in self._inside and not _of_the_user(caller, callee):
            self._met(place._replace(calls=callee if isinstance(callee, str) else callee.co_qualname))

    def _met(self, place: Place) -> None:
        self.seen[place] += 1
        if place == self.place and self.seen[place] == self.number:
            self.fired = True
            raise self.error("forced")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count, and fail where it is wanted."""
        before = sys.getprofile()
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(before)


class Executed(TorchDispatchMode):
    """Below whynan's mode: every operation that really runs, by name."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.body = program.body
        # between two runs of a target its state is put back, by operations that are whynan's
        self.counting = program.runs == (1,)
        self.once = not program.runs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.counting:
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))

    def counted(self) -> Values:
        """The program, whose operations count in any case."""
        before, self.counting = self.counting, not (self.once and self.calls)
        try:
            return self.body()
        finally:
            self.counting = before


@dataclass(frozen=True)
class Outcome:
    """What a run left: its values, the operations that ran, whynan's warnings, its report, what it left behind."""

    values: Any
    executed: Counter[str]
    warned: int
    report: Any
    left: Any


def bits(value: Any) -> Any:
    """A value by its bits, so that NaN equals itself and 0 is not -0."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, float):
        return value.hex()
    return [bits(v) for v in value] if isinstance(value, list) else value


def standing() -> tuple[Any, ...]:
    """What whynan puts in place for a trace and must take away after it, as it stands now."""
    patched = (torch.autograd, "_engine_run_backward"), (torch.autograd.graph, "_engine_run_backward")
    patched += (torch.nn.Module, "__call__"), (torch, "save"), (torch, "compile"), (torch, "load")
    patched += (torch, "from_numpy"), (numpy, "load"), (dataloader._BaseDataLoaderIter, "__next__")
    patched += tuple((threading.Thread, name) for name in ("start", "_set_ident", "_delete"))
    patched += (torch.amp.GradScaler, "step"), (torch.utils, "swap_tensors")
    patched += tuple((torch.Tensor, name) for name in ("tolist", "numpy", "__array__", "__dlpack__"))
    return (
        *(inspect.getattr_static(owner, name) for owner, name in patched),
        len(torch_optimizer._global_optimizer_pre_hooks),
        len(torch_optimizer._global_optimizer_post_hooks),
        len(_get_current_dispatch_mode_stack()),
        len(region._running),
        torch.is_grad_enabled(),
    )


def bare(program: Program) -> Outcome:
    """The program without whynan."""
    executed = Executed(program)
    with nullcontext() if program.alone else executed, program.around() if program.around else nullcontext():
        values, _ = seeded(executed.counted, lambda body: (body(), None))
    return Outcome(bits(values), executed.calls, 0, None, standing())


def traced(program: Program, calls: Calls) -> Outcome:
    """The program under whynan, in which a call may fail."""
    executed = Executed(program)
    with contextlib.ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        if program.around is not None:
            stack.enter_context(program.around())
        if not program.alone:
            stack.enter_context(executed)
        with calls.watching():
            values, report = seeded(executed.counted, program.region)
    warned = sum(OWN in str(w.message) for w in caught)
    return Outcome(bits(values), executed.calls, warned, report, standing())


def harm(program: Program, expected: Outcome, calls: Calls) -> str | None:
    """What a failure did to the user's run beside one warning; None for nothing."""
    before = standing()
    try:
        outcome = traced(program, calls)
    except BaseException as escaped:  # whatever it is, the user meets it
        return f"it reached the user: {escaped!r}"
    if not calls.fired and calls.number == 1:
        # how often some are called depends on when Python collects its garbage: a later call may not come
        return "it was never called"
    if outcome.left != before:
        return "patches or modes stayed"
    if outcome.values != expected.values:
        return "other values"
    if not any(outcome.executed == _times(expected.executed, n) for n in program.runs or (1,)):
        more, fewer = outcome.executed - expected.executed, expected.executed - outcome.executed
        return f"other operations: {dict(more)} more, {dict(fewer)} fewer"
    file = calls.place.file if calls.place is not None else ""
    told = calls.error is RuntimeError or (calls.error is MemoryError and file in KEEPING)
    if outcome.warned > 1 or (calls.fired and outcome.warned == 0 and not told):
        return f"{outcome.warned} warnings"
    aside = calls.place is not None and calls.place.function in ASIDE
    if outcome.warned and outcome.report is not None and not aside and not _says_so(outcome.report):
        return "the report does not say that whynan failed"
    return None


def _times(executed: Counter[str], number: int) -> Counter[str]:
    return Counter({name: count * number for name, count in executed.items()})


def _says_so(report: Any) -> bool:
    # a failure in a further run is told of the fix that the run was to prove
    verdicts = (fix.verdict.why for finding in report.findings for fix in finding.fixes)
    return any("error of its own" in said for said in (*report.coverage.notes, *verdicts))
