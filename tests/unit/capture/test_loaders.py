"""Batches of a loader: which batch and pass, which rows, which entries of the dataset, from which worker."""

from __future__ import annotations

import copy
import pickle
import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

import whynan
from tests.unit.capture.batches import BAD, NAN, Rows, Stream, data_of, place
from tests.unit.capture.seen import only, traced, watched


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_says_its_number_its_row_and_the_entry_of_the_dataset(workers: int) -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=2, num_workers=workers))
    assert place(data) == (2, (1,), 1, (BAD,), 0 if workers else None)
    assert (data.kind, data.name, data.passed, data.in_order) == ("batch", "batch", 1, True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_entry_is_told_by_its_own_index(workers: int) -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=4, shuffle=True, num_workers=workers))
    assert data.indices == (BAD,)
    assert data.batch is not None


def test_two_bad_rows_are_both_told() -> None:
    data = data_of(DataLoader(Rows(4, 6), batch_size=4, num_workers=1))
    assert place(data) == (1, (0, 2), 2, (4, 6), 0)


def test_of_many_bad_rows_the_first_are_told_and_all_are_counted() -> None:
    data = data_of(DataLoader(Rows(*range(40), length=50), batch_size=50, num_workers=1))
    assert (data.rows, data.n_rows) == (tuple(range(16)), 40)
    assert data.indices == data.rows


def test_an_order_that_the_collation_may_change_is_not_certain() -> None:
    loader = DataLoader(Rows(BAD), batch_size=4, num_workers=1, collate_fn=torch.stack)
    data = data_of(loader)
    assert (data.in_order, data.indices) == (False, (BAD,))


def test_rows_that_are_not_the_entries_have_no_index() -> None:
    # two rows of every entry
    loader = DataLoader(Rows(BAD), batch_size=4, num_workers=1, collate_fn=lambda rows: torch.stack([*rows, *rows]))
    data = data_of(loader)
    assert (data.rows, data.n_rows, data.indices) == ((1, 5), 2, ())


@pytest.mark.parametrize("workers", [0, 1])
def test_without_automatic_batches_there_is_one_entry_and_no_row(workers: int) -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=None, num_workers=workers))
    assert place(data) == (BAD, (), 0, (BAD,), 0 if workers else None)


def test_a_batch_sampler_that_the_loader_does_not_batch_tells_all_its_entries() -> None:
    sampler = BatchSampler(SequentialSampler(range(8)), 4, drop_last=False)
    data = data_of(DataLoader(Rows(BAD), batch_size=None, sampler=sampler))
    assert place(data) == (1, (1,), 1, (BAD,), None)


@pytest.mark.parametrize(
    ("told", "passed"),
    [
        ({"batch_sampler": [[0, 1], [7, BAD]]}, None),
        ({"batch_sampler": BatchSampler([0, 1, 7, BAD], 2, drop_last=False)}, 1),
        ({"sampler": [0, 1, 7, BAD], "batch_size": 2}, 1),
        ({"sampler": range(BAD + 1), "batch_size": None}, None),
    ],
    ids=["a list of batches", "a batch sampler", "a list of entries", "a range of entries"],
)
def test_any_sampler_is_followed_and_a_pass_is_told_where_it_can_be(told: Any, passed: int | None) -> None:
    data = data_of(DataLoader(Rows(BAD), **told))
    assert (data.indices, data.passed) == ((BAD,), passed)


def test_entries_may_have_names() -> None:
    class Named(Dataset[Any]):
        def __getitem__(self, key: str) -> Tensor:
            return torch.from_numpy(Rows(1).table[1 if key == "b.png" else 0])

    data = data_of(DataLoader(Named(), sampler=["a.png", "b.png", "c.png"], batch_size=3, num_workers=1))
    assert (data.rows, data.indices) == ((1,), ("b.png",))


def test_indices_of_other_kinds_are_numbers_or_unknown() -> None:
    class Key:
        """An index of the program's own, which may be asked nothing."""

        def __str__(self) -> str:
            raise AssertionError("asked")

        __int__ = __index__ = __repr__ = __hash__ = __eq__ = __str__  # type: ignore[assignment]

    class Any_(Dataset[Any]):  # noqa: N801
        def __getitem__(self, key: Any) -> Tensor:
            return torch.from_numpy(Rows(0).table[0])

    for key, expected in ((torch.tensor(3), (3,)), (np.int64(3), (3,)), ((3, "left"), ("(3, 'left')",)), (Key(), ())):
        assert data_of(DataLoader(Any_(), sampler=[key], batch_size=1)).indices == expected


@pytest.mark.parametrize(("workers", "size"), [(0, 2), (1, 2), (0, None)])
def test_a_stream_has_batches_and_rows_but_no_entries(workers: int, size: int | None) -> None:
    data = data_of(DataLoader(Stream(BAD), batch_size=size, num_workers=workers))
    assert data.indices == ()
    if size is None:
        assert data.batch == BAD
    else:
        assert (data.batch, data.rows) == (2, (1,))


