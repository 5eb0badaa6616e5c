"""Which element of an operand, or of a result, an element of another shape is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev, vmap  # pyright: ignore[reportUnknownVariableType]

import whynan
from whynan.capture.provenance.dependence import forward_index

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("out", "place", "shape", "ahead"),
    [
        ((6,), (5,), (6,), (5,)),
        ((6,), (5, 0), (6, 1), (5,)),
        ((6,), (1, 5), (2, 6), (5,)),
        ((6, 3), (5, 1, 2), (6, 2, 3), (5, 2)),
        ((), (5, 1), (6, 2), ()),
        ((6,), (5,), (6, 2), (5,)),
        ((2,), (0, 1), (2, 2), None),
        ((2,), (1, 1), (2, 2), (1,)),
        ((4,), (5,), (6,), (5,)),
        ((4,), (5, 1), (6, 2), None),
        ((6, 3), (2,), (3,), (2,)),
        ((1,), (0,) * 13, (1,) * 13, None),
    ],
)
def test_the_element_that_a_gradient_of_more_dimensions_is_about(
    out: tuple[int, ...], place: tuple[int, ...], shape: tuple[int, ...], ahead: tuple[int, ...] | None
) -> None:
    assert forward_index(out, place, shape) == ahead


def _length(xy: Tensor) -> Tensor:
    return torch.sqrt((xy**2).sum()) * 3


@pytest.mark.parametrize(("derived", "points"), [(jacrev, 6), (hessian, 6), (jacrev, 1), (hessian, 3)])
def test_a_derivative_of_many_directions_is_told_with_the_operand_at_its_point(derived: object, points: int) -> None:
    # the last point is the origin
    given = torch.cat([torch.full((points - 1, 2), 0.7), torch.zeros(1, 2)])
    report = whynan.explain(vmap(derived(_length)), given)  # type: ignore[operator]
    first = report.findings[0]
    assert first.rule == "WN308"
    assert [o.value for o in first.forward_operands] == [0.0]


def _cross_entropy(x: Tensor) -> Tensor:
    q = x * torch.tensor([0.5, 1e-40])
    return torch.nn.functional.binary_cross_entropy(q, torch.tensor([0.0, 1.0]), reduction="sum") * 1e30


def _product(x: Tensor) -> Tensor:
    product = (x * 1.0).prod(dim=1).sum()
    product.register_hook(lambda gradient: gradient * 1e10)
    return product


@pytest.mark.parametrize(
    ("function", "x", "told"),
    [
        (_cross_entropy, torch.ones(2), {"self": 1e-40, "target": 1.0}),
        (_product, torch.tensor([[1e20, 2e18, 1.5], [1.0, 1.0, 1.0]]), {"self": 1.5}),
    ],
)
def test_a_gradient_of_a_reduction_is_no_batch_of_directions(
    function: Callable[[Tensor], Tensor], x: Tensor, told: dict[str, float]
) -> None:
    x.requires_grad_()
    with whynan.trace() as trace:
        function(x).backward()
    born = [f for f in trace.report.findings if f.phase == "backward"]
    values = {o.name: o.value for o in born[0].forward_operands}
    assert {name: values[name] for name in told} == pytest.approx(told)
    assert [link for link in born[0].chain if link.role == "cause"]


def test_of_a_sum_over_an_operand_no_element_is_told() -> None:
    x, w = torch.tensor([[1.0, 1.0], [1.0, 3e38], [1.0, 3e38]]), torch.ones(1, 2, requires_grad=True)
    with whynan.trace() as trace:
        y = x * w
        y.backward(torch.ones_like(y))
    (born,) = trace.report.findings
    assert (born.op, born.forward_op) == ("aten.sum.dim_IntList", "aten.mul.Tensor")
    assert {o.name: o.value for o in born.forward_operands} == {"self": None, "other": 1.0}


def test_where_the_sizes_do_not_tell_nothing_is_said() -> None:
    given = torch.tensor([[0.7, 0.7], [0.0, 0.0]])
    report = whynan.explain(vmap(hessian(_length)), given)
    values = {o.value for f in report.findings for o in f.forward_operands}
    assert values <= {0.0, None}, "of the other point it is 0.98"
