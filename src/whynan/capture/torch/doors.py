"""What every door of the program's has in common: it is quiet, it may end the run, and pickle finds it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.tracer import Tracer

_modes = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at


def named(door: Any, module: str, name: str) -> Any:
    """A door under the name by which pickle finds it."""
    door.__module__, door.__qualname__ = module, name
    return door


def halt(tracer: Tracer) -> None:
    """At a door: raise what the run is to end with, where a bad number has newly reached a fatal sink."""
    if torch.compiler.is_compiling():
        return
    ask = tracer.on_sink
    if ask is None or len(tracer.bad.sinks.found) == tracer.asked:
        return
    ending = None
    try:
        if quietly(tracer, _fatal_since, tracer):
            ending = ask()
    except Exception:
        tracer.fail()
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


def quietly(tracer: Tracer, function: Callable[..., Any], *args: Any) -> Any:
    """Call what is ours below every dispatch mode and without recording a graph; None once the tracer is off.

    None too while dynamo looks at the door that it stands in: what is ours is no part of the user's graph.
    """
    if torch.compiler.is_compiling() or not tracer.active or not _entered_here(tracer):
        return None
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        if tracer.lock is None:
            return function(*args)
        with tracer.lock:
            return function(*args)
