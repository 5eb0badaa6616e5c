"""``explain``: one call, its return value and the gradients it leaves are where bad numbers must not arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whynan


def test_the_target_is_called_once() -> None:
    calls: list[int] = []

    def target(x: Tensor) -> Tensor:
        calls.append(1)
        return x.log()

    whynan.explain(target, torch.zeros(1))
    assert calls == [1]


def log_and_tell(folder: Path) -> Callable[[Tensor], Tensor]:
    """What tells of each call outside of the program, whose lists are put back before the next."""

    def target(x: Tensor) -> Tensor:
        with (folder / "calls").open("a") as calls:
            calls.write("1")
        return x.log()

    return target


def test_with_rerun_it_is_called_twice(tmp_path: Path) -> None:
    whynan.explain(log_and_tell(tmp_path), torch.ones(1), rerun=True)
    assert (tmp_path / "calls").read_text() == "11"


@pytest.mark.proof
def test_with_rerun_it_is_called_for_each_proof_too(tmp_path: Path) -> None:
    report = whynan.explain(log_and_tell(tmp_path), torch.zeros(1), rerun=True)
    assert report.findings[0].fixes
    assert 2 < len((tmp_path / "calls").read_text()) <= 12


def test_a_healthy_target_is_clean() -> None:
    report = whynan.explain(nn.Linear(2, 2), torch.ones(3, 2))
    assert report.verdict == "clean"
    assert report.findings == report.damaging == ()
    assert report.coverage.events > 0


def test_backward_is_never_called_by_explain() -> None:
    model = nn.Linear(2, 2)
    whynan.explain(lambda: model(torch.ones(1, 2)).sum())
    assert model.weight.grad is None


def test_the_return_value_is_a_fatal_sink() -> None:
    (finding,) = whynan.explain(torch.log, torch.zeros(2)).findings
    assert finding.severity == "error"
    assert [(r.kind, r.name, r.bad, r.total) for r in finding.reaches] == [("output", "output", 2, 2)]


def test_a_gradient_that_is_left_is_a_fatal_sink() -> None:
    weight = torch.zeros(2, requires_grad=True)

    def target() -> None:
        weight.sqrt().sum().backward()

    (finding,) = whynan.explain(target).findings
    assert finding.severity == "error"
    assert [(r.kind, r.name, r.bad) for r in finding.reaches] == [("gradient", "weight", 2)]


@dataclass
class Answer:
    scores: list[Tensor]
    extra: dict[str, Tensor]


def test_the_place_in_a_nested_return_value_is_named() -> None:
    def target(x: Tensor) -> Answer:
        return Answer([x, x.log()], {"fine": x})

    (finding,) = whynan.explain(target, torch.zeros(1)).findings
    assert [r.name for r in finding.reaches] == ["output.scores[1]"]


def test_a_module_is_called_through_its_hooks() -> None:
    model = nn.Linear(1, 1)
    model.register_forward_hook(lambda module, args, out: out.new_zeros(1).log())
    (finding,) = whynan.explain(model, torch.ones(1, 1)).findings
    assert finding.op == "aten.log.default"


def test_the_command_names_the_target() -> None:
    assert whynan.explain(torch.log, torch.ones(1)).run.command == "explain(log)"
    assert whynan.explain(nn.Linear(1, 1), torch.ones(1)).run.command == "explain(Linear)"


def test_versions_and_flags_of_the_run_are_recorded() -> None:
    run = whynan.explain(torch.log, torch.ones(1)).run
    assert run.versions["torch"] == torch.__version__.split("+")[0] or run.versions["torch"] == torch.__version__
    assert run.versions["whynan"] == whynan.__version__
    assert run.flags["default_dtype"] == "float32"
    assert run.device == "cpu"
