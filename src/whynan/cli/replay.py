"""``whynan replay``: a capsule run again: the recorded operator on the recorded tensors, explained anew."""

from __future__ import annotations

import os
from typing import Any

import click

from whynan.cli.completion import folders
from whynan.cli.main import report_stream
from whynan.errors import UsageError


@click.command()
@click.argument("directory", metavar="DIR", shell_complete=folders)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A Python module of your own that registers operators.",
)
@click.option("--run-script", is_flag=True, help="Run the capsule's repro.py first. It is code from whoever wrote it.")
@click.option("--json", metavar="FILE", help="Write the report to a file; - is the standard output.")
@click.option("--quiet", is_flag=True, default=None, help="Print no report.")
@click.option("--redact", is_flag=True, default=None, help="Leave out source text, values, names and paths.")
def replay(directory: str, modules: tuple[str, ...], run_script: bool, **chosen: Any) -> int:
    """Run the operation of a capsule again, and explain it again.

    DIR is the folder that --capsule wrote. whynan runs the recorded operator of PyTorch, or the node of an ONNX model,
    on the recorded tensors, and nothing else. It compares the result with the recorded one, bit by bit.

    \b
    Examples:
      whynan run --capsule failing train.py
      whynan replay failing
      whynan replay failing --json report.json
      whynan replay failing --import my_kernels       an operator of your own library
      whynan replay failing --run-script              run its repro.py too

    Exit status: 1 if the bad number is there again, 0 if it is not. It is 2 if there is nothing to run.
    """
    from whynan.config import Options
    from whynan.run.capsule.replay import replay_capsule
    from whynan.run.output.files import check_writable, write_json

    options = Options.load(**chosen)
    if options.json is not None:
        check_writable(options.json, "--json")
        _refuse_to_lose(options.json, directory)
    if run_script:
        from whynan.run.capsule.replay import run_script as run

        run(directory)
    report = replay_capsule(directory, modules=modules)
    if options.redact:
        from whynan.report.redaction import redacted

        report = redacted(report)
    if options.json is not None:
        write_json(options.json, report.to_json())
    if not options.quiet:
        report.show(to=report_stream(options.json))
    return report.run.exit_status.whynan


def _refuse_to_lose(target: str, directory: str) -> None:
    """Raise ``UsageError`` where the report would be written into the capsule."""
    if os.path.dirname(os.path.realpath(target)) == os.path.realpath(directory):
        raise UsageError(f"--json {target} would be written into what is read", "name another file")
