"""CUDA graphs: nothing is looked at while one is captured, and a replay of one is counted, not looked into.

A captured step runs without a line of Python. What it writes cannot be put back, so that no graph is captured or
replayed in the replay of a bad step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from whynan.capture.torch.interposition.wrappers import strip_own_frames
from whynan.training.listeners import InGraph, ThreadState


def is_capturing() -> bool:
    """Whether what this thread computes is recorded, by CUDA or ``torch.jit``, to be run later."""
    if torch._C._get_tracing_state() is not None:
        return True
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class GraphReplays:
    """Counts the replays of CUDA graphs while `watches` says that there is a guard."""

    def __init__(self, here: ThreadState, watches: Callable[[], bool]) -> None:
        self.count = 0
        self._here = here
        self._watches = watches

    def install(self, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
        """Stand at the doors of graphs."""
        replace(torch.cuda.CUDAGraph, "capture_begin", lambda original: self._door(original, counts=0))
        replace(torch.cuda.CUDAGraph, "replay", lambda original: self._door(original, counts=1))

    def _door(self, original: Any, *, counts: int) -> Any:
        @functools.wraps(original)
        def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._here.replaying:
                raise InGraph
            if self._watches():
                self.count += counts
            try:
                return original(graph, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise

        return call
