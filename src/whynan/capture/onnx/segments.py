"""Segments of a graph, cut so that all live values fit in memory, and the buffers that they are written to."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.onnx.arrays import ort
from whynan.capture.onnx.sessions import CPU
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from whynan.capture.onnx.execution import Tensor
    from whynan.capture.onnx.graph.executed import Executable, TappedModel
    from whynan.capture.onnx.sessions import Kernel


# -- Where a graph is cut into segments, so that all that is alive at any time fits in memory --------------------------


Plan = tuple[int, ...]
"""Where the segments of a graph end: the last of them is the number of its nodes."""
SHARE: Final = 4
"""Without a bound, a fourth of the memory that is free is used."""
_SESSION: Final = 4 << 20
"""Bytes that a session takes by itself, at the least."""
_WEIGHTS: Final = 2
"""A session maps its weights, and packs them once more for its kernels."""
RECYCLED: Final = 32 << 20
"""Bytes of the values of a segment, at the most: to use memory again is far cheaper than to be given new pages."""
REPEATED: Final = 128 << 20
"""The same where a model is run several times: what the pages cost is paid once, and what a segment costs each time."""
_MMAP_THRESHOLD: Final = -3
_ONE_MIB: Final = 1 << 20


def lower_mmap_threshold(memory: int | None) -> None:
    """Have the process give memory back when a block is freed, where there is a bound to keep.

    glibc keeps ever larger blocks for later use, once such have been freed.
    """
    if memory is not None and (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, _ONE_MIB)


def trim_heap() -> None:
    """Give the memory of all that is gone back to the system; nothing large is in cycles that need a collection."""
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


def available_bytes(memory: int | None) -> int:
    """The bytes that may be taken in addition to what the process has, given the bound of the whole process.

    A fourth is left for what kernels need while they run, and for what is lost between blocks.
    """
    if memory is not None:
        return max(0, memory - resident()) * 3 // 4
    free = free_memory()
    return sys.maxsize if free is None else free // SHARE


def plan_of(graph: Executable, sizes: Mapping[int, int], room: int, recycled: int = RECYCLED) -> Plan:
    """The ends of the segments; ``sizes`` are the bytes that each node writes, as a run has told them.

    As many nodes in each as fit into the room, and as write no more than is well used again by the next; one at the
    least. Where the bytes are not known, there is one segment for each node, unless there is no bound to the room.
    """
    count = len(graph.nodes)
    if count == 0:
        return (count,)
    if len(sizes) < count:
        return (count,) if room >= sys.maxsize else tuple(range(1, count + 1))
    weights = [sum(_constants(graph, index)) for index in range(count)]
    ends: list[int] = []
    begin = 0
    while begin < count:
        end, taken, written = begin, _alive(graph, sizes, begin) + _SESSION, 0
        while end < count:
            more, weight = sizes[end], _WEIGHTS * weights[end]
            if end > begin and (taken + more + weight > room or written + more > recycled):
                break
            taken, written = taken + more + weight, written + more
            end += 1
        ends.append(end)
        begin = end
    return tuple(ends)


def _alive(graph: Executable, sizes: Mapping[int, int], begin: int) -> int:
    """The bytes of the values that come from before a node and are still read."""
    return sum(
        sizes[index] // max(1, len(graph.nodes[index].outputs))
        for name, index in graph.producers.items()
        if index < begin and (graph.last_reads.get(name, -1) >= begin or name in graph.outputs)
    )


def _constants(graph: Executable, index: int) -> list[int]:
    """The bytes of the weights that a node reads, as far as they lie in files."""
    found = [graph.constants[name] for name in graph.reads[index] if name in graph.constants]
    return [int(entry.value) for tensor in found for entry in tensor.external_data if entry.key == "length"]


def resident() -> int:
    """The bytes that the process has in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_exceeded_note(memory: int | None) -> Note | None:
    """What is to be said where the process has come to more than its bound; None where it has not, or none can tell."""
    most = _peak()
    if memory is None or most is None or most <= memory:
        return None
    return Note.create("memory_exceeded", came_to=most, limit=memory)


def _peak() -> int | None:
    """The most bytes that the process ever had in memory.

    Not ``ru_maxrss``: a new program inherits that from the process that started it, which may be the larger one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)


def free_memory() -> int | None:
    """The bytes that the machine could give; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    free = None if found is None else int(found.split()[1]) << 10
    limit = _limit_of_group()
    return limit if free is None else free if limit is None else min(free, limit)


def _limit_of_group() -> int | None:
    """What is left of the memory that a container has been given."""
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        return max(0, most - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return None


def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
    except (OSError, TypeError):
        return None


# -- Memory that the values of a segment are written to, side by side, and that is used again by the next one ----------


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

    def bind_outputs(
        self, session: Any, begin: int, end: int, tapped: TappedModel, later: Collection[str]
    ) -> Bound | None:
        """The outputs of a session that runs the nodes of a segment; ``later`` are those that are still read then."""
        if (begin, end) not in self._plan:
            return None
        shapes = {name: self._shapes[name] for name in tapped.values if name in self._shapes and name not in later}
        taken = sum(_aligned_bytes(shape) for shape in shapes.values()) + _ALIGNED
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
            begin += _aligned_bytes(shapes[name])
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


def _aligned_bytes(shape: Sequence[int]) -> int:
    """Bytes from the beginning of a value to that of the next."""
    return -(-4 * math.prod(shape) // _ALIGNED) * _ALIGNED
