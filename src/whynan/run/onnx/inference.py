"""The run of an ONNX model in a process of its own, from the command line or ``explain``."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.errors import UsageError
from whynan.models.extras import need
from whynan.records import ExitStatus, Note
from whynan.rules.catalogue import readings
from whynan.run.fix.onnx import with_fixes
from whynan.run.onnx.engines import EngineProcess, Settings, reused_process
from whynan.run.onnx.job import FEEDS, JOB, KEPT, OUTCOME, TRACE, failed_after
from whynan.run.output.delivery import progress_message
from whynan.run.pipeline import VERDICTS, build_report, with_note
from whynan.run.suppressions import allowance
from whynan.traces.reader import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.capsule import Content
    from whynan.config import Options
    from whynan.models.onnx.inputs import Case
    from whynan.models.onnx.opening import OnnxModel
    from whynan.records import Report
    from whynan.traces.reader import Recorded


# -- The run of an ONNX model: in a process of its own, so that what crashes an engine is something to report ----------


_LONGEST: Final = 400
_HEALTHY: Final = 4
"""Cases that fixes have to leave as they are."""


def infer(
    model: OnnxModel,
    cases: Sequence[Case],
    settings: Settings,
    options: Options,
    explained: Callable[[Report], None] = lambda _: None,
    started: EngineProcess | None = None,
) -> Report:
    """Run a model on each case and report the worst; raises ``UsageError`` where the engine cannot run it at all.

    `explained` is given the report before its fixes are proved. `started`: the process to run it in.
    """
    found: list[tuple[Report, UsageError | None]] = []
    contents: list[Content | None] = []
    jobs: list[dict[str, Any]] = []
    with EngineProcess() if started is None else nullcontext(started) as process:
        for number, case in enumerate(cases):
            with tempfile.TemporaryDirectory(prefix="case-", dir=process.home) as place:
                at = _CasePlace(process, Path(place), number, last=number + 1 == len(cases))
                job = _job(model, case, settings, options, at)
                found.append(_case(model, case, settings, options, at, job))
                jobs.append(job)
                contents.append(_content(found[-1][0], Path(place) / KEPT, options))
        if all(refusal is not None for _, refusal in found):
            raise next(refusal for _, refusal in found if refusal is not None)
        reports = [report for report, _ in found]
        worst = min(range(len(reports)), key=lambda n: (_rank(reports[n]), n))
        healthy = [case.values for case, told in zip(cases, reports, strict=True) if told.verdict == "clean"]
        fed = [cases[worst].values, *healthy[:_HEALTHY]]
        report = with_fixes(reports[worst], jobs[worst], process, fed, explained)
    report = _packed(report, contents[worst], options)
    inference = report.run.inference
    if inference is None or len(cases) == 1:
        return report
    known = inference.model_copy(update={"case": worst, "cases": len(cases)})
    report = report.model_copy(update={"run": report.run.model_copy(update={"inference": known})})
    return _with_failures(report, worst, [told.run.exception for told in reports])


def _content(report: Report, kept: Path, options: Options) -> Content | None:
    """What a capsule would hold of a case; None where none is asked for."""
    if options.capsule is None:
        return None
    from whynan.run.onnx.kept_nodes import content_of
    from whynan.run.output.capsules import capsule_finding

    finding = capsule_finding(report)
    return None if finding is None else content_of(kept, finding)


def _packed(report: Report, content: Content | None, options: Options) -> Report:
    """The report of the worst case, whose failing node is packed where that was asked for."""
    if options.capsule is None:
        return report
    from whynan.run.output.capsules import capsule_finding, write_capsule

    return write_capsule(report, capsule_finding(report), content, options)


def _with_failures(report: Report, worst: int, failures: Sequence[str | None]) -> Report:
    """Say of the worst case how many of the others ran to no end."""
    failed = [number for number, failure in enumerate(failures) if failure is not None and number != worst]
    if not failed:
        return report
    first = failed[0]
    return with_note(report, Note.create("cases_failed", count=len(failed), first=first + 1, why=failures[first]))


def _rank(report: Report) -> tuple[int, int]:
    """The less, the worse."""
    return VERDICTS.index(report.verdict), -sum(reached.bad for f in report.findings for reached in f.reaches)


@dataclass(frozen=True, slots=True)
class _CasePlace:
    """Where a case is run: in which process and folder, and as which of them."""

    process: EngineProcess
    place: Path
    number: int
    last: bool


def _job(model: OnnxModel, case: Case, settings: Settings, options: Options, at: _CasePlace) -> dict[str, Any]:
    """What the process is to do of a case, whose inputs are written for it."""
    from whynan.models.onnx.binding import write_feeds

    names = write_feeds(case.values, at.place / FEEDS)
    folder = str(at.place / TRACE) if options.trace is None else options.trace
    if options.trace is not None and at.number:
        folder = f"{options.trace}-{at.number}"
    return {
        "model": model.path,
        "settings": asdict(settings),
        "feeds": names,
        "trace": folder,
        "ranges": options.ranges,
        "reads": sorted(readings("trace", options.allow)),
        "memory": options.memory,
        "capsule": options.capsule is not None,
        "redact": options.redact and options.trace is not None,
        "command": command_of(model),
        "fed": [fed.model_dump() for fed in case.told],
        "sha256": model.sha256,
        "opset": model.opset,
        "last": at.last,
        # of one case alone the first is the last
        "repeated": at.number > 0 or not at.last,
    }


def _case(
    model: OnnxModel, case: Case, settings: Settings, options: Options, at: _CasePlace, job: Mapping[str, Any]
) -> tuple[Report, UsageError | None]:
    """The report of a case; and where not one node of it could be run, what is to be said if that holds for all."""
    place = at.place
    (place / JOB).write_text(json.dumps(job), encoding="utf-8")
    with progress_message(f"running {os.path.basename(model.path)}", quiet=options.quiet):
        status, said = at.process.do(place)
    return _report(model, case, settings, options, place, job["trace"], status, said)


def command_of(model: OnnxModel) -> str:
    """The name of a run of a model."""
    return f"onnx {model.path}"


def _outcome(place: Path) -> dict[str, Any]:
    try:
        held: dict[str, Any] = json.loads((place / OUTCOME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held


def _report(
    model: OnnxModel,
    case: Case,
    settings: Settings,
    options: Options,
    place: Path,
    folder: str,
    status: int,
    said: str,
) -> tuple[Report, UsageError | None]:
    outcome = _outcome(place)
    if usage := outcome.get("usage"):
        raise UsageError(*usage)
    if internal := outcome.get("internal"):
        raise RuntimeError(f"whynan failed while it looked at the model:\n{internal}")
    failed: str | None = outcome.get("failed")
    if status and failed is None:
        failed = _ended(status, said)
    recorded = _read(folder)
    refusal = _refused(model, failed or "the engine ended without a word", settings)
    if recorded is None or outcome.get("refused"):
        raise refusal
    trace = recorded.trace
    nothing = failed is not None and not trace.coverage.events
    trace.coverage = trace.coverage.model_copy(update={"typed_notes": _notes(recorded, failed)})
    if failed is not None:
        trace.failed = False
    report = build_report(
        trace,
        command=command_of(model),
        flags={},
        device=recorded.run.device,
        allowances=[allowance(pattern, "allowed in the configuration") for pattern in options.allow],
        baseline=None if options.baseline is None else _baseline(options.baseline),
        exception=failed,
    )
    report = _with_run(report, case, recorded, failed)
    report = report if options.ranges else report.model_copy(update={"ranges": ()})
    return report, refusal if nothing else None


def _notes(recorded: Recorded, failed: str | None) -> tuple[Note, ...]:
    notes = recorded.trace.coverage.typed_notes
    if failed is None or recorded.ended is not None:
        return notes
    # a crash has written nothing of its own
    kept = [note for note in notes if note.kind not in ("no_facts", "unfinished")]
    return (*kept, failed_after(recorded.trace.coverage.events))


def _with_run(report: Report, case: Case, recorded: Recorded, failed: str | None) -> Report:
    known = recorded.run
    assert known.inference is not None
    inference = known.inference.model_copy(update={"inputs": case.told})
    verdict, status = report.verdict, report.run.exit_status.whynan
    if failed is not None and verdict in ("clean", "damaged"):
        verdict, status = "inconclusive", 1
    update = {
        "inference": inference,
        "exception": failed,
        "exit_status": ExitStatus(script=0 if failed is None else 1, whynan=status),
        "versions": known.versions,
    }
    return report.model_copy(update={"run": report.run.model_copy(update=update), "verdict": verdict})


def _baseline(path: str) -> Any:
    from whynan.run.suppressions import Baseline

    return Baseline.read(path)


def _read(folder: str) -> Recorded | None:
    try:
        return read_trace(folder)
    except UsageError:
        return None


def _ended(status: int, said: str) -> str:
    """What ended the engine's process, in one line."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    if status < 0:
        with suppress(ValueError):
            name = signal.Signals(-status).name
            if name == "SIGKILL":
                return "the engine was killed (SIGKILL), most likely because the machine ran out of memory"
            return f"the engine crashed ({name})"
        return f"the engine crashed (signal {-status})"
    return f"the engine ended with status {status}{f': {last[:_LONGEST]}' if last else ''}"


