"""What a kind of ball arithmetic offers: finite balls that enclose a real number, and functions of them."""

# pyright: strict

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager


class Arithmetic(Protocol):
    """Balls with ``+ - *``, ``/`` and ``**`` by an integer, all enclosing; comparisons that are true when certain.

    ``functions`` are those of one ball, called inside their domain only. Each of them, and ``quotient``, ``power`` and
    ``atan2``, gives None where it has no finite ball.
    """

    @property
    def kind(self) -> type:
        """The type of a ball."""
        ...

    @property
    def functions(self) -> Mapping[str, Callable[[Any], Any]]:
        """Functions of one ball, by the names that PyTorch gives them."""
        ...

    def precision(self, bits: int) -> AbstractContextManager[None]:
        """Work with so many bits inside the block."""
        ...

    def ball(self, number: float) -> Any:
        """The exact ball of a finite number."""
        ...

    def less(self, one: Any, other: Any) -> bool:
        """Whether one is certainly less than the other."""
        ...

    def equal(self, one: Any, other: Any) -> bool:
        """Whether both are exact and the same."""
        ...

    def quotient(self, one: Any, other: Any) -> Any:
        """The quotient by a ball without 0."""
        ...

    def power(self, base: Any, exponent: Any) -> Any:
        """A positive ball to the power of another."""
        ...

    def atan2(self, y: Any, x: Any) -> Any:
        """The angle of a point, which is not the origin."""
        ...

    def hull(self, one: Any, other: Any) -> Any:
        """A ball around both."""
        ...

    def floor(self, one: Any) -> int | None:
        """The largest integer not above the ball; None where it is not the same throughout."""
        ...

    def exactly(self, one: Any) -> float | None:
        """The number that an exact ball is; None of another, and of one that is no float64."""
        ...

    def midpoint(self, one: Any) -> float:
        """The middle, rounded to float64; infinite beyond its range."""
        ...

    def radius(self, one: Any) -> float:
        """At least the radius, as float64."""
        ...


def arithmetic() -> Arithmetic:
    """python-flint's balls where it is installed, mpmath's intervals otherwise."""
    if find_spec("flint") is not None:
        from whynan.verify.oracle.flint_balls import FlintBalls

        return FlintBalls()
    from whynan.verify.oracle.intervals import Intervals

    return Intervals()
