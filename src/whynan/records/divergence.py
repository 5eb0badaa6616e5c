"""A divergence: where two runs of what ought to be one model part, as a report tells it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whynan.records.base import Number, Record, Site

Source = Literal[
    "model",
    "lowering",
    "precision",
    "optimisation",
    "provider",
    "engine",
    "compiler",
    "data",
    "mathematics",
    "order",
    "memory",
    "hardware",
]


class IntroducedError(Record):
    """What an operation of B makes of the operands that A had, beside what A made of them.

    ``max_ulp`` is in units of the coarser of both formats. ``a``, ``b`` and ``exact``, which is computed in float64,
    are the values at ``index``, the element that is furthest out of line.
    """

    max_abs: Number | None
    max_rel: Number | None
    max_ulp: Number | None
    index: tuple[int, ...]
    a: Number | bool | None
    b: Number | bool | None
    exact: Number | bool | None


class PropagatedError(Record):
    """The rest of the difference between the two values: what came with the operands.

    ``max_rel`` is relative to the largest magnitude of the value.
    """

    max_abs: Number | None
    max_rel: Number | None


class Growth(Record):
    """The difference of the two runs at one value on the way to the outputs, relative to its largest magnitude."""

    value: str
    op: str
    max_rel: Number | None


class Attribution(Record):
    """Where a divergence or a bad step comes from, and the evidence in one sentence.

    ``holds`` is false where the evidence speaks against it, and null where none could be had.
    """

    source: Source
    evidence: str = ""
    holds: bool | None = True


class Divergence(Record):
    """The first operation that introduces an error out of line, on both sides.

    ``tolerance`` is what rounding may make of the element at ``introduced.index``, and ``count`` elements of ``total``
    are out of line. ``other_node``, ``other_op``, ``other_value`` and ``other_site`` are those of A. ``nodes`` are
    those of B that stand with its operation for one or more of A.
    """

    introduced: IntroducedError
    propagated: PropagatedError
    tolerance: Number | None
    count: int
    total: int
    other_node: str
    other_op: str
    other_value: str
    other_site: Site | None = None
    why: str = ""
    nodes: tuple[str, ...] = ()
    growth: tuple[Growth, ...] = ()
    attributions: tuple[Attribution, ...] = ()


class OutputError(Record):
    """How far an output of B is from that of A: None where the two cannot be subtracted.

    ``nan_mismatch`` counts the elements that are NaN or infinite on one side alone.
    """

    name: str
    max_abs: Number | None
    max_rel: Number | None
    nan_mismatch: int = 0


class Aligned(Record):
    """How many of the values of B have a partner in A, and by what they were found.

    ``unaligned`` names the first of the others.
    """

    values: int
    of: int
    by: dict[str, int] = Field(default_factory=dict)
    unaligned: tuple[str, ...] = ()
