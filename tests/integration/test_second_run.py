"""A program whose bad step no replay explains is run a second time by `--rerun`: believed if it is the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

WHYNAN = Path(sys.executable).with_name("whynan")
SEED = "torch.manual_seed(0)"
TRAINING = f"""\
import os, sys, time
import torch

{SEED}
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SECOND = "/whynan-" in os.environ.get("TMPDIR", "")
# before


def losses(rows):
    for row in rows:
        unit = row / row.norm(dim=1, keepdim=True)
        yield model(unit).square().mean()


rows = list(torch.randn(6, 5, 3).unbind())
rows[3][2] = 0.0
# rows
for loss in losses(rows):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("stepped", flush=True)
"""
"""A loop whose head stands in a generator, which cannot be rewound."""


def _program(*, before: str = "", rows: str = "", seed: str = SEED) -> str:
    return TRAINING.replace("# before", before).replace("# rows", rows).replace(SEED, seed)


def _environment(folder: Path, **more: str) -> dict[str, str]:
    """As little as there can be, and a folder of its own for what is temporary."""
    (folder / "tmp").mkdir(exist_ok=True)
    usual = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "COLUMNS": "100"}
    return {**usual, "TMPDIR": str(folder / "tmp"), "WHYNAN_RAISE_INTERNAL": "1", **more}


def _run(folder: Path, text: str, *options: str, limits: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; `limits`: what the waiting process is told first."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    command = [sys.executable, str(WHYNAN), "run", "--rerun", *options, "train.py"]
    if limits:
        imports = "import sys; from whynan.run.proof import whole_program as proof; from whynan.cli.main import main"
        code = f"{imports}; {limits}; sys.exit(main())"
        command = [sys.executable, "-c", code, *command[2:]]
    return subprocess.run(
        command, cwd=folder, env=_environment(folder), text=True, check=False, capture_output=True, timeout=240, **more
    )


def _explained(done: subprocess.CompletedProcess[str], line: int = 13) -> None:
    assert done.stdout == "stepped\n" * 3
    assert f"born     train.py:{line}:16  in losses" in done.stderr, done.stderr
    assert "second run: faithful (1 loss and 2 bad gradients identical" in done.stderr


def _refused(done: subprocess.CompletedProcess[str]) -> str:
    """Why there was no second run, or none that is used."""
    assert done.stdout == "stepped\n" * 3
    assert (done.returncode, "  born     " in done.stderr) == (1, False), done.stderr
    (said,) = re.findall(r"note: ((?:no second run|a second run was not used): (?:.|\n)*?)\nnote: whynan", done.stderr)
    assert "whynan run --start-step 4" in done.stderr
    return " ".join(said.split())


def test_what_no_replay_explains_a_second_run_does(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    at_exit = "import atexit; atexit.register(lambda: open('ended', 'a').write('once '))"
    done = _run(tmp_path, _program(before=at_exit), "--json", "r.json")
    _explained(done)
    assert done.returncode == 1
    # where a line ends depends on the path
    told = re.sub(r"whynan\s+fix\s+\S+\s+shows[\w\s]+proves", "whynan fix r.json shows it", done.stderr)
    assert re.sub(r" +whynan \S+ (\S) torch \S+ \S ", r"  whynan \1 torch \1 ", told) == snapshot
    # nothing runs after the step, and nothing stays
    assert (tmp_path / "ended").read_text() == "once "
    assert not [p for p in (tmp_path / "tmp").rglob("*") if not p.name.startswith("torchinductor_")]
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["run"]["exit_status"] == {"script": None, "whynan": 1}
    assert (report["run"]["replay"]["kind"], report["run"]["replay"]["faithful"]) == ("rerun", True)
    assert [step["step"] for step in report["run"]["history"]] == [2, 3, 4]
    (finding,) = report["findings"]
    assert (finding["step"], finding["site"]["line"], finding["element"]["index"]) == (4, 13, [2, 0])


@pytest.mark.full
def test_what_a_queue_gave_a_second_run_gets_again(tmp_path: Path) -> None:
    text = _program(rows="import queue; waiting = queue.SimpleQueue(); [waiting.put(row) for row in rows]")
    text = text.replace("for loss in losses(rows):", "for loss in losses(waiting.get() for _ in range(6)):")
    _explained(_run(tmp_path, text))


@pytest.mark.full
def test_workers_and_files_of_its_own_are_had_again() -> None:
    before = "with open('log.txt', 'a') as log: log.write('once ')"
    rows = "rows = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=2)"
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        # the name of a socket may have a hundred letters
        _explained(_run(Path(short), _program(before=before, rows=rows)))
        # as the line that is printed beforehand says
        assert Path(short, "log.txt").read_text() == "once once "


@pytest.mark.full
def test_nothing_private_is_in_a_second_runs_report(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = _run(tmp_path, _program(), "--redact", "--quiet", "--json", "r.json")
    text = (tmp_path / "r.json").read_text()
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(text)
    assert not [word for word in ("losses", "train.py", "unit", "keepdim") if word in text]
    assert report["run"]["replay"] == snapshot
    assert [f["step"] for f in report["findings"]] == [4]


@pytest.mark.full
def test_the_programs_own_end_is_kept(tmp_path: Path) -> None:
    done = _run(tmp_path, _program() + "sys.exit(3)\n", "--on-nonfinite", "continue", "--quiet", "--json", "r.json")
    assert (done.returncode, done.stdout) == (3, "stepped\n" * 6)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["run"]["exit_status"] == {"script": 3, "whynan": 1}
    assert report["run"]["replay"]["kind"] == "rerun"
    assert any("2 more steps bad after that" in note for note in report["coverage"]["notes"])


# -- not run again ---------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_without_the_option_the_program_runs_once_and_the_report_names_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    once = "with open('log.txt', 'a') as log: log.write('once ')"
    (tmp_path / "train.py").write_text(_program(before=once), encoding="utf-8")
    command = [sys.executable, str(WHYNAN), "run", "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=_environment(tmp_path), text=True, check=False, capture_output=True, timeout=240
    )
    assert (done.returncode, done.stdout, (tmp_path / "log.txt").read_text()) == (1, "stepped\n" * 3, "once ")
    assert [line for line in done.stderr.splitlines() if line.startswith(("note: whynan run", "whynan:"))] == snapshot


# -- not believed ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_of_other_numbers_is_not_used(tmp_path: Path) -> None:
    done = _run(tmp_path, _program(seed="torch.manual_seed(time.time_ns())"))
    assert _refused(done) == "a second run was not used: other weights than in the first run"


@pytest.mark.full
def test_a_second_run_that_ends_early_is_not_used(tmp_path: Path) -> None:
    done = _run(tmp_path, _program(before="if SECOND: sys.exit()"))
    assert _refused(done) == "a second run was not used: it ended before it came to step 4"


@pytest.mark.full
def test_a_second_run_that_dies_is_not_used(tmp_path: Path) -> None:
    done = _run(tmp_path, _program(before="if SECOND: os.abort()"))
    assert _refused(done) == "a second run was not used: it was cut short before it came to step 4"


HANGING = _program(before="if SECOND: time.sleep(1000)")


@pytest.mark.full
def test_a_second_run_that_hangs_is_cut_off(tmp_path: Path) -> None:
    done = _run(tmp_path, HANGING, limits="proof.TIMES, proof.AT_LEAST = 0.0, 4.0")
    assert _refused(done) == "a second run was not used: it took more than 4 seconds"


@pytest.mark.full
def test_nobody_who_reads_no_report_waits_for_a_second_run(tmp_path: Path) -> None:
    done = _run(tmp_path, HANGING, "--quiet")
    assert (done.returncode, "second run" in done.stderr) == (1, False)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_whoever_does_not_want_to_wait_gets_the_first_report(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANGING)
    with subprocess.Popen(
        [sys.executable, str(WHYNAN), "run", "--rerun", "train.py"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        second = _second_of(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    done = subprocess.CompletedProcess([], process.returncode, out, err)
    assert _refused(done) == "a second run was not used: it was interrupted"
    assert not os.path.exists(f"/proc/{second}")


def _second_of(process: int) -> str:
    """The process of the second run, once there is one."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                # it may be over by now
                if b"whynan.run.proof.proof_run" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
    raise AssertionError("there is no second run")
