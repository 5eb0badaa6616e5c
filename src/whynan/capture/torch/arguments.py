"""An event's arguments as they were, and which of its elements are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.planes import nan_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from whynan.capture.torch.attribution import Question
    from whynan.capture.torch.operators import Operator

APART: Final = 8
"""So many elements that one event bears are told apart; of more, only NaN from Inf."""


def entry_of(operator: Operator, question: Question, index: int) -> int | None:
    """The entry of a foreach operator's lists that output `index` belongs to."""
    if not operator.foreach:
        return None
    args, kwargs = question.arguments
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return index % len(value)
    return None


def as_before(
    operator: Operator,
    args: Any,
    kwargs: dict[str, Any],
    before: dict[int, Tensor] | None,
    changed_since: frozenset[int] = frozenset(),
) -> tuple[experiments.Arguments, frozenset[int], dict[int, Tensor]]:
    """The arguments as they were: copies in place of what the event overwrote, and the ids of what is gone.

    The mapping gives, for every overwritten argument (or its copy), the tensor that carries the planes.
    """
    gone: set[int] = set(changed_since)
    changed: dict[int, Tensor] = {
        id(t): t for a in (args, kwargs.values()) for t in experiments.tensors_in(list(a)) if id(t) in changed_since
    }
    new_args, new_kwargs = list(args), dict(kwargs)
    for key in operator.mutable:
        holder: Any = new_kwargs if isinstance(key, str) else new_args
        if (isinstance(key, str) and key not in new_kwargs) or (not isinstance(key, str) and key >= len(new_args)):
            continue

        def old(tensor: Tensor) -> Tensor:
            copy = before.get(id(tensor)) if before is not None else None
            if copy is None:
                gone.add(id(tensor))
                changed[id(tensor)] = tensor
                return tensor
            changed[id(copy)] = tensor
            return copy

        holder[key] = experiments.map_tensors(holder[key], old)
    return (tuple(new_args), new_kwargs), frozenset(gone), changed


def apart(born: Tensor, output: Tensor) -> Iterator[tuple[Tensor, int]]:
    """The born elements in parts that may have fates of their own, each with the count of its kind."""
    nan = born & nan_mask(output)
    for kind in (nan, born & ~nan):
        count = int(kind.sum())
        if 0 < count <= APART:
            for place in kind.nonzero():
                part = torch.zeros_like(kind)
                part[tuple(place)] = True
                yield part, count
        elif count:
            yield kind, count
