"""Delivery of a report: to the error stream, and to the files of this process that an option names."""

from __future__ import annotations

import os
import random
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from whynan.faults import report_internal_error
from whynan.report.escape import plain
from whynan.report.wording import count_text
from whynan.run.output.files import is_replaceable, stream, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TextIO

    from whynan.config import Options
    from whynan.records import Finding, Report
    from whynan.traces.redaction import Pseudonyms


# -- A report on its way out of a run: to the standard error stream, and to the files that an option names -------------


class Delivery:
    """The delivery of one report of a run: its first finding while fixes are proved, and in the end all the rest.

    `names`: the pseudonyms of the run's trace, which its report has too.
    """

    def __init__(self, options: Options, names: Pseudonyms | None = None) -> None:
        self._options = options
        self._names = names
        self._display = Display(lambda: sys.__stderr__, show_all=options.all_, quiet=options.quiet)

    def explained(self, report: Report) -> None:
        """Print the first finding of a report, whose fixes are about to be proved."""
        if self._options.quiet:
            return
        try:
            public = self._public(report)
        except Exception:
            report_internal_error()
            return
        _flush_output()
        self._display.explained(public)

    def proved(self, report: Report) -> None:
        """Print what was proved of the first finding, before the program goes on to its end."""
        if self._options.quiet:
            return
        try:
            self._display.proved(self._public(report), written=self._written_file())
        except OSError:
            return
        except Exception:
            report_internal_error()

    def trying(self, number: int, total: int) -> None:
        """So many changes of so many are being tried."""
        self._display.trying(number, total)

    def _written_file(self) -> str | None:
        """The file that will have the document."""
        to = self._options.json
        return to if to is not None and stream(to) is None else None

    def deliver(self, report: Report, *, is_public: bool = False) -> None:
        """Print the rest of a report, unless it is not wanted, and write its document; the program's output is first.

        `is_public`: what --redact leaves out was left out already.
        """
        # rich draws numbers as it is imported
        state = random.getstate()
        try:
            self._deliver(report if is_public else self._public(report))
        finally:
            random.setstate(state)

    def leave(self, report: Report) -> None:
        """Write the document of a report whose place another one takes; without a word, and only where one can."""
        from whynan.report import json

        to = self._options.json
        if to is not None and is_replaceable(to):
            with suppress(OSError):
                write_text(to, json.to_json(self._public(report)) + "\n")

    def _public(self, report: Report) -> Report:
        from whynan.run.pipeline import fold_report

        report = fold_report(report)
        if not self._options.redact:
            return report
        from whynan.report.redaction import redacted

        return redacted(report, self._names)

    def _deliver(self, report: Report) -> None:
        from whynan.report import json

        options = self._options
        if not options.quiet or (options.json is not None and stream(options.json) is not None):
            _flush_output()
        written = None
        self._display.erase_progress()
        if options.json is not None:
            try:
                write_text(options.json, json.to_json(report) + "\n")
                written = self._written_file()
            except OSError as error:
                say(f"the report could not be written to {options.json} ({error.strerror})")
        with suppress(OSError):
            # nobody can be told that nobody can be told
            self._display.finish(report, written=written)


def deliver(report: Report, options: Options, names: Pseudonyms | None = None) -> None:
    """Print a report, unless it is not wanted, and write its document; the program's own output comes first.

    `names`: the pseudonyms of the run's trace, which its report has too.
    """
    Delivery(options, names).deliver(report)


def _flush_output() -> None:
    """What the program has printed comes first; a stream of its own would notice."""
    if sys.stdout is sys.__stdout__ and sys.__stderr__ is not None:
        with suppress(Exception):
            sys.stdout.flush()


