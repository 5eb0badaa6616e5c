"""`whynan run --rerun`: the fixes of a program that has no step to replay are proved by running it again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

pytestmark = pytest.mark.process

WHYNAN = Path(sys.executable).with_name("whynan")
BUG = """\
import torch
{before}
x = torch.tensor([[1000.0, 0.0], [1.0, 2.0]])
y = torch.log(torch.softmax(x, dim=1))
{after}
print(y.shape, flush=True)
"""
IN_A_FUNCTION = """\
import torch


class Head(torch.nn.Module):
    def forward(self, x):
        return x / x.norm(dim=1, keepdim=True)


def main():
    torch.manual_seed(0)
    rows = torch.randn(4, 3, requires_grad=True)
    with torch.no_grad():
        rows[2] = 0
    Head()(rows).sum().backward()


main()
"""
HELPER = """\
import torch


def logarithm(x):
    return torch.log(torch.softmax(x, dim=1))
"""


def bug(before: str = "", after: str = "") -> str:
    """A report of a bug in ten lines: all of it stands at the top of the script."""
    return BUG.format(before=before, after=after)


def run(folder: Path, *arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    if script is not None:
        (folder / "bug.py").write_text(script, encoding="utf-8")
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "TMPDIR": str(folder / "tmp"),
        "WHYNAN_RAISE_INTERNAL": "1",
        **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
    }
    command = [sys.executable, str(WHYNAN), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False, capture_output=True, timeout=300
    )


def report_of(folder: Path, script: str | None, *program: str) -> dict[str, Any]:
    done = run(folder, "run", "--rerun", "--quiet", "--json", "r.json", *(program or ("bug.py",)), script=script)
    assert (done.stderr == "") or "Error" in done.stderr, done.stderr
    assert done.stdout.count("torch.Size") <= 1
    # nothing stays
    assert not [p for p in (folder / "tmp").rglob("*") if "torchinductor" not in str(p)]
    return json.loads((folder / "r.json").read_text(encoding="utf-8"))


def best(report: dict[str, Any]) -> tuple[str, str]:
    fixes = report["findings"][0]["fixes"]
    return fixes[0]["verdict"]["status"], fixes[0]["patch"] or ""


def why(report: dict[str, Any]) -> str:
    (said,) = {fix["verdict"]["why"] for fix in report["findings"][0]["fixes"]}
    return said


def test_a_bug_report_has_its_fix_proved_and_made(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = run(tmp_path, "run", "--rerun", "--json", "r.json", "bug.py", script=bug())
    # what is printed in further runs goes nowhere
    assert (done.returncode, done.stdout) == (1, "torch.Size([2, 2])\n")
    said = re.sub(r" +whynan \S+ (\S) torch \S+ \S ", r"  whynan \1 torch \1 ", done.stderr)
    assert re.sub(r"whynan fix\s+\S+/r\.json\s+--", "whynan fix DIRECTORY/r.json --", said) == snapshot
    made = run(tmp_path, "fix", "r.json", "--apply", "--yes")
    assert made.returncode == 0, made.stderr
    assert "torch.log_softmax(x, 1)" in (tmp_path / "bug.py").read_text()
    assert run(tmp_path, "run", "bug.py").returncode == 0


def test_without_the_option_the_report_of_a_program_that_cannot_be_replayed_names_it(tmp_path: Path) -> None:
    run(tmp_path, "run", "--json", "r.json", "bug.py", script=bug(after="open('y.txt', 'w').close()"))
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert why(report) == (
        "no replay from line 3 of <module>: it opens y.txt for writing at bug.py:5; "
        "whynan run --rerun runs it again to prove fixes"
    )
    assert report["run"]["replay"]["kind"] == "none"


@pytest.mark.full
def test_what_stands_in_a_function_is_proved(tmp_path: Path) -> None:
    report = report_of(tmp_path, IN_A_FUNCTION)
    assert best(report)[0] == "guarded"
    assert report["run"]["exit_status"] == {"script": 0, "whynan": 1}


@pytest.mark.full
def test_a_trial_ends_where_the_program_was_stopped(tmp_path: Path) -> None:
    text = IN_A_FUNCTION + "Head()(torch.ones(1, 3))\nwith open('after', 'a') as file: file.write('once ')\n"
    text = text.replace("Head()(rows).sum().backward()", "Head()(rows.detach())")
    report = report_of(tmp_path, text)
    assert (best(report)[0], report["run"]["exit_status"]["script"]) == ("guarded", None)
    assert not (tmp_path / "after").exists()


@pytest.mark.full
def test_what_stands_in_an_imported_module_is_proved(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER, encoding="utf-8")
    text = bug("from helper import logarithm").replace("torch.log(torch.softmax(x, dim=1))", "logarithm(x)")
    status, patch = best(report_of(tmp_path, text))
    assert (status, "b/helper.py" in patch) == ("verified", True)
    assert (tmp_path / "helper.py").read_text() == HELPER


@pytest.mark.full
def test_a_module_of_a_package_is_proved(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "bug.py").write_text(bug(), encoding="utf-8")
    status, patch = best(report_of(tmp_path, None, "-m", "package.bug"))
    assert (status, "b/package/bug.py" in patch) == ("verified", True)


@pytest.mark.full
@pytest.mark.parametrize("after", ["assert torch.isfinite(y).all(), 'bad'", "raise SystemExit(3)"])
def test_a_program_that_ends_after_the_birth_is_proved(after: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, bug(after=after))
    assert best(report)[0] == "verified"
    assert report["run"]["exit_status"]["script"] == (3 if "Exit" in after else 1)


@pytest.mark.full
def test_all_that_a_program_does_is_done_again(tmp_path: Path) -> None:
    after = "open('y.txt', 'a').write(f'{y[0, 1]} ')"
    assert best(report_of(tmp_path, bug(after=after)))[0] == "verified"
    # by the program, by its run again as it is, and by at least one with an edit
    assert (tmp_path / "y.txt").read_text().startswith("-inf -inf -1000.0 ")


@pytest.mark.full
def test_random_numbers_that_nobody_has_seeded_are_the_same(tmp_path: Path) -> None:
    before = "import random, numpy; k = 1 + random.random() + numpy.random.rand() + torch.rand(1)"
    before += "; k = k * (1 + list({'a', 'b', 'c', 'd'}).index('a'))"
    text = bug(before).replace("[1.0, 2.0]])", "[1.0, 2.0]]) * k")
    assert best(report_of(tmp_path, text))[0] == "verified"


@pytest.mark.full
def test_a_program_that_is_never_the_same_proves_nothing(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = bug("import time").replace("[1.0, 2.0]])", "[1.0, 2.0]]) * (time.time_ns() % 1e6)")
    report = report_of(tmp_path, text)
    assert best(report)[0] == "unverified"
    assert (why(report), report["run"]["replay"]["faithful"]) == (snapshot, False)


@pytest.mark.full
def test_a_program_that_cannot_be_run_twice_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, bug("import os; os.mkdir('results')"))
    assert why(report).startswith("run again, it raised FileExistsError")


@pytest.mark.full
def test_a_compiled_function_is_proved_as_it_is_written(tmp_path: Path) -> None:
    text = IN_A_FUNCTION.replace("Head()(rows)", 'torch.compile(Head(), backend="aot_eager")(rows)')
    report = report_of(tmp_path, text)
    assert best(report)[0] == "guarded"
    assert report["findings"][0]["fixes"][0]["verdict"]["why"].endswith("tried without torch.compile")


@pytest.mark.full
def test_a_capsule_holds_what_an_idea_of_the_users_is_judged_on(tmp_path: Path) -> None:
    run(tmp_path, "run", "--rerun", "--json", "r.json", "--capsule", "failure", "bug.py", script=bug())
    edited = bug().replace("torch.log(torch.softmax(x, dim=1))", "torch.log_softmax(x, dim=1)")
    (tmp_path / "other.py").write_text(edited, encoding="utf-8")
    diff = subprocess.run(
        ["diff", "-u", "bug.py", "other.py"], cwd=tmp_path, text=True, capture_output=True, check=False
    ).stdout.replace("other.py", "bug.py")
    (tmp_path / "my.diff").write_text(diff, encoding="utf-8")
    done = run(tmp_path, "fix", "r.json", "--capsule", "failure", "--try", "my.diff")
    assert (done.returncode, done.stdout.startswith("verified")) == (0, True), done.stdout + done.stderr


@pytest.mark.full
def test_nothing_private_is_in_a_proved_report(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--rerun", "--redact", "--quiet", "--json", "r.json", "bug.py", script=bug())
    text = (tmp_path / "r.json").read_text()
    assert (done.returncode, done.stderr) == (1, "")
    assert not [word for word in ("log_softmax(x", "bug.py", str(tmp_path)) if word in text]
    assert best(json.loads(text))[0] == "verified"


@pytest.mark.full
def test_a_run_again_that_hangs_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "bug.py").write_text(
        bug("import os, time; '/whynan-' in os.environ.get('TMPDIR', '') and time.sleep(1000)")
    )
    imports = "import sys; from whynan.run.proof import whole_program as proof; from whynan.cli.main import main"
    code = f"{imports}; proof.TIMES, proof.AT_LEAST = 0.0, 9.0; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", "--rerun", "--quiet", "--json", "r.json", "bug.py"]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=100)
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert why(report) == "run again, it took more than 9 seconds"
