"""``with whynan.watch(...)``: what the program does beside its steps, its own guard on the loss first of all."""

from __future__ import annotations

import contextlib
import functools
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.errors import NonFiniteError

if TYPE_CHECKING:
    from whynan.records import Report

pytestmark = pytest.mark.usefixtures("without_proofs")
BAD = 3
watch = functools.partial(whynan.watch, quiet=True)


def network() -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def batches(bad: int | None = BAD) -> list[Tensor]:
    made = [torch.rand(4, 3, generator=torch.Generator().manual_seed(n)) + 0.1 for n in range(6)]
    if bad is not None:
        made[bad - 1][2, 1] = 0.0
    return made


def that_breaks(bad: int | None = BAD, **options: Any) -> tuple[Report, nn.Linear, int]:
    """A loop that is left where its loss is not finite; the report, the model, and how many steps were made."""
    model, optimizer = network()
    made = 0
    with watch(optimizer, **options) as w:
        for x in batches(bad):
            loss = model(torch.log(x)).pow(2).mean()
            if not math.isfinite(loss.item()):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            made += 1
    return w.report, model, made


def that_names_its_test(bad: int | None = BAD) -> Report:
    model, optimizer = network()
    with watch(optimizer) as w:
        for x in batches(bad):
            loss = model(torch.log(x)).pow(2).mean()
            stops = torch.isnan(loss) | torch.isinf(loss)
            if stops:
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


class Turn:
    number = 0


