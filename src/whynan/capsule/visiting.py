"""The visits of a function in a capsule: names and values as JSON, tensors beside it."""

from __future__ import annotations

import os
from typing import Any, Final, cast

from whynan.capsule.documents import Visited, VisitedFunction
from whynan.capsule.folders import (
    MOST_TENSORS,
    VISITS_DOCUMENT,
    VISITS_TENSORS,
    CapsuleFolder,
    put,
)
from whynan.capsule.stored import read, written
from whynan.capsule.torch_values import Reading, Spelling
from whynan.report.json import to_json
from whynan.verify.visits import Visit, Visits

SCHEMA: Final = "whynan.visits/1"


def pack_visits(folder: str, visits: Visits) -> None:
    """Write visits into a new folder."""
    spelling = Spelling()
    known: dict[int, Any] = {}
    told = tuple(
        Visited(
            line=visit.line,
            values={name: spelling.value(_copied(value, known)) for name, value in visit.values.items()},
            needs_grad=tuple(sorted(visit.needs_grad)),
        )
        for visit in visits.visits
    )
    document = VisitedFunction(
        path=visits.path,
        sha256=visits.sha256,
        function=visits.function,
        visits=told,
        left_out=visits.left_out,
        layouts=spelling.layouts,
    )
    os.mkdir(folder, 0o700)
    put(folder, VISITS_DOCUMENT, to_json(document).encode())
    put(folder, VISITS_TENSORS, written(spelling.tensors, spelling.layouts))


def open_visits(folder: CapsuleFolder) -> Visits:
    """The visits that a folder holds; raises ``UsageError`` where it holds none."""
    document = folder.told(VISITS_DOCUMENT, VisitedFunction, SCHEMA)
    try:
        tensors = read(folder.needed(VISITS_TENSORS, MOST_TENSORS), document.layouts)
        reading = Reading(tensors, document.layouts)
        visits = tuple(
            Visit(v.line, {name: reading.value(value) for name, value in v.values.items()}, frozenset(v.needs_grad))
            for v in document.visits
        )
    except (ValueError, RuntimeError) as error:
        raise folder.refused(VISITS_TENSORS, str(error)) from None
    return Visits(document.path, document.sha256, document.function, visits, document.left_out)


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """A value with its tensors by value, the same one for the same tensor."""
    import torch

    from whynan.capture.torch.by_value import copied

    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            known[id(value)] = copied(value)
        return known[id(value)]
    if not isinstance(value, list | tuple):
        return value
    copies = [_copied(each, known) for each in cast("list[Any]", value)]
    return copies if isinstance(value, list) else tuple(copies)
