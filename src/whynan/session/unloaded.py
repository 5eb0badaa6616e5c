"""What is said of a program that never loaded torch: in its own process nothing of whynan is loaded either."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.session.delivery import deliver, say

if TYPE_CHECKING:
    from whynan.config import Options

NO_TORCH: Final = "the program never loaded torch, so there was nothing to look at"


def tell_of_no_torch(command: str, options: Options, script: int) -> None:
    """A document where one was asked for, else one line; none where the program has failed and speaks for itself."""
    if options.json is None:
        if not options.quiet and script == 0:
            say(NO_TORCH)
        return
    from whynan.records import Coverage, ExitStatus, Report, Run
    from whynan.session.runs import versions

    run = Run(command=command, exit_status=ExitStatus(script=script, whynan=0), versions=versions())
    deliver(Report(verdict="clean", run=run, coverage=Coverage(notes=(NO_TORCH,))), options)
