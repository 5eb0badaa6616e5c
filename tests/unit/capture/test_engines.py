"""Other ways through autograd: double backward, ``torch.func``, hooks, custom functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import whynan
from tests.unit.capture.seen import code, only, sinks, traced


def test_a_double_backward() -> None:
    x = torch.zeros(3, requires_grad=True)

    def work() -> None:
        size = x.norm()
        (slope,) = torch.autograd.grad(size, x, create_graph=True)
        assert bool(slope.isfinite().all())
        slope.square().sum().backward()

    report = traced(work)
    assert report.verdict == "nonfinite"
    assert {f.phase for f in report.findings} == {"backward"}
    assert "x.norm()" in {code(f) for f in report.findings}


def test_a_healthy_gradient_penalty_is_clean() -> None:
    x = torch.ones(3, requires_grad=True)

    def work() -> None:
        (slope,) = torch.autograd.grad(x.norm(), x, create_graph=True)
        (slope.norm() - 1).square().backward()

    assert traced(work).verdict == "clean"


def test_grad_of_torch_func() -> None:
    def loss(x: Tensor) -> Tensor:
        return x.sqrt().sum()

    finding = only(whynan.explain(torch.func.grad(loss), torch.zeros(2)))
    assert finding.op == "aten.div.Tensor"
    assert sinks(finding) == {("output", "output")}


def test_vmap_and_jvp_of_torch_func() -> None:
    def root(x: Tensor) -> Tensor:
        return x.sqrt()

    finding = only(whynan.explain(torch.func.vmap(root), torch.tensor([[1.0], [-1.0]])))
    assert (finding.op, code(finding)) == ("aten.sqrt.default", "x.sqrt()")
    report = whynan.explain(lambda x: torch.func.jvp(root, (x,), (torch.ones(1),)), torch.zeros(1))
    assert report.verdict == "nonfinite"


def test_jacrev_and_functional_call_are_clean_where_they_are_healthy() -> None:
    model = torch.nn.Linear(2, 2)

    def target(x: Tensor) -> Tensor:
        parameters = dict(model.named_parameters())
        call = torch.func.jacrev(lambda p: torch.func.functional_call(model, p, (x,)).sum())
        return call(parameters)["weight"]

    assert whynan.explain(target, torch.ones(1, 2)).verdict == "clean"


class Straight(torch.autograd.Function):
    """A rounding whose backward divides by what it saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return (x * scale).round() / scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[0] / x, None


def test_a_birth_in_the_backward_of_a_custom_function() -> None:
    weight = torch.zeros(2, requires_grad=True)
    finding = only(traced(lambda: Straight.apply(weight, 10.0).sum().backward()))
    assert (finding.phase, finding.birth, code(finding)) == ("backward", "pole", "grads[0] / x")
    assert [o.value for o in finding.element.operands] == [1.0, 0.0]
    assert sinks(finding) == {("gradient", "weight")}


def test_a_birth_in_the_forward_of_a_custom_function() -> None:
    finding = only(whynan.explain(lambda x: Straight.apply(x, 0.0), torch.ones(2)))
    assert (finding.phase, code(finding)) == ("forward", "(x * scale).round() / scale")


def test_a_gradient_hook_that_mends_a_gradient_absorbs_it() -> None:
    weight = torch.zeros(2, requires_grad=True)

    def work() -> None:
        copy = weight * 1
        copy.register_hook(lambda g: g.nan_to_num(0.0, 0.0, 0.0))
        copy.sqrt().sum().backward()

    report = traced(work)
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


def test_a_post_accumulate_hook_that_clears_the_gradient_absorbs_it() -> None:
    weight = torch.zeros(2, requires_grad=True)

    def clear(leaf: Tensor) -> None:
        leaf.grad = None

    weight.register_post_accumulate_grad_hook(clear)
    report = traced(lambda: weight.sqrt().sum().backward())
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


def test_backward_inside_a_module_hook_of_another_backward() -> None:
    outer = torch.ones(1, requires_grad=True)
    inner = torch.zeros(1, requires_grad=True)

    def hook(grad: Tensor) -> None:
        with torch.enable_grad():
            inner.sqrt().sum().backward()

    def work() -> None:
        scaled = outer * 2
        scaled.register_hook(hook)
        scaled.sum().backward()

    finding = only(traced(work))
    assert code(finding) == "inner.sqrt()"
    assert sinks(finding) == {("gradient", "inner")}


def test_a_gradient_for_inputs_only_reaches_no_parameter() -> None:
    weight = torch.zeros(1, requires_grad=True)
    x = torch.zeros(1, requires_grad=True)

    def work() -> None:
        (weight.sqrt() + x).sum().backward(inputs=[x])

    assert traced(work).verdict == "clean"
