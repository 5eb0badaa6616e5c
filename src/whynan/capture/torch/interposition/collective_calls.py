"""The program's calls of collectives: each numbered as the other ranks number it, and what it gave kept for a replay.

Only in a run of several ranks. A healthy step pays for a copy of what its collectives gave, within a budget.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d

from whynan.capture.ranks import CollectiveRefused
from whynan.capture.torch.interposition.wrappers import call_fenced, install_door, register_door, strip_own_frames
from whynan.capture.torch.sites import Sites

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from whynan.records import Site

_FIRST: Final = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter"),
    # the second names of two of them are those of torch 2.13
    *(
        "reduce_scatter_tensor",
        "reduce_scatter_single",
        "all_gather_single",
        "all_to_all",
        "all_to_all_single",
        "scatter",
        "recv",
        "irecv",
    ),
)
"""Those that write their first argument."""
_WRITES: Final = {**dict.fromkeys(_FIRST, 0), "gather": 1, "send": None, "isend": None, "barrier": None}
_BY_RANK: Final = ("gather", "all_gather", "all_to_all")
_POINT_TO_POINT: Final = ("send", "isend", "recv", "irecv")
_GROUPS: Final = {
    "new_group": "it makes a process group",
    "init_process_group": "it joins the ranks",
    "destroy_process_group": "it ends a process group",
}
"""What makes groups and ends them, which a replay does not."""
_KEPT_CALLS: Final = 1 << 16
_TOLD: Final = 64
_DEVICE_SHARE: Final = 16
"""On an accelerator a part of the budget: its memory is the program's."""


@dataclass(eq=False)
class Call:
    """One call of a collective: its group, its number in it, from 1, and copies of what it gave.

    `lost`: why there are none.
    """

    operation: str
    group: str
    sequence: int
    began: float
    results: list[Tensor] = field(default_factory=list[Tensor])
    lost: str = ""
    bytes: int = 0
    work: int = 0
    """The identity of the work that is waited for; 0 where none is."""
    sender: int | None = None
    """The only rank that puts something in; None where all do."""
    site: int = 0
    """Of one that this rank alone puts something in, the number of its site."""
    members: Sequence[int] = ()
    """The ranks of its group, where what each has put in is told apart."""

    @property
    def key(self) -> tuple[str, int, str]:
        """What is the same of a call on all ranks that take part in it."""
        return self.group, self.sequence, _plain(self.operation)


@dataclass(frozen=True)
class BadCall:
    """A call that a bad number was put into, or may have been, or has come out of, and where it stands."""

    key: tuple[str, int, str]
    site: Site | None
    sender: int | None = None


class CollectiveCalls(threading.local):
    """Where one thread is: in which call of the program's; and in a replay, which calls are still to come."""

    def __init__(self) -> None:
        self.current: Call | None = None
        self.replayed: deque[Call] | None = None
        self.is_together = False
        """Whether all ranks make this replay, so that each call is made and none is answered."""
        self.counts: dict[tuple[str, str], int] | None = None
        """The numbers of the calls in a replay that begins with the program; None in any other."""


