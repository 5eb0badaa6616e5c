"""One test of a test suite: traced while it is called, judged by the rule of tests."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.errors import NonFiniteError
from whynan.report.escape import plain
from whynan.report.wording import headline
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.pipeline import fold_report
from whynan.run.region import STEPPED_ASIDE, Region, allow_block
from whynan.run.stop import hide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.capture.torch import Capture
    from whynan.config import Options
    from whynan.records import Finding, Report, Site

MACHINERY: Final = ("pluggy.", "_pytest.", "unittest.")
"""The modules that call tests: nothing in their frames and objects is a test's own."""
_UNSEEN: Final = "a bad number reached a loss, a gradient, a parameter or an output, and where it was born was not seen"


class Failure(NamedTuple):
    """What a test fails for, in a line, and the place."""

    text: str
    site: Site | None


class TracedTest:
    """A test that is looked at, from `begin` to `end`.

    `name`: of the test, for its report. `allow`: rules that are meant in it, each with the reason. `raises`: raise at
    the test's own line, as soon as a bad number escapes, for a debugger.
    """

    def __init__(
        self, name: str, options: Options, allow: Sequence[tuple[str, str]] = (), *, raises: bool = False
    ) -> None:
        watched = CaptureOptions(on_sink=self._on_sink if raises else None, at_once=raises)
        self.options = options
        self._allow = tuple(allow)
        self._region = Region(options, command=name, watched=watched, quiet=True, yields=True)
        self._report: Report | None = None
        self._taken = False
        self._raised: NonFiniteError | None = None

    def begin(self, arguments: Mapping[str, object]) -> None:
        """Look from here on; `arguments`: what the test is called with, by name.

        Raises ``NestedTraceError`` where a trace of the program's own runs.
        """
        with ExitStack() as stack:
            for pattern, reason in self._allow:
                stack.enter_context(allow_block(pattern, reason))
            self._region.__enter__()
        self._region.watching.notify(partial(_introduce, arguments))

    def take(self) -> Report:
        """End the trace and hand the report to the test, which judges it from here on."""
        self._taken = True
        return self.end()

    def end(self, error: BaseException | None = None) -> Report:
        """Look no further, where that has not come yet; gives the report. `error`: what the test raised."""
        if self._report is None:
            if error is None:
                self._region.end()
            else:
                self._end_with(error)
            self._report = self._by_the_rule_of_tests(fold_report(self._region.report), passed=error is None)
        return self._report

    @property
    def report(self) -> Report | None:
        """What was found; None before the end."""
        return self._report

    @property
    def judges_itself(self) -> bool:
        """Whether the test has looked at its numbers with whynan itself: what was found is no news to it."""
        return self._taken or STEPPED_ASIDE in self._region.notes

    def failure(self) -> Failure | None:
        """What the test fails for, unless it has failed by itself: an error, and a warning too where they count."""
        report, strict = self._report, self.options.strict
        if report is None or self.judges_itself:
            return None
        found = [f for f in (*report.findings, *report.damaging) if strict or f.severity == "error"]
        if found:
            return Failure(_one_line_summary(found), found[0].site)
        unseen = strict and report.verdict == "inconclusive" and not self._region.trace.failed
        return Failure(_UNSEEN, None) if unseen else None

    def _on_sink(self, capture: Capture) -> BaseException | None:
        found = [f for f in self._region.preview(capture).findings if f.severity == "error"]
        self._raised = NonFiniteError(found[0]) if found else None
        return self._raised

    def _end_with(self, error: BaseException) -> None:
        """End by an exception, whose frames count from the test on."""
        if error is self._raised:
            hide(error)
        whole = inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith(MACHINERY):
            inner = inner.tb_next
        try:
            self._region.end(type(error), error.with_traceback(inner), inner)
        finally:
            error.__traceback__ = whole

    def _by_the_rule_of_tests(self, report: Report, *, passed: bool) -> Report:
        """What a passing test has only read, it has judged: a warning.

        Allowances of markers and of the configuration hold for many tests: being of no use in one says nothing.
        """
        findings = tuple(_softened(f) for f in report.findings) if passed else report.findings
        verdict = report.verdict
        if verdict == "nonfinite" and not any(f.severity == "error" for f in findings):
            verdict = "damaged"
        status = report.run.exit_status.model_copy(update={"whynan": int(verdict == "nonfinite")})
        general = {*self.options.allow, *(pattern for pattern, _ in self._allow)}
        changed = {
            "verdict": verdict,
            "run": report.run.model_copy(update={"exit_status": status}),
            "findings": findings,
            "absorbed": report.absorbed if self.options.all_ else (),
            "unused_allows": tuple(pattern for pattern in report.unused_allows if pattern not in general),
        }
        told = report.model_copy(update=changed)
        if not self.options.redact:
            return told
        from whynan.report.redaction import redacted

        return redacted(told)


def _softened(finding: Finding) -> Finding:
    only_read = all(reach.kind == "observed" for reach in finding.reaches)
    return finding.model_copy(update={"severity": "warning"}) if only_read else finding


def _one_line_summary(found: Sequence[Finding]) -> str:
    first = found[0]
    at = "at" if first.birth is None else "born at"
    place = "" if first.site is None else f", {at} {first.site.file}:{first.site.line}"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return plain(f"{headline(first, raised=False)}{place} ({first.rule} {first.name}){more}")


def _introduce(arguments: Mapping[str, object], capture: Capture) -> None:
    """Tell a capture what the arguments of a test are called."""
    from whynan.capture.torch.names import tensors_of

    for name, value in arguments.items():
        # pytest's own lead to the whole of pytest
        if not type(value).__module__.startswith(MACHINERY):
            for path, tensor in tensors_of(value, name):
                capture.context.names.give(tensor, path)
