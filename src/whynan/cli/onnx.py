"""``whynan onnx``: a model as ONNX Runtime really runs it, and where its first bad number was born."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from whynan.cli.completion import files, folders
from whynan.cli.main import report_stream
from whynan.errors import InterruptedRunError, UsageError
from whynan.models.extras import need

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.models.onnx.inputs import Case
    from whynan.models.onnx.opening import OnnxModel
    from whynan.records import Report
    from whynan.run.onnx.engines import EngineProcess, Settings
    from whynan.run.output.delivery import Display

SORTS: Final = ("order", "name", "op", "min", "max", "nan", "inf", "zero", "subnormal", "headroom")


class _Pairs(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and value; refuses what has no ``=``."""
        left, equals, right = str(value).partition("=")
        if not equals or not left:
            self.fail(f"{value!r} is no NAME=VALUE", param, ctx)
        return left, right


def _providers_there(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Execution providers by their short names."""
    del context, parameter
    return [CompletionItem(name) for name in _short() if name.lower().startswith(begun.lower())]


def _gone(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    """Refuse an option that older versions had."""
    del context
    if given is not None:
        what = f"{parameter.opts[0]} is gone: whynan writes and reads no maps of models any more"
        raise UsageError(what, "run the model as it was exported, which carries the lines of its program")


@click.command()
@click.argument("model", metavar="MODEL", shell_complete=files)
@click.option(
    "-i",
    "--inputs",
    "--input",
    "given",
    multiple=True,
    metavar="WHAT",
    shell_complete=files,
    help="A .npz, a folder of .npy or a test_data_set, NAME=FILE.npy, NAME=zeros, or NAME=uniform(-1,1)[1,3,224,224].",
)
@click.option("--random", type=click.IntRange(0), metavar="SEED", help="Make up every input that is not given.")
@click.option("--cases", type=click.IntRange(1), default=1, metavar="N", help="Make up N cases, and report the worst.")
@click.option("--ranges", is_flag=True, default=None, help="Print the range and the counters of every value.")
@click.option("--sort", type=click.Choice(SORTS), default="order", help="Sort the table of --ranges by this column.")
@click.option("--op", "ops", multiple=True, metavar="TYPE", help="In the table, only nodes of this operator.")
@click.option("--name", "names", multiple=True, metavar="GLOB", help="In the table, only nodes or values of this name.")
@click.option(
    "--csv", metavar="FILE", shell_complete=files, help="Write the table to a file; - is the standard output."
)
@click.option(
    "--graph",
    type=click.Choice(["optimized", "original"]),
    help="optimized (the default): the graph that the engine executes in production. original: the graph as written.",
)
@click.option(
    "--level",
    type=click.Choice(["disabled", "basic", "extended", "all"]),
    help="ONNX Runtime's level of optimization. Default: all.",
)
@click.option(
    "--engine",
    type=click.Choice(["onnxruntime", "reference"]),
    default="onnxruntime",
    help="onnxruntime (the default), or reference: onnx's own evaluator, slow and exact to each node's number type.",
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    shell_complete=_providers_there,
    help="An execution provider, such as CPU or CUDA.",
)
@click.option("--session-config", "config", type=_Pairs(), multiple=True, help="An entry of the session's options.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads within one operator.")
@click.option("--free-dimension", "dimensions", type=_Pairs(), multiple=True, help="The size of a symbolic dimension.")
@click.option(
    "--custom-ops",
    "libraries",
    multiple=True,
    metavar="LIB",
    shell_complete=files,
    help="A library of custom operators.",
)
@click.option("--sidecar", hidden=True, expose_value=False, callback=_gone)
@click.option("--map", hidden=True, expose_value=False, callback=_gone)
@click.option(
    "--json", metavar="FILE", shell_complete=files, help="Write the report to a file; - is the standard output."
)
@click.option(
    "--trace", metavar="DIR", shell_complete=folders, help="Record what is found in a new folder; it survives a kill."
)
@click.option(
    "--capsule", metavar="DIR", shell_complete=folders, help="Pack the failing node into a folder for whynan replay."
)
@click.option(
    "--baseline", metavar="FILE", shell_complete=files, help="An earlier report. What it found is known, and no error."
)
@click.option("--all", "all_", is_flag=True, default=None, help="Also report bad numbers that did no harm.")
@click.option("--strict", is_flag=True, default=None, help="Let warnings count for the exit status.")
@click.option("--quiet", is_flag=True, default=None, help="Print no report.")
@click.option("--redact", is_flag=True, default=None, help="Leave out source text, values, names and paths.")
@click.option("--memory", metavar="BYTES", help="Memory that the process of the model may take.")
def onnx(
    model: str,
    given: tuple[str, ...],
    random: int | None,
    cases: int,
    sort: str,
    ops: tuple[str, ...],
    names: tuple[str, ...],
    csv: str | None,
    graph: str | None,
    level: str | None,
    engine: str,
    providers: tuple[str, ...],
    config: tuple[tuple[str, str], ...],
    threads: int | None,
    dimensions: tuple[tuple[str, str], ...],
    libraries: tuple[str, ...],
    **chosen: Any,
) -> int:
    """Run an ONNX model once, look at every value, and explain its first bad number.

    whynan looks at the graph that ONNX Runtime executes after its optimization. It compares the outputs bit for bit
    with those of a session that nobody looks at.

    \b
    Examples:
      whynan onnx net.onnx --random 0                         inputs made up from a seed
      whynan onnx net.onnx -i batch.npz --json report.json
      whynan onnx net.onnx -i x=frame.npy -i mask=ones
      whynan onnx net.onnx --random 0 --ranges --sort headroom
      whynan onnx net.onnx -i test_data_set_0 --graph original

    Exit status: 1 if an error was found, or a warning with --strict; else 0. It is 2 if nothing could be run.
    """
    from whynan.config import Options
    from whynan.run.onnx.engines import EngineProcess
    from whynan.run.options import check
    from whynan.run.output.delivery import Display
    from whynan.run.output.files import check_writable

    asked = bool(chosen.pop("ranges"))
    options = Options.load(ranges=asked or csv is not None, **chosen)
    if csv is not None:
        check_writable(csv, "--csv")
    if not asked and (ops or names or sort != "order") and csv is None:
        raise UsageError("--sort, --op and --name are for the table of ranges", "add --ranges or --csv FILE")
    to = report_stream(options.json, csv)
    display = Display(lambda: to or sys.stdout, show_all=options.all_, quiet=options.quiet)

    def explained(found: Report) -> None:
        # a table comes before the report
        if not asked:
            display.explained(_public(found, options))

    with EngineProcess() as process:
        process.start()
        opened = _opened(model, bool(libraries))
        _refuse_to_lose(opened, given, libraries, options, csv)
        settings = _settings(graph, level, engine, providers, config, threads, dimensions, libraries)
        made = _cases(opened, given, random, cases, settings.free_dimensions or {})
        check(options)
        report = _inferred(opened, made, settings, options, explained, process)
    _deliver(report, options, display, asked=asked, csv=csv, sort=sort, ops=ops, names=names)
    warned = any(f.severity == "warning" for f in (*report.findings, *report.damaging))
    return 1 if report.run.exit_status.whynan or (options.strict and warned) else 0


def _refuse_to_lose(model: OnnxModel, given: Sequence[str], more: Sequence[str], options: Any, csv: str | None) -> None:
    """Raise ``UsageError`` where an option that writes a file names one that is read, or that of another option."""
    from whynan.models.onnx.inputs import files_of
    from whynan.run.output.files import check_apart

    outputs = (
        ("--csv", csv),
        ("--json", options.json),
        ("--trace", options.trace),
        ("--capsule", options.capsule),
    )
    inputs = [
        ("the model", model.path),
        *(("the model's weights", os.path.join(model.folder, location)) for location in model.external),
        *(("an input", str(file)) for file in files_of(model, given)),
        *(("a file that the run reads", path) for path in more),
    ]
    check_apart([(option, path) for option, path in outputs if path is not None], inputs)
    if options.baseline is not None:
        # a report may take the place of the earlier one
        check_apart([("--csv", csv)] if csv is not None else [], [("the baseline", options.baseline)])


def _opened(path: str, custom_ops: bool) -> OnnxModel:
    need("onnx")
    from whynan.models.onnx.opening import open_model

    return open_model(path, custom_ops=custom_ops)


def _settings(
    graph: str | None,
    level: str | None,
    engine: str,
    providers: Sequence[str],
    config: Sequence[tuple[str, str]],
    threads: int | None,
    dimensions: Sequence[tuple[str, str]],
    libraries: Sequence[str],
) -> Settings:
    from whynan.run.onnx.engines import Settings

    if engine == "reference":
        given = {"--graph optimized": graph == "optimized", "--level": level, "--provider": providers}
        _refuse_for_reference({**given, "--session-config": config, "--threads": threads})
    sizes: dict[str, int] = {}
    for name, size in dimensions:
        if not size.isdecimal() or len(size) > 18:
            raise UsageError(f"--free-dimension {name}={size} is no size", f"give a number: {name}=1")
        if name in sizes:
            raise UsageError(f"--free-dimension {name} is given twice", "give one size")
        sizes[name] = int(size)
    for library in libraries:
        if not os.path.isfile(library):
            raise UsageError(f"there is no library {library}", "give the file that registers the operators")
    return Settings(
        graph=graph or "optimized",
        level=level or "all",
        engine=engine,
        providers=_providers(providers),
        config=dict(config),
        threads=threads,
        custom_ops=tuple(os.path.abspath(library) for library in libraries),
        free_dimensions=sizes,
    )


def _refuse_for_reference(given: dict[str, object]) -> None:
    """Raise ``UsageError`` for what asks something of ONNX Runtime, where the reference evaluator is to run."""
    asked = [option for option, value in given.items() if value]
    if asked:
        what = f"--engine reference runs the graph as it is written, and knows nothing of {', '.join(asked)}"
        raise UsageError(what, "leave out one or the other")


def _providers(names: Sequence[str]) -> tuple[str, ...]:
    """Execution providers by their full or short names; raises ``UsageError`` with those that there are."""
    if not names:
        return ()
    need("ort")
    from whynan.capture.onnx.sessions import available_providers

    there = available_providers()
    short = {name.removesuffix("ExecutionProvider").lower(): name for name in there}
    found: list[str] = []
    for name in names:
        full = short.get(name.removesuffix("ExecutionProvider").lower())
        if full is None:
            listed = ", ".join(_short())
            raise UsageError(f"there is no execution provider {name}", f"this onnxruntime has {listed}")
        found.append(full)
    return tuple(found)


def _short() -> list[str]:
    """The short names of the execution providers that there are; none without an ONNX Runtime."""
    try:
        from whynan.capture.onnx.sessions import available_providers
    except ModuleNotFoundError:
        return []
    return [name.removesuffix("ExecutionProvider") for name in available_providers()]


def _cases(
    model: OnnxModel, given: Sequence[str], seed: int | None, count: int, sizes: Mapping[str, int]
) -> list[Case]:
    from whynan.models.onnx.inputs import generate_cases, read_inputs

    if count == 1:
        return read_inputs(model, given, seed=seed, sizes=sizes)
    if seed is None:
        raise UsageError("--cases makes up inputs", "give the seed to begin with: --cases 100 --random 0")
    return list(generate_cases(model, given, seed, count, sizes=sizes))


def _inferred(
    model: OnnxModel,
    cases: Sequence[Case],
    settings: Settings,
    options: Any,
    explained: Callable[[Report], None],
    process: EngineProcess,
) -> Report:
    from whynan.run.onnx.inference import infer

    if settings.engine == "onnxruntime":
        need("ort")
    try:
        return infer(model, cases, settings, options, explained, process)
    except KeyboardInterrupt:
        raise InterruptedRunError(model.path) from None


def _public(report: Report, options: Any) -> Report:
    """A report without what is private, where that was asked for."""
    if not options.redact:
        return report
    from whynan.report.redaction import redacted

    return redacted(report)


def _deliver(
    report: Report,
    options: Any,
    display: Display,
    *,
    asked: bool,
    csv: str | None,
    sort: str,
    ops: Sequence[str],
    names: Sequence[str],
) -> None:
    """Print the report, and write what was asked for."""
    from whynan.report import json, ranges
    from whynan.run.output.files import write_text

    report = _public(report, options)
    display.erase_progress()
    rows = ranges.select_rows(report.ranges, sort=sort, ops=ops, names=names)
    if csv is not None:
        write_text(csv, ranges.to_csv(rows))
    if options.json is not None:
        told = report.model_copy(update={"ranges": rows if asked else ()})
        write_text(options.json, f"{json.to_json(told)}\n")
    if asked and not options.quiet:
        ranges.show(rows, to=report_stream(options.json, csv))
    display.finish(report)
