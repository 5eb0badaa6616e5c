"""Each of the trainings that go bad late is explained by a faithful replay of its bad step, unchanged and by itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.made_anew import check
from tests.quality.conftest import Tally, pytest_terminal_summary
from whynan.report.json import parse_report

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process

__all__ = ["pytest_terminal_summary"]

HOME = Path(__file__).parents[1] / "trainings"
WHYNAN = Path(sys.executable).with_name("whynan")
SCRIPTS = {p.stem: p for p in sorted(HOME.glob("*.py"))}
SAMPLE = ("module_level", "amp")
FAITHFUL = 17
"""So many of the twenty are replayed faithfully at the least."""
FULL = pytest.mark.full


@dataclass(frozen=True)
class Expected:
    """What the header of a training and its marked line say."""

    step: int
    element: list[int]
    birth: str
    line: int


@dataclass(frozen=True)
class Found:
    """What a run of it has left."""

    status: int
    stderr: str
    report: dict[str, Any] | None


def expected_of(script: Path) -> Expected:
    """What a script says of itself."""
    lines = script.read_text(encoding="utf-8").splitlines()
    said = {m[1]: m[2] for line in lines if (m := re.fullmatch(r"# (step|element|birth): (.*)", line))}
    (born,) = (number for number, line in enumerate(lines, 1) if line.endswith("# born"))
    return Expected(int(said["step"]), json.loads(said["element"]), said["birth"], born)


def harms(script: Path, found: Found) -> list[str]:
    """What of the report is not as the script says."""
    expected, report = expected_of(script), found.report
    if report is None or not report["findings"]:
        return [
            f"exit status {found.status}, no finding: {report and report['coverage']['notes']} {found.stderr[-800:]}"
        ]
    first = report["findings"][0]
    pairs = {
        "exit status": (found.status, 1),
        "verdict": (report["verdict"], "nonfinite"),
        "step": (first["step"], expected.step),
        "element": (first["element"]["index"], expected.element),
        "birth": (first["birth"], expected.birth),
        "file": (Path(first["site"]["file"]).name, script.name),
        "line": (first["site"]["line"], expected.line),
        "faithful": (report["run"]["replay"]["faithful"], True),
    }
    return [f"{name}: {is_} instead of {wanted}" for name, (is_, wanted) in pairs.items() if is_ != wanted]


def _watched(script: Path, folder: Path) -> Found:
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, str(WHYNAN), "run", "--mode", "watch", "--quiet", "--json", str(report), script.name],
        cwd=script.parent,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "WHYNAN_RAISE_INTERNAL": "1",
            "HF_HUB_OFFLINE": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    if told is not None:
        # what --apply would make of them
        check(parse_report(json.dumps(told).encode()), script.parent)
    return Found(done.returncode, done.stderr, told)


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Found]:
    """Runs a script, once."""
    known: dict[Path, Found] = {}

    def run(script: Path) -> Found:
        if script not in known:
            known[script] = _watched(script, tmp_path_factory.mktemp("training"))
        return known[script]

    return run


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """The running totals of the session."""
    return Tally(request.node.user_properties)


def _changed(name: str, folder: Path, old: str, new: str) -> Path:
    """A copy of a script with one part of it another."""
    text = SCRIPTS[name].read_text(encoding="utf-8")
    assert text.count(old) == 1
    copy = folder / f"{name}.py"
    copy.write_text(text.replace(old, new), encoding="utf-8")
    return copy


def test_there_are_twenty_trainings() -> None:
    assert len(SCRIPTS) == 20
    assert SCRIPTS.keys() >= {*SAMPLE}


@pytest.mark.full
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else FULL) for n in SCRIPTS])
def test_the_bad_step_of_a_training_is_explained_at_its_line(
    name: str, look: Callable[[Path], Found], tally: Tally
) -> None:
    found = harms(SCRIPTS[name], look(SCRIPTS[name]))
    tally.count("trainings explained", int(not found), 1, "step, element, birth, line, faithful replay")
    for harm in found:
        tally.listed("trainings explained", f"{name}: {harm}")
    assert not found, "\n".join(found)


@pytest.mark.full
def test_most_replays_are_faithful_and_no_other_is_used(look: Callable[[Path], Found], tally: Tally) -> None:
    reports = {name: look(script).report for name, script in SCRIPTS.items()}
    faithful = [n for n, r in reports.items() if r is not None and r["run"]["replay"]["faithful"]]
    tally.count("faithful replays", len(faithful), len(SCRIPTS))
    assert len(faithful) >= FAITHFUL, sorted(SCRIPTS.keys() - {*faithful})
    for name, report in reports.items():
        if name not in faithful:
            assert report is not None, name
            assert report["findings"] == [], name


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# step: 6", "# step: 7", "step"),
        ("# element: [2, 0]", "# element: [2, 1]", "element"),
        ("# birth: invalid", "# birth: pole", "birth"),
        ("x = (x - mean) / std  # born", "x = (x - mean) / std\n    # born", "line"),
    ],
)
def test_another_expectation_is_noticed(
    old: str, new: str, told: str, tmp_path: Path, look: Callable[[Path], Found]
) -> None:
    report = look(SCRIPTS["module_level"])
    copy = _changed("module_level", tmp_path, old, new)
    assert [harm.partition(":")[0] for harm in harms(copy, report)] == [told]


@pytest.mark.full
def test_a_training_without_the_bad_sample_ends_clean(tmp_path: Path) -> None:
    copy = _changed("gan", tmp_path, "points[77] = torch.tensor([2000.0, 2000.0])", "points[77] = points[76]")
    found = _watched(copy, tmp_path)
    assert found.report is not None
    assert (found.status, found.report["verdict"], found.report["findings"]) == (0, "clean", [])
    assert harms(copy, found)