def test_each_worker_of_a_stream_is_told_by_its_number() -> None:
    class Second(Stream):
        """Only the second worker's rows are bad."""

        def __iter__(self) -> Iterator[Any]:
            worker = torch.utils.data.get_worker_info()
            assert worker is not None
            return iter((Stream() if worker.id == 0 else Stream(BAD)).__iter__())

    data = data_of(DataLoader(Second(), batch_size=8, num_workers=2))
    assert place(data) == (1, (BAD,), 1, (), 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_later_pass_over_the_data_is_counted(workers: int) -> None:
    loader = DataLoader(Rows(), batch_size=4, num_workers=workers, persistent_workers=bool(workers))
    seen: list[int] = []

    def program() -> None:
        for _ in range(3):
            for batch in loader:
                seen.append(1)
                if len(seen) == 4:
                    # the last batch of the second pass, spoilt behind the trace's back
                    batch.numpy()[2, 0] = NAN
                (batch * 2).tolist()

    data = only(traced(program)).data
    assert data is not None
    assert (data.batch, data.passed, data.rows, data.indices) == (1, 2, (2,), (6,))


@pytest.mark.parametrize("in_order", [True, False])
def test_batches_that_come_in_another_order_keep_their_entries(in_order: bool) -> None:
    for bad in range(6):
        loader = DataLoader(Rows(bad, length=6), batch_size=1, num_workers=2, in_order=in_order)
        data = data_of(loader)
        assert (data.indices, data.rows) == ((bad,), (0,))


def test_a_trace_that_begins_within_a_pass_claims_no_entry_that_it_has_not_seen_sent() -> None:
    loader = iter(DataLoader(Rows(1, 6), batch_size=1, num_workers=1, prefetch_factor=2))
    with whynan.trace() as first:
        (next(loader) * 2).tolist()
        (next(loader) * 2).tolist()
    entry = only(first.report).data
    assert entry is not None
    # two were sent before the trace began
    assert (entry.batch, entry.indices, entry.worker) == (1, (), 0)
    for _ in range(3):
        next(loader)
    with whynan.trace() as second:
        for _ in range(3):
            (next(loader) * 2).tolist()
    entry = only(second.report).data
    assert entry is not None
    # what the first trace has seen sent is long gone
    assert (entry.batch, entry.indices, entry.worker) == (6, (), 0)


def test_passes_before_the_first_step_that_is_looked_at_are_not_known() -> None:
    loader = DataLoader(Rows(BAD), batch_size=4)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    def program() -> None:
        for _ in range(3):
            for batch in loader:
                batch.sum().item()
                optimizer.step()

    data = watched(program, first_step=4).report.findings[0].data
    assert data is not None
    assert (data.batch, data.passed, data.indices) == (1, None, (BAD,))


def test_a_thread_that_fetches_ahead_leaves_the_batches_known() -> None:
    batches: queue.Queue[Any] = queue.Queue()

    def fetch() -> None:
        for batch in DataLoader(Rows(BAD), batch_size=4):
            batches.put(batch)

    def program() -> None:
        thread = threading.Thread(target=fetch, daemon=True)
        thread.start()
        for _ in range(2):
            (batches.get(timeout=60) * 2).tolist()
        thread.join()

    for told in ({}, {"threads": True}):
        data = only(watched(program, **told).report).data
        assert data is not None
        assert (data.batch, data.rows, data.indices) == (1, (1,), (BAD,))


def test_memory_that_would_be_pinned_is_followed() -> None:
    with pytest.warns(UserWarning, match="pin_memory"):
        data = data_of(DataLoader(Rows(BAD), batch_size=2, num_workers=1, pin_memory=True))
    assert place(data) == (2, (1,), 1, (BAD,), 0)


def _drawn(workers: int, seed: int) -> list[Any]:
    """What a run with shuffled data and random samples sees, and the generators after it."""

    class Noisy(Rows):
        def __getitem__(self, index: Any) -> Any:
            return index, torch.rand(2), torch.initial_seed() if workers else 0

    torch.manual_seed(seed)
    kept: list[Any] = []
    loader = DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=workers)
    for _ in range(2):
        kept += [[index.tolist(), noise.tolist(), seeds.tolist()] for index, noise, seeds in loader]
    return [*kept, torch.get_rng_state().tolist(), len(loader)]


@pytest.mark.parametrize("workers", [0, 2])
def test_order_numbers_and_seeds_are_those_of_the_bare_run(workers: int) -> None:
    bare = _drawn(workers, 3)
    with whynan.trace():
        seen = _drawn(workers, 3)
    assert seen == bare
    assert _drawn(workers, 4) != bare


def test_the_end_of_the_data_and_its_errors_are_the_loaders_own() -> None:
    class Short(Rows):
        def __getitem__(self, index: Any) -> Any:
            if index == 2:
                raise IndexError("no such row")
            return super().__getitem__(index)

    with whynan.trace():
        iterator = iter(DataLoader(Rows(), batch_size=8))
        next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)
        assert next(iterator, "over") == "over"
        with pytest.raises(IndexError, match="no such row"):
            list(DataLoader(Short(), batch_size=2))
        with pytest.raises(IndexError, match="no such row"):
            list(DataLoader(Short(), batch_size=2, num_workers=1))


@pytest.mark.breadth
def test_loaders_are_copied_and_pickled_as_ever_and_iterators_are_not() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    with whynan.trace():
        iterator = iter(loader)
        next(iterator)
        assert len(list(copy.deepcopy(loader))) == 2
        assert len(list(pickle.loads(pickle.dumps(loader)))) == 2
        with pytest.raises(NotImplementedError):
            pickle.dumps(iterator)
        assert not [name for name in vars(iterator) if "whynan" in name]


@pytest.mark.breadth
def test_workers_that_are_spawned_give_their_batches() -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    assert place(data) == (2, (1,), 1, (BAD,), 0)
