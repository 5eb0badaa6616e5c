"""The proof of a whole program's fixes, from the process that waits: the program again, out of sight."""

# pyright: strict

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whynan.records import Finding, Fix, Replay
from whynan.session.leaving import with_note
from whynan.session.proving import RERUN
from whynan.session.rerunning import PROVED
from whynan.session.waiting import told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.config import Options
    from whynan.records import Report

    Run = Callable[[Sequence[str], Mapping[str, str], float], str | None]

_SPARE: Final = 5.0
"""Seconds in which a run that proves can still tell of what it has proved."""


def with_proofs(
    first: Report,
    wanted: dict[str, Any],
    place: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    options: Options,
    *,
    run: Run,
    seconds: float,
) -> Report:
    """The first run's report with the fixes that further runs have proved, or with why they have not.

    Args:
        first: the report.
        wanted: what the first run has left for them.
        place: a folder for them.
        command: the program's.
        environment: that of the first run.
        options: of the run.
        run: runs a command, and gives why it was ended, if it was.
        seconds: that all runs may take.
    """
    from whynan.session.files import write_text

    asked = os.path.join(place, "asked.json")
    write_text(asked, json.dumps({**wanted, "seconds": seconds - _SPARE}))
    document = {**json.loads(environment["_WHYNAN_RUN"]), "asked": asked, "argv": list(command)}
    further = {
        **environment,
        "_WHYNAN_RUN": json.dumps(document),
        "_WHYNAN_STATUS": os.path.join(place, "status.json"),
        "_WHYNAN_AGAIN": "proof",
        # what it makes there goes with the folder
        "TMPDIR": place,
    }
    with told("running the program again to prove what would mend it", quiet=options.quiet):
        why = run(command, further, seconds)
    found = Path(place, PROVED)
    if why is None and not found.exists():
        why = "it was cut short"
    proved: dict[str, Any] = {"why": f"run again, {why}"} if why else json.loads(found.read_text(encoding="utf-8"))
    return _merged(first, proved, wanted, options)


def _merged(first: Report, proved: dict[str, Any], wanted: dict[str, Any], options: Options) -> Report:
    why = str(proved["why"])
    if options.redact and "findings" not in proved:
        from whynan.traces.notes import without_names

        why = without_names(why) or "run again, it was another: a reason, left out"
    known = {(name, index): told for name, index, told in proved.get("findings", ())}
    changed: dict[str, Any] = {}
    for name in ("findings", "damaging"):
        findings = list(getattr(first, name))
        for wanted_name, index, *_ in wanted["findings"]:
            if wanted_name == name:
                findings[index] = _with(findings[index], known.get((name, index)), why)
        changed[name] = tuple(findings)
    replay = Replay(kind="rerun", faithful="findings" in proved, why=why)
    changed["run"] = first.run.model_copy(update={"replay": replay})
    report = first.model_copy(update=changed)
    for note in proved.get("notes", ()):
        report = with_note(report, note)
    return report


def _with(finding: Finding, proved: dict[str, Any] | None, why: str) -> Finding:
    if proved is None:
        fixes = tuple(_unproved(fix, why) for fix in finding.fixes)
    elif "rule" in proved:
        return Finding.model_validate(proved)
    else:
        fixes = tuple(Fix.model_validate(fix) for fix in proved["fixes"])
    return finding.model_copy(update={"fixes": fixes})


def _unproved(fix: Fix, why: str) -> Fix:
    if RERUN not in fix.verdict.why:
        return fix
    return fix.model_copy(update={"verdict": fix.verdict.model_copy(update={"why": why})})
