"""The options of a run, refused where they could not be honoured, before anything runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from whynan.errors import UsageError
from whynan.run.output.capsules import check_place
from whynan.run.output.files import check_apart, check_writable, is_replaceable

if TYPE_CHECKING:
    from whynan.config import Options

_TOO_LATE: Final = {"skip": "no step to leave out any more", "raise": "no finding to raise"}


def check(options: Options) -> None:
    """Raise ``UsageError`` for what cannot be written, read or had together, or an allowance that fits no rule."""
    if options.pdb and options.on_nonfinite == "continue":
        raise UsageError(
            "--pdb opens where a program is stopped, and --on-nonfinite continue stops none", "leave one of them out"
        )
    if options.pdb and options.rerun:
        raise UsageError(
            "--pdb opens where a program is stopped, and --rerun explains it once it has ended", "leave one of them out"
        )
    if options.rerun and not options.prove:
        raise UsageError("--rerun proves fixes, and --no-proof proves none", "leave one of them out")
    if options.on_nonfinite == "skip" and not options.watches:
        raise UsageError(
            "--on-nonfinite skip leaves out a bad step, which is known in advance where steps are watched",
            "leave out --mode trace, --trace, --start-step, --steps and --only",
        )
    check_sync(options)
    if options.sync == "deferred" and not options.watches:
        raise UsageError(
            "--sync deferred reads the numbers of a step at the next one, where steps are watched",
            "leave out --mode trace, --trace, --start-step, --steps and --only",
        )
    if options.mode == "watch" and not options.looks_at_all:
        raise UsageError(
            "--mode watch looks at every step, and --start-step, --steps and --only at some operations",
            "leave out one or the other",
        )
    for option in ("json", "trace", "capsule", "baseline"):
        _check_place(option, getattr(options, option))
    if options.json is not None:
        check_writable(options.json, "--json")
        _check_content(options.json)
    if options.baseline is not None:
        from whynan.run.suppressions import Baseline

        Baseline.read(options.baseline)
    if options.allow:
        from whynan.run.suppressions import allowance

        for pattern in options.allow:
            allowance(pattern, "allowed in the configuration")
    check_place(options)
    if options.capsule is not None and options.trace is not None:
        check_apart([("--trace", options.trace), ("--capsule", options.capsule)], ())
    if options.trace is not None:
        from whynan.traces.writer import TraceWriter

        # last: it makes the folder
        TraceWriter(options.trace)


def check_sync(options: Options) -> None:
    """Raise ``UsageError`` where a bad step is to be found too late for what is to be done at it."""
    if options.sync == "deferred" and options.on_nonfinite in _TOO_LATE:
        raise UsageError(
            f'sync="deferred" finds a bad step after it was made, so on_nonfinite="{options.on_nonfinite}" has '
            f"{_TOO_LATE[options.on_nonfinite]}",
            'give sync="step", which finds it before, or on_nonfinite="stop" or "continue"',
        )


def _check_place(option: str, path: str | None) -> None:
    try:
        os.path.abspath(path or os.sep)
    except OSError:
        raise UsageError(
            f"--{option} {path}: the working directory was removed", "give a path that begins at the root"
        ) from None


def _check_content(path: str) -> None:
    """Refuse to put a report in the place of what is none: with a file name forgotten, that is the program."""
    if not is_replaceable(path) or not os.path.exists(path):
        return
    with open(path, "rb") as file:
        start = file.read(64).strip()
    if start and not start.startswith(b"{"):
        raise UsageError(f"--json {path} holds something else than a report", "name a new file, or delete that one")
