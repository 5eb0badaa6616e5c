"""CUDA graphs: nothing is looked at while one is captured, and after each replay the steps that it has made are.

A captured step runs without a line of Python. What it has left is where it was captured: the gradients, the weights,
and the losses, which are held by reference.
"""

from __future__ import annotations

import functools
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.frames import unseen
from whynan.capture.torch.identities import Identities
from whynan.capture.torch.standing import InGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from whynan.capture.torch.watch import Guard


def is_capturing() -> bool:
    """Whether what this thread computes is recorded to be run later, and not run."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True)
class Captured:
    """A step that was captured: its optimizer, its losses and what a loss scaler says, where each replay puts them."""

    optimizer: weakref.ref[Any]
    losses: tuple[Tensor, ...]
    scaler: Any
    found_inf: Tensor | None


class _Current(threading.local):
    """The graph that a thread captures, and the losses that were differentiated in it since its last step."""

    def __init__(self) -> None:
        self.graph: Any = None
        self.losses: list[Tensor] = []


class Graphs:
    """The graphs in which steps were captured; a guard is told of those that a replay has made."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._steps: Identities[list[Captured]] = Identities()
        self._current = _Current()

    def install(self, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
        """Stand at the doors of graphs."""
        replace(torch.cuda.CUDAGraph, "capture_begin", self._begins)
        replace(torch.cuda.CUDAGraph, "replay", self._replays)

    def backward(self, roots: Iterable[Any]) -> None:
        """A backward is captured."""
        self._current.losses += [r.detach() for r in roots if isinstance(r, torch.Tensor) and r.is_floating_point()]

    def step(self, optimizer: Any, scaler: Any) -> None:
        """A step is captured."""
        losses, self._current.losses = tuple(self._current.losses), []
        found_inf = getattr(optimizer, "found_inf", None)
        steps = self._steps.get(self._current.graph)
        if steps is not None:
            steps.append(Captured(weakref.ref(optimizer), losses, scaler, found_inf))

    def _begins(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._guard.here.replaying:
                raise InGraph
            try:
                self._current.graph, self._current.losses = graph, []
                self._steps.set(graph, [])
            except Exception:
                if self._guard.fail():
                    raise
            return original(graph, *args, **kwargs)

        return capture_begin

    def _replays(self, original: Any) -> Any:
        @functools.wraps(original)
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._guard.here.replaying:
                raise InGraph
            try:
                out = original(graph, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            ending = None
            try:
                known = self._steps.get(graph) if self._guard.on and not is_capturing() else None
                if steps := [step for step in known or () if step.optimizer() is not None]:
                    ending = self._guard.graphed(steps)
            except Exception:
                if self._guard.fail():
                    raise
            if ending is not None:
                raise ending
            return out

        return replay
