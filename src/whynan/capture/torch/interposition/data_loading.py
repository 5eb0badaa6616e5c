"""Data loading: which batch, dataset entries and worker a value came from; files and arrays that become tensors."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils.data import dataloader, default_collate

from whynan.capture.torch.interposition.wrappers import Note, call_untraced_fenced, make_trace_wrapper, strip_own_frames
from whynan.capture.torch.names import Identities
from whynan.capture.torch.provenance.origins import Source
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.provenance.origins import Origins
    from whynan.capture.torch.sites import Lane
    from whynan.capture.torch.tracer import Tracer


# -- What a ``DataLoader`` gives: which batch of which pass, which entries of the dataset, from which worker -----------


_SENDS: Final = ("_task_info", "_rcvd_idx", "_send_idx")
"""What the iterator over workers keeps of its tasks (pytorch 2.6 to 2.13)."""
_MOST_TEXT: Final = 80


class SampleRequest(NamedTuple):
    """What a sampler asked a dataset for: entries by their indices, or one by its own."""

    indices: tuple[int | str | None, ...] | None
    one: int | str | None

    @classmethod
    def from_index(cls, index: Any) -> SampleRequest | None:
        """What an index of the sampler's says; None for no index."""
        if isinstance(index, (list, tuple)):
            return cls(tuple(map(_plain, index)), None)
        return None if index is None else cls(None, _plain(index))


class Fetch:
    """How the dataset of a loader made a batch, and can make it again: in this process, whoever made it before."""

    def __init__(self, iterator: Any, index: Any, origin: BatchOrigin) -> None:
        self.origin = origin
        self._index = index
        self.batch: Any = None
        """What it has made, the last time that it was asked."""
        self._of = (
            iterator._dataset,
            iterator._auto_collation,
            iterator._collate_fn,
            getattr(iterator, "_drop_last", False),
        )

    @classmethod
    def of_indices(cls, iterator: Any, index: Any, origin: BatchOrigin) -> Fetch | None:
        """That of a dataset whose entries have indices; None of one that is gone through."""
        known = all(hasattr(iterator, name) for name in ("_dataset", "_auto_collation", "_collate_fn"))
        is_map = getattr(iterator, "_dataset_kind", None) == dataloader._DatasetKind.Map
        return cls(iterator, index, origin) if known and is_map and index is not None else None

    @property
    def roots(self) -> tuple[Any, ...]:
        """What leads to all that makes a batch: the dataset, and what collates."""
        return self._of[0], self._of[2]

    def fetch(self) -> Any:
        """The batch, made again; raises what the dataset raises."""
        fetcher: Any = dataloader._DatasetKind.create_fetcher(dataloader._DatasetKind.Map, *self._of)
        self.batch = fetcher.fetch(self._index)
        return self.batch


class BatchOrigin(NamedTuple):
    """A batch as it was given: what was asked for, by which worker it came, of which number and pass it is."""

    asked: SampleRequest | None
    worker: int | None
    number: int | None
    passed: int | None
    in_order: bool
    again: Fetch | None = None
    """How it can be made again."""

    def source(self) -> Source:
        """The same in the words of a report."""
        many = self.asked is not None and self.asked.indices is not None
        data = Data(
            kind="batch",
            batch=self.number,
            passed=self.passed,
            worker=self.worker,
            indices=() if self.asked is None or self.asked.one is None else (self.asked.one,),
            in_order=not many or self.in_order,
        )
        # an entry that was asked for alone has no rows; the dataset may have given a batch where it was not asked
        return Source(data, self.asked and self.asked.indices, in_rows=many or self.asked is None)


class Loaders:
    """The loaders of one trace: which passes are under way, and which entries the workers have been sent.

    `late`: the program ran before it was looked at, and so many passes over its data may be over. `keeps_indices`: as
    the sampler gave them, so that a batch can be made again.
    """

    def __init__(self, *, late: bool, keeps_indices: bool = False) -> None:
        self._late = late
        self._keeps_indices = keeps_indices
        self._passes: Identities[int] = Identities()
        self._sent: Identities[dict[int, Any]] = Identities()
        self._handed: Identities[tuple[Any, int | None]] = Identities()

    def sent(self, iterator: Any, index: Any) -> None:
        """A sampler has said which entries the next batch is made of."""
        number = getattr(iterator, "_send_idx", None)
        index = index if self._keeps_indices else SampleRequest.from_index(index)
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

    def batch_origin(self, iterator: Any) -> BatchOrigin:
        """Where the batch that an iterator has just given came from."""
        index, worker = self._handed.get(iterator) or (None, None)
        yielded: int | None = getattr(iterator, "_num_yielded", None)
        origin = BatchOrigin(
            SampleRequest.from_index(index) if self._keeps_indices else index,
            worker,
            None if yielded is None else yielded - 1,
            self._passed(iterator, first=yielded == 1),
            getattr(iterator, "_collate_fn", None) is default_collate,
        )
        return origin._replace(again=Fetch.of_indices(iterator, index, origin)) if self._keeps_indices else origin

    def _passed(self, iterator: Any, *, first: bool) -> int | None:
        """Which pass over a loader's data is under way, from 1; an iterator knows the sampler of its loader only."""
        if self._late:
            return None
        sampler = getattr(iterator, "_index_sampler", None)
        count = max((self._passes.get(sampler) or 0) + first, 1)
        return count if self._passes.set(sampler, count) else None


