"""Capsules at the end of a run: the operation or node of its first bad number, packed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capsule.packing import Content
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.config import Options
    from whynan.records import Finding, Report, Site
    from whynan.verify.in_place.visits import Visits


# -- A capsule at the end of a run: the operation of its first bad number, packed where an option says -----------------


ENTERED: Final = "the bad number came in from outside, or was written by the program itself"


def keeper_for(options: Options) -> OperationKeeper | None:
    """What keeps the operations of a run that bear bad numbers; None where no capsule was asked for."""
    if options.capsule is None:
        return None
    try:
        from whynan.capture.torch.kept_operations import OperationKeeper

        return OperationKeeper(options.memory)
    except Exception:
        from whynan.faults import report_internal_error

        report_internal_error()
        return None


def check_place(options: Options) -> None:
    """Raise ``UsageError`` where the folder of a capsule could not be made."""
    if options.capsule is not None:
        from whynan.capsule.folder import check_free

        check_free(options.capsule)


def without_private(report: Report, options: Options, keeper: OperationKeeper | None) -> Report:
    """The report of a call, without what is private where that was asked for and has waited for a capsule."""
    if keeper is None or not options.redact:
        return report
    from whynan.report.redaction import redacted

    return redacted(report)


def pack_finding(
    report: Report, keeper: OperationKeeper | None, options: Options, visits: Mapping[Site, Visits]
) -> Report:
    """Pack the first finding of a report, where that was asked for; gives the report that says so.

    `visits`: of the functions that findings were born in, by their sites, as far as they were recorded.
    """
    if options.capsule is None:
        return report
    from whynan.faults import report_internal_error
    from whynan.run.pipeline import with_note
    from whynan.traces.format import FAILED

    if keeper is None:  # it could not be made
        return with_note(report, FAILED)
    try:
        from whynan.capsule import content_of

        finding = capsule_finding(report)
        content = (
            None
            if finding is None
            else content_of(keeper.operation_of_finding(finding), finding, redact=options.redact)
        )
        site = None if finding is None else finding.site
        return write_capsule(report, finding, content, options, visits=None if site is None else visits.get(site))
    except Exception:
        report_internal_error()
        return with_note(report, FAILED)


def write_capsule(
    report: Report, finding: Finding | None, content: Content | None, options: Options, *, visits: Visits | None = None
) -> Report:
    """Write a capsule of a finding; gives the report that says so, or why there is none."""
    from whynan.capsule import pack
    from whynan.records import Note
    from whynan.run.pipeline import with_note

    assert options.capsule is not None
    if finding is None or content is None:
        return report if report.verdict == "clean" else no_capsule(report, "no bad number's birth is known")
    if finding.op is None or finding.birth in ("entered", "literal"):
        content = type(content)(why=ENTERED)
    run = report.run.model_copy(update={"data": os.path.abspath(options.capsule)})
    told = report.model_copy(update={"run": run})
    if content.operation is None:
        told = with_note(told, Note.create("no_operation", why=content.why))
    elif options.redact:
        told = with_note(told, Note.create("capsule_has_values"))
    try:
        pack(options.capsule, told, finding, content, visits=visits, redact=options.redact)
    except OSError as error:
        return no_capsule(report, f"{options.capsule} cannot be written ({error.strerror or error})")
    return told


def capsule_finding(report: Report) -> Finding | None:
    """The finding that is packed: the first whose birth is an operation, else the first."""
    born = (f for f in report.findings if f.op is not None and f.birth not in ("entered", "literal"))
    return next(born, next(iter(report.findings), None))


def no_capsule(report: Report, why: str) -> Report:
    """A report that says why there is no capsule."""
    from whynan.records import Note
    from whynan.run.pipeline import with_note

    return with_note(report, Note.create("no_capsule", why=why))
