"""``whynan fix``: the fixes of a saved report, and one of them made; or the verdict of the user's own."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from whynan.cli.main import for_stream, one_line, report_stream
from whynan.errors import InterruptedEditError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from whynan.records import Report
    from whynan.run.fix.apply import Edit


# -- ``whynan fix``: the fixes of a saved report, and one of them made; or the verdict of the user's own ---------------


_FILE: Final = click.Path(readable=False)
"""For shells, which complete it; what is wrong with a file is said where it is opened."""
_FOLDER: Final = click.Path(readable=False, file_okay=False)


@click.command()
@click.argument("path", metavar="REPORT.json", type=_FILE)
@click.option(
    "--apply",
    "apply_",
    is_flag=True,
    help="Edit the source, all files of the fix or none. Each is kept beside it.",
)
@click.option(
    "--patch", metavar="FILE", type=_FILE, help="Write the fix as a patch for git apply; - is the standard output."
)
@click.option("--pr", is_flag=True, help="Print the title and the body of a pull request with the fix, in Markdown.")
@click.option("--output", metavar="FILE", type=_FILE, help="Write the repaired ONNX model to a new file.")
@click.option("--try", "try_", metavar="FILE", type=_FILE, help="Judge a diff of your own, or a repaired .onnx.")
@click.option("--choose", type=int, metavar="N", help="The fix's number in the list. Default: the best verified one.")
@click.option(
    "--capsule",
    metavar="DIR",
    type=_FOLDER,
    help="The tensors that --try needs: the folder that run --capsule wrote.",
)
@click.option(
    "-i",
    "--inputs",
    multiple=True,
    metavar="WHAT",
    type=_FILE,
    help="The inputs on which --try runs a model, as for whynan onnx.",
)
@click.option("--random", type=click.IntRange(0), metavar="SEED", help="Make up every model input that is not given.")
@click.option("--yes", is_flag=True, help="Edit without asking.")
@click.option(
    "--json", metavar="FILE", type=_FILE, help="Write the verdict of --try to a file; - is the standard output."
)
def fix(path: str, **chosen: Any) -> int:
    """List the fixes of a saved report with their verdicts, make one, or judge one of your own.

    whynan makes the fix anew from its rule and its place. It edits a file only inside the working directory, and only
    if the file has not changed since the run. It shows the change, and makes it once you agree. It makes a distorting
    or unverified fix only if --choose names it, and never a rejected one.

    \b
    Examples:
      whynan fix report.json                          the fixes, numbered
      whynan fix report.json --apply                  make the best verified one
      whynan fix report.json --apply --choose 2 --yes
      whynan fix report.json --patch fix.patch        for git apply
      whynan fix report.json --pr                     title and body of a pull request
      whynan fix report.json --output fixed.onnx      the repaired model
      whynan fix report.json --capsule failure --try my.diff
      whynan fix report.json -i batch.npz --try repaired.onnx

    Exit status: 0 if it was done; with --try 0 for verified or guarded, 1 for distorting or rejected. It is 2 if it
    cannot be done or judged.
    """
    _check_options(chosen)
    if chosen["apply_"]:
        return _applied(path, chosen["choose"], ask=not chosen["yes"])
    report = _report(path)
    if chosen["try_"] is not None:
        return _try(report, chosen)
    if chosen["output"] is not None:
        return _write_model(report, chosen["output"], chosen["choose"])
    if chosen["pr"]:
        return _print_pull_request(report, chosen["choose"])
    if chosen["patch"] is not None:
        return _write_patch(report, chosen["patch"], chosen["choose"])
    return _list(report, path)


def _check_options(chosen: dict[str, Any]) -> None:
    """Raise ``UsageError`` for options that ask for two things, or that say something of what is not asked for."""
    asked = [name for name, given in _ACTIONS.items() if chosen[given]]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} ask for two things", "give one of them")
    for option, (needed, why) in _NEEDED.items():
        given = chosen[option.strip("-")]
        # a seed of 0 is one
        is_given = given is not None and given is not False and given != ()
        if is_given and not any(action in asked for action in needed):
            raise UsageError(f"{option} {why}", f"give it with {' or '.join(needed)}")


_ACTIONS: Final = {"--apply": "apply_", "--patch": "patch", "--pr": "pr", "--output": "output", "--try": "try_"}
_NEEDED: Final = {
    "--yes": (("--apply",), "answers a question that is not asked"),
    "--json": (("--try",), "writes the verdict of a fix of yours"),
    "--capsule": (("--try",), "holds what a fix of yours is judged on"),
    "--inputs": (("--try",), "gives what a repaired model is judged on"),
    "--random": (("--try",), "makes up what a repaired model is judged on"),
    "--choose": (("--apply", "--patch", "--pr", "--output"), "chooses what to make"),
}


def _report(path: str) -> Report:
    from whynan.cli.report import SavedReport, open_document

    document = open_document(path)
    if not isinstance(document, SavedReport):
        raise UsageError(f"{path} is no report of a run", "give the file that run --json or onnx --json has written")
    return document.report


def _list(report: Report, path: str) -> int:
    from whynan.report.fixes.listing import show
    from whynan.run.fix.apply import why_none

    show(report, path, why_none(report))
    return 0


def _regenerated(report: Report, number: int | None) -> Edit | None:
    """The fix that is asked for, or None, with a word, where it is in the file already."""
    from whynan.run.fix.apply import choose_fix, made_anew

    offer = choose_fix(report, number, "source")
    edit = made_anew(report, offer)
    if edit is None:
        click.echo(f"fix {offer.number} is in the file already, and nothing was changed", err=True)
    return edit


def _applied(path: str, number: int | None, *, ask: bool) -> int:
    """Make a change, or nothing at all where the user breaks off before it is made."""

    try:
        with interrupt_handler() as interrupts:
            return _apply(path, number, interrupts, ask=ask)
    except KeyboardInterrupt:
        if _at_a_terminal():
            # behind the ^C that it shows
            click.echo()
        raise InterruptedEditError from None


def _apply(path: str, number: int | None, interrupts: Interrupts, *, ask: bool) -> int:
    """Show a change, and make it once the user agrees."""
    from whynan.report.fixes.listing import show_change, verdict_text

    edit = _regenerated(_report(path), number)
    if edit is None:
        return 0
    if ask and not _at_a_terminal():
        raise UsageError("there is no terminal to ask at", "add --yes to edit without being asked")
    edit.check_writable()
    fix = edit.offer.fix
    for number, one in enumerate(edit.files):
        heading = f"and in {one.file.path}:" if number else f"fix {edit.offer.number} in {one.file.path}: {fix.title}"
        show_change(heading, "" if number else verdict_text(fix), one.shown)
    if ask and not agreed(for_stream(one_line(f"Edit {edit.paths}?"), sys.stdout)):
        _say("nothing was changed")
        return 0
    with interrupts.waiting():
        backups = edit.make(interrupts.check)
        for one, backup in zip(edit.files, backups, strict=True):
            _say(f"{one.file.path} is edited; what it was is in {backup}")
    return 0


def _at_a_terminal() -> bool:
    """Whether somebody sees the change, and can answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _try(report: Report, chosen: dict[str, Any]) -> int:
    """Judge a fix of the user's."""
    from whynan.report.fixes import trial
    from whynan.run.fix.user_fix import judge_diff, tried_model
    from whynan.run.output.files import check_writable, write_text

    change, json = chosen["try_"], chosen["json"]
    if json is not None:
        check_writable(json, "--json")
    if change.endswith(".onnx"):
        found = tried_model(report, change, chosen["inputs"], chosen["random"])
    else:
        found = judge_diff(report, change, chosen["capsule"])
    if json is not None:
        write_text(json, f"{trial.to_json(found)}\n")
    trial.show(found, to=report_stream(json))
    return _STATUSES[found.verdict.status]