def watch_loaders(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Note what loaders give; what runs while they fetch is the data's phase."""
    loaders = Loaders(late=tracer.context.log.steps.offset > 0)
    note = functools.partial(make_trace_wrapper, tracer.context)
    replace(dataloader._BaseDataLoaderIter, "__next__", functools.partial(_fetching, tracer, loaders.batch_origin))
    replace(Fetch, "fetch", functools.partial(_fetching, tracer, lambda again: again.origin))
    watch_batches(
        loaders,
        lambda name, what: replace(dataloader._BaseDataLoaderIter, name, note(what)),
        lambda name, what: replace(dataloader._MultiProcessingDataLoaderIter, name, note(what, first=True)),
    )


def watch_batches(loaders: Loaders, after: Callable[[str, Note], None], before: Callable[[str, Note], None]) -> None:
    """Note what samplers ask for and what workers hand over, by notes made `after` and `before` two methods."""
    if not hasattr(dataloader._MultiProcessingDataLoaderIter, "_process_data"):
        return

    def sent(args: Any, _kwargs: Any, index: Any) -> None:
        loaders.sent(args[0], index)

    def received(args: Any, kwargs: Any, _out: Any) -> None:
        if all(hasattr(args[0], name) for name in _SENDS):
            loaders.received(args[0], args[2] if len(args) > 2 else kwargs.get("worker_idx"))

    after("_next_index", sent)
    before("_process_data", received)


def _fetching(tracer: Tracer, origin_of: Callable[[Any], BatchOrigin], original: Any) -> Any:
    """The door through which a loader's batch comes."""

    @functools.wraps(original)
    def fetch(iterator: Any) -> Any:
        begun: tuple[Lane, int] | None = call_untraced_fenced(tracer.context, _begins, tracer.context)
        try:
            out = original(iterator)
        except BaseException as error:
            strip_own_frames(error)
            raise
        finally:
            if begun is not None:
                begun[0].loading -= 1
        call_untraced_fenced(tracer.context, _gives, tracer, origin_of, iterator, out, begun, anywhere=True)
        return out

    return fetch


def _begins(context: TraceContext) -> tuple[Lane, int]:
    lane = context.lane()
    lane.loading += 1
    # the label that comes next
    return lane, len(context.labels.births) + 1


def _gives(
    tracer: Tracer,
    origin_of: Callable[[Any], BatchOrigin],
    iterator: Any,
    batch: Any,
    begun: tuple[Lane, int] | None,
) -> None:
    tracer.origins.note(batch, origin_of(iterator).source(), "batch")
    if begun is not None and len(tracer.context.labels.births) >= begun[1]:
        tracer.deferred.run_checks()
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


# -- The other ways by which values come in: files that are read, arrays that become tensors ---------------------------


MOST_IN_FILE: Final = 1 << 16
"""So many tensors of a file have their names."""


def watch_origins(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Note what loaders give, what files hold, and which tensors are arrays."""
    watch_loaders(tracer, replace)
    load = make_trace_wrapper(tracer.context, _reading(tracer.origins, "f"))(torch.load)
    for home in (torch, torch.serialization):
        # one function in both places: pickle looks for it in its own module
        replace(home, "load", lambda _: load)

    def made(args: Any, _kwargs: Any, out: Any) -> None:
        if args and hasattr(args[0], "__array_interface__"):
            tracer.origins.note_array(out, tracer.context.sites.current_site())

    # not `as_tensor`: dynamo knows that one by what it is
    replace(torch, "from_numpy", make_trace_wrapper(tracer.context, made, name="from_numpy"))
    safetensors = _safetensors()
    if safetensors is not None:
        replace(safetensors, "load_file", make_trace_wrapper(tracer.context, _reading(tracer.origins, "filename")))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        replace(numpy, "load", make_trace_wrapper(tracer.context, _reading(tracer.origins, "file")))


def _safetensors() -> Any:
    """The module that reads safetensors into torch, before the program takes its functions out of it."""
    try:
        import safetensors.torch
    except Exception:
        # whatever another one of this name does
        return None
    return safetensors.torch if hasattr(safetensors.torch, "load_file") else None


def _reading(origins: Origins, argument: str) -> Callable[[Any, Any, Any], None]:
    """A note of what a file held that was given as the first argument, or by this name."""

    def read(args: Any, kwargs: Any, out: Any) -> None:
        name = _file_name(args[0] if args else kwargs.get(argument))
        if name is not None:
            origins.note(out, Source(Data(kind="file", file=name)), most=MOST_IN_FILE)

    return read


def _file_name(source: Any) -> str | None:
    """The name of a file by its path, or of one that is open."""
    if not isinstance(source, (str, bytes, os.PathLike)):
        source = getattr(source, "name", None)
    return os.fsdecode(source) if isinstance(source, (str, bytes, os.PathLike)) else None
