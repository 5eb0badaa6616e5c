"""What several processes exchange: the tensors of a collective, which nobody reads while it may be under way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import strided
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from types import FrameType

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Row
    from whynan.capture.torch.interposition.collective_calls import Call, CallLog
    from whynan.capture.torch.operators import Operator
    from whynan.records import Site

_IN_PLACE: Final = ("allreduce_", "allreduce_coalesced_", "reduce_", "all_reduce_", "all_reduce_coalesced_")
"""What they give stands where what went in stood: an element that was bad before it is bad by itself."""
_BY_RANK: Final = ("gather_", "allgather_", "alltoall_")
"""What they give are the results of each rank of their group, in its order."""
_NOTHING: Final = (-1, None)
_MOST: Final = 1 << 12
_ONE_WAY: Final = ("send", "isend", "barrier", "monitored_barrier_", "wait_tensor")
"""Those that write no tensor."""


_tensors_in = interventions.tensors_in


def active_log() -> CallLog | None:
    """The log of the program's calls; None where nobody keeps one."""
    kept = sys.modules.get("whynan.capture.torch.interposition.collective_calls")
    return None if kept is None else kept.active_log()


def _root_of(args: Any) -> tuple[int | None, bool]:
    """Whose numbers a broadcast gives, among all ranks, and whether it is this one; torch itself calls some."""
    from torch import distributed

    try:
        group: Any = distributed.ProcessGroup.unbox(args[1])
        root = int(args[2])
        return distributed.get_global_rank(group, root), bool(group.rank() == root)
    except (RuntimeError, ValueError, TypeError, AttributeError):
        # a group of which the program's own side knows nothing
        return None, False


def _plain(base: str) -> str:
    return base.strip("_").removesuffix("_base")


class CollectiveLog:
    """The collectives of a trace: who wrote what they give, and what this process has put in.

    Their tensors are written by another thread until the program waits for it, so that they are looked at where the
    program reads them.
    """

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self.is_any = False
        self._sent: dict[int, int] = {}
        """What was bad of what this process has put in, as a set of labels, by the collective."""
        self._left: dict[int, tuple[int, int | None]] = {}
        """By storage, the collective that has written it last, and the place of the rank whose part it is."""
        self._senders: dict[int, int] = {}
        """Of those that give what one rank has put in, which that is, by the collective."""
        self._calls: dict[int, Call] = {}
        """The program's own calls of them, where it is a rank of a run of several."""

    def record_collective(self, operator: Operator, args: Any, out: Any, ordinal: int) -> bool:
        """Note an event that is a collective, which may be under way still, or the end of one; False where it is none.

        What it writes is not to be looked at now.
        """
        if not operator.collective:
            return self.is_any and self._completes(args)
        self.is_any = True
        self._begin(operator, args, out, ordinal)
        return True

    def _begin(self, operator: Operator, args: Any, out: Any, ordinal: int) -> None:
        base, log = operator.base, active_log()
        call = None if log is None else log.here.current
        if call is not None:
            if len(self._calls) > _MOST:
                self._calls.clear()
            self._calls[ordinal] = call
        if base in _ONE_WAY:
            if log is not None and base == "send" and self._context.any_marked and self._labels(_tensors_in(args[0])):
                log.note_sent(call, base, self._site(ordinal))
            return
        # one of c10d's writes its first argument
        library = operator.name.startswith("c10d.")
        written = _tensors_in(args[0] if library else out)
        in_place = base in _IN_PLACE
        if self._context.any_marked or self._sent:
            own = not library or in_place or base == "broadcast_"
            labels = self._labels(_tensors_in(args if own else args[1:]))
            if labels and log is not None:
                log.note_sent(call, _plain(base), self._site(ordinal))
            if labels:
                self._sent[ordinal] = self._context.labels.intern(labels)
        if base == "broadcast_":
            root, is_own = _root_of(args)
            if is_own:
                # it is read alone
                return
            if len(self._senders) > _MOST:
                self._senders.clear()
            if root is not None:
                self._senders[ordinal] = root
        for place, tensor in enumerate(written):
            self._leave(tensor, ordinal, place if base in _BY_RANK else None, in_place=in_place)

    def _completes(self, args: Any) -> bool:
        """Whether a copy is the end of a collective, from memory of its own (gloo's reduce_scatter)."""
        rows = self._context.rows
        try:
            own = rows.writer_of(args[1]) < 0 and bool(self.collective_of(rows.get(rows.writer_of(args[0]))))
        except (RuntimeError, NotImplementedError):
            return False
        # of the program's own it cannot be told from one of its data
        if not own:
            return False
        caller: FrameType | None = sys._getframe(1)
        while caller is not None and owner_of(caller.f_code.co_filename) is Owner.WHYNAN:
            caller = caller.f_back
        return caller is not None and owner_of(caller.f_code.co_filename) is Owner.TORCH

    def collective_of(self, row: Row | None) -> str:
        """By which collective a tensor came that nothing else has written since; empty where by none."""
        return _plain(row.operator.base) if row is not None and row.operator.collective else ""

    def writer_of(self, tensor: Tensor, reader: int) -> Row | None:
        """The event that wrote a tensor before `reader` did: that may write in place what it reads."""
        rows = self._context.rows
        made = rows.get(rows.writer_of(tensor))
        if made is None or made.ordinal != reader:
            return made
        return rows.get(self._left.get(tensor.untyped_storage()._cdata, _NOTHING)[0]) or made

    def sent_labels(self, row: Row) -> int:
        """What this process has put into a collective that was bad, if that may have come back; 0 for nothing."""
        return self._sent.get(row.ordinal, 0)

    def note_received(self, row: Row, tensor: Tensor) -> None:
        """What a collective has left in a tensor is bad, and this process has not put it in."""
        log = active_log()
        if log is not None:
            ordinal, place = self._left.get(tensor.untyped_storage()._cdata, _NOTHING)
            place = place if ordinal == row.ordinal else None
            call, sender = self._calls.get(row.ordinal), self._senders.get(row.ordinal)
            log.note_received(call, self.collective_of(row), self._site(row.ordinal), place, sender)

    def _site(self, ordinal: int) -> Site | None:
        row = self._context.rows.get(ordinal)
        return None if row is None else self._context.sites.resolve(row.site, None)[0]

    def _labels(self, tensors: list[Tensor]) -> frozenset[int]:
        found = frozenset[int]()
        for tensor in tensors:
            try:
                state = self._context.state_of(tensor)
                made = self._context.rows.get(self._context.rows.writer_of(tensor))
            except (RuntimeError, NotImplementedError):
                continue
            if made is not None and made.ordinal in self._sent:
                found |= self._context.labels.sets[self._sent[made.ordinal]]
            if state is not None and state.plane is not None:
                found |= self._context.labels.labels_in(strided(state.plane, state.itemsize, tensor))
        return found

    def _leave(self, tensor: Tensor, ordinal: int, place: int | None, *, in_place: bool) -> None:
        try:
            state = self._context.state_of(tensor)
            self._context.rows.note(tensor, ordinal)
            if len(self._left) > _MOST:
                self._left.clear()
            self._left[tensor.untyped_storage()._cdata] = ordinal, place
        except (RuntimeError, NotImplementedError):
            # a wrapper around what another operator is given
            return
        if state is not None and not in_place:
            state.clear_overwritten(tensor, overwrites=True)
