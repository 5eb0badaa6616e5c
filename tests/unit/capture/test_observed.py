"""What Python reads: a warning, an error only if nothing fatal was ever shown; asking is not reading."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import code, only, sinks, traced
from whynan.capture.torch.sinks.values_read import is_nonfinite_error

READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda t: t[0].item(),
    "float": lambda t: float(t[0]),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "np.asarray": np.asarray,
    "DLPack": np.from_dlpack,
    "save": lambda t: torch.save({"value": t}, io.BytesIO()),
    "str": str,
    "iteration": lambda t: [float(v) for v in t],
}


@pytest.mark.parametrize("way", READS)
def test_a_reading_is_an_observed_sink(way: str) -> None:
    def work() -> None:
        logs = torch.zeros(2).log()
        READS[way](logs)
        logs.zero_()

    finding = only(traced(work))
    assert "observed" in {k for k, _ in sinks(finding)}


@pytest.mark.parametrize("way", READS)
def test_a_reading_of_what_is_healthy_says_nothing(way: str) -> None:
    assert traced(lambda: READS[way](torch.ones(2).log())).verdict == "clean"


ASKS: dict[str, Callable[[Tensor], Any]] = {
    "isnan": lambda t: bool(t.isnan().any()),
    "isinf": lambda t: bool(t.isinf().any()),
    "isfinite": lambda t: t.isfinite().all().item(),
    "isneginf": lambda t: t.isneginf().sum().item(),
    "nan_to_num": lambda t: t.nan_to_num(0.0, 0.0, 0.0).tolist(),
}


@pytest.mark.parametrize("way", ASKS)
def test_asking_is_no_reading(way: str) -> None:
    def work() -> None:
        logs = torch.zeros(2).log()
        ASKS[way](logs)
        logs.zero_()

    assert traced(work).verdict == "clean"


def test_a_value_that_is_still_held_and_was_never_read_is_observed() -> None:
    held: list[Tensor] = []
    finding = only(traced(lambda: held.append(torch.zeros(2).log())))
    assert sinks(finding) == {("observed", "a tensor still held")}


def test_a_value_that_died_unread_is_absorbed() -> None:
    report = traced(lambda: torch.zeros(2).log())
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


def test_a_fatal_sink_anywhere_makes_readings_warnings() -> None:
    weight = torch.ones(1, requires_grad=True)

    def work() -> None:
        torch.zeros(2).log().tolist()
        (weight * 2).sum().backward()

    report = traced(work)
    assert only(report).severity == "warning"
    assert report.verdict == "damaged"


def test_fatal_findings_come_before_observed_ones() -> None:
    weight = torch.zeros(1, requires_grad=True)

    def work() -> None:
        torch.zeros(2).log().tolist()
        weight.sqrt().sum().backward()

    report = traced(work)
    assert [f.severity for f in report.findings] == ["error", "warning"]
    assert [f.phase for f in report.findings] == ["backward", "forward"]


def test_reading_inside_a_closure_is_none() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight - 2).square().sum()
        loss.backward()
        torch.zeros(1).log().item()
        return loss

    assert traced(lambda: optimizer.step(closure)).verdict == "clean"


SAYS = {
    "torch's engine": "Function 'SqrtBackward0' returned nan values in its 0th output.",
    "a distribution": "found invalid values:\ntensor([nan])",
    "a draw": "probability tensor contains either `inf`, `nan` or element < 0",
    "scikit-learn": "Input X contains NaN.",
    "LAPACK": "the input matrix contained non-finite values.",
    "scipy": "array must not contain infs or NaNs",
}


@pytest.mark.parametrize("text", SAYS.values(), ids=SAYS)
def test_an_exception_that_names_a_bad_number_is_told_apart(text: str) -> None:
    assert is_nonfinite_error(ValueError(text))


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [KeyError("name"), ValueError("no information, an infinite loop"), Mute()])
def test_any_other_exception_is_not(error: Exception) -> None:
    """The twin."""
    assert not is_nonfinite_error(error)


@pytest.mark.parametrize(("text", "severity"), [("Input contains NaN", "error"), ("out of luck", "warning")])
def test_what_is_held_as_an_exception_is_raised_is_fatal_where_that_names_it(text: str, severity: str) -> None:
    model = torch.nn.Linear(2, 1)

    def work() -> None:
        model(torch.ones(1, 2)).sum().backward()
        logs = torch.zeros(2).log()
        raise ValueError(f"{text}: {len(logs)}")

    with pytest.raises(ValueError, match=text), whynan.trace() as t:
        work()
    finding = only(t.report)
    assert finding.severity == severity
    told = [link for link in finding.chain if link.role == "sink" and link.site is not None]
    assert [link.summary for link in told] == ["ends the program because what it holds is NaN or Inf"] * (
        severity == "error"
    )


def test_the_norm_of_gradients_that_a_scaler_has_skipped_was_read_for_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def work() -> None:
        for _ in range(8):
            optimizer.zero_grad()
            scaler.scale((weight * 8).sum() - 15.0).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_([weight], 1.0)
            scaler.step(optimizer)
            scaler.update()
            print(float(norm), norm.tolist())

    report = traced(work)
    assert "inf" in capsys.readouterr().out
    assert (report.verdict, report.findings) == ("clean", ())


def test_a_loss_that_was_bad_before_it_was_scaled_is_read_all_the_same() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)

    def work() -> None:
        loss = (weight - 2).sqrt().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        loss.item()

    assert code(only(traced(work))) == "(weight - 2).sqrt()"


@pytest.fixture
def warning_each_time() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("warning_each_time")
def test_a_warning_of_torchs_is_given_at_the_line_that_reads() -> None:
    value = torch.ones((), requires_grad=True)
    with pytest.warns(UserWarning, match="Converting a tensor") as given, whynan.trace():
        float(value)
    (line,) = given
    assert (line.filename, line.lineno) == (
        __file__,
        test_a_warning_of_torchs_is_given_at_the_line_that_reads.__code__.co_firstlineno + 4,
    )


@pytest.mark.usefixtures("warning_each_time")
def test_a_filter_that_makes_an_error_of_it_does_so() -> None:
    value = torch.ones((), requires_grad=True)
    with warnings.catch_warnings(), whynan.trace():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Converting a tensor") as raised:
            float(value)
        warnings.simplefilter("ignore")
        assert float(value) == 1
    assert [entry.path for entry in raised.traceback][1:] == []
