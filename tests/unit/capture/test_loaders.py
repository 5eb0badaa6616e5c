"""Batches of a loader: which batch and pass, which rows, which entries of the dataset, from which worker."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset

import whynan
from tests.unit.capture.seen import code, only, sinks, traced
from whynan.records import Data

NAN = float("nan")
# entries of the dataset that are bad
BAD = 5


class Rows(Dataset[Any]):
    """Eight rows of three numbers from NumPy, of which some hold a NaN in the second column."""

    def __init__(self, *bad: int, length: int = 8) -> None:
        self.table = np.ones((length, 3), dtype=np.float32)
        self.table[list(bad), 1] = NAN

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> Any:
        return torch.from_numpy(self.table[index])


class Stream(IterableDataset[Any]):
    """The same rows one after the other; each worker has all of them."""

    def __init__(self, *bad: int) -> None:
        self.rows = Rows(*bad)

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self.rows)):
            yield self.rows[i]


def used(loader: Any, take: Any = lambda batch: batch, passes: int = 1) -> Any:
    """A program that computes with every batch."""

    def program() -> None:
        for _ in range(passes):
            for batch in loader:
                (take(batch) * 2).tolist()

    return program


def data_of(loader: Any, take: Any = lambda batch: batch, passes: int = 1) -> Data:
    finding = only(traced(used(loader, take, passes)))
    assert (finding.birth, finding.rule) == ("entered", "WN001")
    assert finding.data is not None
    return finding.data


def place(data: Data) -> tuple[Any, ...]:
    return data.batch, data.rows, data.n_rows, data.indices, data.worker


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


def test_memory_that_would_be_pinned_is_followed() -> None:
    with pytest.warns(UserWarning, match="pin_memory"):
        data = data_of(DataLoader(Rows(BAD), batch_size=2, num_workers=1, pin_memory=True))
    assert place(data) == (2, (1,), 1, (BAD,), 0)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Sample:
    ids: Any
    values: Any


@dataclass(slots=True)
class Slotted:
    values: Any


class Wrapped(UserDict[str, Any]):
    """A dictionary in an object, as tokenizers give them."""


ROWS = torch.stack([torch.from_numpy(row) for row in Rows(1, length=3).table])
SHAPES: list[tuple[str, Any, Any]] = [
    ("batch['two words']", lambda x: {"two words": x}, lambda b: b["two words"]),
    ("batch.mask", lambda x: {"mask": x}, lambda b: b["mask"]),
    ("batch[1]", lambda x: [x.nan_to_num(), x], lambda b: b[1]),
    ("batch.y", lambda x: Pair(x.nan_to_num(), x), lambda b: b.y),
    ("batch.values", lambda x: Sample(x.nan_to_num(), x), lambda b: b.values),
    ("batch.values", Slotted, lambda b: b.values),
    ("batch.mask", lambda x: Wrapped(mask=x), lambda b: b["mask"]),
    ("batch[0].inner[1].y", lambda x: [{"inner": (0, Pair(1, x))}], lambda b: b[0]["inner"][1].y),
    ("batch[3]", lambda x: {3: x}, lambda b: b[3]),
]


@pytest.mark.parametrize(("name", "make", "take"), SHAPES, ids=[f"{i} {name}" for i, (name, _, _) in enumerate(SHAPES)])
def test_a_tensor_is_named_by_its_place_in_the_batch(name: str, make: Any, take: Any) -> None:
    def collate(rows: list[Any]) -> Any:
        return make(torch.from_numpy(np.stack([r.numpy() for r in rows])))

    loader = DataLoader(Rows(BAD), batch_size=4, collate_fn=collate)
    data = data_of(loader, take)
    assert (data.name, data.batch, data.rows) == (name, 1, (1,))


def test_an_encoding_of_transformers_is_looked_into() -> None:
    from transformers.tokenization_utils_base import BatchEncoding

    def collate(rows: list[Any]) -> Any:
        return BatchEncoding({"input_ids": torch.arange(4), "values": torch.from_numpy(np.stack(rows))})

    data = data_of(DataLoader(Rows(BAD), batch_size=4, collate_fn=collate), lambda b: b["values"])
    assert (data.name, data.rows) == ("batch.values", (1,))


def test_a_key_of_the_programs_own_is_asked_nothing() -> None:
    class Key:
        def __repr__(self) -> str:
            raise AssertionError("asked")

    key = Key()
    loader = DataLoader(Rows(BAD), batch_size=4, collate_fn=lambda rows: {key: torch.from_numpy(np.stack(rows))})
    data = data_of(loader, lambda b: b[key])
    assert data.rows == (1,)
    assert data.name is not None
    assert "Key" in data.name


def test_a_batch_of_arrays_is_known_when_it_becomes_a_tensor() -> None:
    loader = DataLoader(Rows(BAD), batch_size=4, collate_fn=lambda rows: {"x": np.stack([r.numpy() for r in rows])})

    def program() -> None:
        for batch in loader:
            (torch.from_numpy(batch["x"]) * 2).tolist()

    finding = only(traced(program))
    data = finding.data
    assert data is not None
    assert (data.kind, data.name, data.batch, data.rows, data.indices) == ("batch", 'batch["x"]', 1, (1,), (BAD,))
    assert data.site is not None
    assert data.site.code == 'torch.from_numpy(batch["x"])'


@pytest.mark.parametrize(
    ("name", "take"),
    [
        ("sliced", lambda b: b[1:]),
        ("transposed", lambda b: b.t()),
        ("flattened", lambda b: b.view(-1)),
        ("one column", lambda b: b[:, 1]),
        ("one row", lambda b: b[1]),
        ("one element", lambda b: b[1, 1]),
        ("every other row", lambda b: b[1::2]),
        ("unsqueezed", lambda b: b[None, :, :, None]),
        ("seen as numbers of half the size", lambda b: b.view(torch.float16)),
        ("another dtype", lambda b: b.to(torch.float64)),
        ("a copy", lambda b: b.clone()),
        ("joined", lambda b: torch.cat([b, b])),
    ],
)
def test_the_row_is_right_however_the_batch_is_looked_at(name: str, take: Any) -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=4, num_workers=1), lambda b: take(b).nan_to_num().add(take(b)))
    assert (data.batch, data.rows, data.indices) == (1, (1,), (BAD,)), name


def test_a_square_batch_that_is_transposed_has_its_rows_still() -> None:
    class Square(Rows):
        def __getitem__(self, index: Any) -> Any:
            row = np.ones(4, dtype=np.float32)
            row[3] = NAN if index == 1 else 1.0
            return torch.from_numpy(row)

    data = data_of(DataLoader(Square(length=4), batch_size=4, num_workers=1), lambda b: b.t())
    assert (data.rows, data.indices) == ((1,), (1,))


def test_tensors_of_a_batch_that_share_their_memory_are_told_apart() -> None:
    def halves(rows: list[Any]) -> Any:
        whole = torch.from_numpy(np.stack(rows))
        return whole[:, :1], whole[:, 1:]

    data = data_of(DataLoader(Rows(BAD), batch_size=4, collate_fn=halves), lambda b: b[1])
    assert (data.name, data.rows) == ("batch[1]", (1,))
    data = data_of(DataLoader(Rows(BAD), batch_size=4, collate_fn=lambda r: halves(r)[::-1]), lambda b: b[0])
    assert (data.name, data.rows) == ("batch[0]", (1,))


def test_a_batch_whose_layout_does_not_tell_the_row_claims_none() -> None:
    def windows(rows: list[Any]) -> Any:
        return torch.from_numpy(np.concatenate(rows)).unfold(0, 3, 1)

    data = data_of(DataLoader(Rows(BAD), batch_size=4, collate_fn=windows), lambda b: b[3:5])
    assert (data.batch, data.rows, data.indices) == (1, (), ())


def test_samples_that_are_views_of_the_dataset_keep_their_own_batches() -> None:
    table = torch.from_numpy(Rows(BAD).table)
    loader = DataLoader(table, batch_size=None)  # type: ignore[arg-type]

    def program() -> None:
        kept = list(loader)
        (kept[BAD] * 2).tolist()

    data = only(traced(program)).data
    assert data is not None
    assert (data.batch, data.indices) == (BAD, (BAD,))


def test_what_a_loader_has_not_given_is_no_batch_of_its() -> None:
    table = torch.from_numpy(Rows(BAD).table)

    def program() -> None:
        for number, _ in enumerate(DataLoader(table, batch_size=None)):  # type: ignore[arg-type]
            if number == 2:
                break
        (table[BAD] * 2).tolist()

    assert only(traced(program)).data is None


def test_what_an_earlier_trace_has_seen_is_not_told_of_this_one() -> None:
    table = torch.from_numpy(Rows(BAD).table)
    batches: list[Tensor] = []
    traced(lambda: batches.extend(DataLoader(table, batch_size=None)))  # type: ignore[arg-type]
    assert only(traced(lambda: (batches[BAD] * 2).tolist())).data is None


class Divided(Rows):
    """Rows divided by their own sum, which is 0 of one of them."""

    def __getitem__(self, index: Any) -> Any:
        row = torch.zeros(3) if index == BAD else torch.ones(3)
        return row / row.sum()


def test_a_birth_while_a_sample_is_made_has_its_site_and_the_row() -> None:
    finding = only(traced(used(DataLoader(Divided(), batch_size=2))))
    assert (finding.birth, finding.phase, code(finding)) == ("invalid", "data", "row / row.sum()")
    assert finding.site is not None
    assert finding.site.function.endswith("Divided.__getitem__")
    assert finding.data is not None
    assert place(finding.data) == (2, (1,), 1, (BAD,), None)


def test_after_a_fetch_the_phase_is_the_forward_again_also_where_it_raised() -> None:
    class Failing(Rows):
        def __getitem__(self, index: Any) -> Any:
            raise LookupError(index)

    def program() -> None:
        with pytest.raises(LookupError):
            next(iter(DataLoader(Failing(), batch_size=1)))
        next(iter(DataLoader(Rows(), batch_size=1)))
        torch.tensor([-1.0]).sqrt().tolist()

    assert only(traced(program)).phase == "forward"


def test_a_loader_within_a_loader_leaves_the_outer_in_its_phase() -> None:
    class Nested(Rows):
        def __getitem__(self, index: Any) -> Any:
            inner = next(iter(DataLoader(Rows(), batch_size=2)))
            return (inner[0] * -1).sqrt() if index == 1 else inner[0] * 1

    finding = only(traced(used(DataLoader(Nested(length=2), batch_size=2))))
    assert (finding.phase, finding.birth) == ("data", "invalid")
    assert finding.data is not None
    assert (finding.data.rows, finding.data.indices) == ((1,), (1,))


def test_a_training_loop_tells_the_batch_of_its_bad_loss() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program() -> None:
        for batch in DataLoader(Rows(BAD), batch_size=2):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    finding = traced(program).findings[0]
    assert finding.data is not None
    assert (finding.data.batch, finding.data.rows, finding.data.indices) == (2, (1,), (BAD,))
    assert {kind for kind, _ in sinks(finding)} >= {"loss", "gradient", "parameter"}


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


def test_workers_that_are_spawned_give_their_batches() -> None:
    data = data_of(DataLoader(Rows(BAD), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    assert place(data) == (2, (1,), 1, (BAD,), 0)
