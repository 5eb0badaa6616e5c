"""Wrappers of the program's functions: quiet, exactly once, picklable, out of the user's tracebacks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from whynan.faults import is_program_error, report_internal_error
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from whynan.capture.torch.context import TraceContext


# -- Tracebacks without whynan's frames --------------------------------------------------------------------------------


# below a mode an operation is called from Python; bare, it is not
_CALLED_BY_US: frozenset[CodeType] = frozenset((torch._ops.OpOverload.__call__.__code__,))


def _is_own_frame(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return code in _CALLED_BY_US or owner_of(code.co_filename) is Owner.WHYNAN


def strip_own_frames(error: BaseException) -> None:
    """Take our frames off the head of an exception's traceback; to be followed by a bare ``raise``.

    A bare ``raise`` puts no new entry for the frame that it stands in.
    """
    try:
        if torch.compiler.is_compiling():
            return
        traceback = error.__traceback__
        while traceback is not None and _is_own_frame(traceback):
            traceback = traceback.tb_next
        if traceback is not error.__traceback__:
            # below a `__setattr__` that the exception may have: that of a frozen dataclass refuses
            BaseException.with_traceback(error, traceback)
    except Exception:
        # the exception is the program's, and goes on as it is; a handler of its own may have raised one here
        if is_program_error():
            raise
        report_internal_error()


# -- Wrappers (doors): quiet, may end the run, picklable ---------------------------------------------------------------


Note = Callable[[Any, Any, Any], None]
"""What is told of a call: its arguments, by place and by name, and what it gave (None before it)."""
_modes = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at
_jit_tracing = torch._C._get_tracing_state

DOORS: set[CodeType] = set()
"""The code of all doors: dynamo may look through one, and must not take one for a function of the program's."""


def register_door(door: Any) -> None:
    """Remember that a function is a door."""
    code = getattr(getattr(door, "__func__", door), "__code__", None)
    if code is not None:
        DOORS.add(code)


@dataclass(eq=False)
class _Placed:
    """A door that stands: what it stands for, and whether its owner had that itself or inherited it."""

    made: Any
    original: Any
    own: bool


PLACED: dict[tuple[int, str], list[_Placed]] = {}
"""The doors that stand, by owner and name, the innermost first."""


def install_door(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any] | None]:
    """Put a door in the place of what an owner has under a name.

    Gives what takes it off again, from under another door too, which gives the original and the door; None where it
    stays, because the program has put something of its own around it.
    """
    own = not isinstance(owner, type) or name in owner.__dict__
    original = owner.__dict__[name] if isinstance(owner, type) and own else getattr(owner, name)
    placed = _Placed(make(original), original, own)
    register_door(placed.made)
    PLACED.setdefault((id(owner), name), []).append(placed)
    setattr(owner, name, placed.made)
    return functools.partial(_take_off, owner, name, placed)


def _take_off(owner: Any, name: str, placed: _Placed) -> tuple[Any, Any] | None:
    standing = PLACED[id(owner), name]
    around = next((door for door in standing if door.original is placed.made), None)
    stays = around is None and owner.__dict__.get(name) is not placed.made
    if around is not None:
        _join(around, placed)
    elif placed.own and not stays:
        setattr(owner, name, placed.original)
    elif not stays:
        delattr(owner, name)
    if placed in standing:
        standing.remove(placed)
    return None if stays else (placed.original, placed.made)


def _join(around: _Placed, placed: _Placed) -> None:
    """Take a door from under another one, which calls what the first has called."""
    for cell in getattr(around.made, "__closure__", None) or ():
        if cell.cell_contents is placed.made:
            cell.cell_contents = placed.original
    if getattr(around.made, "__wrapped__", None) is placed.made:
        around.made.__wrapped__ = placed.original
    around.original, around.own = placed.original, placed.own


def make_picklable(door: Any, module: str, name: str) -> Any:
    """A door under the name by which pickle finds it."""
    door.__module__, door.__qualname__ = module, name
    return door


@dataclass(eq=False)
class StopCondition:
    """When a run is to end: asked at its doors, and when the last step that is looked at is over.

    `settle` explains the events that wait. `on_sink` gives what the run is to end with, where a sink is fatal.
    """

    context: TraceContext
    settle: Callable[[], None]
    on_sink: Callable[[], BaseException | None] | None = None
    on_door: Callable[[], None] | None = None
    """Called at each door of the program's, before `on_sink` is asked."""
    last_step: int | None = None
    on_last_step: Callable[[], None] | None = None
    asked: int = 0
    """How many of the sinks found so far `on_sink` has been asked about."""

    def has_new_fatal_sink(self) -> bool:
        """Whether one of the sinks is fatal that were found since this was asked last."""
        self.settle()
        found = self.context.log.found
        fresh, self.asked = found[self.asked :], len(found)
        return any(sink.fatal and not sink.damage for sink in fresh)

    def record_step_end(self) -> None:
        """A step has ended, which may be the last."""
        steps = self.context.log.steps
        if self.on_last_step is not None and steps.offset + steps.attempts >= (self.last_step or 0):
            self.on_last_step()


def raise_if_stopped(ending: StopCondition) -> None:
    """At a door: raise what the run is to end with, where a bad number has newly reached a fatal sink."""
    raised = None
    if ending.on_door is not None and not torch.compiler.is_compiling():
        ending.on_door()
    try:
        if torch.compiler.is_compiling() or ending.on_sink is None or len(ending.context.log.found) == ending.asked:
            return
        if call_untraced(ending.context, ending.has_new_fatal_sink):
            raised = ending.on_sink()
    except Exception:
        if ending.context.fail():
            raise
    if raised is not None:
        raise raised