_STATUSES: Final = {"verified": 0, "guarded": 0, "distorting": 1, "rejected": 1, "unverified": 2}
"""The exit status of a verdict."""


def _print_pull_request(report: Report, number: int | None) -> int:
    """Print what a pull request with a proved fix says; the report alone is read for it."""
    from whynan.report.fixes.pull_request import pull_request
    from whynan.run.fix.apply import choose_proved

    click.echo(for_stream(pull_request(report, choose_proved(report, number)), sys.stdout))
    return 0


def _write_patch(report: Report, target: str, number: int | None) -> int:
    from whynan.run.output.files import stream, write_bytes

    edit = _regenerated(report, number)
    if edit is None:
        return 0
    if stream(target) is None:
        _check_new(target, "--patch")
    try:
        write_bytes(target, edit.patch)
    except OSError as error:
        raise UsageError(f"--patch {target} cannot be written ({error.strerror})", "name another file") from None
    return 0


def _check_new(target: str, option: str) -> None:
    """Raise ``UsageError`` where a file could not be written, or would take another one's place."""
    from whynan.run.output.files import check_writable

    if os.path.lexists(target) and (os.path.islink(target) or os.path.isfile(target)):
        raise UsageError(f"{option} {target} is there already", "name a new file")
    check_writable(target, option)


def _write_model(report: Report, target: str, number: int | None) -> int:
    from whynan.run.fix.apply import choose_fix
    from whynan.run.fix.onnx import mended_model

    # of a fix that is chosen, whether it may be made; the best of each finding are verified
    choose_fix(report, number, "graph")
    _check_new(target, "--output")
    made = mended_model(report, target, number)
    _say(f"{target} is the model with {'; '.join(dict.fromkeys(fix.title for fix in made))}")
    return 0


def _say(text: str) -> None:
    click.echo(for_stream(one_line(text), sys.stdout))


# -- Interrupts of a command that changes a file: none is lost, and none comes in the middle of the change -------------


class Interrupts:
    """Whether an interrupt has come; while it is ``held`` it ends nothing."""

    def __init__(self) -> None:
        self.came = False
        self.held = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` where one has come: it may have met a callback, in which Python drops it."""
        if self.came:
            raise KeyboardInterrupt

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """What happens at an interrupt."""
        self.came = True
        if not self.held:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Let interrupts wait; one that came before is raised."""
        self.held = True
        try:
            self.check()
            yield
        finally:
            self.held = False


@contextmanager
def interrupt_handler() -> Generator[Interrupts]:
    """Notice interrupts, where Python does; where they are ignored, or another one's, they stay that."""
    found = Interrupts()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield found
        return
    signal.signal(signal.SIGINT, found)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def agreed(question: str) -> bool:
    """Whether the user says yes; raises ``KeyboardInterrupt`` where the question is broken off."""
    while True:
        click.echo(f"{question} [y/N]: ", nl=False)
        answer = _line(sys.stdin)
        if not answer:
            raise KeyboardInterrupt
        known = _ANSWERS.get(answer.strip().lower())
        if known is not None:
            return known
        click.echo("y or n, please")


_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}


def _line(stream: TextIO) -> str:
    if os.name == "posix" and threading.current_thread() is threading.main_thread():
        _await(stream)
    return stream.readline()


def _await(stream: TextIO) -> None:
    """Wait until there is a line.

    A signal between the last look for one and the read would be seen after the line only; here it ends the wait.
    """
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    try:
        while ours in select.select([stream, ours], [], [])[0]:
            os.read(ours, 4096)
    finally:
        signal.set_wakeup_fd(before)
        os.close(ours)
        os.close(theirs)
