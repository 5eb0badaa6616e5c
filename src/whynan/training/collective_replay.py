"""Collectives in a replay: each call gives what it gave in the step, or all ranks make the replay together.

Of the first no rank is asked. In the second the operators of c10d go through groups of whynan's own, made for that
replay alone: the program's are as they were after it, however it ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from whynan.capture.ranks import CollectiveRefused
from whynan.capture.torch.dispatch_mode import BesideCompiled
from whynan.capture.torch.interposition.collective_calls import active_log, tensors_of
from whynan.training.experiments import dispatches

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.capture.ranks import Rank
    from whynan.capture.torch.interposition.collective_calls import Call, CallLog

_FUNCTIONAL: Final = ("_c10d_functional", "_c10d_functional_autograd")
_BARRIERS: Final = ("barrier", "monitored_barrier_")
_SHARES: Final = ("allreduce_", "broadcast_")
"""What torch itself calls, for DistributedDataParallel: each rank goes on with its own part."""


class ReplayedCollectives(BesideCompiled):
    """Answers c10d's operators in the place of the other ranks; `keep` is told of each tensor before it is written."""

    def __init__(self, log: CallLog, keep: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._log = log
        self._keep = keep
        self._alone: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if _is_wrapped(types):
            return NotImplemented
        space, _, name = func._schema.name.partition("::")
        if space in _FUNCTIONAL:
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
        with torch._C.DisableTorchFunction(), torch.no_grad():
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
        return torch.ops.c10d.barrier.default(torch.empty(0, device="cpu"), self._group(), [], True, 60_000)

    def _group(self) -> Any:
        """A group of this rank alone."""
        if self._alone is None:
            self._alone = gloo_group(torch.distributed.HashStore(), 0, 1, 60.0)
        return self._alone.boxed()


def _is_wrapped(kinds: Any) -> bool:
    """Whether an operation is on tensors such as ``DTensor``: their own operators, collectives too, come next."""
    return any(map(dispatches, kinds))


# -- A replay that all ranks make together -----------------------------------------------------------------------------


_ALIKE: Final = {
    **dict.fromkeys(("allreduce_", "allreduce_coalesced_", "reduce_", "broadcast_", "scatter_"), 0),
    **dict.fromkeys(("allgather_", "_allgather_base_", "_reduce_scatter_base_", "gather_", "reduce_scatter_"), 1),
    **dict.fromkeys(("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"), 0),
    **dict.fromkeys(_BARRIERS, None),
}
"""Which argument has one shape on all ranks. Gloo ends the process where it has another on one of them."""


class Ensemble:
    """Groups of whynan's own, each with the ranks of one of the program's, for one replay.

    `store`: of this replay alone, the same on all ranks; `seconds`: what one exchange may take.
    """

    def __init__(self, store: Any, rank: Rank, seconds: float) -> None:
        self.seconds = seconds
        self._store = store
        self._rank = rank
        self._groups: dict[str, Any] = {}
        self._backends: list[Any] = []
        self._names: list[str] = []

    def is_alike(self, name: str, group: Any, call: str) -> bool:
        """Whether all ranks of one of the program's groups are about to make the same call, which this spells."""
        digest = zlib.crc32(call.encode())
        said = torch.tensor([digest, -digest], device="cpu")
        options: Any = torch.distributed.AllreduceOptions()
        options.reduceOp = torch.distributed.ReduceOp.MAX
        alike = self.group(f"alike/{name}", group.rank(), group.size())
        alike._get_backend(torch.device("cpu")).allreduce([said], options).wait()
        return said.tolist() == [digest, -digest]

    def group(self, name: str, rank: int, size: int) -> Any:
        """The group that stands for one of the program's."""
        if name not in self._groups:
            store = torch.distributed.PrefixStore(name or "-", self._store)
            self._groups[name] = gloo_group(store, rank, size, self.seconds)
            self._backends.append(self._groups[name]._get_backend(torch.device("cpu")))
        return self._groups[name]

    def named(self, name: str, known: Any) -> str:
        """The name under which functional collectives find the group that stands for one of the program's."""
        own = f"whynan/{name}"
        if own not in self._names:
            group = self.group(name, known.rank(), known.size())
            _registry()._register_process_group(own, group)
            self._names.append(own)
        return own

    def agree(self, *, over: bool) -> bool:
        """Whether it is over on any rank, or one of them is gone."""
        with torch._C._DisableTorchDispatch():
            said = torch.tensor([int(over)], device="cpu")
            try:
                group = self.group("whynan", *self._rank)
                group._get_backend(torch.device("cpu")).allreduce([said]).wait()
            except RuntimeError:
                return True
            return bool(said.item())

    def close(self) -> None:
        """Let go of the groups: who still waits for this rank hears at once that it is gone."""
        for name in self._names:
            _registry()._unregister_process_group(name)
        for backend in self._backends:
            with suppress(RuntimeError):
                backend.abort()
        self._groups.clear()
        self._backends.clear()


def _registry() -> Any:
    """Where functional collectives find a group by its name."""
    from torch.distributed import distributed_c10d

    return distributed_c10d


_together: Ensemble | None = None


@contextmanager
def ensemble(made: Ensemble) -> Generator[None]:
    """Replays that are made in here are made by all ranks."""
    global _together
    _together = made
    try:
        yield
    finally:
        _together = None
        made.close()


def active_ensemble() -> Ensemble | None:
    """What ranks need that make a replay together, while they do."""
    return _together


class _JoinedCollectives(BesideCompiled):
    """Sends the operators of c10d through an ensemble; `keep` is told of each tensor before it is written."""

    def __init__(self, made: Ensemble, keep: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._ensemble = made
        self._keep = keep

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if _is_wrapped(types):
            return NotImplemented
        space, _, name = func._schema.name.partition("::")
        key = next((a.name for a in func._schema.arguments if a.name in ("process_group", "group_name")), None)
        if space not in ("c10d", *_FUNCTIONAL) or key is None:
            return func(*args, **(kwargs or {}))
        if name not in _ALIKE:
            raise CollectiveRefused(f"it calls {name.strip('_')}, which ranks do not replay together")
        given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        given |= kwargs or {}
        alike = _ALIKE[name]
        shapes = [] if alike is None else [(t.dtype, tuple(t.shape)) for t in tensors_of(args[alike])]
        roots = [value for argument, value in given.items() if argument.startswith("root")]
        known = self._known(given[key])
        if not self._ensemble.is_alike(known.group_name, known, f"{name} {shapes} {roots}"):
            raise CollectiveRefused("the ranks call different collectives in it")
        for tensor in (t for value in given.values() for t in tensors_of(value)):
            if tensor.device.type != "cpu":
                raise CollectiveRefused("it calls a collective on an accelerator")
            self._keep(tensor)
        if isinstance(given[key], str):
            given[key] = self._ensemble.named(known.group_name, known)
        else:
            given[key] = self._ensemble.group(known.group_name, known.rank(), known.size()).boxed()
        if "timeout" in given:
            given["timeout"] = int(1000 * self._ensemble.seconds)
        out = func(**given)
        for one in out if isinstance(out, tuple) else (out,):
            if isinstance(one, torch.ScriptObject):
                # what hangs on a future runs here only if it is done
                torch.distributed.Work.unbox(one).wait()
        return out

    def close(self) -> None:
        """The ensemble outlives it."""

    @staticmethod
    def _known(given: Any) -> Any:
        """The group of the program's that is called."""
        is_named = isinstance(given, str)
        return _registry()._resolve_process_group(given) if is_named else torch.distributed.ProcessGroup.unbox(given)


def gloo_group(store: Any, rank: int, size: int, seconds: float) -> Any:
    """A process group that no program knows."""
    from torch import distributed

    group: Any = distributed.ProcessGroup(store, rank, size)
    kind = distributed.ProcessGroup.BackendType.GLOO
    group._set_default_backend(kind)
    backend = distributed.ProcessGroupGloo(store, rank, size, timeout=timedelta(seconds=seconds))
    group._register_backend(torch.device("cpu"), kind, backend)
    return group


@contextmanager
def replayed_collectives(
    began: float, keep: Callable[[Tensor], None], *, whole: bool = False
) -> Generator[CallLog | None]:
    """For as long as a replay runs that begins at a moment, or with the program: collectives give what they gave."""
    log = active_log()
    if log is None:
        yield None
        return
    together, outer = _together, log.here.current
    log.here.replayed = log.calls_since(began)
    log.here.is_together, log.here.current, log.shared = together is not None, None, False
    log.here.counts = {} if whole else None
    answers = ReplayedCollectives(log, keep) if together is None else _JoinedCollectives(together, keep)
    try:
        with answers:
            yield log
    finally:
        log.uncalled = len(log.here.replayed) if together is None else 0
        log.here.replayed, log.here.is_together, log.here.current, log.here.counts = None, False, outer, None
        answers.close()


def leave_out_calls(began: float, calls: int) -> None:
    """Further replays from a mark begin so many calls later."""
    log = active_log()
    if log is not None:
        log.leave_out(began, calls)
