"""The process in which an engine runs, from job to job."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.capture.onnx.told import model, node, saved
from whynan.models.onnx.binding import write_feeds
from whynan.models.onnx.opening import open_model
from whynan.run.onnx import engines
from whynan.run.onnx.engine_process import Runner
from whynan.run.onnx.engines import IDLE, EngineProcess, Settings, reused_process
from whynan.run.onnx.job import FEEDS, JOB, OUTCOME
from whynan.traces.reader import read_trace


def children() -> set[int]:
    return {int(p) for file in Path("/proc/self/task").glob("*/children") for p in file.read_text().split()}


def job(path: str, place: Path, value: float, *, last: bool = False) -> Path:
    """A folder with a job: to run the model with this number everywhere."""
    place.mkdir()
    fed = write_feeds({"x": np.full((2, 4), value, np.float32)}, place / FEEDS)
    opened = open_model(path)
    told: dict[str, Any] = {
        "model": path,
        "settings": {**Settings().__dict__, "providers": []},
        "feeds": fed,
        "trace": str(place / "trace"),
        "ranges": False,
        "capsule": False,
        "memory": None,
        "redact": False,
        "command": "onnx",
        "fed": [],
        "sha256": opened.sha256,
        "opset": opened.opset,
        "last": last,
    }
    (place / JOB).write_text(json.dumps(told), encoding="utf-8")
    return place


@pytest.fixture
def log(tmp_path: Path) -> str:
    return saved(model([node("Log", "x", "y")], ["x"], ["y"]), tmp_path)


def births(place: Path) -> list[str]:
    assert json.loads((place / OUTCOME).read_text()) == {}
    return list(dict.fromkeys(birth.kind for birth in read_trace(place / "trace").trace.births))


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_all_jobs_are_done_by_one_process_and_nothing_is_left(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = children()
    seen: list[set[int]] = []
    with EngineProcess() as process:
        for number, (value, kinds) in enumerate([(1, []), (0, ["pole"]), (-1, ["invalid"]), (2, [])]):
            place = job(log, tmp_path / str(number), value, last=number == 3)
            assert process.do(place)[0] == 0
            assert births(place) == kinds
            seen.append(children() - before)
    assert len(seen[0]) == 1
    assert all(one == seen[0] for one in seen)
    assert children() == before
    assert list(temporary.iterdir()) == []


def pids(process: EngineProcess) -> int:
    assert process._process is not None
    return process._process.pid


@pytest.fixture
def waiting() -> Iterator[None]:
    """No process waits before a test, and none after it."""
    engines._close_all()
    yield
    engines._close_all()


@pytest.mark.process
@pytest.mark.usefixtures("waiting")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_process_waits_for_the_next_model(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    other = saved(model([node("Sqrt", "x", "y")], ["x"], ["y"]), tmp_path / "other")
    before, seen = children(), list[int]()
    for number, (path, value, kinds) in enumerate([(log, 0, ["pole"]), (other, -1, ["invalid"]), (other, 0, [])]):
        with reused_process(fresh=False) as process:
            place = job(path, tmp_path / str(number), value, last=True)
            assert process.do(place)[0] == 0
            assert births(place) == kinds
            seen.append(pids(process))
    assert len(set(seen)) == 1
    # another surrounding, a failure, and who asks for a fresh one
    monkeypatch.setenv("SURROUNDINGS", "others")
    with pytest.raises(ValueError, match="failed"), reused_process(fresh=False) as process:
        assert pids(process) != seen[0]
        raise ValueError("failed")
    assert children() == before
    with reused_process(fresh=True) as process:
        assert pids(process) not in seen
    assert children() == before


@pytest.mark.process
@pytest.mark.usefixtures("waiting")
def test_a_process_that_has_ended_while_it_waited_is_replaced(log: str, tmp_path: Path) -> None:
    with reused_process(fresh=False) as process:
        first = process._process
    assert first is not None
    first.kill()
    first.wait()
    with reused_process(fresh=False) as process:
        assert process.do(job(log, tmp_path / "job", 0, last=True))[0] == 0
        assert births(tmp_path / "job") == ["pole"]


def test_one_that_ends_for_having_nothing_to_do_is_replaced(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []

    class Ended:
        """A process that ends at the first job, and does the second."""

        def __init__(self) -> None:
            self.stdin, self.stdout = io.BytesIO(), io.BytesIO(b"0\n" if done else b"")
            done.append(tmp_path)

        def wait(self, _: float | None = None) -> int:
            return IDLE

        def poll(self) -> int | None:
            return None

        def kill(self) -> None:
            pass

    process = EngineProcess()
    (Path(process.home) / engines.SAID).touch()
    monkeypatch.setattr(engines.subprocess, "Popen", lambda *_, **__: Ended())
    assert process.do(tmp_path) == (0, "")
    assert len(done) == 2
    process.__exit__(None, None, None)
    del log


@pytest.mark.process
def test_a_job_that_is_none_ends_the_process_and_the_next_one_has_another(log: str, tmp_path: Path) -> None:
    with EngineProcess() as process:
        status, said = process.do(tmp_path / "nowhere")
        assert status == 1
        assert "nowhere" in said
        place = job(log, tmp_path / "job", 0)
        assert process.do(place)[0] == 0
        assert births(place) == ["pole"]


def test_after_a_failure_the_model_is_opened_anew(tmp_path: Path) -> None:
    given = model([node("Gather", "x i", "g"), node("Log", "g", "y")], ["x"], ["y"], {"i": np.array([5])})
    path = saved(given, tmp_path)
    runner = Runner()
    places = [job(path, tmp_path / str(number), 1) for number in range(2)]
    assert [runner.do(place) for place in places] == [1, 1]
    told = [json.loads((place / OUTCOME).read_text()) for place in places]
    assert told[0] == told[1]
    assert "out of data bounds" in told[0]["failed"]
    assert told[0]["refused"] is False
