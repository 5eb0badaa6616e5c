"""Under PyTorch's own modes: no gradients, inference, autocast, other dispatch modes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import whynan
from tests.unit.capture.seen import code, only, sinks, traced


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_birth_is_seen_and_placed(mode: Any) -> None:
    def target(x: Tensor) -> Tensor:
        with mode():
            return x.log() + 1

    finding = only(whynan.explain(target, torch.zeros(2)))
    assert (finding.op, finding.phase, code(finding)) == ("aten.log.default", "forward", "x.log()")


def test_composite_operations_under_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    with torch.no_grad():
        model[0].weight.fill_(3e38)

    def target(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(x * 10)

    finding = only(whynan.explain(target, torch.ones(1, 2)))
    assert finding.birth == "overflow"
    assert finding.site is not None
    assert finding.site.module == "0" or code(finding) == "model(x * 10)"


def lost_in_half(x: Tensor) -> Tensor:
    return ((x.half() * x.half()).float() * torch.tensor(0.0)).to(torch.float16) * 2


def reshaped(x: Tensor) -> Tensor:
    return (x.log().T.reshape(-1).expand(2, -1).contiguous() + 1).flatten()


@pytest.mark.parametrize("target", [lost_in_half, reshaped])
def test_what_inference_mode_copies_carries_its_birth(target: Any) -> None:
    """`to`, `reshape` and `contiguous` reach a mode whole there, and declare a view."""
    x = torch.tensor([[1.0, 300.0], [0.0, 2.0]])
    reports = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            reports.append(only(whynan.explain(target, x)))
    first, second = reports
    assert (second.op, second.birth, code(second)) == (first.op, first.birth, code(first))
    assert second.birth != "entered"


def test_a_cast_under_inference_mode_has_the_name_of_a_cast() -> None:
    with torch.inference_mode():
        finding = only(whynan.explain(lambda x: x.to(torch.float16), torch.full((2,), 1e6)))
    assert (finding.op, finding.rule, finding.birth) == ("aten._to_copy.default", "WN701", "overflow")


def test_a_product_of_a_layer_under_inference_mode_is_explained() -> None:
    layer = nn.Linear(2, 3, bias=False).half()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1.0], [300.0, 250.0], [2.0, 2.0]]))
    with torch.inference_mode():
        finding = only(whynan.explain(layer, torch.tensor([[0.0, 1.0], [200.0, 300.0]]).half()))
    assert (finding.rule, finding.element.index) == ("WN701", (1, 1))
    spans = {operand.name: (operand.min, operand.max) for operand in finding.element.operands}
    assert (spans["input"], spans["weight"]) == ((200.0, 300.0), (250.0, 300.0))


def test_item_under_inference_mode_is_a_reading() -> None:
    def work() -> None:
        with torch.inference_mode():
            torch.zeros(1).log().item()

    assert sinks(only(traced(work))) == {("observed", None)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(300.0)

    def work() -> None:
        with torch.autocast("cpu", dtype=dtype):
            model(torch.full((1, 2), 300.0)).sum().backward()

    report = traced(work)
    if dtype is torch.bfloat16:
        assert report.verdict == "clean"
    else:
        finding = report.findings[0]
        assert (finding.birth, finding.element.dtype) == ("overflow", "float16")
        assert ("loss", None) in sinks(finding)


def test_a_mode_of_the_users_own_sees_each_operation_once_and_nothing_of_whynan() -> None:
    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def work() -> list[str]:
        with Count() as mode:
            x = torch.zeros(2, requires_grad=True)
            x.log().softmax(0).sum().backward()
        return mode.seen

    bare = work()
    inner: list[list[str]] = []
    report = traced(lambda: inner.append(work()))
    assert inner == [bare]
    assert report.findings[0].op == "aten.log.default"
    outer = []
    with _counting(outer), whynan.trace() as trace:
        x = torch.zeros(2, requires_grad=True)
        x.log().softmax(0).sum().backward()
    assert outer == bare
    assert trace.report.findings[0].op == "aten.log.default"


class _counting(TorchDispatchMode):  # noqa: N801
    """A mode entered before the trace."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_flop_counter_inside_a_trace_counts_the_same() -> None:
    model = nn.Linear(4, 4)

    def count() -> int:
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(2, 4)).sum().backward()
        return counter.get_total_flops()

    bare = count()
    counts: list[int] = []
    traced(lambda: counts.append(count()))
    assert counts == [bare]


