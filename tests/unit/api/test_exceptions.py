"""What the user's code raises passes unchanged, after the report of what was seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import whynan


class Mine(Exception):  # noqa: N818
    """An exception that only this file knows."""


def checked(x: Tensor, error: BaseException) -> Tensor:
    y = x.log()
    if bool(y.isinf().any()):
        raise error
    return y


@pytest.mark.parametrize("kind", [Mine, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_exception_is_the_same_object(kind: type[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind("stop")
    with pytest.raises(kind) as caught:
        whynan.explain(checked, torch.zeros(2), error)
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = capsys.readouterr().out
    assert "x.log()" in shown
    assert f"the program raised {kind.__name__}: " in shown


def test_an_exception_leaves_a_region_with_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    trace = whynan.trace()
    with pytest.raises(Mine), trace:
        checked(torch.zeros(2), Mine("stop"))
    assert trace.report.verdict == "nonfinite"
    assert trace.report.run.exception == "Mine: stop"
    assert trace.report.run.exit_status.script == 1
    assert capsys.readouterr().out.count("x.log()") == 1


def test_nothing_is_printed_where_nothing_bad_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Mine), whynan.trace():
        torch.ones(2).exp()
        raise Mine("unrelated")
    assert capsys.readouterr().out == ""


def test_what_a_frame_held_is_named_by_the_users_variable(capsys: pytest.CaptureFixture[str]) -> None:
    trace = whynan.trace()
    with pytest.raises(Mine), trace:
        checked(torch.zeros(2), Mine("stop"))
    names = {r.name for f in trace.report.findings for r in f.reaches if r.kind == "observed"}
    assert "y" in names


def test_frames_of_whynan_itself_name_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def read(x: Tensor) -> None:
        y = x.log()
        y.sum().item()
        raise Mine("stop")

    with pytest.raises(Mine):
        whynan.explain(read, torch.zeros(2))
    shown = capsys.readouterr().out
    assert "y" in shown
    assert "capture" not in shown
    assert "operands[" not in shown


def test_an_operation_that_raises_does_so_once_and_as_without_whynan() -> None:
    def wrong() -> Tensor:
        return torch.ones(2, 3) @ torch.ones(2, 3)

    with pytest.raises(RuntimeError) as bare:
        wrong()
    with pytest.raises(RuntimeError) as traced, whynan.trace():
        wrong()
    assert str(traced.value) == str(bare.value)


def test_after_an_exception_the_next_trace_works() -> None:
    with pytest.raises(KeyboardInterrupt), whynan.trace():
        raise KeyboardInterrupt
    assert whynan.explain(torch.log, torch.zeros(1)).verdict == "nonfinite"
