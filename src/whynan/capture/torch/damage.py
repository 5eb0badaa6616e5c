"""Births that end in finite numbers: whether what was computed from them is wrong, and where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.attribution import Question
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.rows import Row
    from whynan.capture.torch.tracer import Tracer


class Damage:
    """Follows finite values computed from a birth."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def carry(self, question: Question, index: int, carried: Tensor, row: Row) -> None:
        """An event carried bad elements on."""

    def absorbed(
        self, row: Row, operator: Operator, args: Any, kwargs: dict[str, Any], written: list[Tensor],
        bad: list[int], before: list[Tensor | None] | None,
    ) -> None:
        """An event read something bad, and wrote something finite."""
