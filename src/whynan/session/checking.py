"""The options of a run, refused where they could not be honoured, before anything runs."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.session.files import check_writable

if TYPE_CHECKING:
    from whynan.config import Options


def check(options: Options) -> None:
    """Raise ``UsageError`` for a file that cannot be written or read, or an allowance that fits no rule."""
    if options.json is not None:
        check_writable(options.json, "--json")
    if options.baseline is not None:
        from whynan.session.baseline import Baseline

        Baseline.read(options.baseline)
    if options.allow:
        from whynan.session.allow import allowance

        for pattern in options.allow:
            allowance(pattern, "allowed in the configuration")
    if options.trace is not None:
        from whynan.traces.writing import TraceWriter

        # last: it makes the folder
        TraceWriter(options.trace)
