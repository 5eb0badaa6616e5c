"""The pytest plugin: looks at tests, and fails those in which a bad number escaped.

It lies outside the package because pytest loads it in every run: nothing of whynan is imported before it is asked for.
"""

# pyright: strict

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pluggy import Result

    from whynan.config import Options
    from whynan.integrations.pytest import TracedTest
    from whynan.records import Report

_NAME: Final = "whynan"
"""Of the section of a test report, and of its attribute that holds the JSON: text, so that pytest-xdist carries it."""
_MARKER: Final = (
    "whynan(traced=True, *, allow=(), reason=None, strict=None, memory=None): look at every PyTorch operation of the "
    "test, and fail it where a NaN or Inf escapes; whynan(False) leaves it out"
)
_WIDEST: Final = 120

_OPTIONS: Final = pytest.StashKey["Options"]()
_TEST: Final = pytest.StashKey["TracedTest"]()


class NonFinite(pytest.fail.Exception):
    """What a test fails with whose assertions passed while a bad number escaped."""

    # as pytest's own: shown without the module
    __module__ = "builtins"


# -- what is wanted --------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and the same for a project's configuration."""
    add = parser.getgroup("whynan", "bad numbers in PyTorch (whynan)").addoption
    add("--whynan", action="store_true", help="Look at every PyTorch operation of every test; fail a test where a NaN "
        "or Inf escapes, and explain where it was born.")  # fmt: skip
    add("--whynan-strict", action="store_true", help="The same, and fail a test for a warning too.")
    add("--whynan-all", action="store_true", help="Show what fails no test too: warnings, and what did no harm.")
    parser.addini("whynan", "look at every test, as --whynan does", type="bool", default=False)
    parser.addini("whynan_strict", "a warning fails a test that is looked at", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse at the door what cannot work."""
    config.addinivalue_line("markers", _MARKER)
    if _every_test(config):
        _options(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say that the tests are looked at."""
    return "whynan: looks at every test" if _every_test(config) else None


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Result[pytest.CollectReport], None]:
    """Refuse a wrong marker as pytest does an unknown one: an error of collection, before any test runs."""
    outcome = yield
    report = outcome.get_result()
    with _unharmed():
        try:
            for item in report.result or ():
                _wish(item)
        except pytest.UsageError as error:
            report.outcome, report.longrepr, report.result = "failed", str(error), []


def _every_test(config: pytest.Config) -> bool:
    return bool(config.getoption("whynan") or config.getoption("whynan_strict") or config.getini("whynan"))


def _options(config: pytest.Config) -> Options:
    """The options of the run; raises ``UsageError`` where torch is missing or the configuration is wrong."""
    if _OPTIONS not in config.stash:
        from whynan.config import Options
        from whynan.errors import MissingExtraError, WhynanError

        try:
            if importlib.util.find_spec("torch") is None:
                raise MissingExtraError("torch")
            found = Options.load(directory=config.rootpath)
        except WhynanError as error:
            raise pytest.UsageError(f"whynan: {error}") from None
        strict = found.strict or config.getoption("whynan_strict") or config.getini("whynan_strict")
        everything = found.all_ or config.getoption("whynan_all")
        config.stash[_OPTIONS] = replace(found, strict=bool(strict), all_=bool(everything))
    return config.stash[_OPTIONS]


def _wish(item: object) -> tuple[Options, list[tuple[str, str]]] | None:
    """What a test is looked at with: options, and the rules that are meant with the reasons; None if it is not.

    Of its markers the nearest decides; allowances add up. Raises ``UsageError`` for a marker that has no meaning.
    """
    if not isinstance(item, pytest.Function):
        return None
    marks = [_read(mark, item.nodeid) for mark in item.iter_markers("whynan")]
    asked = marks[0].get("traced", True) if marks else _every_test(item.config) or "whynan_report" in item.fixturenames
    if not asked:
        return None
    options = _options(item.config)
    for mark in reversed(marks):
        options = replace(options, **{name: mark[name] for name in ("strict", "memory") if name in mark})
    allow = [(rule, mark.get("reason", "by its marker")) for mark in marks for rule in mark.get("allow", ())]
    return options, allow


def _read(mark: pytest.Mark, test: str) -> dict[str, Any]:
    """What a marker says, by argument; raises ``UsageError`` for what has no meaning, with what is legal."""
    from whynan.config import parse_size, parse_switch, parse_text

    legal: dict[str, Callable[[object], Any]] = {
        "traced": parse_switch, "allow": _rules, "reason": parse_text, "strict": parse_switch, "memory": parse_size,
    }  # fmt: skip
    positions = ("traced", *map(repr, mark.args[1:]))
    read: dict[str, Any] = {}
    for name, value in {**dict(zip(positions, mark.args, strict=False)), **mark.kwargs}.items():
        where = f"whynan: the marker of {test}: {name}"
        if name not in legal:
            raise pytest.UsageError(f"{where} is no argument of it: give {', '.join(legal)}")
        try:
            read[name] = legal[name](value)
        except ValueError as error:
            raise pytest.UsageError(f"{where} = {value!r}: give {error}") from None
    return read


def _rules(value: object) -> tuple[str, ...]:
    """Rules that are meant; raises ``ValueError`` for what fits none."""
    from whynan.config import parse_allow
    from whynan.errors import UsageError
    from whynan.run.suppressions import allowance

    try:
        return tuple(allowance(pattern, "meant").pattern for pattern in parse_allow(value))
    except UsageError as error:
        raise ValueError(error.hint.removeprefix("give ")) from None


