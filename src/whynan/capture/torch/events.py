"""The facts of an event: its phase, its site, the forward operation that it differentiates."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction

from whynan.capture.torch.event_log import Held, held_of
from whynan.capture.torch.sites import PHASES
from whynan.traces import Event

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent, Row
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.sites import Lane


class Events:
    """Makes the record of an event from its row, once it is worth one."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self.leaf_sites = context.log.leaf_sites

    def event(self, row: Row, node: Any, lane: Lane, args: Any) -> Event:
        """The facts of an event: phase, site, gradient function."""
        context, operator = self.context, row.operator
        phase: Any = PHASES[row.phase]
        grad_fn: str | None = None
        forward_op: str | None = None
        module = row.module
        recomputed = False
        if row.phase == 1:
            grad_fn = type(node).__name__
            known = lane.entry(node)
            if known is not None:
                # a hook, or a custom function's backward, is no derivative of an operation
                own = known[1] == row.site and not isinstance(node, BackwardCFunction)
                forward_op = known[2].name if own else None
                module = known[4]
            if self._engine_sum(row, operator, node, args):
                phase, grad_fn, forward_op = "accumulation", None, None
        elif row.phase == 2:
            grad_fn = "AccumulateGrad"
        elif node is not None:
            recomputed = True
        if operator.collective:
            phase = "collective"
        leaf: Any = getattr(node, "variable", None) if row.phase == 2 else None
        number = row.site if leaf is None else self._first_use(leaf)
        site, library_site = context.sites.resolve(number, context.names.module_path(module))
        if phase == "forward" and self._writes_buffer(operator, args):
            phase = "buffer"
        if phase == "forward" and lane.loading:
            phase = "data"
        step, micro = context.log.steps.now(in_backward=node is not None)
        return Event(
            ordinal=row.ordinal - context.first,
            op=operator.name,
            phase=phase,
            site=site,
            library_site=library_site,
            grad_fn=grad_fn,
            forward_op=forward_op,
            step=step,
            micro=micro,
            recomputed=recomputed,
        )

    def first_used(self, leaf: Tensor, site: int) -> None:
        """A leaf is an operand: where that was first is where its gradient accumulates later."""
        known = self.leaf_sites.get(id(leaf))
        if known is None or known[0]() is not leaf:
            self.leaf_sites[id(leaf)] = weakref.ref(leaf), site, self.context.lane()

    def _first_use(self, leaf: Tensor) -> int:
        known = self.leaf_sites.get(id(leaf))
        return known[1] if known is not None and known[0]() is leaf else 0

    def _writes_buffer(self, operator: Operator, args: Any) -> bool:
        """Whether an event changes a module's buffer in place."""
        if not operator.mutable or operator.base == "native_batch_norm" or not args:
            return False
        return isinstance(args[0], torch.Tensor) and self.context.names.describe(args[0])[1] == "buffer"

    def _engine_sum(self, row: Row, operator: Operator, node: Any, args: Any) -> bool:
        """Whether this `add` is the engine's own, of two gradients: its first addend is no work of this node.

        The engine adds under the node that finished last, so the node's name does not tell (pytorch 2.13).
        """
        if operator.name not in ("aten.add.Tensor", "aten.add_.Tensor") or len(args) < 2:
            return False
        held = held_of(args[:2], self.context.rows.writer_of)
        if not all(isinstance(h, Held) for h in held) or held[0].shape != held[1].shape:
            return False
        writers = [self.context.rows.get(h.writer) for h in held]
        if operator.mutable or writers[0] is None or writers[0].phase != 1:
            return False
        own = [w is not None and w.node is row.node and self._same_evaluation(w, row) for w in writers]
        if not own[0]:
            return True
        targets = [(id(f), i) for f, i in node.next_functions if f is not None]
        return own[1] and len(targets) != len(set(targets))

    def _same_evaluation(self, writer: Row, row: Row) -> bool:
        """Whether every event between two rows ran under the same node as they."""
        for ordinal in range(writer.ordinal, row.ordinal):
            between = self.context.rows.get(ordinal)
            if between is None or between.node is not row.node or between.site != row.site:
                return False
        return True

    def forward_row(self, event: Event, live: LiveEvent) -> Row | None:
        """The forward event whose gradient this backward event computes."""
        if event.phase != "backward" or event.forward_op is None:
            return None
        known = live.lane.entry(live.node)
        return None if known is None else self.context.rows.get(known[3])
