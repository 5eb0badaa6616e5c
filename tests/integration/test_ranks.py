"""Programs of several processes: each rank does bit for bit what it does without, and all have one report.

With ``--no-together``, or where no launcher serves a store, each has one of its own.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

pytestmark = [pytest.mark.process, pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")]

PROGRAMS = Path(__file__).parents[1] / "programs" / "ranks"
SECONDS = 200
"""After which a program hangs."""


@dataclass(frozen=True)
class Ended:
    """How the ranks of a program ended: its launcher's status, what each wrote, and each one's report."""

    status: int
    said: tuple[str, ...]
    reports: tuple[dict[str, Any], ...]
    stderr: str


def ranks(folder: Path, program: str, *arguments: str, options: tuple[str, ...] | None = None) -> Ended:
    """Start a program in two processes; by whynan where there are options."""
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    by = [] if options is None else ["-m", "whynan", "run", "--json", "report.json", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1"}
    start = functools.partial(
        subprocess.run,
        [*launcher, *by, str(PROGRAMS / program), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    done = start()
    if options is None and "terminate called without an active exception" in done.stderr:
        # a thread of gloo's still ran at the end of the process: of some hundred runs without whynan, one
        done = start()
    said = tuple(path.read_text() for path in sorted(folder.glob("said.*")))
    names = [name for name in ("report.json", "report.rank1.json") if (folder / name).exists()]
    return Ended(done.returncode, said, tuple(json.loads((folder / n).read_text()) for n in names), done.stderr)


CASES = [
    ("collectives.py",),
    ("collectives.py", "bad"),
    ("training.py", "replicas", "-1"),
    ("training.py", "replicas", "0"),
    ("training.py", "replicas", "2"),
    ("training.py", "scaled", "-1"),
    ("training.py", "shards", "-1"),
    ("training.py", "shards", "0"),
    ("training.py", "shards", "2"),
    ("training.py", "statistics", "0"),
]
SAMPLE = [(CASES[1], "trace"), (CASES[5], "watch"), (CASES[8], "watch")]


def cases(*sample: tuple[tuple[str, ...], str]) -> pytest.MarkDecorator:
    """All cases in both modes; in the short run a sample."""
    every = [(case, mode) for case in CASES for mode in ("trace", "watch")]
    marks = [[] if one in sample else [pytest.mark.full] for one in every]
    values = [pytest.param(*one, id=" ".join([*one[0], one[1]]), marks=m) for one, m in zip(every, marks, strict=True)]
    return pytest.mark.parametrize(("case", "mode"), values)


def verdict_of(case: tuple[str, ...], mode: str) -> str | None:
    """The verdict of a run that goes on: none where a bad number stays inside of torch's own tests of collectives."""
    if case[-1] in ("0", "2"):
        return "inconclusive" if mode == "watch" and case[-1] == "2" else "nonfinite"
    return "clean" if case[-1] == "-1" else None


@pytest.mark.full
@cases(*SAMPLE)
def test_ranks_run_bit_for_bit_as_alone_and_have_one_report(case: tuple[str, ...], mode: str, tmp_path: Path) -> None:
    alone = ranks(tmp_path / "alone", *case)
    options = ("--quiet", "--mode", mode, "--on-nonfinite", "continue")
    seen = ranks(tmp_path / "seen", *case, options=options)
    assert alone.status == 0, alone.stderr
    assert len(alone.said) == 2
    assert seen.said == alone.said, seen.stderr
    (report,) = seen.reports
    assert [(rank["rank"], rank["end"]) for rank in report["run"]["ranks"]] == [(0, "ended"), (1, "ended")]
    assert seen.status == report["run"]["exit_status"]["whynan"], seen.stderr
    verdict = verdict_of(case, mode)
    assert verdict is None or (report["verdict"], seen.status) == (verdict, int(verdict != "clean"))
    if verdict == "nonfinite":
        first = report["findings"][0]
        assert (first["site"]["code"], first["rank"]) == ("spread.sqrt()", 0)


@pytest.mark.full
@cases((CASES[3], "watch"))
def test_where_it_is_asked_for_each_rank_has_a_report_of_its_own(
    case: tuple[str, ...], mode: str, tmp_path: Path
) -> None:
    seen = ranks(tmp_path, *case, options=("--no-together", "--quiet", "--mode", mode))
    assert len(seen.said) == 2
    assert len(seen.reports) == 2
    verdict = verdict_of(case, mode)
    if verdict is not None:
        assert {report["verdict"] for report in seen.reports} == {verdict}
        assert seen.status == int(verdict != "clean"), seen.stderr
    if verdict == "nonfinite":
        here, there = seen.reports
        assert here["findings"][0]["site"]["code"] == "spread.sqrt()"
        assert [report["findings"][0]["rank"] for report in seen.reports] == [0, 1]
        # what was born beside it came to the other by a collective, and is one finding there
        assert all("of several processes left it" in f["message"] for f in there["findings"])
        assert len(here["findings"]) == len(there["findings"]) == 1
    if verdict not in (None, "clean") and mode == "watch":
        assert any(
            note.startswith("no replay: one of several") for r in seen.reports for note in r["coverage"]["notes"]
        )


BLOCKED = """\
import datetime
import torch
import torch.distributed as dist

weight = torch.ones(2, requires_grad=True)
(weight - 1).sqrt().sum().backward()
torch.optim.SGD([weight], lr=0.1).step()
store = dist.TCPStore("localhost", 0, 1, is_master=True)
print("blocked", flush=True)
store.wait(["never"], datetime.timedelta(seconds=300))
"""


@pytest.mark.parametrize("rank", ["1", None])
def test_a_rank_that_is_told_to_terminate_leaves_its_report_wherever_it_stands(
    rank: str | None, tmp_path: Path
) -> None:
    (tmp_path / "blocked.py").write_text(BLOCKED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1"}
    environment |= {} if rank is None else {"RANK": rank, "WORLD_SIZE": "2"}
    options = ["--quiet", "--json", "report.json", "--on-nonfinite", "continue"]
    with subprocess.Popen(
        [sys.executable, "-m", "whynan", "run", *options, "blocked.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"blocked\n"
        process.terminate()
        assert process.wait(SECONDS) == -signal.SIGTERM
    assert not (tmp_path / "report.json").exists()
    if rank is None:
        # it is alone, and dies as it would without whynan
        assert not list(tmp_path.glob("report*"))
        return
    report = json.loads((tmp_path / "report.rank1.json").read_text())
    assert (report["verdict"], report["findings"][0]["rule"]) == ("nonfinite", "WN301")
    assert report["run"]["exit_status"] == {"script": 143, "whynan": 1}
    assert (
        "the program was told to terminate: what it would have done after that is not known"
        in (report["coverage"]["notes"])
    )
