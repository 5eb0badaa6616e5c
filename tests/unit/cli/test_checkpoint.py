"""The command `whynan checkpoint`: what it prints, writes and refuses, and its exit status."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from syrupy.assertion import SnapshotAssertion

from whynan.cli.main import main
from whynan.cli.progress import ProgressLine

NAN = float("nan")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with three checkpoints, the last two of them bad."""
    for step in (100, 200, 300):
        torch.save({"w": torch.tensor([1.0, 2.0 if step == 100 else NAN]), "step": step}, tmp_path / f"ckpt-{step}.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, and what was written to both streams, of `whynan checkpoint` with arguments."""
    status = main(["checkpoint", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def only(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    """The exit status of a command that prints nothing."""
    status, out, err = run(capsys, *arguments)
    assert (out, err) == ("", "")
    return status


def process(*arguments: str, before: str = "", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, after a statement."""
    program = f"import sys\n{before}\nfrom whynan.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "checkpoint", *arguments]
    return subprocess.run(command, timeout=120, check=False, **{"capture_output": True, **options})


def test_a_document_on_the_output_has_it_for_itself(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "-").write_text("a file of this name is something else", encoding="utf-8")
    assert main(["checkpoint", "ckpt-200.pt", "--json", "-"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["verdict"] == "nonfinite"
    assert "ckpt-200.pt" in err
    assert (here / "-").read_text(encoding="utf-8") == "a file of this name is something else"


def test_a_clean_checkpoint_is_0_and_a_bad_one_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "ckpt-100.pt")[::2] == (0, "")
    assert run(capsys, "ckpt-200.pt")[::2] == (1, "")
    assert only(capsys, "--quiet", "ckpt-100.pt") == 0
    assert only(capsys, "ckpt-300.pt", "--quiet") == 1


def test_the_first_bad_one_of_several_in_whatever_order_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "ckpt-300.pt", "ckpt-100.pt", "ckpt-200.pt")
    assert status == 1
    assert out.startswith("ckpt-200.pt is the first bad one of 3 checkpoints")
    assert "good     ckpt-100.pt is the last good one\n" in out


def test_every_option_at_once(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    status, out, err = run(
        capsys, "--all", "--redact", "--allow", "w", "--json", "out.json", "ckpt-100.pt", "ckpt-300.pt"
    )
    assert (status, err) == (0, "")
    assert "tensor 1" in out
    assert "meant: allowed" in out
    text = (here / "out.json").read_text("utf-8")
    assert "ckpt" not in out + text
    assert json.loads(text)["checkpoints"][1]["tensors"][0]["n_nan"] == 1
    assert (here / "out.json").stat().st_mode & 0o777 == 0o600


def test_the_document_is_shown_again_by_the_command_for_documents(capsys: pytest.CaptureFixture[str]) -> None:
    _, told, _ = run(capsys, "--json", "out.json", "ckpt-100.pt", "ckpt-200.pt")
    assert main(["report", "out.json"]) == 1
    assert capsys.readouterr() == (told, "")


def test_all_lists_what_is_clean_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "f32[2]" not in run(capsys, "ckpt-100.pt")[1]
    assert "w       f32[2]  1 to 2\n" in run(capsys, "--all", "ckpt-100.pt")[1]


def test_one_of_several_that_cannot_be_read_is_2_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "ckpt-100.pt", "gone.pt", "ckpt-200.pt")
    assert (status, err) == (2, "")
    assert out.startswith("ckpt-200.pt is the first bad one")
    assert "note: gone.pt does not exist" in out


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    status, out, err = run(capsys, "--help")
    assert (status, err) == (0, "")
    assert out == snapshot


def _prepare(here: Path) -> None:
    (here / "folder").mkdir()
    (here / "note.txt").write_text("something of worth", "utf-8")
    save_file({"a": torch.ones(1)}, here / "a.safetensors")
    (here / "a.safetensors.index.json").write_text('{"weight_map": {"a": "a.safetensors"}}', "utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--nonsense", "ckpt-100.pt"),
        ("--json",),
        ("gone.pt",),
        ("folder",),
        ("note.txt",),
        ("--json", "nowhere/out.json", "gone.pt"),
        ("--json", "folder", "gone.pt"),
        ("--json", "ckpt-100.pt", "ckpt-200.pt"),
        ("--json", "note.txt", "ckpt-200.pt"),
        ("--json", "a.safetensors.index.json", "a.safetensors.index.json"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_said_in_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], here: Path, snapshot: SnapshotAssertion
) -> None:
    _prepare(here)
    before = {file: file.read_bytes() for file in here.iterdir() if file.is_file()}
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.replace(str(here), "HERE") == snapshot
    assert {file: file.read_bytes() for file in here.iterdir() if file.is_file()} == before


def test_an_older_document_is_written_over(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    for path in ("ckpt-100.pt", "ckpt-200.pt"):
        only(capsys, "--quiet", "--json", "out.json", path)
    assert json.loads((here / "out.json").read_text("utf-8"))["verdict"] == "nonfinite"


@pytest.mark.process
@pytest.mark.smoke("checkpoint")
def test_where_the_document_cannot_be_written_nothing_is_loaded() -> None:
    before = "import atexit; atexit.register(lambda: print('torch' in sys.modules))"
    done = process("--json", "nowhere/out.json", "ckpt-100.pt", before=before)
    assert (done.returncode, done.stdout) == (2, b"False\n")
    assert process("--quiet", "ckpt-100.pt", before=before).stdout == b"True\n"


@pytest.mark.process
def test_without_torch_the_missing_extra_is_named() -> None:
    done = process("ckpt-100.pt", before="sys.modules['torch'] = None")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "whynan: this needs the extra 'torch', which is not installed: pip install 'whynan[torch]'\n"
    )


@pytest.mark.process
def test_a_reader_who_leaves_changes_no_exit_status() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = process("ckpt-200.pt", capture_output=False, stdout=theirs, stderr=subprocess.PIPE)
    finally:
        os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_interrupt_ends_it_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setattr(ProgressLine, "advance", lambda *_: signal.raise_signal(signal.SIGINT))
    status, out, err = run(capsys, "--json", "out.json", "ckpt-200.pt")
    assert (status, out, err.strip()) == (130, "", "whynan: interrupted")
    assert not (here / "out.json").exists()


class Attack:
    """What makes a file as it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("open('made', 'w')",)


@pytest.mark.parametrize("name", ["evil.pt", "evil.pkl"])
def test_a_hostile_file_is_refused_and_runs_nothing(
    name: str, capsys: pytest.CaptureFixture[str], here: Path, snapshot: SnapshotAssertion
) -> None:
    if name == "evil.pt":
        torch.save({"w": torch.ones(1), "x": Attack()}, here / name)
    else:
        (here / name).write_bytes(pickle.dumps(Attack()))
    status, out, err = run(capsys, name)
    assert (status, out, err) == (2, "", snapshot)
    assert not (here / "made").exists()
    # the twin: opened without care it does make the file
    if name == "evil.pt":
        torch.load(here / name, weights_only=False)
    else:
        pickle.loads((here / name).read_bytes())
    assert (here / "made").exists()


class Clock:
    """Time that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("terminal", "seconds", "shown"), [(True, 3.0, True), (True, 1.0, False), (False, 3.0, False)])
def test_the_progress_of_long_work_is_shown_on_a_terminal(terminal: bool, seconds: float, shown: bool) -> None:
    out = io.StringIO()
    clock = Clock()
    with ProgressLine(Console(file=out, force_terminal=terminal, width=80), clock=clock) as line:
        line.begin(1_000_000)
        clock.now = seconds
        line.advance(250_000)
        line.advance(250_000)
    assert ("looking at tensors" in out.getvalue()) is shown
    assert bool(out.getvalue()) is shown
    if shown:
        assert "0.5/1.0 MB" in out.getvalue()
        # the cursor is back, and the line wiped out
        assert out.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_no_line_is_drawn_for_checkpoints_that_are_read_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "ckpt-100.pt")[2] == ""
