"""Samples that came in bad are left out of the dataset that a loader is given, where nothing else is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import whynan
from whynan.records import Site
from whynan.run.proof.omissions import sample_texts, without_bad_samples
from whynan.verify.in_place.loaded_samples import LoadedSamples, LoaderCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)

def data():
    x, y = torch.rand(12, 2), torch.rand(12)
    BAD
    return TensorDataset(x, y)

def train():
    total = 0.0
    LOADER
    for x, y in loader:
        loss = (net(x).squeeze(1) - y).pow(2).mean()
        loss.backward()
        total += loss.item()
    return loss
"""
LOADER = "loader = DataLoader(data(), batch_size=4)"


def site(line: int) -> Site:
    return Site(file="train.py", line=line, column=1, code="DataLoader()", function="train")


def edited(loader: str, bad: tuple[int, ...] = (5,), total: int = 12) -> list[str] | None:
    """The lines that are written in place of those of a loader."""
    text = PROGRAM.replace("LOADER", loader)
    made = without_bad_samples(text, LoadedSamples(site(text[: text.index(loader)].count("\n") + 1), bad, total))
    if made is None:
        return None
    assert made.edited in sample_texts("train.py", text, made.edited)
    return [line.strip() for line in made.edited.splitlines() if line not in text.splitlines()]


def test_a_dataset_with_a_name_is_given_without_them() -> None:
    made = edited("d = data(); loader = DataLoader(d, batch_size=4)", (5, 7))
    kept = "torch.utils.data.Subset(d, [i for i in range(len(d)) if i not in (5, 7)])"
    assert made == [f"d = data(); loader = DataLoader({kept}, batch_size=4)"]


def test_one_that_is_made_there_is_made_once() -> None:
    made = edited("loader = DataLoader(dataset=data(), shuffle=True)")
    kept = "torch.utils.data.Subset(samples, [i for i in range(len(samples)) if i != 5])"
    assert made == ["samples = data()", f"loader = DataLoader(dataset={kept}, shuffle=True)"]


@pytest.mark.parametrize(
    ("loader", "bad", "total"),
    [
        (LOADER, tuple(range(7)), 12),
        (LOADER, tuple(range(17)), 100),
        ("loader = (lambda: DataLoader(data()))()", (5,), 12),
        ("a = 1; loader = DataLoader(data())", (5,), 12),
        ("loader = DataLoader(*given)", (5,), 12),
    ],
    ids=["most", "many", "later", "behind another", "open"],
)
def test_what_cannot_be_said_is_not(loader: str, bad: tuple[int, ...], total: int) -> None:
    assert edited(loader, bad, total) is None


def heard(part: str, **how: object) -> list[tuple[int, ...]]:
    x, y = torch.rand(12, 2), torch.rand(12)
    x[3, 1], y[7] = torch.nan, torch.inf
    calls, own = LoaderCalls(part), DataLoader.__init__
    with calls.heard():
        DataLoader(TensorDataset(x, y), **how)
    assert DataLoader.__init__ is own
    return [found.bad for found in calls.found]


def test_the_part_that_was_bad_counts() -> None:
    assert heard("[0]") == [(3,)]
    assert heard("[1]", shuffle=True) == [(7,)]
    assert heard("['x']") == [(3, 7)]
    assert heard("[0]", sampler=WeightedRandomSampler([1.0] * 12, 12)) == []


def test_looking_at_samples_draws_no_random_number() -> None:
    class Noisy(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            return (super().__getitem__(index)[0] + torch.rand(2),)

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with LoaderCalls().heard():
        DataLoader(Noisy(torch.full((3, 2), torch.nan)))
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.proof
@pytest.mark.parametrize(("bad", "fixed"), [("x[5, 1] = float('nan')", True), ("x[:, 1] = float('nan')", False)])
def test_the_program_is_tried_without_them(bad: str, fixed: bool, loaded: Callable[[str], ModuleType]) -> None:
    """Its twin has no sample that is good."""
    text = PROGRAM.replace("BAD", f"{bad}; x = torch.from_numpy(x.numpy().copy())").replace("LOADER", LOADER)
    report = whynan.explain(loaded(text).train, rerun=True)
    assert report.verdict == "nonfinite"
    made = [fix for fix in report.findings[0].fixes if fix.title == "no samples that hold NaN or Inf"]
    assert [fix.verdict.status for fix in made] == (["guarded"] if fixed else [])
    assert all("sample 5 of the 12 of the dataset" in fix.verdict.why for fix in made)
