"""Capsules at the end of a run: the operation or node of its first bad number, packed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.analysis import findings_of
from whynan.capsule.document import Layout, PackedNode
from whynan.capsule.folder import Stored
from whynan.capsule.packing import NOT_KEPT, Content
from whynan.capsule.script import onnx_script
from whynan.records import Neighbourhood, Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from whynan.capture.onnx.single_node import KeptNode, NodeKeeper
    from whynan.capture.torch.operations import Keeper
    from whynan.config import Options
    from whynan.records import Finding, Report, Site
    from whynan.traces import Birth, Trace
    from whynan.verify.in_place.visits import Visits


# -- A capsule at the end of a run: the operation of its first bad number, packed where an option says -----------------


ENTERED: Final = "the bad number came in from outside, or was written by the program itself"


def keeper_for(options: Options) -> Keeper | None:
    """What keeps the operations of a run that bear bad numbers; None where no capsule was asked for."""
    if options.capsule is None:
        return None
    try:
        from whynan.capture.torch.operations import Keeper

        return Keeper(options.memory)
    except Exception:
        from whynan.faults import report_internal_error

        report_internal_error()
        return None


def check_place(options: Options) -> None:
    """Raise ``UsageError`` where the folder of a capsule could not be made."""
    if options.capsule is not None:
        from whynan.capsule.folder import check_free

        check_free(options.capsule)


def delivered(report: Report, options: Options, keeper: Keeper | None) -> Report:
    """The report of a call, without what is private where that was asked for and has waited for a capsule."""
    if keeper is None or not options.redact:
        return report
    from whynan.report.redaction import redacted

    return redacted(report)


def packed(report: Report, keeper: Keeper | None, options: Options, visits: Mapping[Site, Visits]) -> Report:
    """Pack the first finding of a report, where that was asked for; gives the report that says so.

    `visits`: of the functions that findings were born in, by their sites, as far as they were recorded.
    """
    if options.capsule is None:
        return report
    from whynan.faults import report_internal_error
    from whynan.traces.format import FAILED

    if keeper is None:  # it could not be made
        return noted(report, FAILED)
    try:
        from whynan.capsule import content_of

        finding = chosen(report)
        content = None if finding is None else content_of(keeper.of(finding), finding, redact=options.redact)
        site = None if finding is None else finding.site
        return written(report, finding, content, options, visits=None if site is None else visits.get(site))
    except Exception:
        report_internal_error()
        return noted(report, FAILED)


def written(
    report: Report, finding: Finding | None, content: Content | None, options: Options, *, visits: Visits | None = None
) -> Report:
    """Write a capsule of a finding; gives the report that says so, or why there is none."""
    from whynan.capsule import pack

    assert options.capsule is not None
    if finding is None or content is None:
        return report if report.verdict == "clean" else no_capsule(report, "no bad number's birth is known")
    if finding.op is None or finding.birth in ("entered", "literal"):
        content = type(content)(why=ENTERED)
    run = report.run.model_copy(update={"data": os.path.abspath(options.capsule)})
    told = report.model_copy(update={"run": run})
    if content.operation is None:
        told = noted(told, Note.of("no_operation", why=content.why))
    elif options.redact:
        told = noted(told, Note.of("capsule_has_values"))
    try:
        pack(options.capsule, told, finding, content, visits=visits, redact=options.redact)
    except OSError as error:
        return no_capsule(report, f"{options.capsule} cannot be written ({error.strerror or error})")
    return told


def chosen(report: Report) -> Finding | None:
    """The finding that is packed: the first whose birth is an operation, else the first."""
    born = (f for f in report.findings if f.op is not None and f.birth not in ("entered", "literal"))
    return next(born, next(iter(report.findings), None))


def no_capsule(report: Report, why: str) -> Report:
    """A report that says why there is no capsule."""
    return noted(report, Note.of("no_capsule", why=why))


def noted(report: Report, note: Note) -> Report:
    """A report with one more note."""
    return report.model_copy(update={"coverage": report.coverage.with_notes(note)})


# -- The node of a finding on its way from the engine's process: a model of its own, its values, what it is told by ----


_MODEL: Final = "node.onnx"
_VALUES: Final = "values"
_TOLD: Final = "kept.json"
_MOST: Final = 16
"""Findings whose nodes are handed over."""
_NATIVE: Final = "biuf"


def hand_over(keeper: NodeKeeper, trace: Trace, executed: onnx.ModelProto, folder: Path, engine: str) -> None:
    """Write the nodes of the escaped findings of a trace into a new folder; `engine`: what has run them."""
    folder.mkdir(mode=0o700)
    for number, finding in enumerate(findings_of(trace).escaped[:_MOST]):
        found = keeper.of(finding)
        if found is not None:
            _write(*found, finding, executed, folder / str(number), engine)


def _write(kept: KeptNode, birth: Birth, finding: Finding, executed: onnx.ModelProto, place: Path, engine: str) -> None:
    from whynan.capture.onnx.single_node import single_node_model
    from whynan.models.onnx.binding import write_feeds

    place.mkdir(mode=0o700)
    told: dict[str, Any] = {"element": _key(finding), "why": kept.why}
    if kept.why is None:
        (place / _MODEL).write_bytes(single_node_model(kept, executed).SerializeToString())
        values = {f"x{n}": value for n, value in enumerate(kept.inputs) if value is not None}
        values |= {f"result.{n}": value for n, value in enumerate(kept.outputs) if value is not None}
        told["op"], told["domain"], told["engine"] = kept.node.op, kept.node.domain, engine
        told["inputs"] = [f"x{n}" if value is not None else "" for n, value in enumerate(kept.inputs)]
        told["values"] = write_feeds(values, place / _VALUES)
        told["around"] = None if birth.around is None else birth.around.model_dump_json()
    (place / _TOLD).write_text(json.dumps(told), encoding="utf-8")


def _key(finding: Finding) -> list[Any]:
    element = finding.element
    index = None if element.index is None else list(element.index)
    return [finding.op, index, element.output, list(element.shape), element.count, element.total]


def content_of(folder: Path, finding: Finding) -> Content:
    """What is to be packed of the node of a finding, from what the engine's process has left."""
    for name in sorted(os.listdir(folder), key=int) if folder.is_dir() else ():
        told: dict[str, Any] = json.loads((folder / name / _TOLD).read_text(encoding="utf-8"))
        if told["element"] == _key(finding):
            return Content(why=told["why"]) if told["why"] else _content(folder / name, told, finding)
    return Content(why=NOT_KEPT)


