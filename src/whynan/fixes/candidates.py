"""An edit that might mend a hazard, with what is needed to prove that it does; or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.records.intents import FixKind
    from whynan.source.text import Library


@dataclass(frozen=True, slots=True)
class Instance:
    """A module without parameters that a formula has the function of: what it is called by, and its construction.

    ``settings`` are its constructor's arguments, as literals; None of one that the formula reads from the module.
    """

    callee: str
    function: str
    settings: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A piece of the program's own source as a function of what it reads.

    ``inputs`` are the expressions that it reads, names (``x``) and chains of attributes (``self.eps``), and ``line``
    the 1-based line of the statement before which they have the values that it reads. ``body`` is the body of a
    function in which the input at position ``i`` is called ``parameters[i]``, and which ends in a return of one value
    or a tuple. ``imports`` are the statements that it needs (``import torch.nn.functional as F``), as the file has
    them. ``instances`` are the modules that it has functions for.
    """

    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    line: int
    body: str
    imports: tuple[str, ...] = ()
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One edit of one file: its whole text afterwards, and the formula before and after.

    ``function`` is the qualified name of the function that it is in, None at the top of a module. ``widens``: its value
    is of a wider dtype than the original's. ``library``: whose functions the formulas call.
    """

    title: str
    kind: FixKind
    path: str
    edited: str
    original: Formula
    repaired: Formula
    function: str | None = None
    widens: bool = False
    library: Library = "torch"


@dataclass(frozen=True, slots=True)
class Declined:
    """Why what would mend a hazard cannot be written there; ``unfit``: the expression has another form."""

    title: str
    why: str
    unfit: bool = False
