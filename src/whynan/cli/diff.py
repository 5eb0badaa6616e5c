"""``whynan diff``: the first operation where two runs of what ought to be one model part."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from whynan.cli.completion import files
from whynan.cli.main import report_stream

LEVELS: Final = ("none", "basic", "extended", "all")
"""Those of `whynan.run.comparison.settings`, which need not be loaded for the help text."""


@click.command()
@click.argument("a", metavar="A", shell_complete=files)
@click.argument("b", metavar="[B]", required=False, shell_complete=files)
@click.option(
    "-i",
    "--inputs",
    "given",
    multiple=True,
    metavar="WHAT",
    shell_complete=files,
    help="Arrays by input name: a .npz, a folder of .npy, or NAME=FILE.npy.",
)
@click.option("--random", type=click.IntRange(0), metavar="SEED", help="Make up every input that is not given.")
@click.option("--rtol", type=click.FloatRange(0), metavar="R", help="Outputs that are nearer than this agree.")
@click.option("--atol", type=click.FloatRange(0), metavar="A", help="The same, absolute.")
@click.option("--b-opt-level", "level", type=click.Choice(LEVELS), help="ONNX Runtime's optimization, for B.")
@click.option("--b-dtype", "dtype", type=click.Choice(["fp16", "bf16", "fp64"]), help="The arithmetic of B.")
@click.option("--b-engine", "engine", type=click.Choice(["onnxruntime", "reference"]), help="The engine of B.")
@click.option("--b-provider", "provider", metavar="NAME", help="The execution provider of B, such as CUDA.")
@click.option("--b-compile", "compiled", is_flag=True, help="B is compiled by torch.compile.")
@click.option("--b-device", "device", metavar="NAME", help="The device of B, such as cuda.")
@click.option(
    "--json", metavar="FILE", shell_complete=files, help="Write the report to a file; - is the standard output."
)
@click.option("--quiet", is_flag=True, default=None, help="Print no report.")
@click.option("--redact", is_flag=True, default=None, help="Leave out source text, values, names and paths.")
@click.option("--memory", metavar="BYTES", help="Memory for the values of each run; the rest goes to disk.")
def diff(
    a: str,
    b: str | None,
    given: tuple[str, ...],
    random: int | None,
    rtol: float | None,
    atol: float | None,
    level: str | None,
    dtype: str | None,
    engine: str | None,
    provider: str | None,
    compiled: bool,
    device: str | None,
    **chosen: Any,
) -> int:
    """Find the first operation where two runs of one model part, by more than rounding.

    A and B are each a model.onnx, a program.pt2, or package.module:name of a torch module or of a function that returns
    one. Without B, A is compared with itself under the settings --b-...

    \b
    Examples:
      whynan diff net.pt2 net.onnx -i batch.npz               a program and its export
      whynan diff package.net:make net.onnx -i batch.npz
      whynan diff old.onnx new.onnx --random 0 --json report.json
      whynan diff net.onnx --b-opt-level none --random 0      one model, optimized and not
      whynan diff net.onnx --b-dtype fp16 -i batch.npz

    Exit status: 0 where the runs agree within what their number formats are entitled to lose; 1 where they part, or are
    both NaN or infinite. It is 2 for programs that cannot be run or compared.
    """
    from whynan.config import Options
    from whynan.run.comparison.command import compared
    from whynan.run.comparison.settings import Request, read_settings
    from whynan.run.options import check
    from whynan.run.output.files import check_apart

    options = Options.load(**chosen)
    read = [("A", a), *([] if b is None else [("B", b)]), *(("an input", item) for item in given)]
    if options.json is not None:
        check_apart([("--json", options.json)], [(what, path) for what, path in read if os.path.exists(path)])
    check(options)
    settings = read_settings(level, dtype, engine, provider, compiled=compiled, device=device)
    request = Request(a=a, b=b, settings=settings, files=given, seed=random, rtol=rtol, atol=atol)
    report = compared(request, f"diff {a}{'' if b is None else f' {b}'}", options)
    _deliver(report, options)
    return report.run.exit_status.whynan


def _deliver(report: Any, options: Any) -> None:
    """Print the report, and write what was asked for."""
    from whynan.report import json
    from whynan.run.output.files import write_text

    if options.redact:
        from whynan.report.redaction import redacted

        report = redacted(report)
    if options.json is not None:
        write_text(options.json, f"{json.to_json(report)}\n")
    if not options.quiet:
        report.show(to=report_stream(options.json))
