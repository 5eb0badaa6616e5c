"""The fixes of an ONNX model: proved while its run is reported, and written when they are asked for."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError
from whynan.faults import report_internal_error
from whynan.records import APPLICABLE, STATUSES, Finding, Fix, FixVerdict, Note
from whynan.report.fixes.proposals import offers
from whynan.rules.catalogue import rules
from whynan.run.onnx.job import JOB, MEND, OUTCOME
from whynan.run.pipeline import with_note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx

    from whynan.fixes.onnx import GraphCandidate
    from whynan.models.onnx.opening import OnnxModel
    from whynan.records import Report
    from whynan.records.intents import FixIntent
    from whynan.run.onnx.engines import EngineProcess, Settings

FIXES: Final = "fixes"
UNTRIED: Final = "untried"
_FEEDS: Final = "feeds"
_MOST: Final = 4
"""Findings that fixes are proved for."""
_SECONDS: Final = 5.0
"""Of the processor's time, so that what else the machine does changes no verdict; then no further fix is tried."""


def with_fixes(
    report: Report,
    job: Mapping[str, Any],
    process: EngineProcess,
    fed: Sequence[Mapping[str, Any]],
    explained: Callable[[Report], None],
) -> Report:
    """A report whose escaped and damaging findings have their fixes, proved in the process of the engine.

    ``job`` is that of the run; ``fed`` its inputs, and behind them healthy ones of other cases. What crashes the
    engine, or fails, or takes too long, is said in a note, and so is an interrupt. ``explained`` is given the report
    before that.
    """
    from whynan.models.onnx.binding import write_feeds

    harmful = [*report.findings, *report.damaging]
    wanted = [finding for finding in harmful if finding.fate != "absorbed"][:_MOST]
    if not wanted or report.run.exception is not None:
        return report
    explained(report)
    with tempfile.TemporaryDirectory(prefix="fixes-", dir=process.home) as folder:
        place = Path(folder)
        told = {
            MEND: [finding.model_dump(mode="json") for finding in wanted],
            "others": len(report.findings) - 1,
            "fed": [write_feeds(values, place / f"{_FEEDS}-{n}") for n, values in enumerate(fed)],
        }
        (place / JOB).write_text(json.dumps({**job, **told}), encoding="utf-8")
        try:
            status, _ = process.do(place)
        except KeyboardInterrupt:
            process.kill()
            return with_note(report, Note.create("proof_interrupted"))
        try:
            made, untried = _read_proofs(place)
        except FileNotFoundError:
            return with_note(report, Note.create("fixes_not_proved", cause="crash" if status < 0 else "end"))
        except Exception:
            report_internal_error()
            return with_note(report, Note.create("fixes_not_proved", cause="failure"))
    fixes = {id(finding): tuple(found) for finding, found in zip(wanted, made, strict=True)}
    findings = tuple(f.model_copy(update={"fixes": fixes.get(id(f), f.fixes)}) for f in report.findings)
    damaging = tuple(f.model_copy(update={"fixes": fixes.get(id(f), f.fixes)}) for f in report.damaging)
    report = report.model_copy(update={"findings": findings, "damaging": damaging})
    return with_note(report, Note.create("proving_ended", seconds=_SECONDS, untried=untried)) if untried else report


def _read_proofs(place: Path) -> tuple[list[list[Fix]], int]:
    outcome: dict[str, Any] = json.loads((place / OUTCOME).read_text(encoding="utf-8"))
    if FIXES not in outcome:
        raise RuntimeError(f"fixes could not be proved:\n{outcome.get('internal', outcome)}")
    return [[Fix.model_validate(fix) for fix in fixes] for fixes in outcome[FIXES]], outcome[UNTRIED]


