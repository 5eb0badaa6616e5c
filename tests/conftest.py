"""What holds in every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import _pytest
import hypothesis
import pluggy
import pytest
import pytest_cov
import syrupy
import xdist
from hypothesis import Phase, settings

from tests.selection import (
    PROVED,
    SEEDS,
    SHORT_PROFILE,
    mark_breadth,
    mark_qualities,
    refuse_split_snapshots,
    run_of,
    starts_python,
)
from whynan.replay import live_objects
from whynan.source import ownership
from whynan.source.ownership import Owner

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.records import Report

# The same examples each time, so that a failure is one of the change that is tested; `make quality` draws new ones.
FIXED = settings(deadline=None, derandomize=True)
settings.register_profile("fixed", FIXED)
# It may take minutes to make a failing example smaller: not where all tests run. There it is printed,
# with what repeats it.
UNSHRUNK = settings(FIXED, phases=[Phase.explicit, Phase.generate], print_blob=True)
settings.register_profile("unshrunk", UNSHRUNK)
settings.register_profile(SHORT_PROFILE, UNSHRUNK, max_examples=SEEDS)
settings.register_profile("drawn", deadline=None, print_blob=True)
settings.load_profile("fixed")


def pytest_configure() -> None:
    """A shell that starts something in the background lets it, and all that it starts, ignore interrupts and quits."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test gets the run that it is in."""
    mark_qualities(items)
    mark_breadth(items)
    refuse_split_snapshots(items)


def pytest_collection_finish() -> None:
    """What hundreds of test modules have loaded is no program's: walks over all objects do not come to it."""
    gc.collect()
    freeze()


freeze: Final = gc.freeze
UNMARKED: list[str] = []
"""What the running test has done that no test of the short run does."""
PROOFS: list[str] = []
"""The proofs of fixes that the running test has made."""


def note_python(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: it cannot be taken away again."""
    if event == "subprocess.Popen" and starts_python(*arguments[:2]):
        UNMARKED.append(f"starts Python: mark it `process` ({arguments[1]})")


sys.addaudithook(note_python)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A test of the short run that starts Python, in a fixture or by itself, fails.

    One that proves fixes is warned of.
    """
    yield
    done = UNMARKED.copy()
    proofs = PROOFS.copy()
    UNMARKED.clear()
    PROOFS.clear()
    if run_of(item) != "short" or item.get_closest_marker("smoke"):
        return
    if done:
        pytest.fail(f"{item.nodeid} {done[0]}", pytrace=False)
    if proofs:
        item.warn(pytest.PytestWarning(f"{item.nodeid} {proofs[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """While a test runs, the frames of pytest around it hold no other.

    A replay looks into all that the frames around it hold, and ten thousand tests would be most of what it finds.
    """
    tests = item.session.items
    # syrupy's, which tells at the end what snapshots nobody asked for
    collected: dict[str, Any] = getattr(getattr(item.config, "_syrupy", None), "_collected_items", {})
    kept = list(tests), dict(collected)
    tests.clear()
    collected.clear()
    try:
        return (yield)
    finally:
        tests.extend(kept[0])
        collected.update(kept[1])


ROOT: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
RUNNERS: Final = tuple(
    os.path.join(os.path.dirname(runner.__file__), "")
    for runner in (_pytest, hypothesis, pluggy, pytest_cov, syrupy, xdist)
)
"""Through what they hold all tests can be reached."""


@pytest.fixture(autouse=True)
def without_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests, what they load of this repository, and what runs them are no program's: some five hundred modules."""

    def owner_of(file: str) -> Owner:
        return Owner.LIBRARY if file.startswith(ROOT) else ownership.owner_of(file)

    monkeypatch.setattr(live_objects, "owner_of", owner_of)

    def owner_of_runner(file: str) -> Owner:
        return Owner.STDLIB if file.startswith(RUNNERS) else ownership.owner_of(file)

    for name in ("checkpoint", "carried_state"):
        if module := sys.modules.get(f"whynan.replay.{name}"):
            monkeypatch.setattr(module, "owner_of", owner_of_runner)
    # what was there before is frozen, and to count it takes longer than most tests
    by_it: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: by_it.append(freeze()))
    monkeypatch.setattr(gc, "unfreeze", by_it.clear)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(by_it))
    # there is little to list then, and what a test froze would stay so
    monkeypatch.setattr(live_objects, "_listed", lambda: None)


@pytest.fixture(autouse=True)
def of_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is as wide wherever the tests run: in a terminal, in a pipe, in a worker that says 80 columns."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def traced_as_before() -> Generator[None]:
    """What measures coverage goes on after a test whose debugger was left, which takes the trace function away."""
    before = sys.gettrace()
    yield
    if sys.gettrace() is not before:
        sys.settrace(before)


@pytest.fixture(autouse=True)
def internal_errors_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside whynan fails the test that met it; a test about such errors takes the variable away."""
    monkeypatch.setenv("WHYNAN_RAISE_INTERNAL", "1")


@pytest.fixture(autouse=True)
def proofs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs are not ended for the time they take, which depends on the machine."""
    monkeypatch.setenv("WHYNAN_PROOF_SECONDS", "300")


@pytest.fixture(autouse=True)
def no_door_is_left() -> Generator[None]:
    """A test that leaves a door in the place of a function of torch's fails: those after it would go through it."""
    yield
    if (doors := sys.modules.get("whynan.capture.torch.interposition.wrappers")) is None:
        return
    left = sorted({name for (_, name), standing in doors.PLACED.items() if standing})
    doors.PLACED.clear()
    assert not left, f"doors are left: {', '.join(left)}"


@pytest.fixture(autouse=True)
def nothing_compiled_yet() -> None:
    """No test takes what another one has compiled for its own program's: torch counts for the whole process."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()


@pytest.fixture(autouse=True)
def fixes_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fix of a report is one that ``whynan fix --apply`` makes of the report as it is written, and the file.

    In the short run there is none that was judged.
    """
    if (proving := sys.modules.get("whynan.run.proof.proving")) is None:
        return
    from tests.made_anew import check

    real = proving._Proving.report

    def checked(self: Any) -> Report:
        report: Report = real(self)
        check(report)
        fixes = (fix for finding in (*report.findings, *report.damaging) for fix in finding.fixes)
        if any(fix.verdict.status in PROVED for fix in fixes):
            PROOFS.append("proves fixes: mark it `proof`")
        return report

    monkeypatch.setattr(proving._Proving, "report", checked)


@pytest.fixture
def without_proofs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is replayed is told of, and its fixes are not sought: for tests that are about something else.

    In a file of such tests the mark `proof` is on those that need the proofs all the same.
    """
    if request.node.get_closest_marker("proof"):
        return
    from whynan.run.watch.replays import ReplayRerunner

    def as_it_is(_again: ReplayRerunner, report: Report, *_: object) -> Report:
        return report

    monkeypatch.setattr(ReplayRerunner, "prove_report", as_it_is)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the totals of the rules; here, because the process that gathers what others tell loads no other file."""
    outcomes = [r for some in terminalreporter.stats.values() for r in some if hasattr(r, "when")]
    if not any("tests/rules/" in outcome.nodeid for outcome in outcomes):
        return
    from tests.rules.totals import lines

    if told := lines(outcomes):
        terminalreporter.section("rules")
        for line in told:
            terminalreporter.write_line(line)
