"""What one thread of a traced program is in the midst of, and the phases of its events by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from whynan.capture.torch.operators import Operator
    from whynan.records import Phase

FORWARD, BACKWARD, ACCUMULATION, OPTIMIZER = range(4)
PHASES: tuple[Phase, ...] = ("forward", "backward", "accumulation", "optimizer")
NODES_MASK = (1 << 17) - 1

_sequence_nr = torch.autograd._get_sequence_nr


class Lane:
    """What one thread is in the midst of: its autograd nodes' sites, module calls, backward and optimizer step."""

    def __init__(self) -> None:
        self.sequence = _sequence_nr()
        # numbers of nodes that a clone has just been given, and its site
        self.fresh: tuple[int, int, int] | None = None
        self.nodes: dict[int, tuple[int, int, Operator, int, int]] = {}
        self.modules: list[int] = []
        self.module = 0
        self.create_graph = False
        self.engine_depth = 0
        self.backward: Any = None
        self.optimizer: Any = None
        self.optimizer_site = 0
        self.optimizer_own = False
        """Whether the class of the optimizer under way is the program's own: its step's own lines are told then."""
        self.closure = False
        self.loading = 0
        """How many loaders are fetching a batch, one inside the other."""
        self.loss_labels: frozenset[int] = frozenset()

    def begin(self) -> None:
        """From here on this thread is looked at; autograd has numbered nodes before."""
        self.sequence = _sequence_nr()

    def follow(self, other: Lane) -> None:
        """What a thread of the engine's works for: the backward that another thread has begun."""
        self.nodes = other.nodes
        self.backward = other.backward
        self.create_graph = other.create_graph
        self.loss_labels = other.loss_labels

    def entry(self, number: int) -> tuple[int, int, Operator, int, int] | None:
        """What is known of the forward operation of this sequence number: it, site, operator, ordinal, module."""
        known = self.nodes.get(number & NODES_MASK)
        return known if known is not None and known[0] == number else None

    def saved_itself(self, operator: Operator, site: int, ordinal: int) -> None:
        """An operation in place may save a copy of its operand first: the nodes are its own, not the copy's."""
        assert self.fresh is not None
        start, end, where = self.fresh
        self.fresh = None
        if operator.writes_first and site == where:
            for number in range(max(start, end - 64), end):
                self.nodes[number & NODES_MASK] = (number, site, operator, ordinal, self.module)
