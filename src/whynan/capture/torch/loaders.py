"""What a ``DataLoader`` gives: which batch of which pass, which entries of the dataset, from which worker."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import dataloader, default_collate

from whynan.capture.torch.doors import noting, quietly
from whynan.capture.torch.frames import unseen
from whynan.capture.torch.identities import Identities
from whynan.capture.torch.origins import Source
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.lanes import Lane
    from whynan.capture.torch.tracer import Tracer

_SENDS: Final = ("_task_info", "_rcvd_idx", "_send_idx")
"""What the iterator over workers keeps of its tasks (pytorch 2.6 to 2.13)."""
_MOST_TEXT: Final = 80


class Loaders:
    """The loaders of one trace: which passes are under way, and which entries the workers have been sent."""

    def __init__(self) -> None:
        self._passes: Identities[int] = Identities()
        self._sent: Identities[dict[int, Any]] = Identities()
        self._handed: Identities[tuple[Any, int | None]] = Identities()

    def sent(self, iterator: Any, index: Any) -> None:
        """A sampler has said which entries the next batch is made of."""
        number = getattr(iterator, "_send_idx", None)
        if number is None:
            self._handed.set(iterator, (index, None))
            return
        tasks = self._sent.get(iterator)
        if tasks is None or number == 0:
            tasks = {}
            self._sent.set(iterator, tasks)
        tasks[number] = index

    def received(self, iterator: Any, worker: int | None) -> None:
        """A worker's batch is being handed out: the task that is no longer waited for is its."""
        tasks = self._sent.get(iterator) or {}
        done = [number for number in tasks if number not in iterator._task_info]
        expected = iterator._rcvd_idx - 1
        number = expected if expected in done else (done[-1] if done else None)
        self._handed.set(iterator, (None if number is None else tasks[number], worker))
        for other in done:
            del tasks[other]

    def source(self, iterator: Any) -> Source:
        """Where the batch that an iterator has just given came from."""
        index, worker = self._handed.get(iterator) or (None, None)
        number: int = iterator._num_yielded - 1
        many = isinstance(index, (list, tuple))
        indices = tuple(map(_plain, index)) if many else None
        one = None if many else _plain(index)
        data = Data(
            kind="batch",
            batch=number,
            passed=self._passed(iterator, first=number == 0),
            worker=worker,
            indices=() if one is None else (one,),
            in_order=not many or getattr(iterator, "_collate_fn", None) is default_collate,
        )
        # an entry that was asked for alone has no rows; the dataset may have given a batch where it was not asked
        return Source(data, indices, in_rows=many or index is None)

    def _passed(self, iterator: Any, *, first: bool) -> int | None:
        """Which pass over a loader's data is under way, from 1; an iterator knows the sampler of its loader only."""
        sampler = getattr(iterator, "_index_sampler", None)
        count = max((self._passes.get(sampler) or 0) + first, 1)
        return count if self._passes.set(sampler, count) else None


def watch_loaders(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Note what loaders give; what runs while they fetch is the data's phase."""
    loaders = Loaders()
    replace(dataloader._BaseDataLoaderIter, "__next__", functools.partial(_fetching, tracer, loaders))
    many: Any = dataloader._MultiProcessingDataLoaderIter
    if not hasattr(many, "_process_data"):
        return

    def sent(args: Any, _kwargs: Any, index: Any) -> None:
        loaders.sent(args[0], index)

    def received(args: Any, kwargs: Any, _out: Any) -> None:
        if all(hasattr(args[0], name) for name in _SENDS):
            loaders.received(args[0], args[2] if len(args) > 2 else kwargs.get("worker_idx"))

    replace(dataloader._BaseDataLoaderIter, "_next_index", noting(tracer, sent))
    replace(many, "_process_data", noting(tracer, received, first=True))


def _fetching(tracer: Tracer, loaders: Loaders, original: Any) -> Any:
    """The door through which a loader's batch comes."""

    @functools.wraps(original)
    def fetch(iterator: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(iterator)
        begun: tuple[Lane, int] | None = None
        try:
            begun = quietly(tracer, _begins, tracer)
        except Exception:
            tracer.fail()
        try:
            out = original(iterator)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            if begun is not None:
                begun[0].loading -= 1
        try:
            quietly(tracer, _gives, tracer, loaders, iterator, out, begun, anywhere=True)
        except Exception:
            tracer.fail()
        return out

    return fetch


def _begins(tracer: Tracer) -> tuple[Lane, int]:
    lane = tracer.lane()
    lane.loading += 1
    return lane, len(tracer.labels.births)


def _gives(tracer: Tracer, loaders: Loaders, iterator: Any, batch: Any, begun: tuple[Lane, int] | None) -> None:
    tracer.origins.note(batch, loaders.source(iterator), "batch")
    if begun is not None and len(tracer.labels.births) > begun[1]:
        tracer.origins.explain_since(begun[1], batch)


def _plain(index: Any) -> int | str | None:
    """An entry's index as the report has it; of an object of the program's own nothing is asked or kept."""
    if type(index) is int or index is None or type(index) is str:
        return index
    if isinstance(index, torch.Tensor):
        return int(index) if index.numel() == 1 and not index.is_floating_point() else None
    if type(index).__module__ == "numpy" and hasattr(index, "__index__"):
        return int(index)
    if type(index) is tuple and all(type(part) in (int, str) for part in index):
        return str(index)[:_MOST_TEXT]
    return None