def _content(place: Path, told: dict[str, Any], finding: Finding) -> Content:
    from whynan.models.onnx.binding import read_feeds

    values: dict[str, Any] = read_feeds(place / _VALUES, told["values"])
    results = tuple(name for name in values if name.startswith("result."))
    bad = results.index(f"result.{finding.element.output}")
    packed = PackedNode(
        op=told["op"],
        domain=told["domain"],
        runner=told["engine"],
        inputs=tuple(told["inputs"]),
        results=results,
        bad=bad,
    )
    model = (place / _MODEL).read_bytes()
    native = all(value.dtype.kind in _NATIVE and value.dtype.isbuiltin for value in values.values())
    return Content(
        operation=packed,
        tensors={name: _stored(value) for name, value in values.items()},
        layouts={name: _layout(value) for name, value in values.items()},
        around=None if told["around"] is None else Neighbourhood.model_validate_json(told["around"]),
        script=onnx_script(packed, fed_to(model), bad, finding.element.index or ()) if native else None,
        node=model,
    )


def fed_to(model: bytes) -> list[str]:
    """The names of what is fed to a one-node model."""
    import onnx

    return [info.name for info in onnx.ModelProto.FromString(model).graph.input]


def _stored(value: Any) -> Stored:
    return Stored(_dtype(value), tuple(value.shape), value.tobytes())


def _layout(value: Any) -> Layout:
    strides = tuple(int(step) // max(value.itemsize, 1) for step in value.strides)
    return Layout(dtype=_dtype(value), shape=tuple(map(int, value.shape)), stride=strides)


def _dtype(value: Any) -> str:
    return cast("str", value.dtype.name)