def _refused(model: OnnxModel, what: str, settings: Settings) -> UsageError:
    hint = "leave --engine reference out: ONNX Runtime, and libraries for it, may have what the evaluator has not"
    if settings.engine == "onnxruntime":
        hint = "try --engine reference, --graph original, another --provider, or --custom-ops LIBRARY"
    return UsageError(f"{model.path} cannot be run: {what.rstrip('.')}", hint)


# -- ``explain`` of an ONNX model: arrays of the program's own as its inputs -------------------------------------------


def explain_run(
    path: str | os.PathLike[str], inputs: Sequence[Any], named: Mapping[str, Any], options: Options
) -> Report:
    """Run a model on arrays; raises ``UsageError`` where it is none, or they do not fit its inputs."""
    need("onnx")
    need("ort")
    from whynan.models.onnx.inputs import case_of
    from whynan.models.onnx.opening import open_model

    if not os.path.isfile(path):
        # no process is started for what is no model
        open_model(path)
    # of a process that has been used before nobody can tell what it has held by the most
    with reused_process(fresh=options.memory is not None) as process:
        model = open_model(path)
        return infer(model, [case_of(model, _by_name(model, inputs, named))], Settings(), options, started=process)


def _by_name(model: OnnxModel, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    if len(inputs) == 1 and isinstance(inputs[0], dict):
        return {**cast("dict[str, Any]", inputs[0]), **named}
    names = [signature.name for signature in model.inputs]
    if len(inputs) > len(names):
        listed = ", ".join(str(signature) for signature in model.inputs)
        raise UsageError(f"{model.path} has {len(names)} inputs, and {len(inputs)} were given", f"they are {listed}")
    return {**dict(zip(names, inputs, strict=False)), **named}
