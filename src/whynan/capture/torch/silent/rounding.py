"""Constants that a dtype rounds away, and casts that saturate: what was lost there, if anything was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.provenance.operands import dtype_name
from whynan.capture.torch.shadow_memory import is_readable
from whynan.floats import FORMATS, format_of

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.event_log import Rows
    from whynan.capture.torch.operators import Operator
    from whynan.records import DamageKind

SUMS: Final = frozenset(("add", "add_"))
CASTS: Final = frozenset("_to_copy copy_".split())
_SATURATING: Final = (torch.float8_e4m3fn,)
"""Without infinities: what is out of their range becomes their maximum (pytorch 2.13)."""


class LostElements(NamedTuple):
    """What an event did to the elements of its output at `where`, which were those of `source` before.

    `argument`: which of the event's arguments that is; None for none of them.
    """

    kind: DamageKind
    where: Tensor
    source: Tensor
    numbers: dict[str, float]
    argument: int | None = 0


def find_lost_addend(
    _rows: Rows, operator: Operator, args: Any, kwargs: Any, output: Tensor, _before: dict[int, Tensor] | None
) -> LostElements | None:
    """A constant added to 0 that is 0 in the dtype."""
    other = args[1] if len(args) > 1 else None
    if type(other) is not float or not _known(output):
        return None
    constant = other * kwargs.get("alpha", 1) if kwargs else other
    if not _is_zero(constant, output):
        return None
    # what is 0 after it was 0 before
    return _lost("vanished", output == 0, output, {"eps": abs(constant), "bound": 0.0}) if operator.arg_names else None


def find_lost_bound(
    _rows: Rows, operator: Operator, args: Any, kwargs: Any, output: Tensor, _before: dict[int, Tensor] | None
) -> LostElements | None:
    """A bound beside 0 or beside 1 that is 0 or 1 in the dtype, where an element lies on it."""
    if not _known(output):
        return None
    for bound in _bounds(operator, args, kwargs):
        if _is_zero(bound, output):
            return _lost("vanished", output == 0, output, {"eps": abs(bound), "bound": 0.0})
        margin = 1 - abs(bound)
        if 0 < margin <= format_of(dtype_name(output.dtype)).eps / 4:
            end = 1.0 if bound > 0 else -1.0
            return _lost("vanished", output == end, output, {"eps": margin, "bound": end})
    return None


def find_saturation(
    _rows: Rows, _operator: Operator, args: Any, _kwargs: Any, output: Tensor, _before: dict[int, Tensor] | None
) -> LostElements | None:
    """A cast to a format without infinities, of what is out of its range."""
    if output.dtype not in _SATURATING:
        return None
    number = 1 if len(args) > 1 and isinstance(args[1], torch.Tensor) else 0
    source = args[number]
    if not source.is_floating_point() or source.shape != output.shape or source.element_size() == 1:
        return None
    if not source.numel():
        return None
    most = torch.finfo(output.dtype).max
    # what rounds to the maximum is no more than half of the distance to the number that would come next above it
    beyond = (source.abs() > most * (1 + torch.finfo(output.dtype).eps / 2)) & (output.float().abs() == most)
    numbers = {"limit": most, "largest": float(source.abs().max())}
    return LostElements("saturated", beyond, source, numbers, number) if bool(beyond.any()) else None


def _lost(kind: DamageKind, where: Tensor, source: Tensor, numbers: dict[str, float]) -> LostElements | None:
    return LostElements(kind, where, source, numbers) if bool(where.any()) else None


def _known(output: Tensor) -> bool:
    return output.is_floating_point() and is_readable(output) and dtype_name(output.dtype) in FORMATS


def _is_zero(constant: float, output: Tensor) -> bool:
    """Whether a constant that is not 0 is 0 in the dtype of a tensor."""
    return 0 < abs(constant) <= format_of(dtype_name(output.dtype)).smallest_subnormal / 2


def _bounds(operator: Operator, args: Any, kwargs: Any) -> list[float]:
    given = (*zip(operator.arg_names[1:], args[1:], strict=False), *kwargs.items())
    return [float(bound) for name, bound in given if name in ("min", "max") and type(bound) in (int, float)]
