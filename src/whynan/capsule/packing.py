"""A finding's failing operation, written into a folder of its own: tensors, a document, a script, the report."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.capsule.document import Document, Packed, PackedNode, State
from whynan.capsule.folder import (
    DOCUMENT,
    NODE,
    REPORT,
    SCRIPT,
    SOURCE,
    TENSORS,
    VISITS,
    Stored,
    new_folder,
    serialize_tensors,
    write_private,
)
from whynan.capsule.script import torch_script
from whynan.capsule.values import ValueEncoder, pack_visits
from whynan.report.json import to_json
from whynan.report.redaction import redacted
from whynan.source.positions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capsule.document import Layout
    from whynan.capture.torch.kept_operations import KeptOperation
    from whynan.records import Element, Finding, Neighbourhood, Report
    from whynan.verify.in_place.visits import Visits

PUBLIC: Final = ("aten", "prims")
"""The libraries of operators that come with PyTorch."""
NOT_KEPT: Final = "it was not seen when the bad number was born"
_LARGEST_SOURCE: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a capsule of the failing operation; of one that is not there only ``why``."""

    operation: Packed | PackedNode | None = None
    why: str | None = None
    tensors: Mapping[str, Stored] = field(default_factory=dict[str, Stored])
    layouts: Mapping[str, Layout] = field(default_factory=dict[str, "Layout"])
    around: Neighbourhood | None = None
    script: str | None = None
    node: bytes | None = None


def pack(
    directory: str,
    report: Report,
    finding: Finding,
    content: Content,
    *,
    visits: Visits | None = None,
    redact: bool = False,
) -> None:
    """Write the capsule of a finding of a report into a new folder, whole or not at all.

    Of a run that is redacted, the values of the operands are all that is private in it. Raises ``OSError`` where it
    cannot be written.
    """
    number = next(n for n, other in enumerate(report.findings) if other is finding)
    source = None if redact or finding.site is None else _source(report, finding.site.file)
    told = redacted(report) if redact else report
    document = Document(
        finding=number,
        operation=content.operation,
        why=content.why,
        layouts=dict(content.layouts),
        around=None if redact else content.around,
        source=finding.site.file if source is not None and finding.site is not None else None,
    )
    with new_folder(directory) as folder:
        write_private(folder, DOCUMENT, (to_json(document) + "\n").encode())
        write_private(folder, REPORT, (to_json(told) + "\n").encode())
        if content.operation is not None:
            write_private(folder, TENSORS, serialize_tensors(content.tensors, content.layouts))
        if content.node is not None:
            write_private(folder, NODE, content.node)
        if content.script is not None:
            write_private(folder, SCRIPT, content.script.encode())
        if source is not None:
            write_private(folder, SOURCE, source)
        if visits is not None and not redact:
            pack_visits(os.path.join(folder, VISITS), visits)


def content_of(kept: KeptOperation | None, finding: Finding, *, redact: bool = False) -> Content:
    """What is to be packed of an operation of PyTorch."""
    if kept is None or kept.why is not None:
        return Content(why=NOT_KEPT if kept is None or kept.why is None else kept.why)
    library = kept.op.partition(".")[0]
    if redact and library not in PUBLIC:
        return Content(why="it is of a library of the program's own, whose name --redact leaves out")
    spelling = ValueEncoder()
    try:
        bad = bad_result(kept, finding.element)
        packed = _pack_operation(kept, spelling, bad)
    except TypeError as error:
        return Content(why=str(error))
    index = finding.element.index or ()
    if kept.cut is not None:
        index = (0,) * kept.results[bad].data.dim()
    devices = {n: layout.device for n, layout in spelling.layouts.items() if layout.device != "cpu"}
    changed, many = _mutated_arguments(kept)
    script = torch_script(packed, bad, index, devices, changed, many=many)
    return Content(packed, None, spelling.tensors, spelling.layouts, _neighbourhood(kept, finding), script)


def bad_result(kept: KeptOperation, element: Element) -> int:
    """Which of the results of an operation an element of a finding stands in."""
    from whynan.capture.torch.shadow_memory import bad_mask

    def bears(number: int) -> bool:
        data = kept.results[number].data
        if not data.is_floating_point() and not data.is_complex():
            return False
        if kept.cut is None and element.index is not None:
            return tuple(data.shape) == element.shape and bool(bad_mask(data[element.index]))
        return bool(bad_mask(data).any())

    entries = _entries(kept)
    wanted = None if element.list_index is None or kept.entry is not None else element.list_index
    places = [n for n in range(len(kept.results)) if wanted is None or not entries or n % entries == wanted]
    if element.output in places and bears(element.output):
        return element.output
    return next((n for n in places if bears(n)), 0)


def _pack_operation(kept: KeptOperation, spelling: ValueEncoder, bad: int) -> Packed:
    state = kept.circumstances
    assert state is not None
    return Packed(
        op=kept.op,
        args=tuple(map(spelling.value, kept.args)),
        kwargs={name: spelling.value(value) for name, value in kept.kwargs.items()},
        results=tuple(spelling.tensor(t, f"result.{n}") for n, t in enumerate(kept.results)),
        bad=bad,
        random=None if kept.random is None else spelling.tensor(kept.random, "random"),
        entry=kept.entry,
        cut=kept.cut,
        state=State.model_validate({name: getattr(state, name) for name in State.model_fields}),
    )


def _neighbourhood(kept: KeptOperation, finding: Finding) -> Neighbourhood | None:
    from whynan.capture.torch.kept_operations import is_birth_of

    return next((birth.around for birth in kept.births if is_birth_of(finding, birth)), None)


def _entries(kept: KeptOperation) -> int:
    """How many entries the lists of an operation on lists have; 0 of another."""
    if not kept.op.startswith(("aten._foreach_", "aten._fused_")):
        return 0
    lists = (cast("list[Any]", v) for v in (*kept.args, *kept.kwargs.values()) if isinstance(v, list))
    return next((len(held) for held in lists if held), 0)


def _mutated_arguments(kept: KeptOperation) -> tuple[tuple[str, ...], bool]:
    """The arguments that an operation changes, as expressions of a script; and whether it returns several tensors."""
    from whynan.capsule.document import resolved
    from whynan.capture.torch.operators import operator_of

    operator = operator_of(resolved(kept.op))
    changed: list[str] = []
    for key in operator.mutable:
        value: Any = kept.kwargs.get(key) if isinstance(key, str) else kept.args[key] if key < len(kept.args) else None
        if value is not None:
            expression = f'kwargs["{key}"]' if isinstance(key, str) else f"args[{key}]"
            changed.append(f"*{expression}" if isinstance(value, list) else expression)
    returns = operator.func._schema.returns
    return tuple(changed), len(returns) > 1 or (bool(returns) and "[]" in str(returns[0].type))


def _source(report: Report, file: str) -> bytes | None:
    """The text of a file of the run, if it still is what it was."""
    known = {source.file: source.sha256 for source in report.run.sources}
    try:
        if file not in known or os.path.getsize(file) > _LARGEST_SOURCE or sha256_of(file) != known[file]:
            return None
        return Path(file).read_bytes()
    except OSError:
        return None
