"""What is said of a program that never loaded torch: in its own process nothing of whynan is loaded either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.run.output.delivery import deliver, say

if TYPE_CHECKING:
    from whynan.config import Options


def tell_of_no_torch(command: str, options: Options, script: int) -> None:
    """A document where one was asked for, else one line; none where the program has failed and speaks for itself."""
    if options.json is None:
        if not options.quiet and script == 0:
            from whynan.report.notes import SENTENCES

            say(str(SENTENCES["no_torch"]))
        return
    from whynan.records import Coverage, ExitStatus, Note, Report, Run
    from whynan.run.pipeline import versions

    run = Run(command=command, exit_status=ExitStatus(script=script, whynan=0), versions=versions())
    deliver(Report(verdict="clean", run=run, coverage=Coverage(typed_notes=(Note.create("no_torch"),))), options)
