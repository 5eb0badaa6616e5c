"""A bad number of a compiled region: run again without torch.compile it is born by an operation, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import whynan

NOTHING_BAD = "without torch.compile nothing bad was born"


class _Graph:
    """What inductor hands to the program, without the minutes of a compiler."""

    def __init__(self, compiled: Callable[[Tensor], Tensor]) -> None:
        self.compiled = compiled

    def __call__(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        with torch._C._DisableTorchDispatch():
            return (self.compiled(*inputs),)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Callable[[Tensor], Tensor]]]:
    """A function that is compiled to another one, which does what the compiler makes of it."""
    import torch._dynamo.eval_frame as frames
    import torch._inductor.output_code as home

    monkeypatch.setattr(home, "CompiledFxGraph", _Graph)

    def make(eager: Callable[[Tensor], Tensor], made: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        graph = _Graph(made)

        def call(x: Tensor) -> Tensor:
            return eager(x) if frames._stance.stance == "force_eager" else graph([x])[0]

        return call

    return make


def test_what_is_bad_only_when_compiled_is_said_to_be(compiled: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    function = compiled(lambda x: x * 2, lambda x: x / x)
    report = whynan.explain(function, torch.zeros(2), rerun=True)
    (finding,) = report.findings
    assert finding.explanation.endswith("what the compiler made of the program differs from it there.")
    assert report.run.replay.why == NOTHING_BAD
    assert "second run: not compared" in str(report)


def test_what_is_bad_in_both_is_named_by_the_operation(compiled: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    function = compiled(lambda x: x / x, lambda x: x / x)
    report = whynan.explain(function, torch.zeros(2), rerun=True)
    (finding,) = report.findings
    assert "compiler" not in finding.explanation
    assert report.run.replay.why.startswith("without torch.compile it is WN101 zero-over-zero at ")


def test_without_a_second_run_nothing_is_said(compiled: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    function = compiled(lambda x: x * 2, lambda x: x / x)
    report = whynan.explain(function, torch.zeros(2))
    assert "compiler" not in report.findings[0].explanation
    assert report.run.replay.kind == "none"


@pytest.mark.proof
def test_a_birth_outside_of_regions_is_run_again_as_it_was(compiled: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    function = compiled(lambda x: x * 3, lambda x: x * 2)
    report = whynan.explain(lambda x: function(x) / x, torch.zeros(2), rerun=True)
    assert report.run.replay.faithful


def test_the_stance_of_the_program_is_put_back(compiled: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    import torch._dynamo.eval_frame as frames

    whynan.explain(compiled(lambda x: x * 2, lambda x: x / x), torch.zeros(2), rerun=True)
    assert frames._stance.stance == "default"
