"""What every door of the program's has in common: it is quiet, it may end the run, and pickle finds it."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame

from whynan.capture.torch.frames import unseen

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from whynan.capture.torch.tracer import Tracer

_modes = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at

DOORS: set[CodeType] = set()
"""The code of all doors: dynamo may look through one, and must not take one for a function of the program's."""


def stands(door: Any) -> None:
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


def put(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any] | None]:
    """Put a door in the place of what an owner has under a name.

    Gives what takes it off again, from under another door too, which gives the original and the door; None where it
    stays, because the program has put something of its own around it.
    """
    own = not isinstance(owner, type) or name in owner.__dict__
    original = owner.__dict__[name] if isinstance(owner, type) and own else getattr(owner, name)
    placed = _Placed(make(original), original, own)
    stands(placed.made)
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


def named(door: Any, module: str, name: str) -> Any:
    """A door under the name by which pickle finds it."""
    door.__module__, door.__qualname__ = module, name
    return door


def halt(tracer: Tracer) -> None:
    """At a door: raise what the run is to end with, where a bad number has newly reached a fatal sink."""
    ending = None
    if tracer.on_door is not None and not torch.compiler.is_compiling():
        tracer.on_door()
    try:
        if torch.compiler.is_compiling() or tracer.on_sink is None or len(tracer.bad.sinks.found) == tracer.asked:
            return
        if quietly(tracer, _fatal_since, tracer):
            ending = tracer.on_sink()
    except Exception:
        if tracer.fail():
            raise
    if ending is not None:
        raise ending


def _fatal_since(tracer: Tracer) -> bool:
    tracer.deferred.settle()
    found = tracer.bad.sinks.found
    fresh, tracer.asked = found[tracer.asked :], len(found)
    return any(sink.fatal and not sink.damage for sink in fresh)


def _entered_here(tracer: Tracer) -> bool:
    """Whether this thread is one that the trace has entered; the patches stand in every thread's way.

    Its own thread always is, even where torch puts every mode aside for a while; the engine's are by the mode.
    """
    return threading.get_ident() == tracer.thread or any(_mode_at(i) is tracer.mode for i in range(_modes()))


def quietly(tracer: Tracer, function: Callable[..., Any], *args: Any, anywhere: bool = False) -> Any:
    """Call what is ours below every dispatch mode and without recording a graph; None once the tracer is off.

    None too while dynamo looks at the door that it stands in: what is ours is no part of the user's graph; and, but
    `anywhere`, on a thread that is not looked at.
    """
    if torch.compiler.is_compiling() or not tracer.active or not (anywhere or _entered_here(tracer)):
        return None
    # below a compiled function that went back to Python, dynamo would compile what is ours
    outside = _set_eval_frame(None)
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            if tracer.lock is None:
                return function(*args)
            with tracer.lock:
                # while this thread waited another may have ended the trace
                return function(*args) if tracer.active else None
    finally:
        if outside is not None:
            _set_eval_frame(outside)


def noting(
    tracer: Tracer, note: Callable[[Any, Any, Any], None], *, first: bool = False, module: str | None = None
) -> Callable[[Any], Any]:
    """A door that passes on what the original gives, and notes it: before the call with `first`, else after it.

    `module`: where pickle finds the original, if it is a builtin that does not say.
    """

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def door(*args: Any, **kwargs: Any) -> Any:
            try:
                if first:
                    quietly(tracer, note, args, kwargs, None, anywhere=True)
            except Exception:
                if tracer.fail():
                    raise
            try:
                out = original(*args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            try:
                if not first:
                    quietly(tracer, note, args, kwargs, out, anywhere=True)
            except Exception:
                if tracer.fail():
                    raise
            return out

        return named(door, module, original.__name__) if module is not None else door

    return make


DOORS.update(function.__code__ for function in (halt, quietly, named, _entered_here))
