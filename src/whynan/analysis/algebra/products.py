"""Products of matrices and vectors as sums of products of numbers, where they are that."""

# pyright: strict

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from whynan.analysis.algebra.terms import Term, call, multiply

if TYPE_CHECKING:
    from whynan.records import Argument, Operation

_EQUATION: Final = re.compile(r"([^,]+),([^,]+)->(.*)")
"""Of two operands, with what is written of the result; what leaves that out is not read."""


class Operands(Protocol):
    """What is known of the operands of operations: as terms, and as they were given."""

    def base(self, operation: Operation) -> str: ...
    def one(self, operation: Operation, *names: str) -> Term: ...
    def given(self, event: int, *names: str) -> Argument | None: ...


def product_of_matrices(e: Operands, o: Operation) -> Term | None:
    """A product of matrices; of vectors it is a sum of products, and with ones a sum."""
    a, b = e.one(o), e.one(o, "mat2", "vec", "tensor", "other")
    if not _is_dot(e, o):
        if any(_is_ones(e, o, name) for name in ("mat2", "vec", "other")):
            return call("sum", a)
        if _is_ones(e, o, "self"):
            return call("sum", b)
    if (found := _by_equation(e, o, a, b)) is not None:
        return found
    return call("sum", multiply(a, b)) if _is_vectors(e, o) else call("matmul", a, b)


def _by_equation(e: Operands, o: Operation, a: Term, b: Term) -> Term | None:
    """A product element by element, or the sum of one, where the equation says so."""
    given = e.given(o.event, "equation")
    found = None if given is None or given.text is None else _EQUATION.fullmatch(given.text.replace(" ", ""))
    if found is None or found[1] != found[2]:
        return None
    return multiply(a, b) if found[3] == found[1] else call("sum", multiply(a, b))


def _is_ones(e: Operands, o: Operation, name: str) -> bool:
    """Whether all elements of an argument are 1."""
    given = e.given(o.event, name)
    return given is not None and given.min == given.max == 1


def _is_dot(e: Operands, o: Operation) -> bool:
    """Whether it is a product of two vectors by its name, which nobody takes a sum with."""
    return e.base(o) in ("dot", "vdot")


def _is_vectors(e: Operands, o: Operation) -> bool:
    """Whether a product of matrices is one of vectors, one number each."""
    given = [e.given(o.event, name) for name in ("self", "mat2")]
    flat = all(found is not None and found.shape is not None and len(found.shape) == 1 for found in given)
    return flat or _is_dot(e, o) or (o.shape or (0,))[-2:] == (1, 1)
