"""``whynan run`` leaves a program as it is: the same bytes on both streams, the same exit status, the same files.

So does a whynan in which something fails, but for the one warning that says so.
"""

from __future__ import annotations

import sys

import pytest

from tests.integration.broken import FAILURES, HARMS, Change, Copy, Failure
from tests.integration.programs import BAD, NAMED, PROGRAMS, Program
from tests.integration.running import Workplace, differences, without_warnings

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the programs look into /proc, fork and signal"),
]

OWN_ERRORS_RAISE = {"WHYNAN_RAISE_INTERNAL": "1"}
TRACED = ("--quiet", "--mode", "trace")
"""Every operation is looked at, so that what fails at one of them does fail."""
EVERYWHERE = ("own_functions.py", "hooks.py torch")
FULL = pytest.mark.full


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Where the programs run."""
    return Workplace(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A whynan to break."""
    return Copy(tmp_path_factory.mktemp("package"))


def _parameters(programs: list[Program]) -> list[object]:
    return [pytest.param(p, id=p.name, marks=[] if p.sample else FULL) for p in programs]


def _looked(workplace: Workplace, verdict: str = "clean") -> int:
    """How many operations the last run has looked at; raises where its verdict is another."""
    told = workplace.told()
    assert told is not None
    assert told["verdict"] == verdict, told
    return told["coverage"]["events"]


@pytest.mark.parametrize("options", [("--quiet",), pytest.param(TRACED, marks=FULL)], ids=["watched", "traced"])
@pytest.mark.parametrize("program", _parameters(PROGRAMS))
def test_a_program_does_what_it_does_without_whynan(
    program: Program, options: tuple[str, ...], workplace: Workplace
) -> None:
    expected = workplace.by_python(program, OWN_ERRORS_RAISE)
    assert expected.status == program.status, expected.stderr.decode()
    found = workplace.by_whynan(program, OWN_ERRORS_RAISE, options)
    harms = differences(expected, found)
    assert not harms, "\n".join(harms)
    if program.seen == "nothing":
        assert workplace.told() is None
        return
    looked = _looked(workplace, "inconclusive" if program.seen == "elsewhere" else "clean")
    assert (looked > 0) is (program.seen == "traced")
    told = workplace.told()
    assert told is not None
    assert ("no_others" in [note["kind"] for note in told["coverage"]["typed_notes"]]) is (program.seen == "elsewhere")
    assert told["run"]["exit_status"]["script"] == (program.status if program.status >= 0 else 128 - program.status)


@pytest.mark.parametrize("program", _parameters([p for p in PROGRAMS if p.seen == "traced"]))
def test_a_program_does_so_where_a_capsule_is_asked_for(program: Program, workplace: Workplace) -> None:
    capsule = workplace.folder / "capsule"
    expected = workplace.by_python(program, OWN_ERRORS_RAISE)
    harms = differences(expected, workplace.by_whynan(program, OWN_ERRORS_RAISE, (*TRACED, "--capsule", str(capsule))))
    assert not harms, "\n".join(harms)
    assert not capsule.exists()


@pytest.mark.parametrize("program", _parameters(BAD))
def test_a_bad_number_ends_a_program_and_gives_the_exit_status(program: Program, workplace: Workplace) -> None:
    expected = workplace.by_python(program, OWN_ERRORS_RAISE)
    found = workplace.by_whynan(program, OWN_ERRORS_RAISE)
    told = workplace.told()
    assert told is not None
    assert told["verdict"] == "nonfinite"
    assert found.status == (program.status or 1)
    assert expected.stdout.startswith(found.stdout)
    assert found.stderr == b""


@pytest.mark.full
@pytest.mark.parametrize("program", _parameters(BAD))
def test_a_program_that_may_continue_goes_on_to_its_end(program: Program, workplace: Workplace) -> None:
    expected = workplace.by_python(program, OWN_ERRORS_RAISE)
    found = workplace.by_whynan(program, OWN_ERRORS_RAISE, ["--quiet", "--on-nonfinite", "continue"])
    assert (found.stdout, found.stderr) == (expected.stdout, b"")
    assert found.status == (program.status or 1)


def _runs_on(failure: Failure, workplace: Workplace, copy: Copy) -> list[str]:
    """Check that a failure changes nothing; what was said of it."""
    program = NAMED[failure.program]
    copy.make(failure.change)
    # of these programs none looks at its environment, so that one run by Python serves for all
    expected = workplace.by_python(program, OWN_ERRORS_RAISE)
    found, said = without_warnings(workplace.by_whynan(program, copy.environment, TRACED))
    harms = differences(expected, found)
    assert not harms, "\n".join(harms)
    return said


@pytest.mark.full
@pytest.mark.parametrize("failure", [pytest.param(f, id=f.name, marks=[] if f.sample else FULL) for f in FAILURES])
def test_a_failure_inside_is_said_once_and_the_program_runs_on(
    failure: Failure, workplace: Workplace, copy: Copy
) -> None:
    said = _runs_on(failure, workplace, copy)
    assert len(said) == failure.times, said


@pytest.mark.full
@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("change", list(dict.fromkeys(f.change for f in FAILURES)), ids=str)
def test_a_failure_inside_harms_no_program(change: Change, name: str, workplace: Workplace, copy: Copy) -> None:
    said = _runs_on(Failure(change, name), workplace, copy)
    assert len(said) <= 1, said


@pytest.mark.parametrize("harm", list(HARMS))
def test_a_harm_is_noticed(harm: str, workplace: Workplace, copy: Copy) -> None:
    change, name, where = HARMS[harm]
    copy.make(change)
    told = differences(
        workplace.by_python(NAMED[name], copy.environment), workplace.by_whynan(NAMED[name], copy.environment, TRACED)
    )
    assert where in [text.partition(":")[0] for text in told]


@pytest.mark.full
def test_a_failure_that_nobody_hears_of_is_noticed(workplace: Workplace, copy: Copy) -> None:
    (failure,) = [f for f in FAILURES if f.change.function == "report_of" and f.program == "-m shapes.fit"]
    copy.make(failure.change, Change("faults.py", "report_internal_error", "return", 0))
    found = workplace.by_whynan(NAMED[failure.program], copy.environment, TRACED)
    assert without_warnings(found)[1] == []


@pytest.mark.full
def test_a_run_that_looks_at_nothing_is_noticed(workplace: Workplace, copy: Copy) -> None:
    copy.make(Change("run/controller.py", "Controller.begin", "return", 0))
    workplace.by_whynan(NAMED["-m shapes.fit"], copy.environment)
    assert workplace.told() is None
