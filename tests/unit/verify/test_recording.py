"""What a function of tensors does is written down without views, without in-place writes, with what autograd sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from tests.unit.verify.replaying import replayed
from whynan.verify.arrays import tensors_in
from whynan.verify.memory import UnrecordableError
from whynan.verify.recording import record_program

if TYPE_CHECKING:
    from collections.abc import Callable

_SCALE = torch.tensor([0.5, 2.0, 3.0, 4.0])


def _no_grad_guard(x: Any) -> Any:
    n = (x * x).sum(-1, keepdim=True)
    with torch.no_grad():
        n.clamp_(min=0.9)
    return x / n


def _part_written(x: Any) -> Any:
    y = x.clone()
    y[:, 1].log_()
    y[0] = 2.0
    view = y.t()
    y[y > 0.8] = 0.25
    return view.exp()


def _row_by_row(x: Any) -> Any:
    rows = torch.zeros_like(x)
    for i in range(x.shape[0]):
        rows[i] = x[i].softmax(0)
    return rows.log()


def _detached_alias(x: Any) -> Any:
    y = x * 2
    seen = y.detach()
    y[0].mul_(3.0)
    return y * seen


def _whole_then_view(x: Any) -> Any:
    y = x + 1
    view = y[:, :2]
    y.log_()
    y += 1
    return view.sum() + y.transpose(0, 1).unsqueeze(0).sum()


def _from_a_list(xs: Any) -> Any:
    return torch.stack(xs).logsumexp(0), xs[0].max(-1).values


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "plain": lambda x: x.softmax(-1).log().sum(),
    "closed over": lambda x: (x * _SCALE).std(-1),
    "no_grad": lambda x: (x - _held(x)).exp().sum(-1).log(),
    "detach": lambda x: x / x.detach().norm(),
    "no_grad in place": _no_grad_guard,
    "part written": _part_written,
    "row by row": _row_by_row,
    "detached alias": _detached_alias,
    "whole, then a view": _whole_then_view,
    "where": lambda x: torch.where(x > 0.5, x.log(), torch.zeros_like(x)),
    "masked": lambda x: x.masked_fill(x > 0.5, -1e4).log_softmax(-1),
    "composite": lambda x: F.cosine_similarity(x, x.flip(0)) + F.layer_norm(x, (4,)).sum(),
    "matmul": lambda x: torch.einsum("ij,kj->ik", x, x).relu_(),
    "cast": lambda x: x.half().float().square_().mean(),
    "indexed": lambda x: x[torch.tensor([0, 2])].gather(1, x.argmax(-1, keepdim=True)[:2]),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}


def _held(x: Any) -> Any:
    with torch.no_grad():
        return x.amax(-1, keepdim=True)


def _gradient(outputs: Any, x: Any) -> Any:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return torch.autograd.grad(sum((o * (i + 1.5)).sum() for i, o in enumerate(outputs)), x)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_does_what_the_function_did_in_value_and_gradient(name: str) -> None:
    torch.manual_seed(3)
    function = FUNCTIONS[name]
    values = torch.rand(3, 4) + 0.1
    program = record_program(function, {"x": values}, needs_grad=frozenset("x"))
    assert program.inputs == ("x",)
    assert program.differentiable == {"x"}
    assert not any(s.op.split(".")[1].endswith("_") and not s.op.startswith("aten._") for s in program.steps)
    x, again = values.clone().requires_grad_(), values.clone().requires_grad_()
    direct, told = function(x.clone()), replayed(program, {"x": again})
    for one, other in zip(direct if isinstance(direct, tuple) else (direct,), told, strict=True):
        assert torch.allclose(one, other, rtol=1e-6)
    assert torch.allclose(_gradient(direct, x), _gradient(told, again), rtol=1e-5)


def test_tensors_of_a_list_are_inputs_by_place() -> None:
    arguments = {"xs": [torch.rand(2, 3), torch.rand(2, 3)], "scale": 2.0}
    program = record_program(lambda xs, scale: _from_a_list([x * scale for x in xs]), arguments)
    assert program.inputs == ("xs[0]", "xs[1]")
    told = replayed(program, tensors_in(arguments))
    assert torch.equal(told[0], torch.stack([x * 2.0 for x in arguments["xs"]]).logsumexp(0))


def test_masks_and_indices_carry_the_values_that_they_had() -> None:
    values = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    program = record_program(lambda x: torch.where(x > 0, x.max(-1).values, x), {"x": values})
    steps = {s.op: s for s in program.steps}
    assert steps["aten.gt.Scalar"].result[0].tolist() == [[False, True], [True, True]]  # pyright: ignore[reportOptionalSubscript]
    assert steps["aten.max.dim"].result[0] is None  # pyright: ignore[reportOptionalSubscript]
    assert steps["aten.max.dim"].result[1].tolist() == [1, 0]  # pyright: ignore[reportOptionalSubscript]


def test_what_was_drawn_at_random_is_a_constant() -> None:
    state = torch.get_rng_state()
    torch.manual_seed(1)
    program = record_program(lambda x: F.dropout(x, 0.5) + torch.randn_like(x), {"x": torch.ones(64)})
    torch.manual_seed(1)
    direct = F.dropout(torch.ones(64), 0.5) + torch.randn_like(torch.ones(64))
    assert torch.equal(replayed(program, {"x": torch.ones(64)})[0], direct)
    torch.set_rng_state(state)


def test_the_saved_result_that_autograd_detaches_stops_no_gradient() -> None:
    program = record_program(lambda x: x.softmax(-1).log(), {"x": torch.rand(3)}, needs_grad=frozenset("x"))
    assert [s.op for s in program.steps] == ["aten._softmax.default", "aten.log.default"]


def test_the_inputs_are_not_written_to() -> None:
    values = torch.full((3,), 2.0)
    record_program(lambda x: x.log_(), {"x": values}, needs_grad=frozenset("x"))
    assert values.tolist() == [2.0, 2.0, 2.0]


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: _Straight.apply(x), "the autograd.Function _Straight"),
        (lambda x: x.to_sparse().sum(), "sparse"),
        (lambda x: (x * 1j).real, "complex"),
        (lambda x: F.rrelu(x, training=True), "rrelu"),
    ],
)
def test_what_no_program_can_say_is_refused_by_name(function: Callable[..., Any], told: str) -> None:
    with pytest.raises(UnrecordableError, match=told):
        record_program(function, {"x": torch.rand(2, 3)}, needs_grad=frozenset("x"))
