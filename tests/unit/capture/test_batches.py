"""What is in a batch: the place of each tensor, its rows however it is looked at, and what is born in the fetch."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.unit.capture.batches import BAD, NAN, Rows, data_of, place, used
from tests.unit.capture.seen import code, only, sinks, traced


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
