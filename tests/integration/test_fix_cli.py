"""``whynan fix`` on the report of a real run: the fix that was proved is made, and the program runs on with it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests import forking

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="of terminals")]

PROGRAM = """\
import torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, features):
        scores = self.linear(features)
        weights = scores.softmax(-1)
        return -weights.log().mean()


torch.manual_seed(0)
head = Head()
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(4):
    features = torch.randn(8, 4)
    if step == 2:
        features[1] *= 1000
    optimizer.zero_grad()
    head(features).backward()
    optimizer.step()
print(all(bool(parameter.isfinite().all()) for parameter in head.parameters()))
"""
_PATIENCE = 120
"""Seconds without a word after which a process at a terminal is ended, and the test fails."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def whynan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *arguments]
    return forking.run(command, cwd=folder, env=ENVIRONMENT)


def trained(folder: Path) -> str:
    """What the program prints of its parameters: whether all are finite."""
    command = [sys.executable, "train.py"]
    done = forking.run(command, cwd=folder, env=ENVIRONMENT)
    done.check_returncode()
    return done.stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with its report and its capsule."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "train.py").write_text(PROGRAM)
    done = whynan(folder, "run", "--quiet", "--json", "report.json", "--capsule", "failure", "train.py")
    assert done.returncode == 1, done.stderr
    return folder


@pytest.fixture
def here(ran: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(ran, tmp_path / "here")


@pytest.mark.full
def test_without_proofs_the_report_comes_at_once_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = whynan(tmp_path, "run", "--no-proof", "--json", "report.json", "train.py")
    finding = json.loads((tmp_path / "report.json").read_text())["findings"][0]
    verdicts = [fix["verdict"] for fix in finding["fixes"]]
    assert verdicts
    assert {(v["status"], v["why"]) for v in verdicts} == {("unverified", "no proof was asked for (--no-proof)")}
    assert finding["rule"] == "WN206"
    assert "(--no-proof)" in " ".join(done.stderr.split())


def number_of(here: Path, words: str) -> int:
    """The number of the verified fix whose change holds some words."""
    told: list[str] = []
    for finding in json.loads((here / "report.json").read_text())["findings"]:
        for fix in finding["fixes"]:
            if fix["patch"] not in told:
                told.append(fix["patch"])
            if words in (fix["patch"] or "") and fix["verdict"]["status"] == "verified":
                return told.index(fix["patch"]) + 1
    raise AssertionError(told)


@pytest.mark.full
def test_an_argument_is_given_where_the_optimizer_is_constructed(tmp_path: Path) -> None:
    """In another file than that of the step, which is the first one; the program runs on with it."""
    made = "torch.optim.Adam(head.parameters(), lr=0.1, eps=0)"
    (tmp_path / "makers.py").write_text(f"import torch\n\n\ndef make(head):\n    return {made}\n")
    program = PROGRAM.replace("torch.optim.SGD(head.parameters(), lr=0.1)", "make(head)")
    program = program.replace("    features[1] *= 1000\n", "    pass\n").replace("step == 2", "True")
    program = program.replace("pass\n", "features[:, 2] = 0\n").replace(
        "import torch\n", "import torch\nfrom makers import make\n", 1
    )
    (tmp_path / "train.py").write_text(program)
    assert trained(tmp_path) == "False\n"
    done = whynan(tmp_path, "run", "--rerun", "--json", "report.json", "train.py")
    assert done.returncode == 1
    assert "in makers.py" in done.stderr
    (finding,) = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert finding["site"]["file"] == "train.py"
    assert [fix["verdict"]["status"] for fix in finding["fixes"]] == ["guarded", "distorting"]
    applied = whynan(tmp_path, "fix", "report.json", "--apply", "--yes")
    assert applied.returncode == 0, applied.stderr
    assert (tmp_path / "makers.py").read_text().endswith("eps=1e-20)\n")
    assert trained(tmp_path) == "True\n"
    assert "in the file already" in whynan(tmp_path, "fix", "report.json", "--apply", "--yes").stderr


@pytest.mark.full
def test_the_program_as_it_is_ends_with_bad_parameters(here: Path) -> None:
    assert trained(here) == "False\n"


@pytest.mark.smoke("fix")
def test_the_best_fix_is_made_and_the_program_runs_on_with_it(here: Path) -> None:
    listed = whynan(here, "fix", "report.json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "verified" in listed.stdout
    done = whynan(here, "fix", "report.json", "--apply", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / "train.py.orig").read_text() == PROGRAM
    assert trained(here) == "True\n"
    assert whynan(here, "run", "--quiet", "train.py").returncode == 0


@pytest.mark.full
def test_the_fix_that_is_chosen_is_made(here: Path) -> None:
    number = number_of(here, "log_softmax(-1)")
    assert whynan(here, "fix", "report.json", "--apply", "--yes", "--choose", str(number)).returncode == 0
    assert "scores.log_softmax(-1)" in (here / "train.py").read_text()
    assert trained(here) == "True\n"


@pytest.mark.full
def test_a_second_application_changes_nothing(here: Path) -> None:
    whynan(here, "fix", "report.json", "--apply", "--yes")
    once = {path.name: path.read_bytes() for path in here.glob("train*")}
    again = whynan(here, "fix", "report.json", "--apply", "--yes")
    assert again.returncode == 0
    assert "already" in again.stderr
    assert {path.name: path.read_bytes() for path in here.glob("train*")} == once


@pytest.mark.full
def test_the_patch_is_one_that_git_applies(here: Path) -> None:
    assert whynan(here, "fix", "report.json", "--patch", "fix.patch").returncode == 0
    assert (here / "train.py").read_text() == PROGRAM
    subprocess.run(["git", "apply", "fix.patch"], cwd=here, check=True)
    assert trained(here) == "True\n"


DIFFS = {
    "the same function": ("weights.log()", "scores.log_softmax(-1)", 0),
    "an eps": ("weights.log()", "(weights + 1e-3).log()", 1),
    "a constant": ("weights.log()", "(weights * 0 - 2)", 1),
    "nothing that helps": ("weights.log()", "weights.log().clone()", 1),
}


@pytest.mark.parametrize("name", DIFFS)
def test_a_fix_of_ones_own_gets_its_verdict(name: str, here: Path) -> None:
    old, new, status = DIFFS[name]
    (here / "train.py").write_text(PROGRAM.replace(old, new))
    (here / "before.py").write_text(PROGRAM)
    diff = subprocess.run(
        ["diff", "-u", "before.py", "train.py"], cwd=here, capture_output=True, text=True, check=False
    )
    (here / "my.diff").write_text(diff.stdout)
    done = whynan(here, "fix", "report.json", "--capsule", "failure", "--try", "my.diff")
    assert done.returncode == status, done.stdout + done.stderr


# -- at a terminal ---------------------------------------------------------------------------------------------------


def _at_its_terminal() -> None:
    """What a shell does for a process in its foreground."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # one in the background has it ignored, and so would whatever it starts
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def at_a_terminal(here: Path, answer: bytes) -> tuple[int, str]:
    """The status of an edit that is asked for at a terminal and answered there, and all that is shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "whynan", "fix", "report.json", "--apply"],
        cwd=here,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=ENVIRONMENT,
        start_new_session=True,
        preexec_fn=_at_its_terminal,
    )
    os.close(theirs)
    shown = b""
    answered = False
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        while True:
            if not select.select([terminal], [], [], _PATIENCE)[0]:
                process.kill()
                break
            try:
                read = terminal.read(4096)
            except OSError:
                # the other end is closed
                break
            shown += read or b""
            if not answered and b"[y/N]" in shown:
                terminal.write(answer)
                answered = True
    return process.wait(), shown.decode()


