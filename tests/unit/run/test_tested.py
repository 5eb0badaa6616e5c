"""The rule of tests: what fails a test that passes by its own assertions, and what is only told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.config import Options
from whynan.errors import NestedTraceError, NonFiniteError
from whynan.integrations.pytest import TracedTest
from whynan.records import Report


def looked_at(work: Callable[[], object], test: TracedTest | None = None) -> TracedTest:
    """A test of this body, ended."""
    test = test or TracedTest("test", Options())
    test.begin({})
    error = None
    try:
        work()
    except Exception as raised:
        error = raised
    test.end(error)
    return test


def report_of(test: TracedTest) -> Report:
    assert test.report is not None
    return test.report


def a_gradient() -> None:
    weight = torch.zeros(2, requires_grad=True)
    weight.sqrt().sum().backward()


def an_output() -> None:
    nn.Softmax(0)(torch.zeros(2) / 0)


def a_step() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    weight.sqrt().sum().backward()
    optimizer.step()


def a_reading() -> float:
    return (torch.zeros(1) / 0).item()


def a_choice() -> bool:
    return bool((torch.zeros(1) / 0) > 1)


def nothing() -> None:
    nn.Linear(2, 2)(torch.ones(2)).sum().backward()


@pytest.mark.parametrize("work", [a_gradient, an_output, a_step])
def test_what_reaches_a_gradient_an_output_or_a_parameter_fails(work: Callable[[], object]) -> None:
    test = looked_at(work)
    failure = test.failure()
    assert failure is not None
    assert failure.site is not None
    assert failure.text.endswith(")")
    assert report_of(test).verdict == "nonfinite"


@pytest.mark.parametrize("work", [a_reading, a_choice])
def test_what_is_only_read_is_told_and_fails_only_where_warnings_count(work: Callable[[], object]) -> None:
    test = looked_at(work)
    assert test.failure() is None
    assert (report_of(test).verdict, report_of(test).run.exit_status.whynan) == ("damaged", 0)
    strict = looked_at(work, TracedTest("test", Options(strict=True)))
    assert strict.failure() is not None


def test_what_was_read_by_a_test_that_fails_is_an_error() -> None:
    def work() -> None:
        assert a_reading() == 0

    report = report_of(looked_at(work))
    assert report.verdict == "nonfinite"
    assert [f.severity for f in report.findings] == ["error"]


def test_healthy_numbers_fail_nothing() -> None:
    test = looked_at(nothing, TracedTest("test", Options(strict=True)))
    assert test.failure() is None
    assert report_of(test).verdict == "clean"


def test_a_test_that_takes_the_report_judges_itself() -> None:
    test = TracedTest("test", Options())
    test.begin({})
    an_output()
    assert test.take().verdict == "nonfinite"
    an_output()
    assert len(test.end().findings) == 1
    assert test.judges_itself
    assert test.failure() is None


def test_a_trace_of_the_tests_own_takes_over() -> None:
    inner: list[Report] = []

    def work() -> None:
        an_output()
        inner.append(whynan.explain(an_output))

    test = looked_at(work)
    assert test.failure() is None
    assert [r.verdict for r in (report_of(test), *inner)] == ["nonfinite", "nonfinite"]


def test_a_trace_that_runs_already_is_left_alone() -> None:
    with whynan.trace() as outer, pytest.raises(NestedTraceError):
        TracedTest("test", Options()).begin({})
    assert outer.report.verdict == "clean"


def test_allowances_excuse_and_are_not_called_useless() -> None:
    options = Options(allow=("WN7",))
    test = looked_at(an_output, TracedTest("test", options, [("WN101", "meant"), ("WN8", "never met")]))
    assert test.failure() is None
    assert report_of(test).unused_allows == ()
    assert any("is allowed: meant" in note for note in report_of(test).coverage.notes)
    assert looked_at(an_output, TracedTest("test", options, [("WN8", "never met")])).failure() is not None


def test_an_allowance_in_the_test_that_is_of_no_use_is_named() -> None:
    def work() -> None:
        with whynan.allow("WN8", reason="no more"):
            an_output()

    assert report_of(looked_at(work)).unused_allows == ("WN8",)


def test_arguments_are_known_by_name_and_what_pytest_hands_in_is_not_looked_through(
    request: pytest.FixtureRequest,
) -> None:
    held = {"dirty": [torch.tensor([1.0, -1.0]).log()]}
    request.node.hidden = held["dirty"][0]
    test = TracedTest("test", Options())
    test.begin({"request": request, **held})
    nn.Linear(2, 1)(held["dirty"][0])
    (finding,) = test.end().findings
    assert finding.element.tensor == "dirty[0]"
    del request.node.hidden


def test_what_did_no_harm_is_kept_only_where_all_is_wanted() -> None:
    def work() -> None:
        torch.zeros(1).log().isinf().item()

    assert report_of(looked_at(work)).absorbed == ()
    assert report_of(looked_at(work)).absorbed_count == 1
    assert len(report_of(looked_at(work, TracedTest("test", Options(all_=True)))).absorbed) == 1


def test_a_redacted_report_names_no_file() -> None:
    test = looked_at(an_output, TracedTest("test", Options(redact=True)))
    failure = test.failure()
    assert failure is not None
    assert "test_tested" not in failure.text + report_of(test).to_json()


def test_a_birth_that_was_not_seen_fails_where_warnings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseen(report: Report) -> Report:
        return report.model_copy(update={"verdict": "inconclusive"})

    whole = TracedTest._by_the_rule_of_tests
    monkeypatch.setattr(TracedTest, "_by_the_rule_of_tests", lambda t, r, passed: unseen(whole(t, r, passed=passed)))
    assert looked_at(nothing).failure() is None
    failure = looked_at(nothing, TracedTest("test", Options(strict=True))).failure()
    assert failure is not None
    assert "where it was born was not seen" in failure.text


def test_an_error_of_whynans_fails_no_test_even_where_warnings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr("whynan.capture.torch.tracer.Tracer.record_event", lambda *_: 1 / 0)
    test = TracedTest("test", Options(strict=True))
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        looked_at(an_output, test)
    assert report_of(test).verdict == "inconclusive"
    assert test.failure() is None


def test_for_a_debugger_the_step_itself_raises_at_the_tests_line() -> None:
    test = TracedTest("test", Options(), raises=True)
    caught: list[BaseException] = []

    def work() -> Tensor:
        try:
            a_step()
        except NonFiniteError as error:
            caught.append(error)
            raise
        raise AssertionError("not raised")

    looked_at(work, test)
    (error,) = caught
    frame = error.__traceback__
    assert frame is not None
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_code.co_name == "a_step"
    assert report_of(test).verdict == "nonfinite"
