"""Bad values from before the run: NumPy lines that computed an input, weights that an earlier step has spoilt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from whynan.capture.torch.shadow_memory import local
from whynan.capture.torch.sinks.gradients import parameters_of
from whynan.floats import format_value, infinity, short_text
from whynan.ops.table import TORCH
from whynan.records import ChainLink, Note, Site
from whynan.source.positions import file_of_site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from torch import Tensor

    from whynan.capture.torch.names import Names
    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.capture.torch.sites import Sites
    from whynan.records import Element
    from whynan.source.definitions import Definition


# -- The NumPy line that computed what came in: the source says which it is, living arrays what it was given -----------


_OPERATIONS: Final = TORCH.names("numpy").keys()
"""Those that compute each element from one of each operand."""
_MOST: Final = 16
"""So many expressions are followed back."""


class ComputationSite(NamedTuple):
    """Where the elements were computed, and the link of a chain that says so."""

    site: Site
    link: ChainLink


class Place(NamedTuple):
    """An element of what came in, and the shape of all of it."""

    at: tuple[int, ...]
    shape: tuple[int, ...]


def find_computation(
    sites: Sites, number: int, element: Element, index: tuple[int, ...] | None
) -> ComputationSite | None:
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
    said = Note.create("expression", code=definition.text, given=tuple(given), bad=made)
    link = ChainLink(role="cause", op=None, phase="data", site=site, typed_summary=said)
    return ComputationSite(site, link)


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
        further = definition.definition_of(bad[0]) if bad is not None else None
        if bad is None or further is None:
            return definition, [f"{way} = {short_text(float(v))}" for name, way, v in parts if name], value
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


# -- What a replay begins with: weights and buffers that an earlier step, or something before it, has left NaN or Inf


class Inherited:
    """What the parameters of an optimizer, and the buffers, were when the step that is run again began."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._parameters = {_storage(p) for p in parameters_of(fault.optimizer)} - {None}

    def describe(
        self, tensor: Tensor, name: str | None, kind: str | None, names: Names
    ) -> tuple[str | None, str | None, Note | None]:
        """The name and the kind of a tensor, and since when it is bad; nothing of what is neither weight nor buffer."""
        if _storage(tensor) in self._parameters:
            optimizer, step = self.fault.optimizer, self.fault.step
            before = Note.create("bad_before", step=step)
            since = (
                Note.create("spoilt_during", step=step - 1, optimizer=described(optimizer, tensor))
                if step > 1
                else before
            )
            return name or names.leaf_name(tensor), kind or "parameter", since
        return name, kind, Note.create("bad_before", step=self.fault.step) if kind in ("parameter", "buffer") else None


def described(optimizer: Any, parameter: Tensor) -> str:
    """An optimizer and the numbers that it updates a parameter with: ``Adam, lr 0.1, eps 0``."""
    groups = (g for g in optimizer.param_groups if any(_storage(p) == _storage(parameter) for p in g["params"]))
    settings = [(name, value) for name, value in next(groups, {}).items() if name != "params" and _is_told(value)]
    # a factor of 0 is switched off; what keeps a denominator from 0 is not
    said = [f"{name} {_number(value)}" for name, value in settings if name == "eps" or value != 0]
    return ", ".join([type(optimizer).__name__, *said])


def state_at(optimizer: Any, parameter: Tensor) -> str:
    """What an optimizer keeps for the first bad element of a parameter: ``step 1, exp_avg 0``; empty if nothing."""
    state: Any = optimizer.state.get(parameter) or {}
    here = local(parameter)
    assert here is not None
    place = _first(here)
    said: list[str] = []
    for name, held in state.items() if isinstance(state, dict) else ():
        kept = local(held) if isinstance(held, torch.Tensor) else held
        if isinstance(kept, torch.Tensor) and kept.layout is torch.strided and not kept.is_complex():
            if kept.numel() == 1:
                said.append(f"{name} {_number(kept.item())}")
            elif kept.shape == here.shape:
                said.append(f"{name} {_number(kept[place].item())}")
        elif _is_told(kept):
            said.append(f"{name} {_number(kept)}")
    return ", ".join(said)


def _first(parameter: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in (~torch.isfinite(parameter.detach())).nonzero()[0])


def _is_told(value: object) -> bool:
    """Whether a setting is a number, or several; a switch is none."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_told, value))
    return type(value) in (int, float)


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_number(each) for each in value)})"
    return format_value(float(value))


def _storage(tensor: Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        return None
