"""Sparse gradients: what is born in their values is found, and told of as an element of the dense shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import whynan
from whynan.records import Report


def _table() -> nn.Embedding:
    torch.manual_seed(0)
    table = nn.Embedding(8, 2, sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.full((8, 2), 0.1))
        table.weight[5] = 0.0
    return table


def _traced(program: Callable[[], Any]) -> Report:
    with whynan.trace() as t:
        _kept = program()
    return t.report


def rooted(words: list[int], make: Callable[..., Any] | None) -> Callable[[], Any]:
    """The gradient of a root at 0, in a table of which few rows have one."""

    def program() -> Any:
        table = _table()
        optimizer = None if make is None else make(table.parameters(), lr=0.1)
        table(torch.tensor(words)).sum(1).sqrt().sum().backward()
        if optimizer is not None:
            optimizer.step()
        return table

    return program


@pytest.mark.parametrize("make", [None, torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_bad_sparse_gradient_reaches_its_parameter(make: Callable[..., Any] | None) -> None:
    report = _traced(rooted([3, 5, 5], make))
    (finding,) = report.findings
    assert (finding.op, finding.phase, finding.birth) == ("aten.div.Tensor", "backward", "pole")
    assert finding.site is not None
    assert finding.site.code == "table(torch.tensor(words)).sum(1).sqrt()"
    # each element once, though its row was looked up twice
    reaches = {(r.kind, r.bad, r.total) for r in finding.reaches}
    assert reaches == {("gradient", 2, 16), *([("parameter", 2, 16)] if make is not None else [])}


@pytest.mark.parametrize("make", [None, torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_healthy_sparse_gradient_is_clean(make: Callable[..., Any] | None) -> None:
    report = _traced(rooted([3, 4, 4], make))
    assert (report.verdict, report.absorbed_count, report.coverage.notes) == ("clean", 0, ())


def coalesced() -> Any:
    """Two gradients of one row that are out of range together."""
    table = _table()
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    (table(torch.tensor([1, 5, 5])) * 3e38).sum().backward()
    optimizer.step()
    return table


def added() -> Any:
    """Two sparse gradients of which the sum is out of range."""
    table = _table()
    for _ in range(2):
        (table(torch.tensor([2, 5])) * 3e38).mul(0.9).sum().backward()
    torch.optim.SGD(table.parameters(), lr=0.1).step()
    return table


def multiplied() -> Any:
    """A sparse gradient that is scaled by hand."""
    table = _table()
    table(torch.tensor([2, 5])).sum().backward()
    assert table.weight.grad is not None
    table.weight.grad = table.weight.grad * 1e30 * 1e30
    return table


@pytest.mark.parametrize(
    ("program", "phase", "index", "count"),
    [
        (coalesced, "optimizer", (5, 0), 2),
        (added, "accumulation", (2, 0), 4),
        (multiplied, "forward", (2, 0), 4),
    ],
)
def test_what_is_born_in_a_sparse_tensor_has_its_place_in_the_dense_one(
    program: Callable[[], Any], phase: str, index: tuple[int, ...], count: int
) -> None:
    report = _traced(program)
    assert report.verdict == "nonfinite"
    finding = next(f for f in report.findings if f.phase == phase and f.element.shape == (8, 2))
    assert (finding.birth, finding.element.index) == ("overflow", index)
    assert (finding.element.count, finding.element.total) == (count, 16)


def discarded() -> Any:
    """A bad sparse gradient that no step uses."""
    table = _table()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    (table(torch.tensor([1, 5])) * float("inf")).sum().backward()
    optimizer.zero_grad()
    table(torch.tensor([1, 5])).sum().backward()
    optimizer.step()
    return table


def test_a_sparse_gradient_that_is_discarded_is_no_finding() -> None:
    assert _traced(discarded).verdict == "clean"


def made_dense() -> Any:
    """A literal in a sparse tensor, which is made dense and used."""
    weight = torch.ones(2, 3, requires_grad=True)
    sparse = torch.eye(2, 3).to_sparse() * float("nan")
    (weight * sparse.to_dense()).sum().backward()
    return weight


def test_a_sparse_tensor_that_is_made_dense_keeps_what_is_known_of_it() -> None:
    (finding,) = _traced(made_dense).findings
    assert (finding.birth, finding.op, finding.element.index) == ("literal", "aten.mul.Tensor", (0, 0))


def test_a_sparse_tensor_beyond_the_limit_carries_on_what_its_operands_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from whynan.capture.torch import sparse

    monkeypatch.setattr(sparse, "MOST_ELEMENTS", 15)
    report = _traced(rooted([3, 5], torch.optim.SGD))
    (finding,) = report.findings
    assert (finding.op, finding.phase) == ("aten.div.Tensor", "backward")
    assert {r.kind for r in finding.reaches} == {"gradient", "parameter"}
    assert report.coverage.notes == ("a sparse tensor of more than 15 elements was looked at as a whole",)
