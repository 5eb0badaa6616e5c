"""The trace context: what all parts of one trace share, from its labels and rows to the lanes of its threads."""

from __future__ import annotations

import threading
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whynan.capture.torch.event_log import Rows
from whynan.capture.torch.names import Names
from whynan.capture.torch.provenance.labels import Labels
from whynan.capture.torch.shadow_memory import ATTRIBUTE, Ranges, State, elements, store
from whynan.capture.torch.sinks.sink_log import SinkLog
from whynan.capture.torch.sites import Lane, Lanes, Sites
from whynan.faults import is_program_error, report_internal_error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

    from whynan.records import Note

_next_ordinal = [1]


@dataclass(eq=False)
class TraceContext:
    """One trace, as its parts know it; made first, and on every thread the same.

    `copy_all`: what any operation overwrites is copied. `narrowed`: only some modules are looked at.
    """

    rows: Rows
    copy_all: bool = False
    narrowed: bool = False
    every_thread: bool = False
    active: bool = True
    failed: bool = False
    first: int = field(default_factory=lambda: _next_ordinal[0])
    ordinal: int = field(default_factory=lambda: _next_ordinal[0])
    labels: Labels = field(default_factory=Labels)
    sites: Sites = field(default_factory=Sites)
    names: Names = field(default_factory=Names)
    log: SinkLog = field(default_factory=SinkLog)
    ranges: Ranges = field(default_factory=Ranges)
    notes: dict[Note, None] = field(default_factory=lambda: {})
    scope: tuple[int, ...] = ()
    compiled_regions: int = 0
    target: Any = None
    marked: weakref.WeakSet[State] = field(default_factory=lambda: weakref.WeakSet[State]())
    uninitialised: weakref.WeakSet[State] = field(default_factory=lambda: weakref.WeakSet[State]())
    any_marked: bool = False
    refused: tuple[Exception, list[Tensor]] | None = None
    """What the last operation has raised, and the whole numbers that it was given and that came of what is bad."""
    main: Lane = field(default_factory=Lane)
    local: threading.local = field(default_factory=threading.local)
    lanes: Lanes = field(default_factory=Lanes)
    thread: int = field(default_factory=threading.get_ident)
    mode: Any = None
    """The mode that shows the trace the operations of the threads that entered it."""
    entered: dict[int, Any] = field(default_factory=lambda: {})
    """The mode as each further thread has entered it, by the thread's number."""
    one_at_a_time: threading.RLock = field(default_factory=threading.RLock)
    lock: threading.RLock | None = None
    """The same, once there is a second thread."""

    def __post_init__(self) -> None:
        self.main.lanes = self.lanes
        self.lanes.program.append(self.main)
        self.local.lane = self.main

    # -- threads -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From here on this thread, the trace's own, is looked at."""
        self.thread = threading.get_ident()
        self.local.lane = self.main
        self.main.begin()

    def lane(self) -> Lane:
        """This thread's lane; a device thread of the engine has the autograd sites of the thread that called it."""
        try:
            return self.local.lane
        except AttributeError:
            lane = self.local.lane = Lane(self.lanes)
            lane.follow(self.main)
            lane.running = False
            lane.of_engine = True
            # it works within a call of the engine, of another thread
            lane.engine_depth = 1
            self.lanes.engines.append(lane)
            return lane

    def enter_thread(self) -> None:
        """From here on this thread, one that the program has started, is looked at too."""
        self.lock = self.lock or self.one_at_a_time
        # numbers of autograd nodes are the thread's own
        lane = self.local.lane = Lane(self.lanes)
        self.lanes.program.append(lane)
        self.log.steps.enter_thread()

    @property
    def stepping(self) -> bool:
        """Whether this thread is inside an optimizer's step that computes no loss of its own."""
        lane = self.lane()
        return lane.optimizer is not None and not lane.closure

    def alone(self) -> AbstractContextManager[object]:
        """A stretch in which no other thread's events are looked at."""
        return self.lock or nullcontext()

    # -- the life of the trace -----------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """Dispatcher calls seen so far."""
        return self.ordinal - self.first - self.compiled_regions

    def enter_scope(self, *numbers: int) -> None:
        """Number what follows: what is born in it carries the numbers."""
        self.scope = (*self.scope, *numbers)

    def leave_scope(self, number: int) -> None:
        """End the numbered stretch, the innermost of equal ones."""
        numbers = list(self.scope)
        del numbers[len(numbers) - 1 - numbers[::-1].index(number)]
        self.scope = tuple(numbers)

    def fail(self) -> bool:
        """An error of our own: warn once, keep the traceback in a file, and leave the run alone.

        True where it is none of ours but the program's, which is to be raised again.
        """
        if is_program_error():
            return True
        self.active = False
        self.failed = True
        self.forget_all()
        self.rows.let_go()
        report_internal_error()
        return False

    def close(self) -> None:
        """End the trace: let go of operands, and give the next trace its own ordinals."""
        _next_ordinal[0] = self.ordinal + 1
        self.forget_all()
        self.rows.clear()

    def forget(self, *tensors: Tensor) -> None:
        """Keep no weak reference to these."""
        for tensor in tensors:
            self.log.forget(tensor)
            self.names.forget(tensor)

    def forget_all(self) -> None:
        """Keep no weak reference to a tensor: with one, ``swap_tensors`` refuses what is the program's."""
        self.log.forget_all()
        self.names.given.clear()
        self.names.leaves.clear()

    # -- the states of storages ----------------------------------------------------------------------------------

    def state_of(self, tensor: Tensor) -> State | None:
        """This trace's state of a tensor's storage, if it has one."""
        try:
            state: Any = getattr(tensor.untyped_storage(), ATTRIBUTE, None)
        except (RuntimeError, NotImplementedError):
            values = elements(tensor)
            return None if values is tensor else self.state_of(values)
        return state if type(state) is State and state.trace == self.first else None

    def mark(self, tensor: Tensor) -> State:
        """This trace's state of a tensor's storage, made if there is none."""
        state = self.state_of(tensor)
        if state is None:
            state = State(self.first)
            setattr(tensor.untyped_storage(), ATTRIBUTE, state)
        self.marked.add(state)
        self.any_marked = True
        return state

    def leave_uninitialised(self, tensor: Tensor) -> None:
        """Mark a tensor as memory that nothing has been written to."""
        state = State(self.first)
        state.uninitialised = True
        setattr(tensor.untyped_storage(), ATTRIBUTE, state)
        self.uninitialised.add(state)
        self.any_marked = True

    def label(self, tensor: Tensor, carried: Tensor, *, backward: bool, only: int = 0) -> None:
        """Have the elements of a tensor carry these labels; `only`: the one set that they hold."""
        state = self.mark(tensor)
        state.backward = backward
        state.reads = 0
        state.skipped = False
        if not only:
            found = self.labels.present(carried)
            only = found[0] if len(found) == 1 else 0
        store(state, tensor, carried, only)