def test_anomaly_mode_still_raises_its_own_error_and_the_report_is_kept() -> None:
    weight = torch.zeros(2, requires_grad=True)
    trace = whynan.trace()
    warned = pytest.warns(UserWarning, match="Anomaly Detection|Error detected")
    with pytest.raises(RuntimeError, match="SqrtBackward0"), warned, trace, torch.autograd.detect_anomaly():
        (weight.sqrt() * 0).sum().backward()
    assert trace.report.verdict == "nonfinite"
    assert code(trace.report.findings[0]) == "weight.sqrt()"


def test_a_formula_that_watching_changes_is_noted() -> None:
    weight = torch.tensor([1e20, 1e20, 1e-20], requires_grad=True)
    report = traced(lambda: weight.prod().backward())
    assert any(note.startswith("ProdBackward0: ") for note in report.coverage.notes)
    healthy = traced(lambda: torch.ones(2, requires_grad=True).sum().backward())
    assert healthy.coverage.notes == ()


def test_a_graph_that_jit_records_is_the_one_without_us() -> None:
    """A mode is given the number in ``x * 2`` where a graph holds a tensor, which few operators take."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    x = torch.randn(2, 3)

    def recorded() -> tuple[str, list[str], Tensor]:
        function = torch.jit.trace(lambda v: (v * 2 + 1) ** 2 / 3, x)
        graph = torch.jit.trace(model, x).inlined_graph
        names = [value.debugName() for node in graph.nodes() for value in node.outputs()]
        return "\n".join(line.split("#")[0] for line in str(function.graph).splitlines()), names, function(x)

    before = recorded()
    with whynan.trace() as t:
        within = recorded()
    assert t.report.verdict == "clean"
    assert within[:2] == before[:2]
    assert torch.equal(before[2], within[2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_a_number_in_a_recorded_graph_keeps_its_digits(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3], dtype=dtype)
    before = torch.jit.trace(lambda v: v * 0.1, x)(x)
    with whynan.trace():
        within = torch.jit.trace(lambda v: v * 0.1, x)(x)
    assert within.dtype is before.dtype
    assert torch.equal(within, before)


def test_an_operation_that_fails_is_run_once_and_fails_as_without_us() -> None:
    with pytest.raises(RuntimeError) as bare:
        torch.ones(3, dtype=torch.int64).add_(2.5)
    with whynan.trace(), pytest.raises(RuntimeError) as raised:
        torch.ones(3, dtype=torch.int64).add_(2.5)
    assert raised.value.__context__ is bare.value.__context__


@pytest.mark.parametrize("value", [0.0, torch.tensor(0.0)])
def test_a_filled_tensors_gradient_has_one_formula(value: float | Tensor) -> None:
    with whynan.trace() as trace:
        torch.randn(2, requires_grad=True).masked_fill(torch.tensor([True, False]), value).sum().backward()
    assert not trace.report.coverage.notes


def test_the_gradient_of_what_is_filled_in_has_two() -> None:
    value = torch.tensor(0.0, requires_grad=True)
    with whynan.trace() as trace:
        torch.randn(2).masked_fill(torch.tensor([True, False]), value).sum().backward()
    assert trace.report.coverage.notes_of("other_gradient_formula")


def test_a_zero_tangent_is_no_nested_tensor() -> None:
    with whynan.trace() as trace:
        torch.func.hessian(lambda x: (x**2).sum())(torch.ones(2))
        (torch._efficientzerotensor((2,)) * 2).sum()
    assert not trace.report.coverage.notes_of("nested_tensors")
