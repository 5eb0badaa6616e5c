"""`whynan run`: starts the program in a Python of its own that whynan attends from within, and passes its end on.

The program is what Python runs, and no frame of whynan's stands below it; this process only waits, hands on the
signals that it is sent, and ends as the program has ended.
"""

# pyright: strict

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.errors import UsageError
from whynan.session.delivery import say
from whynan.session.files import STANDARD_OUTPUT, is_replaceable
from whynan.session.interpreter import called
from whynan.session.starting import environment_of, hashseed_for
from whynan.session.supervising import Supervisor, end_as
from whynan.session.temporary import Folder
from whynan.session.unloaded import tell_of_no_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.config import Options
    from whynan.session.programs import Program


RUN_AGAIN: Final = (
    "--rerun: once the program has ended, it is run again, as it is and with each fix, with all that it does to files "
    "and to the network"
)


def launch(program: Program, options: Options) -> int:
    """Run a program and give its exit status, or whynan's where the program's is 0.

    Raises ``UsageError`` where the Python that runs whynan would not let it attend, or the system not start it.
    """
    options = _from_anywhere(options)
    if options.rerun and not options.quiet:
        say(RUN_AGAIN)
    command = [*called(), *program.command_line]
    earlier = _stamp(options.json)
    with _folder() as folder:
        status = os.path.join(folder, "status.json")
        environment = _environment(program, options, status)
        code = Supervisor().run(command, environment)

        def tell(told: dict[str, Any] | None) -> None:
            if told is not None and told.get("again"):
                _tell_of_two(told, code, folder, command, environment, options)
            else:
                _tell(told, code, program, options, earlier)

        whynan = _own_status(status, tell)
    if code < 0:
        end_as(-code)
    return code or whynan


def _own_status(path: str, tell: Callable[[dict[str, Any] | None], None]) -> int:
    """whynan's exit status, once all is told; the program has ended, and nothing of ours alters how."""
    try:
        told = _read(path)
        tell(told)
        return 0 if told is None else int(told["whynan"])
    except Exception:
        from whynan.capture.failure import report_internal_error

        report_internal_error()
        return 0


def _tell(told: dict[str, Any] | None, code: int, program: Program, options: Options, earlier: object) -> None:
    script = code if code >= 0 else 128 - code
    if told is None or "loaded" not in told:
        _say_unseen(told, code, options, earlier)
    elif not told["loaded"]:
        tell_of_no_torch(program.name, options, script)
    elif script and not told["stopped"]:
        _amend(options, script)


def _tell_of_two(
    told: dict[str, Any], code: int, folder: str, command: list[str], environment: dict[str, str], options: Options
) -> None:
    """The program has left its report here, and may be run a second time for a better one."""
    from whynan.session.again import tell

    script = None if told["stopped"] else code if code >= 0 else 128 - code
    told["whynan"] = tell(folder, command, environment, options, script=script)


def _folder() -> Folder:
    try:
        return Folder()
    except OSError as error:
        raise UsageError(
            f"no temporary folder can be made ({error.strerror})", "set TMPDIR to a folder that can be written to"
        ) from None


def _environment(program: Program, options: Options, status: str) -> dict[str, str]:
    # what is proved by a further run depends on the order of sets, too
    hashseed = hashseed_for(os.environ) if options.rerun else None
    document = {"command": program.name, "options": options.stored(), "hashseed": hashseed}
    return environment_of(os.environ, json.dumps(document), status, hashseed=hashseed)


def _read(path: str) -> dict[str, Any] | None:
    try:
        told: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", told) if isinstance(told, dict) else None


def _from_anywhere(options: Options) -> Options:
    """The options with paths that hold wherever the program goes."""
    given = {name: getattr(options, name) for name in ("json", "trace", "capsule", "baseline")}
    return replace(options, **{n: _whole(path) for n, path in given.items() if path is not None})


def _whole(path: str) -> str:
    return path if path == STANDARD_OUTPUT else os.path.abspath(path)


def _amend(options: Options, script: int) -> None:
    """Put into what was written the exit status that was known only once the program had ended."""
    if options.json is not None and os.path.isfile(options.json) and is_replaceable(options.json):
        _amend_report(options.json, script)
    if options.trace is not None:
        from whynan.session.files import write_text

        path = os.path.join(options.trace, "run.json")
        document = _read(path)
        if document is not None:
            document["run"]["exit_status"]["script"] = script
            with suppress(OSError):
                write_text(path, json.dumps(document, indent=2))


def _amend_report(path: str, script: int) -> None:
    from whynan.report.json import read, to_json
    from whynan.session.files import write_text

    try:
        report = read(Path(path).read_bytes())
        status = report.run.exit_status.model_copy(update={"script": script})
        run = report.run.model_copy(update={"exit_status": status})
        write_text(path, to_json(report.model_copy(update={"run": run})) + "\n")
    except (OSError, UsageError):
        # not the file that was written: the program has moved it
        return


def _say_unseen(told: dict[str, Any] | None, code: int, options: Options, earlier: object) -> None:
    """There is no report: why, where nobody has said so, and that an earlier one is not of this run."""
    if options.quiet:
        return
    if told is None:
        how = f"was killed ({_signal_name(-code)})" if code < 0 else "ended or replaced itself"
        where = f"; whynan report {options.trace} shows what was recorded" if options.trace else ""
        if code < 0 and not options.trace:
            where = "; --trace DIR would have kept what was seen"
        say(f"the program {how} before its report could be made{where}")
    if earlier is not None and _stamp(options.json) == earlier:
        say(f"{options.json} is that of an earlier run")


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        # one of those that have no name of their own
        return f"signal {number}"


def _stamp(path: str | None) -> object:
    """What tells a file from one that has taken its place; None where there is none."""
    if path is None or not os.path.isfile(path):
        return None
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
