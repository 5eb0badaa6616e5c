"""The post-mortem of checkpoints: what their tensors hold, as one validated document (``whynan.checkpoint/1``).

Counters are explicit: that a number is bad is never told from a minimum or maximum. What is unknown is ``null``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from whynan.records.base import Number, Record

Meaning = Literal[
    "the start of a minimum",
    "the start of a maximum",
    "a start value",
    "a mask of 0 and -Inf",
    "taken for a setting or a start value",
]
"""Why infinities are meant that nobody has allowed."""
Unordered = Literal["all store the same step", "they store their steps under different names"]
"""Why checkpoints that all store a step are ordered by name."""
StoredForm = Literal["torch", "torch-legacy", "safetensors", "sharded", "folder"]


class Stored(Record):
    """What a tensor, a bare number or a list of numbers in a checkpoint holds.

    ``name`` is its path into the checkpoint, ``file`` the file of a folder or the shard that it lies in. ``literal``
    says why its infinities are meant, ``same_as`` which tensor it shares its memory with (it is counted there), and
    ``unread`` why its elements could not be counted. A complex number counts as its two parts. ``shape`` is null where
    the rows differ in length, and ``layout`` ``number`` for what is no tensor.
    """

    name: str
    file: str | None = None
    dtype: str
    shape: tuple[int, ...] | None
    layout: str = "strided"
    n: int = 0
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0
    n_zero: int = 0
    n_subnormal: int = 0
    finite_min: Number | None = None
    finite_max: Number | None = None
    bad: bool = False
    literal: str | None = None
    same_as: str | None = None
    unread: str | None = None


class Logged(Record):
    """Bad numbers that the log of a training holds under one name, and the step of the first."""

    name: str
    n: int
    n_bad: int
    first: Number
    step: Number | None


class Checkpoint(Record):
    """One checkpoint: its tensors in the order of the file, and of its bare numbers those that are not finite.

    ``steps`` are what the checkpoint itself says of its age. ``error`` says why it could not be read. ``unloaded`` are
    the classes whose objects were read without their code. Tensors that share memory count once.
    """

    name: str
    path: str
    form: StoredForm | None
    files: tuple[str, ...] = ()
    size: int = 0
    steps: dict[str, Number] = Field(default_factory=dict)
    verdict: Literal["clean", "nonfinite", "unreadable"]
    error: str | None = None
    n_tensors: int = 0
    n_bad: int = 0
    n_bad_numbers: int = 0
    tensors: tuple[Stored, ...] = ()
    numbers: tuple[Stored, ...] = ()
    logged: tuple[Logged, ...] = ()
    unloaded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Order(Record):
    """How several checkpoints were ordered: by a step that each of them stores, or by their names."""

    by: Literal["step", "name"]
    key: str | None = None
    why: str = ""


class Checkpoints(Record):
    """All checkpoints that were looked at, in order; ``first_bad`` and ``last_good`` are places among them."""

    schema_: Literal["whynan.checkpoint/1"] = Field(default="whynan.checkpoint/1", alias="schema")
    verdict: Literal["clean", "nonfinite"]
    versions: dict[str, str] = Field(default_factory=dict)
    order: Order | None = None
    first_bad: int | None = None
    last_good: int | None = None
    unused_allows: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...]

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)
