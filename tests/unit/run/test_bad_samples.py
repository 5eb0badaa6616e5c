"""Samples that came in bad are left out of the dataset that a loader is given, where nothing else is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import whynan
from whynan.fixes.python import patch
from whynan.records import Site
from whynan.run.proof.omissions import sample_texts, without_bad_samples
from whynan.verify.in_place.loaded_samples import LoadedSamples, LoaderCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(2, 1)

def data():
    torch.manual_seed(0)
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
    assert made.edited in sample_texts("train.py", text, patch("train.py", text, made.edited))
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
        ("d = data(); loader = DataLoader(d, **given)", (5,), 12),
        ("d = data(); loader = DataLoader(d, sampler=torch.utils.data.RandomSampler(d))", (5,), 12),
        ("d = data(); loader = DataLoader(d, 4, False, torch.utils.data.SequentialSampler(d))", (5,), 12),
        ("d = data(); loader = DataLoader(d, batch_sampler=batches)", (5,), 12),
    ],
    ids=["most", "many", "later", "behind another", "open", "named", "sampler", "by position", "batches"],
)
def test_what_cannot_be_said_is_not(loader: str, bad: tuple[int, ...], total: int) -> None:
    assert edited(loader, bad, total) is None


@pytest.mark.parametrize(
    ("code", "counted"),
    [
        ("print(loader.dataset.classes)", None),
        ("data = self.loader.dataset\nprint(data.classes)", None),
        ("print(loader.dataset[3])", None),
        ("print(loader.dataset.indices)", None),
        ("for n, batch in enumerate(loader): weights[n]", True),
        ("for batch, weight in zip(loader, weights): pass", True),
        ("print(len(loader.dataset), self.dataset[3], args.dataset == 'digits')", False),
    ],
)
@pytest.mark.parametrize("other", [False, True])
def test_a_program_that_may_tell_that_samples_are_gone_is_left(code: str, counted: bool | None, other: bool) -> None:
    """Wherever that stands: where samples keep their order, it may count them, and is told that they move up."""
    text = PROGRAM.replace("LOADER", LOADER)
    line = text[: text.index(LOADER)].count("\n") + 1
    text, texts = (text, [code]) if other else (text + code, [])
    for in_order in (False, True):
        made = without_bad_samples(text, LoadedSamples(site(line), (5,), 12, in_order), texts)
        assert (made is None) == (counted is None or (counted and in_order))
        assert made is None or made.lost.endswith("; what follows it moves up") == in_order


def test_the_samples_of_a_patch_are_those_that_it_adds() -> None:
    first = "Subset(d, [i for i in range(len(d)) if i not in (5, 7)])"
    text = PROGRAM.replace("LOADER", f"loader = DataLoader(torch.utils.data.{first}, batch_size=4)")
    added = "+    loader = DataLoader(torch.utils.data.Subset(samples, [i for i in range(len(samples)) if i != 3]))"
    was, unsaid = f"-    loader = DataLoader({first})", "+    x = [i for i in range(len(d)) if i != 8])"
    made = sample_texts("train.py", text, "\n".join((f" {first}", was, added, unsaid)))
    assert [("if i != 3]" in one, "if i != 8]" in one, one.count("(5, 7)")) for one in made] == [(True, False, 1)]
    assert sample_texts("train.py", text, "\n".join((f" {first}", was, unsaid))) == []


class Samples(Dataset[Any]):
    """What is made of each number up to 12."""

    def __init__(self, sample: Callable[[int], Any]) -> None:
        self._sample = sample

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self._sample(index)


def heard(part: str | None, made: Callable[[], Iterable[Dataset[Any]]], **how: Any) -> list[tuple[int, ...]]:
    calls, own = [LoaderCalls(part, seed) for seed in (0, 1)], DataLoader.__init__
    for each in calls:
        torch.manual_seed(0)
        with each.heard():
            for dataset in made():
                DataLoader(dataset, **how)
    assert DataLoader.__init__ is own
    return [found.bad for found in calls[0].alike(calls[1])]


def pairs() -> list[Dataset[Any]]:
    x, y = torch.ones(12, 2), torch.ones(12)
    x[3, 1], y[7] = torch.nan, torch.inf
    return [TensorDataset(x, y)]


def test_the_part_that_was_bad_counts() -> None:
    assert heard("batch[0]", pairs) == [(3,)]
    assert heard("batch[1]", pairs, shuffle=True) == [(7,)]
    assert heard("batch.x", pairs) == []
    assert heard(None, pairs) == []
    assert heard("batch[0]", pairs, sampler=WeightedRandomSampler([1.0] * 12, 12)) == []


def test_a_part_is_found_by_what_it_is_called_in_a_batch() -> None:
    def sample(index: int) -> Any:
        image = torch.tensor([torch.nan if index == 3 else 1.0])
        return {"image": image, "more": [{"per cent": image}], "age": float("nan" if index > 6 else index)}

    def made() -> list[Dataset[Any]]:
        return [Samples(sample)]

    assert heard("batch.image", made) == [(3,)]
    assert heard("batch.more[0]['per cent']", made) == [(3,)]
    assert heard("batch.age", made) == [(7, 8, 9, 10, 11)]
    assert heard("batch['image']", made) == []
    assert heard("batch[1]", made, collate_fn=lambda batch: [torch.ones(1), batch[0]["image"]]) == [(3,)]


def test_samples_that_random_numbers_are_in_are_not_named() -> None:
    split = torch.utils.data.random_split

    def bad(index: int) -> torch.Tensor:
        return torch.rand(1).log() if index != 3 else torch.full((1,), torch.nan)

    assert heard("batch", lambda: [Samples(bad)]) == []
    assert heard("batch[0]", lambda: split(pairs()[0], [11, 1])[:1]) == []
    seeded = heard("batch[0]", lambda: split(pairs()[0], [12, 0], torch.Generator().manual_seed(0))[:1])
    assert len(seeded) == 1
    assert len(seeded[0]) == 1


def test_the_datasets_of_one_place_are_alike_and_made_in_the_run() -> None:
    assert heard("batch[0]", lambda: pairs() * 2) == [(3,)]
    assert heard("batch[0]", lambda: [TensorDataset(torch.ones(12, 2), torch.ones(12)), *pairs()]) == []
    known, array = pairs(), np.array([[1.0]] * 11 + [[np.nan]])
    assert heard("batch[0]", lambda: known) == []
    assert heard("batch[0]", lambda: [TensorDataset(torch.from_numpy(array))]) == []
    assert heard("batch[0]", lambda: [TensorDataset(torch.from_numpy(array.copy()))]) == [(11,)]


def test_looking_at_samples_draws_no_random_number() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    for seed in (0, 1):
        torch.manual_seed(0)
        with LoaderCalls("batch", seed).heard():
            DataLoader(Samples(lambda _: torch.rand(1)))
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


@pytest.mark.proof
@pytest.mark.parametrize("seeded", [False, True])
def test_samples_of_a_split_are_named_where_it_is_seeded(seeded: bool, loaded: Callable[[str], ModuleType]) -> None:
    text = PROGRAM.replace("BAD", "x[5:9, 1] = float('nan'); x = torch.from_numpy(x.numpy().copy())")
    text = text if seeded else text.replace("torch.manual_seed(0)", "pass")
    loader = "loader = DataLoader(torch.utils.data.random_split(data(), [11, 1])[0], batch_size=4)"
    report = whynan.explain(loaded(text.replace("LOADER", loader)).train, rerun=True)
    assert report.verdict == "nonfinite"
    made = [fix.verdict.status for fix in report.findings[0].fixes if fix.title == "no samples that hold NaN or Inf"]
    assert made == (["guarded"] if seeded else [])
