"""``whynan report``: a saved report, or the trace of a run, told again; nothing of the run is needed for it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO, cast

import click

from whynan.cli.main import report_stream
from whynan.errors import UsageError

if TYPE_CHECKING:
    from whynan.records import Report

KINDS: Final = {
    "whynan.report/2": "whynan.cli.report:saved_report",
    "whynan.report/1": "whynan.cli.report:saved_report",
    "whynan.checkpoint/1": "whynan.cli.checkpoint:saved",
}
"""What reads a document, by the document's schema: module and function, from its bytes to a ``Document``."""

_MOST_BYTES: Final = 1 << 30


class Document(Protocol):
    """Something that was found and saved."""

    def show(self, *, show_all: bool, to: TextIO | None = None) -> None:
        """Print it, to standard output or to another stream."""
        ...

    def to_json(self) -> str:
        """Its document."""
        ...

    def exit_status(self, *, strict: bool) -> int:
        """The exit status of a command that tells of it."""
        ...

    def redacted(self) -> Self:
        """The same without what is private."""
        ...


@click.command()
@click.argument("path", metavar="FILE|DIR")
@click.option("--all", "all_", is_flag=True, default=None, help="Also report bad numbers that did no harm.")
@click.option("--json", metavar="FILE", help="Write the report to a file; - is the standard output.")
@click.option("--quiet", is_flag=True, default=None, help="Print no report.")
@click.option("--strict", is_flag=True, default=None, help="Let warnings count for the exit status.")
@click.option("--redact", is_flag=True, default=None, help="Leave out source text, values, names and paths.")
def report(path: str, **chosen: Any) -> int:
    """Show a saved report again, or make the report of a recorded trace, on any machine.

    If a run was killed or the disk was full, the trace is unfinished. The report then covers what is in it. The traces
    of several ranks (DIR, DIR.rank1, ... beside each other, or a folder that holds them) are one report.

    \b
    Examples:
      whynan report report.json
      whynan report runs/t1                           the folder that run --trace wrote
      whynan report runs/                             the traces of several ranks, that are in it
      whynan report runs/t1 --json report.json --quiet
      whynan report report.json --redact --json public.json

    Exit status: 1 if an error was found, or a warning with --strict; else 0. It is 2 if there is nothing to read.
    """
    from whynan.config import Options
    from whynan.run.output.files import check_writable, write_json

    options = Options.load(**chosen)
    if options.json is not None:
        check_writable(options.json, "--json")
        _refuse_to_lose(options.json, path)
    document = open_document(path)
    if options.redact:
        document = document.redacted()
    if options.json is not None:
        write_json(options.json, document.to_json())
    if not options.quiet:
        document.show(show_all=options.all_, to=report_stream(options.json))
    return document.exit_status(strict=options.strict)


class SavedReport:
    """A report of a run."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def show(self, *, show_all: bool, to: TextIO | None = None) -> None:
        """Print it as the run did, to standard output or to another stream."""
        self.report.show(show_all=show_all, to=to)

    def to_json(self) -> str:
        """Its document."""
        from whynan.report.json import to_json

        return to_json(self.report)

    def exit_status(self, *, strict: bool) -> int:
        """1 for an error, or with `strict` for a warning; else 0."""
        warned = any(f.severity == "warning" for f in (*self.report.findings, *self.report.damaging))
        return 1 if self.report.run.exit_status.whynan or (strict and warned) else 0

    def redacted(self) -> Self:
        """The report for other eyes."""
        from whynan.report.redaction import redacted

        return type(self)(redacted(self.report))


def saved_report(content: bytes) -> Document:
    """The report that a file holds; raises ``UsageError`` where it holds none."""
    from whynan.report.json import parse_report

    return SavedReport(parse_report(content))


def open_document(path: str) -> Document:
    """What a file or the folder of a trace holds; raises ``UsageError`` where that is nothing of whynan's."""
    if os.path.isdir(path):
        from whynan.run.output.run_trace import report_of_directory
        from whynan.run.pipeline import fold_report
        from whynan.run.ranks.folders import folders_of_ranks

        if (ranks := folders_of_ranks(path)) is not None:
            return SavedReport(ranks.report())
        return SavedReport(fold_report(report_of_directory(path)))
    content = _content(path)
    schema = _schema(content)
    if schema.startswith("whynan.trace/"):
        raise UsageError(f"{path} is one file of a trace", f"give its folder: {os.path.dirname(path) or '.'}")
    module, function = KINDS.get(schema, KINDS["whynan.report/2"]).split(":")
    try:
        return getattr(import_module(module), function)(content)
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", error.hint) from None


def _refuse_to_lose(target: str, path: str) -> None:
    """Raise ``UsageError`` where the report would take the place of what it is made of."""
    from whynan.traces import format as layout

    file = os.path.realpath(target)
    folder, name = os.path.split(file)
    within = folder == os.path.realpath(path) and name in (layout.RUN, layout.FACTS, layout.RANGES, *layout.TABLES)
    if within or file == os.path.realpath(path):
        raise UsageError(f"--json {target} would be written over what is read", "name another file")


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file or folder {path}", "give a report.json, or the folder of a trace") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})", "check what it is, and its permissions") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than 1 GiB", "give a report.json, or the folder of a trace")
    return content


def _schema(content: bytes) -> str:
    """The schema that a JSON document names; empty where there is none, and the reader will say what is wrong."""
    import json

    try:
        held: Any = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    named = cast("dict[str, Any]", held).get("schema") if isinstance(held, dict) else None
    return named if isinstance(named, str) else ""
