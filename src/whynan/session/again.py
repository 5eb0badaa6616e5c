"""A program once more, where its user has asked for it: to explain a bad step, or to prove fixes."""

# pyright: strict

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.capture.failure import report_internal_error
from whynan.session.capsules import NO_CAPSULE
from whynan.session.delivery import deliver
from whynan.session.leaving import FIRST, NOT_AGAIN, WANTED, with_note
from whynan.session.second import CAPSULE, SECOND, WHY
from whynan.session.waiting import told
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from whynan.config import Options
    from whynan.records import Report

TIMES: Final = 5.0
"""A step that is traced takes longer than the first run's, and the machine may be busier by now."""
AT_LEAST: Final = 60.0
INTERRUPTED: Final = "it was interrupted"
NOT_USED: Final = "a second run was not used: {}"
MEANT: Final = "the program had been stopped before a second run could tell that what was born is allowed"
_ENDING: Final = tuple(
    cast("signal.Signals", getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)


def tell(
    folder: str, command: Sequence[str], environment: Mapping[str, str], options: Options, *, script: int | None
) -> int:
    """Deliver the report of the first run, or a better one by a second; gives whynan's exit status.

    `folder`: where the first left it. `script`: the exit status of the program, if it was its own.
    """
    from whynan.report.json import read

    first = read(Path(folder, FIRST).read_bytes())
    report = first
    try:
        report = _better(first, folder, command, environment, options, script)
    except Exception:
        report = with_note(first, FAILED)
        report_internal_error()
    finally:
        report = _final(report, options, script)
        # what is private was left out where it was left
        deliver(report, replace(options, redact=False))
    return report.run.exit_status.whynan


def _better(
    first: Report,
    folder: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    options: Options,
    script: int | None,
) -> Report:
    from whynan.report.json import read

    if script is not None and script >= 128:
        return _noted(first, NOT_AGAIN.format("the program was ended by a signal"), options)
    wanted = _read(os.path.join(folder, WANTED))
    place = os.path.join(folder, "again")
    os.mkdir(place, 0o700)
    seconds = TIMES * wanted["seconds"] + AT_LEAST
    if wanted.get("kind") == "proof":
        from whynan.session.proofs import with_proofs

        report = with_proofs(first, wanted, place, command, environment, options, run=_run, seconds=seconds)
        return _with_capsule(report, os.path.join(place, CAPSULE), options)
    step = wanted["signature"]["step"]
    with told(f"running the program again up to step {step}", quiet=options.quiet):
        why = _run(command, _environment(environment, place, wanted), seconds)
    found = Path(place, SECOND)
    if why is None and found.exists():
        return _with_capsule(_joined(first, read(found.read_bytes())), os.path.join(place, CAPSULE), options)
    if why is None:
        left = Path(place, WHY)
        why = left.read_text(encoding="utf-8") if left.exists() else f"it was cut short before it came to step {step}"
    return _noted(first, NOT_USED.format(why), options)


def _with_capsule(report: Report, made: str, options: Options) -> Report:
    """A second run's report, once the capsule that it made stands where it was wanted."""
    if options.capsule is None or not os.path.isdir(made):
        return report
    from whynan.capsule.folders import move

    try:
        move(made, options.capsule)
    except OSError as error:
        return with_note(report, NO_CAPSULE.format(f"{options.capsule} cannot be written ({error.strerror or error})"))
    run = report.run.model_copy(update={"data": None if options.redact else options.capsule})
    return report.model_copy(update={"run": run})


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> str | None:
    """Run a command without anything that the first run had open; gives why it was ended, if it was."""
    with _interruptible() as hurry:
        process = subprocess.Popen(
            command,
            executable=sys.executable,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        hurry.process = process.pid
        try:
            process.wait(0 if hurry.asked else seconds)
        except subprocess.TimeoutExpired:
            return INTERRUPTED if hurry.asked else f"it took more than {seconds:,.0f} seconds"
        finally:
            hurry.kill()
            process.wait()
    return INTERRUPTED if hurry.asked else None


class _Hurry:
    """Whether somebody does not want to wait for a process and its workers any more."""

    def __init__(self) -> None:
        self.asked = False
        self.process: int | None = None

    def kill(self) -> None:
        """End them."""
        if self.process is not None:
            with suppress(OSError):
                os.killpg(self.process, signal.SIGKILL)


@contextmanager
def _interruptible() -> Generator[_Hurry]:
    """Have what would end this process end the one that it waits for, so that the report still comes."""
    hurry = _Hurry()

    def interrupted(*_: object) -> None:
        hurry.asked = True
        hurry.kill()

    # what is ignored stays so
    before = {s: signal.getsignal(s) for s in _ENDING if signal.getsignal(s) is not signal.SIG_IGN}
    for one in before:
        signal.signal(one, interrupted)
    try:
        yield hurry
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _environment(first: Mapping[str, str], place: str, wanted: dict[str, Any]) -> dict[str, str]:
    document = json.loads(first["_WHYNAN_RUN"])
    return {
        **first,
        "_WHYNAN_RUN": json.dumps({**document, "signature": wanted["signature"]}),
        "_WHYNAN_STATUS": os.path.join(place, "status.json"),
        "_WHYNAN_AGAIN": "step",
        # what it makes there goes with the folder
        "TMPDIR": place,
    }


def _joined(first: Report, second: Report) -> Report:
    """The second run's report, with what only the first could know."""
    spoilt = tuple(n for n in first.coverage.notes if " bad before step " in n or " bad after that" in n)
    notes = [*second.coverage.notes, *spoilt]
    if second.verdict == "clean":
        notes.append(MEANT)
    coverage = second.coverage.model_copy(update={"notes": tuple(notes)})
    run = second.run.model_copy(update={"history": first.run.history})
    return second.model_copy(update={"run": run, "coverage": coverage})


def _noted(report: Report, note: str, options: Options) -> Report:
    if options.redact:
        from whynan.traces.notes import without_names

        note = without_names(note) or NOT_USED.format("a reason, left out")
    return with_note(report, note)


def _final(report: Report, options: Options, script: int | None) -> Report:
    status = report.run.exit_status
    whynan = 1 if options.strict and report.verdict == "damaged" else status.whynan
    status = status.model_copy(update={"script": script, "whynan": whynan})
    return report.model_copy(update={"run": report.run.model_copy(update={"exit_status": status})})


def _read(path: str) -> dict[str, Any]:
    found: object = json.loads(Path(path).read_text(encoding="utf-8"))
    return cast("dict[str, Any]", found)