class Display:
    """A report on one stream, in two parts: the first finding as soon as it is explained, the rest once all is known.

    Between the two, a terminal has a line that says how far the proof of fixes has come. `stream` gives the stream when
    it is needed; nothing is shown where there is none, or where it is `quiet`.
    """

    def __init__(self, stream: Callable[[], TextIO | None], *, show_all: bool = False, quiet: bool = False) -> None:
        self._stream = stream
        self._show_all = show_all
        self._quiet = quiet
        self._opened: Finding | None = None
        self._is_proved = False
        self._others = 0
        self._in_progress = False

    def explained(self, report: Report, *, by_itself: bool = False) -> None:
        """Print the first finding, once; an error of whynan's own leaves it for the end.

        Nothing is shown where the program ends `by_itself`: nobody shows the rest then.
        """
        told = (*report.findings, *report.damaging)
        out = self._out()
        if out is None or self._opened is not None or not told or by_itself:
            return
        state = random.getstate()
        try:
            from whynan.report import terminal

            terminal.show_opening(report, out)
            self._opened, self._others = told[0], len(told) - 1
            self._show_progress("trying to mend it ...")
        except OSError:
            # nobody can be told; the end will try once more
            return
        except Exception:
            report_internal_error()
        finally:
            random.setstate(state)

    def trying(self, number: int, total: int) -> None:
        """So many changes of so many are being tried."""
        if self._opened is not None:
            self._show_progress(f"trying {number} of {count_text(total, 'change')} ...")

    def proved(self, report: Report, *, written: str | None = None) -> None:
        """Print the fixes of the finding that was printed, if any was."""
        from whynan.report import terminal

        self.erase_progress()
        out = self._out()
        if out is not None and self._opened is not None and not self._is_proved:
            self._is_proved = terminal.show_fixes(
                report, self._opened, show_all=self._show_all, to=out, written=written
            )

    def finish(self, report: Report, *, written: str | None = None) -> None:
        """Print what has not been printed; `written` is the file that has the report's document."""
        from whynan.report import terminal

        self.erase_progress()
        out, opened, is_proved = self._out(), self._opened, self._is_proved
        self._opened, self._is_proved = None, False
        if out is not None:
            already = None if opened is None else terminal.Shown(opened, fixes=is_proved)
            terminal.show(report, show_all=self._show_all, to=out, written=written, already=already)

    def erase_progress(self) -> None:
        """Take the line of progress away; nothing where there is none."""
        out = self._out()
        if self._in_progress and out is not None:
            self._in_progress = False
            with suppress(Exception):
                _erase_line(out)

    def _show_progress(self, what: str) -> None:
        from whynan.report import terminal

        out = self._out()
        if out is None or out.closed or not out.isatty() or os.environ.get("TERM") == "dumb":
            return
        more = f"; {count_text(self._others, 'more finding')} after it" if self._others else ""
        with suppress(Exception):
            line = terminal.progress_line(what + more, out)
            _erase_line(out)
            self._in_progress = True
            print(line, end="", file=out, flush=True)

    def _out(self) -> TextIO | None:
        return None if self._quiet else self._stream()


def say(text: str) -> None:
    """One line on the standard error stream; nothing where the program has none."""
    if sys.__stderr__ is not None:
        with suppress(Exception):
            print(f"whynan: {plain(text)}", file=sys.__stderr__, flush=True)


# -- The progress line -------------------------------------------------------------------------------------------------


LONG: Final = 2.0
"""Seconds after which work is worth a line."""


@contextmanager
def progress_message(what: str, *, quiet: bool) -> Generator[None]:
    """Say what is being done once it has taken two seconds, on a terminal only; the line goes when it is done."""
    out = sys.__stderr__
    shown = threading.Event()

    def show() -> None:
        with suppress(Exception):
            shown.set()
            print(f"whynan: {what}", end="", file=out, flush=True)

    if quiet or out is None or out.closed or not out.isatty():
        yield
        return
    timer = threading.Timer(LONG, show)
    timer.daemon = True
    with suppress(RuntimeError):
        # where the program is over, newer Pythons start no thread (3.12)
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shown.is_set():
            with suppress(Exception):
                _erase_line(out)


def _erase_line(out: TextIO) -> None:
    """Take away the line of a terminal that the cursor is in."""
    print("\r\x1b[2K", end="", file=out, flush=True)
