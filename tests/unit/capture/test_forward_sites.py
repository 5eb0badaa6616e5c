"""Events without a line of their own: backward, accumulation, optimizer, hooks, custom functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.capture.seen import code, only, sinks, traced


def test_a_backward_birth_is_at_the_forward_expression() -> None:
    weight = torch.zeros(1, requires_grad=True)

    def work() -> None:
        root = 1 + torch.sqrt(weight)
        loss = root.sum()
        loss.backward()

    finding = only(traced(work))
    assert (finding.phase, finding.grad_fn, finding.forward_op) == ("backward", "SqrtBackward0", "aten.sqrt.default")
    assert code(finding) == "torch.sqrt(weight)"
    assert [(o.expression, o.value) for o in finding.forward_operands] == [("weight", 0.0)]


def test_so_is_one_of_an_in_place_operation() -> None:
    weight = torch.zeros(2, requires_grad=True)

    def work() -> None:
        copy = weight * 1
        copy.sqrt_()
        copy.sum().backward()

    finding = only(traced(work))
    assert (finding.phase, code(finding)) == ("backward", "copy.sqrt_()")


def test_so_is_one_of_a_view_written_in_place() -> None:
    weight = torch.zeros(2, requires_grad=True)

    def work() -> None:
        copy = weight * 1
        copy[:1].sqrt_()
        copy.sum().backward()

    finding = only(traced(work))
    assert (finding.phase, code(finding)) == ("backward", "copy[:1].sqrt_()")


def test_the_module_of_a_backward_birth_is_that_of_its_forward() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    model = nn.Sequential(nn.Linear(1, 1, bias=False), Root())
    with torch.no_grad():
        model[0].weight.zero_()
    finding = only(traced(lambda: model(torch.ones(1, 1)).sum().backward()))
    assert finding.phase == "backward"
    assert finding.site is not None
    assert finding.site.module == "1"
    assert ("gradient", "0.weight") in sinks(finding)


def test_an_optimizer_birth_is_at_the_call_of_step() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([weight], eps=0.0)

    def work() -> None:
        (weight[:1] * 2).sum().backward()
        optimizer.step()

    finding = only(traced(work))
    assert (finding.phase, code(finding)) == ("optimizer", "optimizer.step()")
    assert finding.element.tensor == "weight"


def test_a_birth_in_the_sum_of_a_leafs_gradients_is_at_its_first_use() -> None:
    weight = torch.ones(1, requires_grad=True)

    def work() -> None:
        (weight * 3e38).sum().backward()
        (weight * 3e38).sum().backward()

    finding = only(traced(work))
    assert (finding.phase, finding.birth, finding.grad_fn) == ("accumulation", "overflow", "AccumulateGrad")
    assert code(finding) == "weight * 3e38"


def test_a_custom_function_is_at_the_line_of_its_backward() -> None:
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sqrt()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grads[0] / (2 * x.sqrt())

    weight = torch.zeros(1, requires_grad=True)
    finding = only(traced(lambda: Root.apply(weight).sum().backward()))
    assert finding.phase == "backward"
    assert code(finding) == "grads[0] / (2 * x.sqrt())"


def test_a_tensor_hook_is_at_its_own_line() -> None:
    weight = torch.ones(1, requires_grad=True)

    def hook(grad: Tensor) -> Tensor:
        return grad / 0.0

    def work() -> None:
        doubled = weight * 2
        doubled.register_hook(hook)
        doubled.sum().backward()

    finding = only(traced(work))
    assert finding.op == "aten.div.Tensor"
    assert finding.site is not None
    assert finding.site.function is not None
    assert "gradient" in {k for k, _ in sinks(finding)}


def test_a_forward_hook_is_at_its_own_line() -> None:
    model = nn.Identity()

    def hook(module: nn.Module, args: Any, out: Tensor) -> Tensor:
        return out.log()

    model.register_forward_hook(hook)
    finding = only(traced(lambda: model(torch.zeros(1))))
    assert code(finding) == "out.log()"


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_birth_is_told_once(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    weight = torch.zeros(1, requires_grad=True)

    def block(x: Tensor) -> Tensor:
        return x.log() * 2

    def work() -> None:
        checkpoint(block, weight, use_reentrant=reentrant).sum().backward()

    report = traced(work)
    logs = [f for f in report.findings if f.op == "aten.log.default"]
    assert [(f.phase, f.occurrences, code(f)) for f in logs] == [("forward", 1, "x.log()")]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_backward_birth_in_a_checkpoint_keeps_its_forward_line(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    weight = torch.zeros(1, requires_grad=True)

    def block(x: Tensor) -> Tensor:
        return x.sqrt() * 2

    def work() -> None:
        checkpoint(block, weight, use_reentrant=reentrant).sum().backward()

    finding = only(traced(work))
    assert (finding.phase, code(finding)) == ("backward", "x.sqrt()")
