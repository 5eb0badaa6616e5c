"""A report on its way out of a run: to the standard error stream, and to the files that an option names."""

# pyright: strict

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from whynan.session.files import write_text

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
    if not options.quiet and sys.stdout is sys.__stdout__:
        # a stream of the program's own would notice
        with suppress(Exception):
            sys.stdout.flush()
    if options.json is not None:
        try:
            write_text(options.json, json.to_json(report) + "\n")
        except OSError as error:
            say(f"the report could not be written to {options.json} ({error.strerror})")
    if not options.quiet:
        terminal.show(report, show_all=options.all_, to=sys.__stderr__)


def say(text: str) -> None:
    """One line on the standard error stream."""
    from whynan.report.escape import plain

    with suppress(Exception):
        print(f"whynan: {plain(text)}", file=sys.__stderr__, flush=True)
