"""What comes in bad: data, weights, arguments however wrapped, memory that nobody wrote."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import code, only, sinks, traced

NAN = math.nan


@dataclass
class Batch:
    ids: Tensor
    values: Tensor


@contextmanager
def filled_with_nan() -> Generator[None]:
    """With deterministic algorithms PyTorch fills new memory with NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Bag:
    def __init__(self, values: Tensor) -> None:
        self.values = values


def nan_at_1() -> Tensor:
    return torch.tensor([1.0, NAN, 3.0])


WRAPPED: list[tuple[str, Any, Any]] = [
    ("batch", nan_at_1(), lambda b: b),
    ("batch.values", Batch(torch.arange(3), nan_at_1()), lambda b: b.values),
    ("batch.values", {"values": nan_at_1()}, lambda b: b["values"]),
    ("batch['two words']", {"two words": nan_at_1()}, lambda b: b["two words"]),
    ("batch[1]", [torch.ones(1), nan_at_1()], lambda b: b[1]),
    ("batch.second", Pair(torch.ones(1), nan_at_1()), lambda b: b.second),
    ("batch.values", Bag(nan_at_1()), lambda b: b.values),
    ("batch[0].inner[1]", [{"inner": (None, nan_at_1())}], lambda b: b[0]["inner"][1]),
]


@pytest.mark.parametrize(("name", "value", "take"), WRAPPED, ids=[f"{n} of {type(v).__name__}" for n, v, _ in WRAPPED])
@pytest.mark.parametrize("keyword", [False, True])
def test_an_argument_is_named_by_its_path(name: str, value: Any, take: Any, keyword: bool) -> None:
    def target(batch: Any) -> Tensor:
        return take(batch) * 2.0

    report = whynan.explain(target, batch=value) if keyword else whynan.explain(target, value)
    finding = only(report)
    assert (finding.birth, finding.op, finding.element.tensor) == ("entered", None, name)
    assert (finding.element.index, finding.element.count, finding.element.total) == ((1,), 1, 3)


def test_the_site_is_that_of_the_first_reader() -> None:
    def target(x: Tensor) -> Tensor:
        y = x[1:] + 1
        return y * 2

    finding = only(whynan.explain(target, nan_at_1()))
    assert code(finding) == "x[1:] + 1"


def test_one_argument_read_twice_is_one_finding() -> None:
    def target(x: Tensor) -> Tensor:
        return x.sum() + x.mean()

    assert only(whynan.explain(target, nan_at_1())).element.tensor == "x"


def test_a_model_output_of_transformers_is_looked_into() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    def target(encoded: Any) -> Tensor:
        return encoded.last_hidden_state.sum()

    finding = only(whynan.explain(target, BaseModelOutput(last_hidden_state=nan_at_1())))
    assert finding.element.tensor == "encoded.last_hidden_state"


def test_weights_are_named_by_their_path_and_are_no_birth_of_the_forward() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].weight[0, 1] = NAN
    finding = only(whynan.explain(model, torch.ones(1, 2)))
    assert (finding.birth, finding.element.tensor, finding.element.index) == ("entered", "1.weight", (0, 1))


def test_a_bad_weight_that_a_step_keeps_is_told_as_entered() -> None:
    weight = torch.tensor([1.0, NAN], requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        weight.grad = torch.ones(2)
        optimizer.step()

    report = traced(work)
    assert all(f.birth == "entered" for f in report.findings), report.findings


def test_data_of_a_numpy_array_enters() -> None:
    array = np.array([1.0, np.nan])

    def work() -> None:
        torch.from_numpy(array).mul(2).tolist()

    finding = only(traced(work))
    assert finding.birth == "entered"


def test_an_array_that_changes_under_a_tensor_enters() -> None:
    array = np.array([1.0, 2.0])
    shared = torch.from_numpy(array)

    def work() -> None:
        shared.mul(2).sum()
        array[1] = np.nan
        shared.mul(2).tolist()

    finding = only(traced(work))
    assert (finding.birth, finding.element.index) == ("entered", (1,))


def test_a_nan_in_a_list_that_becomes_a_tensor_enters_as_data() -> None:
    row = [1.0, NAN]

    def work() -> None:
        torch.tensor(row).mul(2).tolist()

    finding = only(traced(work))
    assert finding.birth == "entered"


def test_a_batch_of_a_loader_enters() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    data = torch.ones(6, 2)
    data[4, 1] = NAN

    def work() -> None:
        for (batch,) in DataLoader(TensorDataset(data), batch_size=3):
            batch.sum(dim=1).tolist()

    finding = only(traced(work))
    assert finding.birth == "entered"


def test_a_nan_that_goes_through_python_comes_back_as_the_same() -> None:
    def target(x: Tensor) -> Tensor:
        value = x.sqrt().item()
        return torch.ones(2) * value

    finding = only(whynan.explain(target, torch.tensor(-1.0)))
    assert finding.op == "aten.sqrt.default"
    assert ("output", "output") in sinks(finding)


def test_memory_nobody_wrote_is_no_birth_until_it_is_read() -> None:
    def work() -> None:
        torch.empty(4).fill_(1.0).tolist()
        half = torch.empty(4)
        half[:2] = 1.0
        half[2:] = 2.0
        half.tolist()
        torch.empty_like(half)

    with filled_with_nan():
        assert traced(work).verdict == "clean"


def test_memory_nobody_wrote_that_is_read_has_entered() -> None:
    def target() -> Tensor:
        half = torch.empty(4)
        half[:2] = 1.0
        return half + 1.0

    with filled_with_nan():
        finding = only(whynan.explain(target))
    assert (finding.birth, finding.rule, finding.element.index) == ("entered", "WN002", (2,))
    assert finding.element.count == 2


def test_healthy_inputs_enter_nothing() -> None:
    report = whynan.explain(nn.Linear(2, 2), torch.ones(1, 2))
    assert report.findings == report.absorbed == ()
