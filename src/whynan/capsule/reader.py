"""A capsule read back, every part of it checked; nothing of it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.capsule.document import SCHEMA, Document
from whynan.capsule.folder import (
    DOCUMENT,
    MOST_DOCUMENT,
    MOST_TENSORS,
    NODE,
    REPORT,
    SCRIPT,
    SOURCE,
    TENSORS,
    VISITS,
    CapsuleFolder,
    deserialize_tensors,
)
from whynan.capsule.values import open_visits
from whynan.errors import UsageError
from whynan.report.json import parse_report as read_report

if TYPE_CHECKING:
    import os

    from whynan.capsule.folder import Stored
    from whynan.records import Element, Finding, Report
    from whynan.verify.in_place.visits import Visits

_MOST_SOURCE: Final = 64 << 20
_MOST_SCRIPT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Capsule:
    """What a capsule holds; ``source`` is the text of the finding's file as it was in the run, ``node`` a model."""

    directory: str
    document: Document
    report: Report
    finding: Finding
    tensors: dict[str, Stored]
    visits: Visits | None
    source: str | None
    node: bytes | None
    script: bool


@dataclass(frozen=True, slots=True)
class OperationReplay:
    """What came of an operation that was run again.

    ``element`` is the bad one; None where what was bad is finite now, and then ``value`` is what it is. ``changed``
    counts the elements of the results, of ``total``, whose bits are other ones; ``moved`` are devices, old and new.
    """

    element: Element | None
    value: float | None
    changed: int
    total: int
    device: str
    moved: tuple[tuple[str, str], ...] = ()


def open_capsule(directory: str | os.PathLike[str]) -> Capsule:
    """The capsule of a folder; raises ``UsageError`` for anything in it that whynan would not have written."""
    folder = CapsuleFolder(directory)
    document = folder.read_document(DOCUMENT, Document, SCHEMA)
    told = folder.needed(REPORT, MOST_DOCUMENT)
    try:
        report = read_report(told)
    except UsageError as error:
        raise folder.refusal(REPORT, error.what) from None
    if document.finding >= len(report.findings):
        raise folder.refusal(DOCUMENT, f"{REPORT} has no finding of the number {document.finding}")
    finding = report.findings[document.finding].model_copy(update={"around": document.around})
    tensors: dict[str, Stored] = {}
    if document.operation is not None:
        content = folder.needed(TENSORS, MOST_TENSORS)
        try:
            tensors = deserialize_tensors(content, document.layouts)
        except ValueError as error:
            raise folder.refusal(TENSORS, str(error)) from None
        missing = next((n for n in document.operation.results if n not in tensors), None)
        if missing is not None:
            raise folder.refusal(TENSORS, f"there is no tensor {missing}")
    inner = folder.inner(VISITS)
    source = folder.read(SOURCE, _MOST_SOURCE)
    return Capsule(
        directory=folder.shown,
        document=document,
        report=report,
        finding=finding,
        tensors=tensors,
        visits=None if inner is None else open_visits(inner),
        source=None if source is None else source.decode("utf-8", "surrogateescape"),
        node=folder.read(NODE, MOST_TENSORS),
        script=folder.read(SCRIPT, _MOST_SCRIPT) is not None,
    )
