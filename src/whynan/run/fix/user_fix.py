"""A fix that the user brings: a diff, judged on the tensors that a capsule holds, or a model, judged on its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whynan.errors import UsageError
from whynan.fixes.diffs import Diff, DiffError, apply_diff, read_diff
from whynan.records import Finding, Report
from whynan.records.trial import Trial
from whynan.report.redaction import is_redacted
from whynan.run.fix.file import RUN_AGAIN, Editable, open_editable

_MOST_BYTES: Final = 16 << 20


def judge_diff(report: Report, change: str, capsule: str | None) -> Trial:
    """The verdict of the diff in a file, for the finding of a capsule's folder.

    The code that is run is the user's own: the file of the working directory, as it was during the run, and the diff.
    What the report and the capsule hold is data. Raises ``UsageError`` for what cannot be judged at all.
    """
    from whynan.capsule import open_capsule
    from whynan.run.proof.local_proof import judge_edit as proved

    diff = _diff(change)
    if capsule is None:
        what = "--try judges a fix on the tensors of the failure, which no report holds"
        raise UsageError(what, "run again with --capsule DIR --json FILE, and give the same --capsule DIR here")
    if is_redacted(report):
        raise UsageError("this report was made with --redact, and names no file", "take that of the run without it")
    held = open_capsule(capsule)
    finding = _matching_finding(report, held.finding, capsule)
    if held.visits is None:
        what = f"{capsule} does not hold what the function read"
        raise UsageError(what, "a fix can only be judged where the run could be made again; whynan replay tells more")
    file, before = _original_text(report, finding, diff, change)
    try:
        after = apply_diff(diff, before)
    except DiffError as error:
        raise UsageError(f"{change} {error}", f"make it against {file.path} as it was during the run") from None
    verdict = proved(before, after, file.path, finding, held.visits)
    return Trial(change=change, rule=finding.rule, name=finding.name, site=finding.site, verdict=verdict)


def tried_model(report: Report, change: str, inputs: Sequence[str], seed: int | None) -> Trial:
    """The verdict of a repaired model in a file, for the first finding of the report of an ONNX model.

    Args:
        report: of the model as it is.
        change: the file of the repaired model.
        inputs: what the run was given, as ``whynan onnx -i`` takes it.
        seed: what is not given is generated from it.

    Raises:
        UsageError: for a report of no model, inputs that do not fit, a file that is no model.
    """
    inference = report.run.inference
    if inference is None:
        raise UsageError(f"{change} is a model, and the report is of a program", "give a diff of its source")
    harmful = (*report.findings, *report.damaging)
    if not harmful:
        raise UsageError("the report has no finding", "there is nothing to be mended")
    from whynan.models.extras import need

    need("onnx")
    from whynan.models.onnx.inputs import read_inputs
    from whynan.models.onnx.opening import open_model
    from whynan.run.fix.onnx import judged_model
    from whynan.run.onnx.engines import Settings

    cases = read_inputs(open_model(inference.model, custom_ops=True), inputs, seed=seed)
    settings = Settings(engine=inference.engine)
    verdict = judged_model(report, change, [case.values for case in cases], settings)
    finding = harmful[0]
    return Trial(
        change=change, rule=finding.rule, name=finding.name, site=finding.site, node=finding.node, verdict=verdict
    )


def _diff(change: str) -> Diff:
    """The diff in a file; raises ``UsageError`` for what is none."""
    legal = "give a unified diff of one file, as git diff writes it, or a repaired .onnx"
    try:
        with open(change, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{change} is larger than 16 MiB", legal)
        return read_diff(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {change}", legal) from None
    except OSError as error:
        raise UsageError(f"{change} cannot be read ({error.strerror})", legal) from None
    except UnicodeDecodeError:
        raise UsageError(f"{change} is not UTF-8", legal) from None
    except DiffError as error:
        raise UsageError(f"{change} {error}", legal) from None


def _matching_finding(report: Report, finding: Finding, capsule: str) -> Finding:
    """The finding of the report that a capsule is of; raises ``UsageError`` where there is none."""
    known = (*report.findings, *report.damaging)
    same = (
        f for f in known if (f.rule, f.site, f.op, f.phase) == (finding.rule, finding.site, finding.op, finding.phase)
    )
    found = next(same, None)
    if found is None:
        raise UsageError(
            f"{capsule} is of no finding of this report", "give the report and the capsule of the same run"
        )
    # a report does not hold what was around its births
    return found.model_copy(update={"around": finding.around})


def _original_text(report: Report, finding: Finding, diff: Diff, change: str) -> tuple[Editable, str]:
    """The file that a diff is of, and its text during the run, which it also has with the diff taken back."""
    site = finding.site
    if site is None or site.file.startswith("<"):
        raise UsageError(f"{finding.rule} was born at no place in a file", "there is nothing that a diff could change")
    if not any(_names(name, site.file) for name in diff.names):
        raise UsageError(f"{change} changes {diff.names[1]}", f"the finding is in {site.file}")
    recorded = next((s.sha256 for s in report.run.sources if s.file == site.file), None)
    if recorded is None:
        raise UsageError(f"the report does not say what {site.file} was during the run", RUN_AGAIN)
    file = open_editable(site.file)
    if file.is_of(recorded):
        return file, file.text
    try:
        before = apply_diff(diff.reversed(), file.text)
    except DiffError:
        before = None
    if before is None or not file.was_of(before, recorded):
        what = f"{file.path} is not what it was during the run, with or without {change}"
        raise UsageError(what, RUN_AGAIN)
    return file, before


def _names(name: str, file: str) -> bool:
    """Whether the name in a diff, which may begin at the root of a repository, is that of a file."""
    there, here = name.split("/"), file.replace("\\", "/").split("/")
    shorter = min(len(there), len(here))
    return there[-shorter:] == here[-shorter:]
