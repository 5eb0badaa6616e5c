"""Memory that the values of a segment are written to, side by side, and that is used again by the next one."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.sessions import CPU
from whynan.capture.onnx.values import ort

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Tensor
    from whynan.capture.onnx.profile import Kernel
    from whynan.capture.onnx.taps import Tapped

_ALIGNED: Final = 64
"""Bytes: no kernel asks for more."""


class Memory:
    """The memory of a graph's segments, and the values that are written to it, whose shapes a run has told.

    A value that is still read when its segment is over has memory of its own.
    """

    def __init__(self, graph: Executable, kernels: Mapping[int, Kernel], plan: Sequence[int]) -> None:
        self.graph = graph
        self._shapes = {
            node.outputs[0]: kernel.floats
            for node in graph.nodes
            if (kernel := kernels.get(node.index)) is not None
            and kernel.floats is not None
            and kernel.provider == CPU
            and len(node.outputs) == 1
            and node.index not in graph.holders
        }
        self._plan = frozenset(zip((0, *plan), plan, strict=False))
        self._bytes: Tensor = np.empty(0, np.uint8)

    def bound(self, session: Any, begin: int, end: int, tapped: Tapped, later: Collection[str]) -> Bound | None:
        """The outputs of a session that runs the nodes of a segment; ``later`` are those that are still read then."""
        if (begin, end) not in self._plan:
            return None
        shapes = {name: self._shapes[name] for name in tapped.values if name in self._shapes and name not in later}
        taken = sum(_taken(shape) for shape in shapes.values()) + _ALIGNED
        if self._bytes.nbytes < taken:
            self._bytes = np.empty(taken, np.uint8)
        return Bound(session, self._bytes, tapped.values, shapes)


class Bound:
    """A session whose outputs are written where they were written before; ``views`` are those."""

    def __init__(
        self, session: Any, memory: Tensor, fetches: Iterable[str], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._session = session
        self._binding: Any = session.io_binding()
        self._views: dict[str, Tensor] = {}
        self._others: list[str] = []
        begin = -int(memory.ctypes.data) % _ALIGNED
        for name in fetches:
            if name not in shapes:
                self._others.append(name)
                self._binding.bind_output(name)
                continue
            count = math.prod(shapes[name])
            view = memory[begin : begin + 4 * count].view(np.float32).reshape(shapes[name])
            begin += _taken(shapes[name])
            self._views[name] = view
            self._binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(view))

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, in the order in which they were asked for; raises where one has another shape than it had."""
        for name, value in feeds.items():
            self._binding.bind_ortvalue_input(name, value)
        try:
            self._session.run_with_iobinding(self._binding)
            return list(self._binding.get_outputs())
        finally:
            # what is bound is kept
            self._binding.clear_binding_inputs()
            for name in self._others:
                self._binding.bind_output(name)

    def views(self) -> dict[str, Tensor]:
        """What was written to the memory, as arrays that no other run has given."""
        return {name: view[...] for name, view in self._views.items()}


def _taken(shape: Sequence[int]) -> int:
    """Bytes from the beginning of a value to that of the next."""
    return -(-4 * math.prod(shape) // _ALIGNED) * _ALIGNED
