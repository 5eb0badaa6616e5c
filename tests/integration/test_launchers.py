"""Ranks that are not started by torchrun: by the program itself, by Accelerate; they stop together all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.integration.test_first_rank import PROGRAM, START, Ended, ended, marked

pytestmark = [pytest.mark.process, pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")]

SPAWNED, ACCUMULATED = PROGRAM.with_name("spawned.py"), PROGRAM.with_name("accumulated.py")
BORN = next(n for n, line in enumerate(SPAWNED.read_text().splitlines(), 1) if line.endswith("# born"))
WHYNAN = ("-m", "whynan", "run", "--json", "report.json")


def ran(folder: Path, *command: str, **more: str) -> Ended:
    """Run a command to its end: no process is left, and one report at most."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1", "RANKS_OF": str(folder)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return ended(folder, process, 2 * START)


def spawned(folder: Path, *arguments: str, options: tuple[str, ...] | None = ()) -> Ended:
    """Run the program that starts its ranks itself; by whynan where there are options."""
    by = () if options is None else (*WHYNAN, *options)
    return ran(folder, sys.executable, *by, str(SPAWNED), *arguments)


@pytest.mark.full
@pytest.mark.parametrize("way", ["replicas", "alike"])
def test_ranks_that_the_program_starts_do_what_they_do_alone(way: str, tmp_path: Path) -> None:
    alone = spawned(tmp_path / "alone", way, options=None)
    seen = spawned(tmp_path / "seen", way)
    assert (alone.status, seen.status) == (0, 0), alone.stderr + seen.stderr
    assert (seen.said, seen.stdout) == (alone.said, alone.stdout)
    assert seen.report is not None
    assert (seen.report["verdict"], seen.report["run"]["exit_status"]) == ("clean", {"script": 0, "whynan": 0})
    assert [(r["rank"], r["end"]) for r in seen.report["run"]["ranks"]] == [(0, "ended"), (1, "ended")]
    assert seen.stderr.count("clean: no bad number") == 1


@pytest.mark.parametrize("way", ["replicas", pytest.param("alike", marks=pytest.mark.full)])
def test_they_stop_together_and_the_program_has_their_report(way: str, tmp_path: Path) -> None:
    done = spawned(tmp_path / "bad", way, "bad")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (done.status, found["site"]["line"], found["rank"], found["step"]) == (1, BORN, 1, 4)
    if way == "replicas":
        assert [(t["sender"], t["receivers"]) for t in found["transfers"]] == [(1, [0])]
        assert done.said == ()
    assert done.report["run"]["exception"].startswith("ProcessExitedException")
    assert done.stderr.count("1 error (") == 1


@pytest.mark.full
def test_one_that_raises_has_the_program_raise_what_it_has(tmp_path: Path) -> None:
    done = spawned(tmp_path / "raised", "replicas", "bad", options=("--on-nonfinite", "raise"))
    assert done.report is not None, done.stderr
    assert (done.status, done.report["findings"][0]["rank"]) == (1, 1)
    assert done.report["run"]["exception"].startswith("ProcessRaisedException")
    assert "whynan.errors.NonFiniteError" in done.stderr


@pytest.mark.full
def test_one_that_is_killed_ends_the_program_as_without_us(tmp_path: Path) -> None:
    alone = spawned(tmp_path / "alone", "killed", options=None)
    seen = spawned(tmp_path / "seen", "killed")
    said = "ProcessExitedException: process 0 terminated with signal SIGKILL"
    assert (alone.status, seen.status) == (1, 1)
    assert said in alone.stderr
    assert said in seen.stderr


@pytest.mark.full
def test_where_it_is_asked_for_they_are_left_alone(tmp_path: Path) -> None:
    done = spawned(tmp_path / "apart", "alike", "bad", options=("--no-together",))
    assert (done.status, done.stdout) == (0, "over\n")
    assert done.report is not None
    assert (done.report["verdict"], done.report["run"]["ranks"]) == ("clean", [])


@pytest.mark.full
def test_those_of_accelerate_stop_together(tmp_path: Path) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    arguments = ("--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no")
    command = (sys.executable, launch.__file__, *arguments, "--dynamo_backend", "no", *WHYNAN)
    done = ran(tmp_path / "bad", *command, str(PROGRAM), "replicas", "bad", ACCELERATE_USE_CPU="true")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (done.status, found["site"]["line"], found["rank"]) == (1, marked("born replicas"), 1)
    assert {rank["end"] for rank in done.report["run"]["ranks"]} <= {"stopped", "blocked"}


@pytest.mark.full
def test_a_step_of_accelerate_at_whose_end_its_loader_is_over_is_replayed(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = ran(tmp_path / "bad", *launcher, *WHYNAN, str(ACCUMULATED), ACCELERATE_USE_CPU="true")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    born = next(n for n, line in enumerate(ACCUMULATED.read_text().splitlines(), 1) if line.endswith("# born"))
    assert (found["site"]["line"], found["rank"], found["step"], found["micro"]) == (born, 1, 4, 1)
    assert done.report["run"]["replay"]["faithful"] is True
    assert done.report["run"]["replay"]["why"].endswith("with what libraries held there")
    (best, *_) = found["fixes"]
    assert best["verdict"]["status"] == "guarded", best["verdict"]["why"]
