"""The exact values of a case, asked of the oracle as arrays that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.verify.memories import Unrecordable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.verify.cases import Case
    from whynan.verify.comparing import Truth


class Unknowable(Exception):
    """The exact values cannot be had; the text names the operation that the oracle lacks."""


def truths(
    original: Callable[..., Any], case: Case, new: Mapping[str, Any], *, bits: int, noisy: bool
) -> dict[str, Truth]:
    raise Unknowable("anything")
