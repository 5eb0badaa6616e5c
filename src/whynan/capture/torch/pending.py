"""What would be a sink if the run ended now: what waits in gradients and outputs for what the program does next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.capture.torch.leaves import was_reset

if TYPE_CHECKING:
    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.leaves import Leaf
    from whynan.traces import Sink


class Pending:
    """Reads the sinks of a run that goes on, and changes none of them."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self._log = context.log
        self._read = 0
        self._found: set[Any] = set()

    def sinks(self) -> list[Sink]:
        """Gradients that nothing has used or discarded, the losses that they came from, outputs without a backward."""
        waiting = self._log.awaited()
        if self._context.entered:
            # to read a gradient while another thread's engine writes it is a race in PyTorch itself
            return waiting
        for leaf in self._log.leaves.values():
            if (leaf.left or leaf.pending) and self._held(leaf):
                waiting += leaf.left
                waiting += [sink for record in leaf.pending.values() for sink in record.loss]
        return waiting

    def places(self) -> tuple[int, frozenset[Any]]:
        """How many places the sinks have that were found, and which others wait: differs where one is new."""
        found = self._log.found
        self._found.update(map(_place, found[self._read :]))
        self._read = len(found)
        return len(self._found), frozenset(map(_place, self.sinks())) - self._found

    def _held(self, leaf: Leaf) -> bool:
        """Whether the program still has a leaf's gradient, or let the leaf go with it."""
        tensor = leaf.reference()
        if tensor is None:
            return True
        if tensor.grad is None or was_reset(self._context.rows, tensor.grad):
            return False
        state = self._context.state_of(tensor.grad)
        return state is None or not state.skipped


def _place(sink: Sink) -> tuple[Any, ...]:
    return sink.kind, sink.name, sink.labels, sink.damage