def _entered_here(context: TraceContext) -> bool:
    """Whether this thread is one that the trace has entered; the patches stand in every thread's way.

    Its own thread always is, even where torch puts every mode aside for a while; the engine's are by the mode.
    """
    return threading.get_ident() == context.thread or any(_mode_at(i) is context.mode for i in range(_modes()))


def call_untraced(context: TraceContext, function: Callable[..., Any], *args: Any, anywhere: bool = False) -> Any:
    """Call what is ours below every dispatch mode and without recording a graph; None once the trace is off.

    None too while dynamo or ``torch.jit`` records a graph: what is ours is no part of the user's; and, but `anywhere`,
    on a thread that is not looked at.
    """
    if torch.compiler.is_compiling() or not context.active or not (anywhere or _entered_here(context)):
        return None
    if _jit_tracing() is not None:
        return None
    # below a compiled function that went back to Python, dynamo would compile what is ours
    outside = _set_eval_frame(None)
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            if context.lock is None:
                return function(*args)
            with context.lock:
                # while this thread waited another may have ended the trace
                return function(*args) if context.active else None
    finally:
        if outside is not None:
            _set_eval_frame(outside)


def call_fenced(fail: Callable[[], bool], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The fence: call what is ours; an error in it is told once and gives None, unless it is the program's own."""
    differentiates: bool | None = None
    try:
        differentiates = torch.is_grad_enabled()
        return function(*args, **kwargs)
    except BaseException as error:
        if differentiates is not None:
            # a handler of the program's own may have raised where gradients were off, and not on again yet
            with torch._C.DisableTorchFunction():
                torch._C._set_grad_enabled(differentiates)
        if not isinstance(error, Exception) or fail():
            raise
    return None


def call_untraced_fenced(
    context: TraceContext, function: Callable[..., Any], *args: Any, anywhere: bool = False
) -> Any:
    """Call what is ours at a door, quietly and inside the fence."""
    return call_fenced(context.fail, call_untraced, context, function, *args, anywhere=anywhere)


def make_wrapper(note: Note, *, first: bool = False, name: str | None = None) -> Callable[[Any], Any]:
    """The wrapper around a function of torch's: what the original gives is passed on, and noted.

    `note` is called before the original with `first`, else after it, and must not fail. `name`: by what pickle finds
    the original in torch, if it is a builtin that does not say.
    """

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def door(*args: Any, **kwargs: Any) -> Any:
            if first:
                note(args, kwargs, None)
            try:
                out = original(*args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            if not first:
                note(args, kwargs, out)
            return out

        return door if name is None else make_picklable(door, "torch", name)

    return make


def make_trace_wrapper(
    context: TraceContext, note: Note, *, first: bool = False, name: str | None = None, anywhere: bool = True
) -> Callable[[Any], Any]:
    """The same for a trace: `note` is called quietly and inside the fence, on every thread with `anywhere`."""

    def tell(args: Any, kwargs: Any, out: Any) -> None:
        call_untraced_fenced(context, note, args, kwargs, out, anywhere=anywhere)

    register_door(tell)
    return make_wrapper(tell, first=first, name=name)


DOORS.update(
    function.__code__
    for function in (raise_if_stopped, call_untraced, call_fenced, call_untraced_fenced, make_picklable, _entered_here)
)


# -- The global hooks around every optimizer's step, and who listens to them -------------------------------------------
#
# Torch walks over its hooks while it calls them: one that puts another on or takes one off meanwhile ends the
# program's step with an error. So they are put on once, and listen to whom they are told to.


_left: list[Any] = []
"""Handles of hooks that were called when they were to be taken off; they listen to nobody."""


class StepHooks:
    """The hooks of one capture; `before` and `after` are called with the optimizer and its step's arguments.

    `fail`: what to do where that cannot be. While dynamo compiles a step nobody is called.
    """

    def __init__(self, fail: Callable[[], bool]) -> None:
        self._fail = fail
        self.before: Callable[[Any, Any, Any], Any] | None = None
        self.after: Callable[[Any, Any, Any], Any] | None = None
        self._handles: list[Any] = []
        self._walks = 0
        """How many steps, one inside the other or beside it, are in one of the hooks."""

    def install(self) -> None:
        """Put the hooks on."""
        while _left:
            _left.pop().remove()

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            return self._call(self.before, optimizer, args, kwargs)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._call(self.after, optimizer, args, kwargs)

        for register, hook in ((register_optimizer_step_pre_hook, before), (register_optimizer_step_post_hook, after)):
            register_door(hook)
            self._handles.append(register(hook))

    def remove(self) -> None:
        """Listen no further, and take the hooks off where no step walks over them."""
        self.before = self.after = None
        if not self._walks:
            self._take_off()
        else:
            _left.extend(h for h in self._handles if h not in _left)

    def _take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _call(self, listener: Callable[[Any, Any, Any], Any] | None, optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            if listener is None or torch.compiler.is_compiling():
                return None
        except Exception:
            if self._fail():
                raise
            return None
        self._walks += 1
        try:
            return listener(optimizer, args, kwargs)
        except BaseException:
            if self.before is None and self.after is None and self._walks == 1:
                # an error ends the walk
                self._take_off()
            raise
        finally:
            self._walks -= 1
