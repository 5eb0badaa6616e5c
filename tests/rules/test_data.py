"""Where a value came in, in words: every kind of origin, with all, some and none of what may be known."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.records import Data, Site
from whynan.rules.wording import data_text

SITE = Site(file="train.py", line=12, column=5, end_line=12, end_column=30, code="torch.from_numpy(x)")

TOLD = {
    "nothing is known": None,
    "an array with its expression": Data(kind="numpy", name='table["income"]', site=SITE),
    "an array without a place": Data(kind="numpy"),
    "a value with its expression": Data(kind="value", name="row", site=SITE),
    "a value without an expression": Data(kind="value", site=SITE),
    "a tensor of a file": Data(kind="file", name="model['0.weight']", file="runs/last.pt"),
    "a file": Data(kind="file", file="x.npy"),
    "a batch of which no more is known": Data(kind="batch"),
    "a batch": Data(kind="batch", name="batch", batch=3),
    "a row": Data(kind="batch", name="batch[1]", batch=1312, rows=(5,), n_rows=1, indices=(4805,), worker=1, passed=1),
    "a row of a later pass": Data(kind="batch", name="batch.x", batch=0, rows=(0,), n_rows=1, indices=(7,), passed=2),
    "two rows": Data(kind="batch", name="batch", batch=2, rows=(1, 3), n_rows=2, indices=(5, 7)),
    "four rows": Data(kind="batch", batch=2, rows=(1, 2, 3, 4), n_rows=4, indices=(5, 6, 7, 8)),
    "five rows": Data(kind="batch", batch=2, rows=(1, 2, 3, 4, 5), n_rows=5, indices=(5, 6, 7, 8, 9)),
    "more rows than are told": Data(kind="batch", batch=2, rows=tuple(range(16)), n_rows=2048),
    "entries with names": Data(kind="batch", batch=0, rows=(1, 2), n_rows=2, indices=("b.png", "c.png"), worker=0),
    "an entry that was asked for alone": Data(kind="batch", name="batch", batch=40, indices=(40,)),
    "a row of a stream": Data(kind="batch", name="batch", batch=7, rows=(2,), n_rows=1, worker=3),
    "an array of a batch": Data(kind="batch", name='batch["x"]', batch=1, rows=(1,), n_rows=1, indices=(5,), site=SITE),
}


@pytest.mark.parametrize("data", TOLD.values(), ids=list(TOLD))
def test_it_says_where_a_value_came_in(data: Data | None, snapshot: SnapshotAssertion) -> None:
    assert data_text(data) == snapshot


def test_every_kind_of_origin_is_told() -> None:
    kinds = set(Data.model_fields["kind"].annotation.__args__)  # type: ignore[union-attr]
    assert {data.kind for data in TOLD.values() if data is not None} == kinds
    assert all(data_text(data) for data in TOLD.values() if data is not None)
