"""A report on its way out of a run: to the standard error stream, and to the files that an option names."""

# pyright: strict

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from whynan.report.escape import plain
from whynan.session.files import stream, write_text

if TYPE_CHECKING:
    from whynan.config import Options
    from whynan.records import Report
    from whynan.traces.redaction import Pseudonyms


def deliver(report: Report, options: Options, names: Pseudonyms | None = None) -> None:
    """Print a report, unless it is not wanted, and write its document; the program's own output comes first.

    `names`: the pseudonyms of the run's trace, which its report has too.
    """
    from whynan.report import json, terminal

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