def that_cannot_run_again(bad: int | None = BAD) -> Report:
    """A loop whose items nobody can tell: one of its targets is no variable."""
    model, optimizer = network()
    turn = Turn()
    with watch(optimizer) as w:
        for turn.number, x in enumerate(batches(bad)):
            loss = model(torch.log(x)).pow(2).mean()
            if not math.isfinite(float(loss.detach())):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def that_raises(bad: int | None = BAD, watches: list[Any] | None = None) -> Report:
    model, optimizer = network()
    w = watch(optimizer)
    if watches is not None:
        watches.append(w)
    with w:
        for x in batches(bad):
            loss = model(torch.log(x)).pow(2).mean()
            if torch.isnan(loss) or torch.isinf(loss):
                raise ValueError("loss")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def that_detects_anomalies(bad: int | None = BAD) -> Report:
    """Of what is bad in a gradient alone torch's own mode tells, and nothing that the program holds."""
    model, optimizer = network()
    w = watch(optimizer)
    with contextlib.suppress(RuntimeError), w, torch.autograd.detect_anomaly():
        for x in batches(bad):
            error = model(x) - model(torch.where(x == 0, x, x + 1))
            loss = (error * (x > 0).all(1, keepdim=True)).pow(2).sum(1).sqrt().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def that_draws(bad: int | None = BAD) -> Report:
    """A library raises, and says for what."""
    model, optimizer = network()
    w = watch(optimizer)
    with contextlib.suppress(ValueError), w:
        for x in batches(bad):
            normal = torch.distributions.Normal(model(torch.log(x) * 0), 1.0)
            loss = -normal.log_prob(torch.ones(4, 1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def decomposed(x: Tensor, sign: float) -> Tensor:
    logarithms = torch.log(x)
    covariance = logarithms.T @ logarithms + torch.eye(3) * sign
    return torch.linalg.cholesky(covariance)


def that_decomposes(bad: int | None = BAD, sign: float = 1.0) -> Report:
    """Linear algebra raises, and says nothing of a NaN."""
    model, optimizer = network()
    w = watch(optimizer)
    with contextlib.suppress(RuntimeError), w:
        for x in batches(bad):
            loss = model(x).pow(2).mean() + decomposed(x, sign).sum() * 0
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def that_counts(bad: int | None = BAD) -> Report:
    """An operation raises for an index that was counted of what is NaN, and says nothing of that."""
    model, optimizer = network()
    w = watch(optimizer)
    with contextlib.suppress(RuntimeError), w:
        for x in batches(bad):
            centred = torch.log(x) - x.log().amin(1, keepdim=True)
            last = (centred * 0 == 0).sum(1, keepdim=True) - 1
            loss = model(x.gather(1, last).expand(-1, 3)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


def that_goes_on(bad: int | None = BAD) -> Report:
    """The twin: the program expects that, and raises for something else."""
    w = watch(network()[1])
    with contextlib.suppress(ValueError), w:
        for x in batches(bad):
            with contextlib.suppress(RuntimeError):
                x.gather(1, ((torch.log(x) - x.log().amin(1, keepdim=True)) * 0 == 0).sum(1, keepdim=True) - 1)
        raise ValueError("the file is missing")
    return w.report


def score(predicted: Any, says: str) -> float:
    if not np.isfinite(predicted).all():
        raise ValueError(says)
    return float(predicted.mean())


def that_scores(bad: int | None = BAD, says: str = "Input contains NaN or infinity") -> Report:
    """A function on an array raises."""
    model, optimizer = network()
    w = watch(optimizer)
    with contextlib.suppress(ValueError), w:
        for x in batches(bad):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                score((model(x) - torch.log(x)).numpy(), says)
    return w.report


def that_reads(bad: int | None = BAD) -> Report:
    """A number that is printed, and no part of the loss."""
    model, optimizer = network()
    with watch(optimizer) as w:
        for x in batches(bad):
            str(torch.log(x).mean().item())
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.report


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


def that_evaluates(bad: int | None = BAD) -> Report:
    linear, optimizer = network()
    model = nn.Sequential(Logarithm(), linear)
    with watch(optimizer) as w:
        for x in batches(None):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            model(batches(bad)[BAD - 1])
    return w.report


def test_a_loop_that_is_left_for_its_loss_is_an_error() -> None:
    report, _, made = that_breaks()
    (finding,) = report.findings
    assert (report.verdict, finding.severity, finding.rule, finding.step) == ("nonfinite", "error", "WN201", BAD)
    assert finding.site is not None
    assert finding.site.code == "torch.log(x)"
    assert "loss" in {r.kind for r in finding.reaches}
    assert made == BAD - 1
    assert report.run.replay.faithful


def test_so_is_one_that_is_left_for_a_test_that_has_a_name() -> None:
    report = that_names_its_test()
    (finding,) = report.findings
    assert (report.verdict, finding.severity, finding.rule) == ("nonfinite", "error", "WN201")


def test_the_weights_stay_those_before_the_step() -> None:
    _, model, _ = that_breaks()
    expected, optimizer = network()
    for x in batches()[: BAD - 1]:
        optimizer.zero_grad()
        expected(torch.log(x)).pow(2).mean().backward()
        optimizer.step()
    assert torch.equal(model.weight, expected.weight)


def test_a_loss_for_which_the_program_raises_is_an_error_and_the_exception_its_own() -> None:
    watches: list[Any] = []
    with ExitStack() as stack:
        # said so, it is nothing that the program is known to expect
        stack.enter_context(pytest.raises(ValueError, match="loss"))
        that_raises(watches=watches)
    report = watches[0].report
    (finding,) = report.findings
    assert (report.verdict, finding.severity, finding.rule) == ("nonfinite", "error", "WN201")


NAMED: dict[str, tuple[Any, str]] = {
    "an anomaly": (that_detects_anomalies, "(error * (x > 0).all(1, keepdim=True)).pow(2).sum(1).sqrt()"),
    "a library": (that_draws, "torch.log(x)"),
    "linear algebra": (that_decomposes, "torch.log(x)"),
    "an array": (that_scores, "torch.log(x)"),
    "an index": (that_counts, "torch.log(x)"),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning", "ignore:Error detected:UserWarning")
@pytest.mark.parametrize(("program", "code"), NAMED.values(), ids=NAMED)
def test_an_exception_that_names_a_bad_number_is_an_error(program: Any, code: str) -> None:
    report = program()
    finding = report.findings[0]
    assert (report.verdict, finding.severity) == ("nonfinite", "error")
    assert finding.site is not None
    assert finding.site.code == code
    assert report.run.replay.faithful


def test_a_matrix_of_numbers_that_has_no_decomposition_is_no_bad_number() -> None:
    report = that_decomposes(None, sign=-1e3)
    assert (report.verdict, report.findings) == ("clean", ())


def test_an_exception_that_names_none_leaves_what_was_read_a_warning() -> None:
    """The twin: it may be raised for anything."""
    report = that_scores(says="no score")
    assert (report.verdict, {f.severity for f in report.findings}) == ("damaged", {"warning"})


def test_an_operation_that_may_raise_is_not_what_the_program_ends_for() -> None:
    assert that_goes_on().verdict == "clean"


def test_a_loop_that_may_continue_is_left_by_the_program_itself() -> None:
    report, _, made = that_breaks(on_nonfinite="continue")
    assert (report.verdict, made) == ("nonfinite", BAD - 1)


def test_an_error_is_raised_where_that_was_asked_for() -> None:
    with pytest.raises(NonFiniteError):
        that_breaks(on_nonfinite="raise")


@pytest.mark.breadth
def test_a_loop_that_is_left_is_not_clean_where_it_cannot_run_again() -> None:
    report = that_cannot_run_again()
    assert (report.verdict, report.findings) == ("inconclusive", ())
    assert f"NaN or Inf in a number that was read at step {BAD}" in report.coverage.notes
    assert that_cannot_run_again(None).verdict == "clean"


def test_a_number_that_is_only_read_is_a_warning() -> None:
    report = that_reads()
    assert report.verdict == "damaged"
    assert {f.severity for f in report.findings} == {"warning"}


@pytest.mark.breadth
def test_an_evaluation_is_looked_at() -> None:
    report = that_evaluates()
    (finding,) = report.findings
    assert report.verdict == "nonfinite"
    assert finding.site is not None
    assert finding.site.code == "torch.log(x)"


@pytest.mark.parametrize(
    "program",
    [
        lambda: that_breaks(None)[0],
        *(
            functools.partial(p, None)
            for p in (that_raises, that_names_its_test, that_reads, that_evaluates, *(p for p, _ in NAMED.values()))
        ),
    ],
)
def test_the_same_programs_with_good_data_are_clean(program: Any) -> None:
    """The twin."""
    assert program().verdict == "clean"


def test_the_doors_are_as_before_after_a_block() -> None:
    before = torch.Tensor.item, torch.Tensor.__bool__, nn.Module.__call__
    that_breaks()
    assert (torch.Tensor.item, torch.Tensor.__bool__, nn.Module.__call__) == before


def test_a_block_of_good_steps_says_so() -> None:
    report, _, _ = that_breaks(None)
    assert report.run.exit_status.script == 0
    assert str(report).splitlines() == [
        "clean: no step went bad",
        "note: 6 steps watched: the loss and the gradients of each were finite",
    ]


def test_a_block_without_a_step_claims_nothing() -> None:
    """The twin."""
    with watch(network()[1]) as w:
        pass
    assert str(w.report).splitlines()[0] == "nothing was looked at"


def test_the_status_is_that_of_the_block() -> None:
    assert that_breaks()[0].run.exit_status.script is None
    assert that_breaks(on_nonfinite="continue")[0].run.exit_status.script == 0
    _, optimizer = network()
    w = watch(optimizer)
    with pytest.raises(ValueError, match="own"), w:
        raise ValueError("own")
    assert w.report.run.exit_status.script == 1


def test_the_status_is_that_of_a_step_function() -> None:
    model, optimizer = network()
    w = watch(optimizer)

    @w
    def step(x: Tensor) -> None:
        if x.numel() == 0:
            raise ValueError("own")
        loss = model(torch.log(x)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(batches()[0])
    assert w.report.run.exit_status.script == 0
    with pytest.raises(ValueError, match="own"):
        step(torch.ones(0))
    assert w.report.run.exit_status.script == 1
    with pytest.raises(NonFiniteError):
        step(batches()[BAD - 1])
    assert w.report.run.exit_status.script is None
