"""The benchmarks run, and refuse to time a trace that does not do its work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import whynan
from benchmarks import __main__ as benchmarks
from benchmarks.guards import RefusedError, check
from benchmarks.programs import QUICK
from whynan.capture.torch.tracer import Tracer


def test_a_quick_run_prints_a_table_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert benchmarks.main(["--quick", "--rounds", "1", "--only", "cnn", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    for contender in ("bare", "empty mode", "whynan.trace", "ranges", "detect_anomaly", "isfinite per op", "HF Debug"):
        assert contender in shown
    assert "20,000 events in one trace, finite" in shown
    figures = json.loads(file.read_text())
    (program,) = figures["programs"]
    assert program["events"] > 100
    rows = {row["name"]: row for row in program["rows"]}
    assert rows["bare"]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    # what was timed was the whole work: every event seen, and the weights those of the bare run
    traced = rows["whynan.trace"]["outcome"]
    assert traced["events"] == program["events"] * traced["steps"]
    assert traced["weights"] == rows["bare"]["outcome"]["weights"]
    # within Lightning too, where it is installed
    assert rows["Lightning, whynan's callback"]["outcome"]["weights"] == rows["bare"]["outcome"]["weights"]
    (bad,) = figures["bad_steps"]
    assert bad["site"].startswith("programs.py:")
    assert "from a bad step of quick cnn" in " ".join(shown.split())
    assert {run["name"] for run in figures["long_runs"]} == {"finite", "-inf masks"}


@pytest.mark.parametrize("program", QUICK, ids=lambda p: p.name)
def test_what_is_timed_finds_a_planted_nan_and_misses_no_event(program: benchmarks.Program) -> None:
    assert check(program.build, whynan.trace) > 100


def test_a_trace_that_misses_the_planted_nan_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracer, "_is_bad", lambda _self, _tensor: False)
    with pytest.raises(RefusedError, match=r"planted .*, found \[\]"):
        check(QUICK[0].build, whynan.trace)


def test_a_trace_that_misses_events_is_not_timed() -> None:
    @contextmanager
    def late() -> Iterator[whynan.trace]:
        traced = whynan.trace()
        with traced:
            pass
        yield traced

    with pytest.raises(RefusedError, match="the trace saw 0 events"):
        check(QUICK[0].build, late)


def test_a_refusal_is_said_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tracer, "_is_bad", lambda _self, _tensor: False)
    assert benchmarks.main(["--quick", "--only", "cnn"]) == 1
    assert "is not timed: planted" in " ".join(capsys.readouterr().err.split())