def test_at_a_terminal_it_asks_and_edits(here: Path) -> None:
    status, shown = at_a_terminal(here, b"y\n")
    assert status == 0, shown
    assert "Edit train.py?" in shown
    assert trained(here) == "True\n"


@pytest.mark.parametrize(
    ("answer", "status"), [(b"n\n", 0), (b"\n", 0), (b"perhaps\nno\n", 0), (b"\x03", 130), (b"\x04", 130)]
)
def test_without_a_yes_nothing_is_edited(answer: bytes, status: int, here: Path) -> None:
    ended, shown = at_a_terminal(here, answer)
    assert ended == status, shown
    assert "nothing was changed" in shown
    assert (here / "train.py").read_text() == PROGRAM
    assert not (here / "train.py.orig").exists()


# -- an interrupt ----------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys
number, word, count = int(sys.argv.pop(1)), sys.argv.pop(1), 0
def interrupt(event, given):
    global count
    if event == word.partition(":")[0] and word.partition(":")[2] in str(given):
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
from whynan.cli.entry import main
sys.addaudithook(interrupt)
sys.exit(main())
"""
"""A command that is interrupted at the nth event of a kind that Python tells of."""
MOMENTS = [
    *((number, "import") for number in (1, 10, 100, 200, 300)),
    (1, "open:report.json"),
    (1, "open:train.py"),
    (1, "open:train.py.orig"),
    (1, "open:.whynan-"),
]


@pytest.mark.parametrize(("number", "event"), MOMENTS, ids=str)
def test_an_interrupt_at_any_moment_changes_nothing(number: int, event: str, here: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(number), event, "fix", "report.json", "--apply", "--yes"]
    done = forking.run(command, cwd=here, env=ENVIRONMENT)
    assert done.returncode == 130, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "interrupted" in done.stderr
    assert (here / "train.py").read_text() == PROGRAM
    assert sorted(path.name for path in here.iterdir()) == ["failure", "report.json", "train.py"]


def test_an_interrupt_that_comes_too_late_is_said_by_what_was_done(here: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "1", "os.rename", "fix", "report.json", "--apply", "--yes"]
    done = forking.run(command, cwd=here, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is edited" in done.stdout
    assert (here / "train.py.orig").read_text() == PROGRAM


FIRST_STEP = """\
import torch


def ratio(width, height):
    return torch.atan(width / height)


torch.manual_seed(0)
net = torch.nn.Linear(3, 4, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    out = net(torch.randn(6, 3)).relu()
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def proved(folder: Path, loss: str) -> list[tuple[str, str]]:
    """The verdicts on the fixes of the first finding of a program whose first step is bad."""
    (folder / "train.py").write_text(FIRST_STEP.replace("LOSS", loss))
    whynan(folder, "run", "--quiet", "--json", "report.json", "train.py")
    finding = json.loads((folder / "report.json").read_text())["findings"][0]
    return [(fix["verdict"]["status"], fix["verdict"]["why"]) for fix in finding["fixes"]]


@pytest.mark.full
def test_a_first_step_that_draws_as_it_calls_its_module_has_its_fix_proved(tmp_path: Path) -> None:
    assert proved(tmp_path, "torch.log(out[:, 0]).mean()")[0][0] == "guarded"


@pytest.mark.full
def test_a_guard_that_moves_the_loss_of_a_step_of_which_only_gradients_are_bad_is_rejected(tmp_path: Path) -> None:
    found = proved(tmp_path, "ratio(out[:, 0] + 1, out[:, 1]).mean()")
    assert any(why.startswith("run with it, the loss of the step is ") for _, why in found)
    assert all(status == "rejected" for status, _ in found)