class CallLog:
    """The calls of a run, the last ones with what they gave. `budget`: bytes of copies; `fail`: of errors of ours."""

    def __init__(self, budget: int, fail: Callable[[], bool]) -> None:
        self.here = CollectiveCalls()
        self.sent: list[BadCall] = []
        self.received: list[BadCall] = []
        self.shared = False
        """Whether a replay has met a sum of torch's own, of which it has given this rank's part."""
        self.uncalled = 0
        """How many of the calls since its mark a replay was to make, and has not made."""
        self._ahead: dict[float, int] = {}
        self._sites = Sites()
        self._budget = budget
        self._fail = fail
        self._calls: deque[Call] = deque(maxlen=_KEPT_CALLS)
        self._bytes = 0
        self._counts: dict[tuple[str, str], int] = {}
        self._pending: dict[int, tuple[Any, Call, list[Tensor]]] = {}
        """The works of the last steps that nobody has waited for, within the same budget."""
        self._steps: deque[float] = deque([0.0], maxlen=3)
        self._undo: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def install(self) -> None:
        """Stand at the functions of ``torch.distributed``."""
        for name, written in _WRITES.items():
            if hasattr(distributed_c10d, name):
                self._undo.append(install_door(distributed_c10d, name, functools.partial(self._door, name, written)))
                door = getattr(distributed_c10d, name)
                self._undo.append(install_door(distributed, name, functools.partial(_same, door)))
        self._undo.append(install_door(distributed.Work, "wait", self._waiting))
        for name in _GROUPS:
            self._undo.append(install_door(distributed_c10d, name, functools.partial(self._grouping, name)))
            door = getattr(distributed_c10d, name)
            self._undo.append(install_door(distributed, name, functools.partial(_same, door)))

    def remove(self) -> None:
        """Leave them."""
        while self._undo:
            self._undo.pop()()
        self._pending.clear()

    def abandon_in_child(self) -> None:
        """In a forked child: nothing is kept, and the lock may be held by a thread that is not there."""
        self._lock = threading.Lock()
        self.remove()

    def end_step(self) -> None:
        """An optimizer is about to step: what was given two steps before is not replayed any more."""
        with self._lock:
            oldest = self._steps[0]
            self._steps.append(time.monotonic())
            while self._calls and self._calls[0].began < oldest:
                self._forget(self._calls.popleft())

    def calls_since(self, began: float) -> deque[Call]:
        """The calls since a mark, but for those that were made ahead of where a replay begins."""
        self._settle()
        with self._lock:
            calls = deque(call for call in self._calls if call.began >= began)
        for _ in range(min(self._ahead.get(began, 0), len(calls))):
            calls.popleft()
        return calls

    def leave_out(self, began: float, calls: int) -> None:
        """So many more of the calls since a mark were made ahead of where a replay begins, as in an optimizer's end."""
        self._ahead[began] = self._ahead.get(began, 0) + calls

    def counts(self) -> dict[str, int]:
        """How many calls there were in each group; of those from one rank to another, on either side of them.

        Where all ranks of each group have the same, no call is under way.
        """
        with self._lock:
            return {group: number for (group, _), number in self._counts.items()}

    def note_sent(self, call: Call | None, operation: str, site: Site | None) -> None:
        """A bad number was put into a call, or into a collective of torch's own."""
        _add(self.sent, ("", 0, operation) if call is None else call.key, site)

    def note_received(
        self, call: Call | None, operation: str, site: Site | None, place: int | None, sender: int | None = None
    ) -> None:
        """A bad number has come out of one, in the result of the rank at a place of its group if that is known.

        `sender`: the rank that alone has put something in, as the operation itself says.
        """
        if call is not None:
            sender = call.sender if sender is None else sender
        if call is not None and place is not None and place < len(call.members):
            sender = call.members[place]
        _add(self.received, ("", 0, operation) if call is None else call.key, site, sender)

    def crossings(self) -> tuple[list[BadCall], list[BadCall]]:
        """What is known of the bad numbers that were sent, and received; a replay from another place begins anew."""
        known = self.sent, self.received
        self.sent, self.received = [], []
        return known

    def set_crossings(self, known: tuple[list[BadCall], list[BadCall]]) -> None:
        """Know that again, where nothing comes of the replay."""
        self.sent, self.received = known

    def given(self) -> list[BadCall]:
        """The calls of the last steps that this rank alone has put something in."""
        with self._lock:
            calls = [call for call in self._calls if call.site]
        return [BadCall(call.key, self._sites.resolve(call.site, None)[0]) for call in calls[-_TOLD:]]

    # -- doors -----------------------------------------------------------------------------------------------------

    def _door(self, name: str, written: int | None, original: Any) -> Any:
        @functools.wraps(original)
        def door(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self.here.current is not None:
                # what a tensor's own __torch_function__ calls is the same call
                return original(*args, **kwargs)
            call = call_fenced(self._fail, self._begin, name, args, kwargs)
            self.here.current = call
            try:
                out = original(*args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                self.here.current = None
            if call is not None and self.here.replayed is None:
                call_fenced(self._fail, self._end, call, written, args, kwargs, out)
            return out

        return door

    def _waiting(self, original: Any) -> Any:
        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                out = original(work, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            if self._pending and not torch.compiler.is_compiling():
                call_fenced(self._fail, self._waited, work)
            return out

        return wait

    def _grouping(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def door(*args: Any, **kwargs: Any) -> Any:
            if name == "init_process_group" and self.here.counts is not None and distributed.is_initialized():
                # the group is there
                return None
            if self.here.replayed is not None:
                raise CollectiveRefused(_GROUPS[name])
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise

        return door

    def _begin(self, name: str, args: Any, kwargs: Any) -> Call | None:
        counts = self.here.counts
        if self.here.is_together and counts is None:
            return self._known(name)
        if self.here.replayed is not None and counts is None:
            return self._next(name)
        if not distributed.is_initialized():
            return None
        # the same on all of its ranks
        group = str(getattr(_group_given(args, kwargs), "group_name", ""))
        counted = name
        if name in _POINT_TO_POINT:
            group = f"{group} {_peers(name, args, kwargs)}"
            counted = "send" if "send" in name else "recv"
        else:
            counted = ""
        with self._lock:
            numbers = self._counts if counts is None else counts
            number = numbers[group, counted] = numbers.get((group, counted), 0) + 1
            call = Call(name, group, number, time.monotonic(), sender=_sender(name, args, kwargs))
            if call.sender == distributed.get_rank() or name in ("send", "isend"):
                call.site = self._sites.current_site(2)
            if name in _BY_RANK:
                call.members = distributed.get_process_group_ranks(_group_given(args, kwargs))
            if counts is None:
                if len(self._calls) == self._calls.maxlen:
                    self._forget(self._calls[0])
                self._calls.append(call)
        return call

    def _known(self, name: str) -> Call | None:
        """In a replay that makes its calls: the one of the program's that this is, as far as they are the same."""
        waiting = self.here.replayed
        if waiting and waiting[0].operation != name:
            waiting.clear()
        return waiting.popleft() if waiting else None

    def _next(self, name: str) -> Call:
        """In a replay: the call that the program has made here."""
        waiting = self.here.replayed
        if not waiting:
            raise CollectiveRefused(f"it calls {name} once more than the step did")
        call = waiting.popleft()
        if call.operation != name:
            waiting.clear()
            waiting.append(call)
            raise CollectiveRefused(f"it calls {name} where the step called {call.operation}")
        if call.lost:
            waiting.clear()
            raise CollectiveRefused(f"what {name} gave was not kept: {call.lost}")
        return call

    def _end(self, call: Call, written: int | None, args: Any, kwargs: Any, out: Any) -> None:
        if written is None:
            return
        tensors = list(tensors_of(args[written] if len(args) > written else next(iter(kwargs.values()), None)))
        if written == 1 and len(args) < 2:
            tensors = list(tensors_of(kwargs.get("gather_list")))
        if isinstance(out, distributed.Work) and call.operation != "recv":
            call.lost = "nobody has waited for it"
            if self._has_room(call, tensors):
                call.work = id(out)
                self._pending[call.work] = out, call, tensors
        elif self._has_room(call, tensors):
            self._keep(call, tensors)

    def _waited(self, work: Any) -> None:
        _, call, tensors = self._pending.pop(id(work), (None, None, []))
        if call is not None:
            call.lost = ""
            self._keep(call, tensors)

    def _settle(self) -> None:
        """Keep what is there already, and was not waited for: nothing has been read since as far as the program may."""
        for work, _, _ in list(self._pending.values()):
            if work.is_completed():
                self._waited(work)

    def _has_room(self, call: Call, tensors: list[Tensor]) -> bool:
        """Whether what a call gives can be kept; it has its place in the budget from here on."""
        if not all(map(_is_plain, tensors)):
            call.lost = "it is no plain tensor"
            return False
        size = sum(t.nbytes for t in tensors)
        budget = self._budget if all(t.device.type == "cpu" for t in tensors) else self._budget // _DEVICE_SHARE
        with self._lock:
            if self._bytes + size > budget:
                call.lost = "more was exchanged in a step than is kept (--memory)"
                return False
            call.bytes = size
            self._bytes += size
        return True

    def _keep(self, call: Call, tensors: list[Tensor]) -> None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            call.results = [t.detach().clone() for t in tensors]

    def _forget(self, call: Call) -> None:
        self._bytes -= call.bytes
        if call.work in self._pending and self._pending[call.work][1] is call:
            del self._pending[call.work]


def _is_plain(tensor: Tensor) -> bool:
    """Whether it has memory of its own, of numbers: it is not sparse, quantized, of no device, or a wrapper."""
    kinds = (Tensor, torch.nn.Parameter)
    return type(tensor) in kinds and tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)


_active: CallLog | None = None


def active_log() -> CallLog | None:
    """The log of this process, where it is a rank of a run of several."""
    return _active


def begin_log(budget: int, fail: Callable[[], bool]) -> CallLog:
    """Keep what collectives give from here on."""
    global _active
    _active = CallLog(budget, fail)
    _active.install()
    return _active


def _same(door: Any, original: Any) -> Any:
    """One function under two names stays one."""
    del original
    register_door(door)
    return door


def _plain(name: str) -> str:
    return "send" if name in _POINT_TO_POINT else name


def _add(known: list[BadCall], key: tuple[str, int, str], site: Site | None, sender: int | None = None) -> None:
    if len(known) < _TOLD and all(one.key != key for one in known):
        known.append(BadCall(key, site, sender))


def _group_given(args: Any, kwargs: Any) -> Any:
    """The group of a call."""
    group = kwargs.get("group") or next((a for a in args if isinstance(a, distributed.ProcessGroup)), None)
    return group or distributed.group.WORLD


def _sender(name: str, args: Any, kwargs: Any) -> int | None:
    """The rank whose numbers a call gives to others."""
    place = {"broadcast": 1, "recv": 1, "irecv": 1, "scatter": 2}.get(name)
    given = None if place is None else _rank_given(place, "src", args, kwargs)
    if given is None and name == "scatter":
        return 0
    return given if isinstance(given, int) else None


def _peers(name: str, args: Any, kwargs: Any) -> str:
    """From which rank to which: ``0>1``."""
    own, sends = distributed.get_rank(), "send" in name
    other = _rank_given(1, "dst" if sends else "src", args, kwargs)
    return f"{own}>{other}" if sends else f"{other}>{own}"


def _rank_given(place: int, name: str, args: Any, kwargs: Any) -> Any:
    """The rank that a call is given, among all of them: as that, or as its number in the group."""
    given = args[place] if len(args) > place else kwargs.get(name)
    if given is None and (number := kwargs.get(f"group_{name}")) is not None:
        return distributed_c10d.get_global_rank(_group_given(args, kwargs), number)
    return given


def tensors_of(value: Any) -> Generator[Tensor]:
    """The tensors of what a collective is given or gives, in order; those of lists and tuples too."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_of(one)
