"""``whynan checkpoint``: which tensors of a checkpoint are bad, and among several since which one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, TextIO

import click

from whynan.cli.main import report_stream
from whynan.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records.checkpoint import Checkpoints


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--all", "all_", is_flag=True, default=None, help="List every tensor, and every checkpoint.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="A tensor whose NaN and Inf are meant, by name or pattern: '*.mask'.",
)
@click.option("--json", metavar="FILE", help="Write the counters of every tensor to a file; - is the standard output.")
@click.option("--quiet", is_flag=True, default=None, help="Print nothing. The exit status has the answer.")
@click.option("--redact", is_flag=True, default=None, help="Leave out names, paths and values.")
def checkpoint(files: tuple[str, ...], allow: tuple[str, ...], **chosen: Any) -> int:
    """Say which tensors of a checkpoint hold NaN or Inf, its optimizer state included.

    FILE is a checkpoint of torch.save (.pt, .pth, .bin), Lightning (.ckpt) or safetensors, the .index.json of a sharded
    one, or a folder of these. Of several checkpoints, the first bad one is named; their order is that of the steps that
    they store, else of their names. No code in a file is run.

    \b
    Examples:
      whynan checkpoint last.ckpt
      whynan checkpoint ckpt-*.pt                     find the first bad one
      whynan checkpoint out/checkpoint-*              folders of the transformers Trainer
      whynan checkpoint model.safetensors.index.json --json counters.json --quiet

    Exit status: 0 if everything is finite, 1 if something is bad, 2 if something cannot be read.
    """
    from whynan.config import Options
    from whynan.run.output.files import check_writable, write_json

    options = Options.load(**chosen)
    if options.json is not None:
        check_writable(options.json, "--json")
        _refuse_to_lose(options.json, files)
    found = _read(files, allow)
    if options.redact:
        found = found.redacted()
    if options.json is not None:
        write_json(options.json, found.to_json())
    if not options.quiet:
        found.show(show_all=options.all_, to=report_stream(options.json))
    return found.exit_status(strict=False)


class CheckpointResult:
    """What was found in checkpoints."""

    def __init__(self, report: Checkpoints) -> None:
        self.report = report

    def show(self, *, show_all: bool, to: TextIO | None = None) -> None:
        """Print it, to standard output or to another stream."""
        from whynan.report.postmortem.text import show

        show(self.report, show_all=show_all, to=to)

    def to_json(self) -> str:
        """Its document."""
        from whynan.report.postmortem.text import to_json

        return to_json(self.report)

    def exit_status(self, *, strict: bool) -> int:
        """2 where a checkpoint could not be read, 1 where one is bad, else 0; there are no warnings to be strict of."""
        del strict
        if any(held.verdict == "unreadable" for held in self.report.checkpoints):
            return 2
        return 0 if self.report.verdict == "clean" else 1

    def redacted(self) -> Self:
        """The same for other eyes."""
        from whynan.report.postmortem.text import redacted

        return type(self)(redacted(self.report))


def saved(content: bytes) -> CheckpointResult:
    """What was found, from the document that was saved of it."""
    from whynan.report.postmortem.text import parse_postmortem

    return CheckpointResult(parse_postmortem(content))


def _read(files: Sequence[str], allow: Sequence[str]) -> CheckpointResult:
    try:
        from whynan.models.checkpoint.postmortem import read_checkpoints
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("torch") from error
    from rich.console import Console

    from whynan.cli.progress import ProgressLine

    with ProgressLine(Console(stderr=True)) as progress:
        return CheckpointResult(read_checkpoints(files, allow=allow, progress=progress))


def _refuse_to_lose(target: str, files: Sequence[str]) -> None:
    """Raise ``UsageError`` where the document would take the place of a checkpoint: ``--json *.pt`` names one."""
    from whynan.run.output.files import is_replaceable

    if not is_replaceable(target) or not os.path.isfile(target) or not os.path.getsize(target):
        return
    with open(target, "rb") as file:
        is_document = file.read(1) == b"{"
    if not is_document or os.path.realpath(target) in {os.path.realpath(file) for file in files}:
        raise UsageError(f"--json {target} would be written over, and is no report", "name another file")