def prove_graph_fixes(model: onnx.ModelProto, job: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """For each finding of a job its fixes with their verdicts, the best first; the rejected are left out."""
    from whynan.models.onnx.binding import read_feeds

    fed = [read_feeds(place / f"{_FEEDS}-{n}", told) for n, told in enumerate(job["fed"])]
    findings = [Finding.model_validate(told) for told in job[MEND]]
    made = [(finding, one) for finding in findings for one in _candidates(model, finding)]
    found: dict[int, list[Fix]] = {id(finding): [] for finding in findings}
    until = time.process_time() + _SECONDS
    untried = 0
    for number, (finding, one) in enumerate(made):
        left = until - time.process_time()
        if left <= 0:
            untried = len(made) - number
            break
        fix = _prove_candidate(model, finding, one, fed, job, left / (len(made) - number))
        if fix.verdict.status != "rejected":
            found[id(finding)].append(fix)
    ranked = [sorted(fixes, key=lambda fix: STATUSES.index(fix.verdict.status)) for fixes in found.values()]
    return {FIXES: [[fix.model_dump(mode="json") for fix in fixes] for fixes in ranked], UNTRIED: untried}


def _prove_candidate(
    model: onnx.ModelProto,
    finding: Finding,
    one: GraphCandidate,
    fed: Sequence[Mapping[str, Any]],
    job: Mapping[str, Any],
    seconds: float,
) -> Fix:
    from whynan.verify.onnx_program import judge_graph
    from whynan.verify.onnx_program.run import Engines

    settings: dict[str, Any] = job["settings"]
    engines = Engines(
        "reference" if settings["engine"] == "reference" else "onnxruntime",
        os.path.dirname(os.path.abspath(job["model"])),
        tuple(settings["custom_ops"]),
    )
    verdict = judge_graph(
        model,
        one.model,
        fed,
        kind=one.kind,
        engines=engines,
        others=job["others"],
        damaging=finding.fate == "damaging",
        seconds=seconds,
    )
    return Fix(title=one.title, kind="graph", patch=one.patch, verdict=verdict)


def intents_of(finding: Finding) -> tuple[FixIntent, ...]:
    """What would mend a finding by the rule that explains it, by the others that matched, and by its family.

    Of the family only what is computed otherwise: a graph shows the whole expression, even where a run did not.
    """
    known = {rule.code: rule for rule in rules()}
    codes = dict.fromkeys((finding.rule, *finding.matched))
    own = tuple(intent for code in codes if code in known for intent in known[code].fixes)
    family = [rule for rule in known.values() if rule.code[:3] == finding.rule[:3] and rule.code not in codes]
    return (*own, *(one for rule in family for one in rule.fixes if one.kind == "reformulation"))


def _candidates(model: onnx.ModelProto, finding: Finding) -> list[GraphCandidate]:
    from whynan.fixes.onnx import GraphCandidate, candidates

    return [one for one in candidates(model, finding, intents_of(finding)) if isinstance(one, GraphCandidate)]


def mended_model(report: Report, output: str | os.PathLike[str], choose: int | None = None) -> tuple[Fix, ...]:
    """Write the repaired model of a report, with its external data beside it; gives the fixes that are in it.

    The edit is made anew from the rule and the node, on a model whose hash is that of the run. ``choose`` numbers the
    fixes of all findings from 1; without it the best verified fix of every finding is taken, one after the other.

    Raises:
        UsageError: for a report of no model, of another version of it, without such a fix; for an output that exists.
    """
    chosen = _chosen(report, choose)
    model = _unchanged(report)
    proto = model.proto
    for finding, fix in chosen:
        found = next((one for one in _candidates(proto, finding) if one.title == fix.title), None)
        if found is None:
            raise UsageError(
                f"{model.path}: {fix.title!r} does not fit the model", "run whynan onnx again for a new report"
            )
        proto = found.model
    _write_model(proto, model, Path(output))
    return tuple(fix for _, fix in chosen)


def judged_model(
    report: Report, repaired: str | os.PathLike[str], feeds: Sequence[Mapping[str, Any]], settings: Settings
) -> FixVerdict:
    """The verdict of a model that somebody has repaired, on inputs that made the one of a report fail.

    Raises ``UsageError`` for a report of no model, or of another version of it, and for a file that is no model.
    """
    from whynan.models.onnx.opening import open_model
    from whynan.verify.onnx_program import judge_graph
    from whynan.verify.onnx_program.run import Engines

    model = _unchanged(report)
    other = open_model(repaired, custom_ops=bool(settings.custom_ops))
    engine = "reference" if settings.engine == "reference" else "onnxruntime"
    engines = Engines(engine, model.folder, settings.custom_ops)
    return judge_graph(
        model.proto, other.proto, feeds, kind="reformulation", engines=engines, damaging=not report.findings
    )


def _chosen(report: Report, choose: int | None) -> list[tuple[Finding, Fix]]:
    every = [(offer.finding, offer.fix) for offer in offers(report)]
    fixes = [(finding, fix) for finding, fix in every if fix.kind == "graph"]
    if not fixes:
        raise UsageError(
            "the report has no fix of a model", "whynan onnx MODEL -i INPUTS --json report.json finds them"
        )
    if choose is not None:
        if not 1 <= choose <= len(every) or every[choose - 1][1].kind != "graph":
            raise UsageError(f"there is no fix {choose} of a model", f"the report has {len(every)}")
        return [every[choose - 1]]
    best: dict[int, tuple[Finding, Fix]] = {}
    for status in APPLICABLE:
        for finding, fix in fixes:
            if fix.verdict.status == status:
                best.setdefault(id(finding), (finding, fix))
    if not best:
        raise UsageError("no fix of the report is verified", f"choose one of its {len(fixes)} with --choose")
    return list(best.values())


def _unchanged(report: Report) -> OnnxModel:
    """The model of a report, which has not changed since."""
    from whynan.models.extras import need

    need("onnx")
    from whynan.models.onnx.opening import open_model

    inference = report.run.inference
    if inference is None or inference.sha256 is None:
        raise UsageError("the report is not of an ONNX model", "give one that whynan onnx has written")
    model = open_model(inference.model, custom_ops=True)
    if model.sha256 != inference.sha256:
        raise UsageError(f"{inference.model} is not the model of the report", "run whynan onnx again for a new report")
    return model


def _write_model(proto: onnx.ModelProto, model: OnnxModel, output: Path) -> None:
    """Write a model and copy what lies beside it; nothing is written over, and nothing left half-written."""
    folder = output.parent
    beside = [(Path(model.folder, location), folder / location) for location in model.external]
    copied = [(old, new) for old, new in beside if old.resolve() != new.resolve()]
    for target in (output, *(new for _, new in copied)):
        if os.path.lexists(target):
            raise UsageError(f"{target} exists already", "give another file, in a folder of its own")
    made: list[Path] = []
    try:
        for old, new in copied:
            new.parent.mkdir(parents=True, exist_ok=True)
            made.append(new)
            shutil.copyfile(old, new)
        made.append(output)
        with open(output, "xb") as file:
            file.write(proto.SerializeToString())
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        raise UsageError(f"{output} cannot be written ({error.strerror})", "check the folder and the disk") from error
