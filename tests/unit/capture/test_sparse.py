"""Sparse gradients: what is born in their values is found, and told of as an element of the dense shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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


# -- other layouts -------------------------------------------------------------------------------------------------

MATRIX = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sum_of_a_dense_and_a_sparse_matrix_is_looked_at(layout: str) -> None:
    report = _traced(lambda: torch.eye(2) + LAYOUTS[layout](MATRIX))
    assert (report.verdict, report.coverage.notes) == ("clean", ())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_product_with_a_sparse_matrix_carries_what_was_born_in_its_values(layout: str) -> None:
    def program() -> Tensor:
        made = torch.log(MATRIX - 1)
        return LAYOUTS[layout](made) @ torch.tensor([[1.0, 0.0], [2.0, 1.0]])

    found = whynan.explain(program).findings
    assert {f.op for f in found} == {"aten.log.default"}


def test_a_bad_row_of_a_product_is_no_copy_of_an_operand_that_is_bad_elsewhere() -> None:
    def program() -> Tensor:
        bad = torch.tensor([0.0, 1.0]).log() * 0
        matrix = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), bad, (2, 2))
        return (matrix @ torch.ones(2, 2)).sum()

    assert [f.op for f in whynan.explain(program).findings] == ["aten.log.default"]


def test_a_tensor_that_torch_cannot_read_itself_is_carried_as_a_whole() -> None:
    def program() -> Tensor:
        batch = torch.full((2, 2, 2), float("nan")).to_sparse_csr()
        return (batch + batch).values()

    assert _traced(program).verdict in ("clean", "nonfinite", "inconclusive")


def _nested(value: float) -> Tensor:
    return torch.nested.nested_tensor([torch.full((2, 3), value), torch.full((1, 3), value)])


def test_what_comes_bad_into_a_nested_tensor_leaves_it_with_its_birth() -> None:
    def program() -> Tensor:
        rows = [torch.zeros(2, 3).log() * 0, torch.ones(1, 3)]
        return torch.nested.as_nested_tensor(rows).relu().to_padded_tensor(0.0) * 2

    found = whynan.explain(program).findings
    assert [f.op for f in found] == ["aten.log.default"]


def test_what_is_born_in_a_nested_tensor_is_said_not_to_be_seen() -> None:
    report = whynan.explain(lambda: (_nested(0.0) / _nested(0.0)).to_padded_tensor(0.0))
    assert report.verdict == "inconclusive"
    assert any("nested" in note for note in report.coverage.notes)
    assert whynan.explain(lambda: (_nested(1.0) / _nested(1.0)).to_padded_tensor(0.0)).verdict == "clean"


def test_an_infinity_of_a_float8_passes_a_cast() -> None:
    report = _traced(lambda: torch.tensor([float("inf"), 1.0]).to(torch.float8_e5m2).clone().float())
    assert report.verdict == "clean"


def test_an_empty_tensor_can_be_cast_to_a_format_that_saturates() -> None:
    assert _traced(lambda: torch.zeros(0).to(torch.float8_e4m3fn)).verdict == "clean"


def test_the_results_of_a_plain_subclass_are_those_of_the_operation() -> None:
    class Plain(Tensor):
        pass

    def program() -> Tensor:
        x, mean, var = (torch.full(shape, float("nan")).as_subclass(Plain) for shape in ((2, 3, 2), (3,), (3,)))
        return nn.functional.batch_norm(x, mean, var, training=True)

    assert _traced(program).verdict in ("clean", "nonfinite")
