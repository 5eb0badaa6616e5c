"""Collectives in a replay: no rank is asked, each call gives what it gave in the step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.capture.ranks import CollectiveRefused
from whynan.capture.torch.interposition.collective_calls import active_log, tensors_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.capture.torch.interposition.collective_calls import Call, CallLog

_BARRIERS: Final = ("barrier", "monitored_barrier_")
_SHARES: Final = ("allreduce_", "broadcast_")
"""What torch itself calls, for DistributedDataParallel: each rank goes on with its own part."""


class ReplayedCollectives(TorchDispatchMode):
    """Answers c10d's operators in the place of the other ranks; `keep` is told of each tensor before it is written."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise importing torch._dynamo and a wrapper at every call; pytorch#164143

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # a compiled region stays compiled; pytorch#164143

    def __init__(self, log: CallLog, keep: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._log = log
        self._keep = keep
        self._alone: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        space, _, name = func._schema.name.partition("::")
        if space == "_c10d_functional" or space == "_c10d_functional_autograd":
            if name == "wait_tensor":
                return func(*args, **(kwargs or {}))
            raise self._refusal(f"it calls the functional collective {name}, whose result was not kept")
        if space != "c10d":
            return func(*args, **(kwargs or {}))
        call = self._log.here.current
        if name in _BARRIERS:
            return None if name == "monitored_barrier_" else self._work()
        if call is None:
            return self._share(func, name, args)
        return self._give(func, call, args)

    def _refusal(self, why: str) -> CollectiveRefused:
        """What ends the replay, for whatever reason but another order of calls."""
        if self._log.here.replayed:
            self._log.here.replayed.clear()
        return CollectiveRefused(why)

    def _give(self, func: Any, call: Call, args: tuple[Any, ...]) -> Any:
        """What a call of the program's has given."""
        written = [] if not call.results else list(tensors_of(args[0]))
        if len(written) != len(call.results):
            raise self._refusal(f"it calls {call.operation} for {len(written)} tensors, not {len(call.results)}")
        with torch.no_grad():
            for tensor, result in zip(written, call.results, strict=True):
                if tensor.shape != result.shape and tensor.numel() != result.numel():
                    raise self._refusal(f"it calls {call.operation} for another shape")
                self._keep(tensor)
                tensor.copy_(result.view_as(tensor))
        if func._schema.name == "c10d::allreduce_":
            return self._alone_sum(func, args)
        work = self._work()
        return work if len(func._schema.returns) == 1 else (args[0], work)

    def _share(self, func: Any, name: str, args: tuple[Any, ...]) -> Any:
        """This rank's part of what torch itself exchanges."""
        if name not in _SHARES or any(t.device.type != "cpu" for t in tensors_of(args[0])):
            raise self._refusal(f"torch itself calls {name.strip('_')} in it, whose result was not kept")
        self._log.shared = True
        if name == "broadcast_":
            return args[0], self._work()
        for tensor in tensors_of(args[0]):
            self._keep(tensor)
        return self._alone_sum(func, args)

    def _alone_sum(self, func: Any, args: tuple[Any, ...]) -> Any:
        """A sum of this rank alone: its future has the tensors, as what torch hangs on it asks for."""
        out = func(args[0], self._group(), *args[2:])
        # what hangs on a future runs here only if it is done, and else in a thread that nobody looks at
        torch.distributed.Work.unbox(out[1]).wait()
        return out

    def close(self) -> None:
        """Let go of the group of this rank alone, whose threads would outlive the program."""
        self._alone = None

    def _work(self) -> Any:
        return torch.ops.c10d.barrier.default(torch.empty(0), self._group(), [], True, 60_000)

    def _group(self) -> Any:
        """A group of this rank alone."""
        if self._alone is None:
            from torch import distributed

            store, patience = distributed.HashStore(), timedelta(seconds=60)
            group: Any = distributed.ProcessGroup(store, 0, 1)
            kind = distributed.ProcessGroup.BackendType.GLOO
            group._set_default_backend(kind)
            backend = distributed.ProcessGroupGloo(store, 0, 1, timeout=patience)
            group._register_backend(torch.device("cpu"), kind, backend)
            self._alone = group
        return self._alone.boxed()


@contextmanager
def replayed_collectives(began: float, keep: Callable[[Tensor], None]) -> Generator[CallLog | None]:
    """For as long as a replay runs that begins at a moment: collectives give what they gave since then."""
    log = active_log()
    if log is None:
        yield None
        return
    log.here.replayed, log.shared = log.calls_since(began), False
    outer, log.here.current = log.here.current, None
    answers = ReplayedCollectives(log, keep)
    try:
        with answers:
            yield log
    finally:
        log.uncalled = len(log.here.replayed)
        log.here.replayed, log.here.current = None, outer
        answers.close()


def leave_out_calls(began: float, calls: int) -> None:
    """Further replays from a mark begin so many calls later."""
    log = active_log()
    if log is not None:
        log.leave_out(began, calls)
