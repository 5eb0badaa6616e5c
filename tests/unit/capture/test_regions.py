"""Compiled regions stay compiled; what leaves them is looked at, and they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import whynan
from whynan.capture.torch.interposition import compiled as regions
from whynan.run.explained_call import TargetRerunner


class _Graph:
    """What inductor hands to the program, without the minutes of a compiler: called with a list that it empties."""

    def __init__(self, function: object) -> None:
        self.function = function

    def __call__(self, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        taken = list(inputs)
        inputs.clear()
        with torch._C._DisableTorchDispatch():
            return self.function(*taken)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Graph]]:
    import torch._inductor.output_code as home

    monkeypatch.setattr(home, "CompiledFxGraph", _Graph)
    return _Graph


def test_a_region_that_makes_nan_is_the_birth(graph: type[_Graph]) -> None:
    region = graph(lambda x: (x / x,))
    with whynan.trace() as trace:
        x = torch.zeros(2)
        (y,) = region([x])
        (y * 2).sum().item()
    report = trace.report
    (finding,) = report.findings
    assert (finding.op, finding.birth, finding.element.index) == ("inductor.compiled_region", "invalid", (0,))
    assert finding.site is not None
    assert finding.site.code == "region([x])"
    assert report.coverage.compiled_regions == 1
    (note,) = report.coverage.notes
    assert note.endswith(
        "TORCH_COMPILE_DISABLE=1, or torch.compiler.set_stance('force_eager'), shows what happens inside"
    )
    # a region is no dispatcher call
    assert report.coverage.events == report.coverage.eager == 4


def test_a_second_run_of_a_target_stays_compiled(graph: type[_Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    region, stances = graph(lambda x: (x / x,)), []
    monkeypatch.setattr(torch.compiler, "set_stance", stances.append)
    # what is run for a proof runs as it is written
    monkeypatch.setattr(TargetRerunner, "hear", lambda *_: "not asked here")
    report = whynan.explain(lambda x: region([x])[0], torch.zeros(2), rerun=True)
    assert (report.findings[0].op, report.run.replay.faithful) == ("inductor.compiled_region", True)
    assert stances == []


def test_what_was_bad_before_it_goes_through_a_region(graph: type[_Graph]) -> None:
    region = graph(lambda x: (x + 1,))
    with whynan.trace() as trace:
        x = torch.tensor([1e38]) * 10
        (y,) = region([x])
        y.sum().item()
    (finding,) = trace.report.findings
    assert finding.op == "aten.mul.Tensor"
    assert "inductor.compiled_region" in [link.op for link in finding.chain]


def test_a_healthy_region_is_clean_and_runs_once(graph: type[_Graph]) -> None:
    runs = []
    region = graph(lambda x: (runs.append(1), x + 1)[1:])
    with whynan.trace() as trace:
        region([torch.ones(2)])[0].sum().item()
    assert trace.report.verdict == "clean"
    assert runs == [1]


def test_an_exception_of_a_region_is_passed_on(graph: type[_Graph]) -> None:
    def fails(_: torch.Tensor) -> tuple[torch.Tensor]:
        raise ArithmeticError("theirs")

    with pytest.raises(ArithmeticError, match="theirs"), whynan.trace():
        graph(fails)([torch.ones(1)])


def test_a_region_is_never_asked_again() -> None:
    with pytest.raises(NotImplementedError):
        regions._refuse_rerun()


def test_a_function_that_is_compiled_in_the_trace_is_watched() -> None:
    with whynan.trace() as trace:
        compiled = torch.compile(lambda x: x * 2, backend="eager")
        compiled(torch.ones(2))
    assert trace.report.verdict == "clean"


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.linear(x))
        kept = hidden * (x[:, :1] > 0)
        return normed(kept)


def normed(kept: torch.Tensor) -> torch.Tensor:
    return kept * 2 / kept.sum(-1, keepdim=True) + kept.square().mean().sqrt()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_graph_that_runs_operation_by_operation_has_the_programs_lines(backend: str) -> None:
    torch.manual_seed(0)
    model = torch.compile(Head(), backend=backend)
    x = torch.tensor([[1.0, 2, 3, 4], [-1, 2, 3, 4]])
    report = whynan.explain(lambda: model(x).sum().backward())
    torch._dynamo.reset()
    (finding,) = report.findings
    assert finding.site is not None
    assert (finding.site.code, finding.site.function) == ("kept * 2 / kept.sum(-1, keepdim=True)", "normed")
    assert [o.expression for o in finding.element.operands] == ["kept * 2", "kept.sum(-1, keepdim=True)"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_birth_in_the_backward_of_a_graph_has_the_line_that_it_differentiates(backend: str) -> None:
    weight = torch.ones(2, 2, requires_grad=True)

    def distance(w: torch.Tensor) -> torch.Tensor:
        moved = w - w.detach()
        return moved.square().sum().sqrt()

    model = torch.compile(distance, backend=backend)
    report = whynan.explain(lambda: model(weight).backward())
    torch._dynamo.reset()
    (finding,) = report.findings
    assert finding.site is not None
    assert (finding.site.code, finding.phase) == ("moved.square().sum().sqrt()", "backward")


def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    more = y + 1
    torch._dynamo.graph_break()
    return more / x


def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -y / x if x.sum() > 0 else y


def turning(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for turn in range(3):
        y = y / (x + turn - 1) / (y + 7)
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("function", "expected"), [(broken, "more / x"), (chosen, "-y / x"), (turning, "y / (x + turn - 1)")]
)
def test_behind_a_graph_break_and_in_a_loop_it_is_the_expression_too(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], expected: str, backend: str
) -> None:
    compiled = torch.compile(function, backend=backend)
    y = torch.ones(3, requires_grad=True)
    report = whynan.explain(lambda: compiled(torch.tensor([0.0, 1, 2]), y).sum().backward())
    torch._dynamo.reset()
    sites = {finding.site.code for finding in report.findings if finding.site is not None}
    assert expected in sites
    assert {site.partition(" ")[0] for site in sites if site is not None} <= {"more", "-y", "y"}


def test_dynamo_in_the_midst_of_its_import_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    def half_imported() -> object:
        raise AttributeError("partially initialized module 'torch._dynamo'")

    monkeypatch.setattr(TorchInGraphFunctionVariable, "_get_handlers", half_imported)
    with pytest.raises(AttributeError):
        regions.know_dynamo()
    # as importlib marks it
    monkeypatch.setattr(torch._dynamo.__spec__, "_initializing", True, raising=False)
    regions.know_dynamo()
    regions.keep_from_dynamo()
    regions.known_by_dynamo(torch.save, torch.load)
