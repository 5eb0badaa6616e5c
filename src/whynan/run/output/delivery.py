"""Delivery of a report: to the error stream, and to the files of this process that an option names."""

from __future__ import annotations

import random
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from whynan.report.escape import plain
from whynan.run.output.files import stream, write_text

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.config import Options
    from whynan.records import Report
    from whynan.traces.redaction import Pseudonyms


# -- A report on its way out of a run: to the standard error stream, and to the files that an option names -------------


def deliver(report: Report, options: Options, names: Pseudonyms | None = None) -> None:
    """Print a report, unless it is not wanted, and write its document; the program's own output comes first.

    `names`: the pseudonyms of the run's trace, which its report has too.
    """
    # rich draws numbers as it is imported
    state = random.getstate()
    try:
        _deliver(report, options, names)
    finally:
        random.setstate(state)


def _deliver(report: Report, options: Options, names: Pseudonyms | None) -> None:
    from whynan.report import json, terminal
    from whynan.run.pipeline import fold_report

    report = fold_report(report)
    if options.redact:
        from whynan.report.redaction import redacted

        report = redacted(report, names)
    shown = sys.__stderr__ if not options.quiet else None
    if sys.stdout is sys.__stdout__ and (
        shown is not None or (options.json is not None and stream(options.json) is not None)
    ):
        # a stream of the program's own would notice
        with suppress(Exception):
            sys.stdout.flush()
    written = None
    if options.json is not None:
        try:
            write_text(options.json, json.to_json(report) + "\n")
            written = options.json if stream(options.json) is None else None
        except OSError as error:
            say(f"the report could not be written to {options.json} ({error.strerror})")
    if shown is not None:
        with suppress(OSError):
            # nobody can be told that nobody can be told
            terminal.show(report, show_all=options.all_, to=shown, written=written)


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
                print("\r\x1b[2K", end="", file=out, flush=True)