# -- looking ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def whynan_report(request: pytest.FixtureRequest) -> Callable[[], Report]:
    """Look at this test; calling the value ends the trace and gives its report, which the test then judges itself."""

    def report() -> Report:
        __tracebackhide__ = True
        node: pytest.Item = request.node
        test = node.stash.get(_TEST, None)
        if test is None:
            from whynan.errors import UsageError

            raise UsageError(
                f"whynan_report(): {node.nodeid} is not looked at, or not yet",
                "call it in the test or after it, and leave whynan(False) away",
            )
        return test.take()

    return report


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Result[None], None]:
    """Look at the call of a test, as near to it as a hook comes; its fixtures are made before and after."""
    with _unharmed():
        _begin(item)
    outcome = yield
    with _unharmed():
        failure = _end(item, outcome)
        if failure is not None:
            outcome.force_exception(failure)


@contextmanager
def _unharmed() -> Generator[None]:
    """Whatever of ours fails in here is said once, and fails no test."""
    try:
        yield
    except pytest.UsageError as error:
        # of a marker that was put on after collection
        pytest.fail(str(error), pytrace=False)
    except Exception:
        from whynan.faults import report_internal_error

        report_internal_error()


def _begin(item: pytest.Item) -> None:
    if _TEST in item.stash:
        # the test is run again
        del item.stash[_TEST]
    wish = _wish(item)
    if wish is None:
        return
    from whynan.errors import NestedTraceError
    from whynan.integrations.pytest import TracedTest

    arguments: dict[str, object] = getattr(item, "funcargs", {})
    debugged = item.config.getoption("usepdb", False) and "whynan_report" not in arguments
    test = TracedTest(item.nodeid, *wish, raises=bool(debugged))
    try:
        test.begin(arguments)
    except NestedTraceError:
        # a fixture of the user's traces the test
        return
    item.stash[_TEST] = test


def _end(item: pytest.Item, outcome: Result[None]) -> BaseException | None:
    """End the trace of a test; gives what it fails with, if it does so by what was found."""
    test = item.stash.get(_TEST, None)
    if test is None:
        return None
    error = _raised(item, outcome)
    test.end(error)
    failure = test.failure() if error is None else None
    return None if failure is None else NonFinite(failure.text, pytrace=False)


def _raised(item: pytest.Item, outcome: Result[None]) -> BaseException | None:
    """What a test raised itself."""
    if outcome.excinfo is not None:
        return outcome.excinfo[1]
    # unittest's go by another way
    caught: list[pytest.ExceptionInfo[BaseException]] | None = getattr(item, "_excinfo", None)
    return caught[0].value if caught else None


# -- telling ---------------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Result[Any], None]:
    """Put whynan's report into pytest's."""
    outcome = yield
    test = item.stash.get(_TEST, None)
    if test is not None and call.when == "call":
        with _unharmed():
            _attach(test, outcome.get_result(), ours=call.excinfo is not None and call.excinfo.type is NonFinite)
    elif test is not None and call.when == "teardown":
        del item.stash[_TEST]


def _attach(test: TracedTest, report: pytest.TestReport, *, ours: bool) -> None:
    """`ours`: the test failed by what was found, and so at the place of that."""
    found, failure = test.report, test.failure() if ours else None
    if found is None or (found.verdict == "clean" and not found.absorbed) or (report.passed and test.judges_itself):
        return
    from whynan.report.terminal import render

    crash = getattr(report.longrepr, "reprcrash", None)
    if failure is not None and failure.site is not None and crash is not None:
        crash.path, crash.lineno = failure.site.file, failure.site.line
    setattr(report, _NAME, found.to_json(indent=None))
    _put(report, render(found, show_all=True))


def _put(report: pytest.TestReport, text: str) -> None:
    """Make a text whynan's section: with the failure, if there is one, which is what JUnit's XML has too."""
    sections: list[Any] | None = getattr(report.longrepr, "sections", None)
    entry: tuple[str, ...] = (_NAME, text, "-")
    if sections is None:
        sections, entry = report.sections, (_NAME, text)
    sections[:] = [*(section for section in sections if section[0] != _NAME), entry]


def _told(terminal: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    """The reports of tests that hold one of whynan's."""
    return (report for reports in terminal.stats.values() for report in reports if hasattr(report, _NAME))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Set what will be shown anew, as wide as the terminal and in its colours; files have got the plain text."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    writer, encoding = session.config.get_terminal_writer(), getattr(sys.__stdout__, "encoding", None) or "utf-8"
    with _unharmed():
        for report in _told(terminal):
            from whynan.records import Report
            from whynan.report.terminal import render

            found, width = Report.from_json(getattr(report, _NAME)), min(writer.fullwidth, _WIDEST)
            _put(report, render(found, width=width, show_all=True, color=writer.hasmarkup, encoding=encoding))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say of tests that pass what was found in them."""
    passed = [report for report in _told(terminalreporter) if report.passed]
    if passed and config.getoption("whynan_all"):
        terminalreporter.write_sep("=", "whynan: what failed no test", yellow=True)
        for report in passed:
            terminalreporter.write_sep("_", report.nodeid)
            terminalreporter.write_line(dict(report.sections)[_NAME])
    elif passed:
        tests = f"{len(passed):,} tests pass" if len(passed) > 1 else "1 test passes"
        terminalreporter.write_line(f"whynan: {tests} with warnings; --whynan-all shows them", yellow=True)
