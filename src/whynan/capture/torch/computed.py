"""The NumPy line that computed what came in: the source says which it is, living arrays what it was given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from whynan.capture.torch.sentences import text
from whynan.floats import infinity
from whynan.records import ChainLink, Note, Site
from whynan.source.positions import file_of_site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from whynan.capture.torch.sites import Sites
    from whynan.records import Element
    from whynan.source.definitions import Definition

_OPERATIONS: Final = frozenset(
    "log log2 log10 log1p sqrt exp expm1 reciprocal arcsin arccos arctanh arccosh divide true_divide multiply subtract "
    "add power".split()
)
"""Those that compute each element from one of each operand."""
_MOST: Final = 16
"""So many expressions are followed back."""


class Computed(NamedTuple):
    """Where the elements were computed, and the link of a chain that says so."""

    site: Site
    link: ChainLink


class Place(NamedTuple):
    """An element of what came in, and the shape of all of it."""

    at: tuple[int, ...]
    shape: tuple[int, ...]


def computed(sites: Sites, number: int, element: Element, index: tuple[int, ...] | None) -> Computed | None:
    """The expression that made what was converted at a site; None where the source does not surely tell."""
    found = sites.definition(number)
    here, _ = sites.resolve(number, None)
    if found is None or here is None:
        return None
    definition, code = found
    value = element.value
    frame = _frame_of(code)
    given: list[str] = []
    if frame is not None and index is not None:
        definition, given, value = _first_bad(definition, frame, Place(index, element.shape), value)
    if not given and definition.text == sites.first_argument(number):
        # the line of the conversion says it
        return None
    site = _site(definition, code, here)
    made = "NaN" if value is None or value != value else infinity(value)
    said = Note.of("expression", code=definition.text, given=tuple(given), bad=made)
    link = ChainLink(role="cause", op=None, phase="data", site=site, typed_summary=said)
    return Computed(site, link)


def _frame_of(code: CodeType) -> FrameType | None:
    """The frame that still runs a code, if just one does."""
    frame: FrameType | None = sys._getframe()
    found: list[FrameType] = []
    while frame is not None:
        if frame.f_code is code:
            found.append(frame)
        frame = frame.f_back
    return found[0] if len(found) == 1 else None


def _first_bad(definition: Definition, frame: FrameType, place: Place, value: Any) -> tuple[Definition, list[str], Any]:
    """The earliest known expression that leads to an element, what it was given, and the value that it gives."""
    for _ in range(_MOST):
        parts = _parts(definition, frame, place)
        if parts is None or not _gives(definition.operation, [v for _, _, v in parts], value):
            break
        bad = next(((name, v) for name, _, v in parts if name and not np.isfinite(v)), None)
        further = definition.of(bad[0]) if bad is not None else None
        if bad is None or further is None:
            return definition, [f"{way} = {text(float(v))}" for name, way, v in parts if name], value
        definition, value = further, bad[1]
    return definition, [], value


def _parts(definition: Definition, frame: FrameType, place: Place) -> list[tuple[str, str, Any]] | None:
    """The names of an operation's operands, how an element of each is written, and its value as it is now."""
    if definition.operation not in _OPERATIONS:
        return None
    parts: list[tuple[str, str, Any]] = []
    shapes: list[tuple[int, ...]] = []
    for operand in definition.operands:
        if not isinstance(operand, str):
            parts.append(("", "", np.float64(operand)))
            continue
        array = frame.f_locals.get(operand)
        # no subclass: its subscript would be the program's own code
        if type(array) is not np.ndarray or array.dtype.kind not in "fiu":
            return None
        shapes.append(array.shape)
        if array.ndim > len(place.shape):
            return None
        pairs = list(zip(place.at, place.shape, strict=True))[len(place.shape) - array.ndim :]
        if any(n not in (1, whole) for (_, whole), n in zip(pairs, array.shape, strict=True)):
            return None
        where = tuple(0 if n == 1 else i for (i, _), n in zip(pairs, array.shape, strict=True))
        way = f"{operand}[{', '.join(map(str, where))}]" if where else operand
        parts.append((operand, way, array[where]))
    return parts if np.broadcast_shapes(*shapes) == place.shape else None


def _gives(operation: str | None, values: list[Any], value: Any) -> bool:
    """Whether the operation makes this value of these: an array that was changed since does not."""
    if operation is None or not isinstance(value, (float, np.floating)):
        return False
    try:
        with np.errstate(all="ignore"):
            made = float(getattr(np, operation)(*values))
    except (TypeError, ValueError):
        return False
    return made == value or (made != made and value != value)


def _site(definition: Definition, code: CodeType, here: Site) -> Site:
    span, column = definition.span, definition.syntax.column
    return Site(
        file=file_of_site(code.co_filename),
        line=span.line,
        column=column(span.line, span.column),
        end_line=span.end_line,
        end_column=column(span.end_line, span.end_column),
        code=definition.text,
        function=here.function,
    )
