"""The benchmarks run, and refuse to time a trace that does not do its work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import whynan
from benchmarks import __main__ as benchmarks
from benchmarks import ranks
from benchmarks.contenders import contender
from benchmarks.guards import RefusedError, check
from benchmarks.programs import QUICK
from whynan.capture.torch.tracer import Tracer

pytestmark = pytest.mark.process

SAMPLE = ("bare", "empty mode", "whynan.trace", "whynan.watch")
"""Each way to look loads torch in a process of its own: these in each run of the tests, all of them in the full one."""


def _figures(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """What a quick run writes, which is looked at, and what it prints."""
    arguments = ["--quick", "--rounds", "1", "--events", "2000", "--only", "cnn", "--json", str(file)]
    assert benchmarks.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "2,000 events in one trace, finite" in shown
    figures = json.loads(file.read_text())
    (program,) = figures["programs"]
    assert program["events"] > 100
    rows = {row["name"]: row for row in program["rows"]}
    assert rows["bare"]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert rows["empty mode"]["over_empty"] == rows["bare"]["ratio"]
    assert rows["whynan.trace"]["over_empty"]["median"] > 0
    assert program["targets"].keys() == {"traced", "ranged", "watched", "over_empty"}
    # what was timed was the whole work: every event seen, and the weights those of the bare run
    traced = rows["whynan.trace"]["outcome"]
    assert traced["events"] == program["events"] * traced["steps"]
    assert traced["weights"] == rows["whynan.watch"]["outcome"]["weights"] == rows["bare"]["outcome"]["weights"]
    (bad,) = figures["bad_steps"]
    assert bad["site"].startswith("programs.py:")
    assert "from a bad step of quick cnn" in " ".join(shown.split())
    assert {run["name"] for run in figures["long_runs"]} == {"finite", "-inf masks"}
    return rows, shown


@pytest.mark.full
def test_a_quick_run_prints_a_table_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "installed", lambda: [contender(name) for name in SAMPLE])
    rows, shown = _figures(tmp_path / "figures.json", capsys)
    assert rows.keys() == {*SAMPLE}
    for name in SAMPLE:
        assert name in shown


@pytest.mark.full
def test_every_way_to_look_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, shown = _figures(tmp_path / "figures.json", capsys)
    for name in ("bare", "empty mode", "whynan.trace", "ranges", "detect_anomaly", "isfinite per op", "HF Debug"):
        assert name in shown
    # within Lightning too, where it is installed
    assert rows["Lightning, whynan's callback"]["outcome"]["weights"] == rows["bare"]["outcome"]["weights"]


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


@pytest.mark.full
def test_a_refusal_is_said_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tracer, "_is_bad", lambda _self, _tensor: False)
    monkeypatch.setattr(benchmarks, "LOOPS", {})
    assert benchmarks.main(["--quick", "--only", "cnn"]) == 1
    assert "is not timed: planted" in " ".join(capsys.readouterr().err.split())


@pytest.mark.full
@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
def test_steps_of_ranks_are_timed_beside_those_of_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    # what they cost in so few says nothing
    assert ranks.main(["--only", "perceptron", "--turns", "1", "--rounds", "1", "--steps", "1"]) == 0
    title, *ways, summed = capsys.readouterr().out.splitlines()
    assert title == ranks.MODELS["perceptron"].name
    assert [line.strip().split("  ")[0] for line in ways] == [*ranks.WAYS]
    assert summed.startswith("a watched step of the perceptron on two ranks costs ")
