"""`whynan run`: starts the program in a Python of its own that whynan attends from within, and passes its end on.

The program is what Python runs, and no frame of whynan's stands below it; this process only waits, hands on the
signals that it is sent, and ends as the program has ended.
"""

# pyright: strict

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whynan.errors import UsageError
from whynan.session.supervising import Supervisor, end_as

if TYPE_CHECKING:
    from whynan.config import Options
    from whynan.session.programs import Program

_BOOT = str(Path(__file__).parent / "boot")


def launch(program: Program, options: Options) -> int:
    """Run a program and give its exit status, or whynan's where the program's is 0.

    Raises ``UsageError`` where the Python that runs whynan would not let it attend.
    """
    flags = _interpreter_flags()
    options = _from_anywhere(options)
    with tempfile.TemporaryDirectory(prefix="whynan-", ignore_cleanup_errors=True) as folder:
        status = os.path.join(folder, "status.json")
        command = [_python(), *flags, *program.command_line]
        code = Supervisor().run(command, _environment(program, options, status))
        told = _read(status)
    script = code if code >= 0 else 128 - code
    if script and told is not None and not told.get("stopped"):
        _amend(options, script)
    if told is None and not options.quiet:
        _say_unseen(code, options)
    if code < 0:
        end_as(-code)
    return code or (int(told.get("whynan", 0)) if told is not None else 0)


def _python() -> str:
    """The interpreter as the user named it, where whynan was called by it."""
    named = sys.orig_argv[0] if len(sys.orig_argv) > len(sys.argv) and sys.orig_argv[0] else ""
    return named if named and _is_module_run() else sys.executable


def _is_module_run() -> bool:
    return os.path.basename(sys.argv[0]) == "__main__.py"


def _environment(program: Program, options: Options, status: str) -> dict[str, str]:
    environment = dict(os.environ)
    told = {"status": status, "command": program.name, "options": options.stored()}
    environment["_WHYNAN_RUN"] = json.dumps(told)
    before = environment.get("PYTHONPATH")
    if before is not None:
        environment["_WHYNAN_PYTHONPATH"] = before
    environment["PYTHONPATH"] = os.pathsep.join([_BOOT, before] if before else [_BOOT])
    return environment


def _interpreter_flags() -> list[str]:
    """The options that Python itself was given before ``whynan``, for the program's Python."""
    if not sys.executable:
        raise UsageError("Python does not know where its own executable is", "start whynan by its full path")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError(
            "python -I, -E or -S keeps whynan out of the program that it starts", "start whynan without that option"
        )
    line = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    if len(line) > 2 and line[-1] == "whynan" and line[-2].startswith("-") and line[-2].endswith("m"):
        # python -um whynan
        rest = line[-2][:-1]
        return [*line[1:-2], *([rest] if rest != "-" else [])]
    return line[1:-1]


def _read(path: str) -> dict[str, Any] | None:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _from_anywhere(options: Options) -> Options:
    """The options with paths that hold wherever the program goes."""
    given = {name: getattr(options, name) for name in ("json", "trace", "baseline")}
    return replace(options, **{name: os.path.abspath(path) for name, path in given.items() if path is not None})


def _amend(options: Options, script: int) -> None:
    """Put into what was written the exit status that was known only once the program had ended."""
    if options.json is not None:
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
        # not the file that was written: a pipe, or the program has moved it
        return


def _say_unseen(code: int, options: Options) -> None:
    from signal import Signals

    how = f"was killed ({Signals(-code).name})" if code < 0 else "ended or replaced itself"
    where = f"; whynan report {options.trace} shows what was recorded" if options.trace else ""
    if code < 0 and not options.trace:
        where = "; --trace DIR would have kept what was seen"
    print(f"whynan: the program {how} before its report could be made{where}", file=sys.stderr)
