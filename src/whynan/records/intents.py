"""What would mend a hazard: an expression that is looked for, and one that takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FixKind = Literal["reformulation", "guard", "epsilon", "setting"]
"""How a fix is judged.

A ``reformulation`` is the same function, computed otherwise: it may differ by the rounding noise of the original. A
``guard`` changes nothing but what is bad: every healthy element stays within 2 ulp. An ``epsilon`` moves healthy
elements, and says so. A ``setting`` is no expression: an argument of an optimizer or a scaler, said in its title.
"""


@dataclass(frozen=True, slots=True)
class FixIntent:
    """What would mend a hazard, in a small language that both PyTorch source and ONNX graphs are read as.

    ``pattern`` and ``replacement`` are expressions in Python's syntax. A name that is called is an operator, by the
    name that PyTorch gives its function (``log``, ``softmax(x, d)``, ``sum(x, d, k)``: input, dim, keepdim); a name
    that is not is a variable, which stands for any expression, and for the same one wherever it occurs. Arguments
    that are missing in the source are no obstacle: ``sum(x, d, k)`` is also ``x.sum()``, and what was missing is
    missing in the replacement. ``+ - * / **`` and numbers are what they are; sums and products are matched in any
    order.
    A subscript of slices, ``x[..., 1:]``, is written as the source has it.
    ``freedom(x, d)`` is the correction 1 of a variance over d, or 0 where that is of 1 element.
    ``count(x, d)`` is the number of elements over d, or of all, at least 1.
    ``finfo(x).tiny``, ``finfo(x).eps``, ``finfo(x).max``, ``finfo(x).min`` are those of x's dtype.

    What a replacement has more than once is computed once: in source on a line of its own above the statement, in a
    graph as one node. ``names`` says what such parts, and variables that are, are called there: pairs of a name and
    an expression, which stands in the replacement as it is written here.

    A ``setting`` has neither pattern nor replacement. Of ``dtypes``, where there are any, the birth must be for it to
    be advice: bfloat16 in place of float16 helps, in place of float32 it does not.
    """

    title: str
    kind: FixKind
    pattern: str = ""
    replacement: str = ""
    names: tuple[tuple[str, str], ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArgumentIntent:
    """What would mend a hazard at the line that constructs an object of the program's: one argument of the call.

    ``rules`` are the codes of the hazards, ``classes`` the full public names of those it may construct. ``owner`` says
    what the object is: the optimizer of the step, whose parameter groups hold the argument, a module that was
    called, which has it as an attribute, or the configuration of one, of a library whose name is then in place of
    classes. ``parameters`` are those of the constructor in order up to the argument, where
    a call may give it by position. ``values`` are pairs of a dtype and a Python literal; that of ``""`` is for all
    others. The ``kind`` says how it is judged, and ``instead`` what is given where that is a choice.
    """

    rules: tuple[str, ...]
    classes: tuple[str, ...]
    name: str
    kind: FixKind
    values: tuple[tuple[str, str], ...]
    owner: Literal["optimizer", "module", "config"] = "module"
    parameters: tuple[str, ...] = ()
    instead: str = ""

    def value_for(self, dtype: str) -> str:
        """The literal for births of a dtype."""
        known = dict(self.values)
        return known.get(dtype, known[""])


@dataclass(frozen=True, slots=True)
class OperandIntent:
    """What a call of some objects is to be given in place of one of its operands: a guard, which moves no other value.

    ``classes`` are full public names, ``method`` the one that is called (``forward``: the module itself), ``operand``
    its parameter and ``position`` where a call may give it without a name. ``replacement`` is written in the terms of a
    fix, of ``x``; ``dtype`` is the kind that the operand has to have. ``instead`` is what is given then.
    """

    rules: tuple[str, ...]
    classes: tuple[str, ...]
    method: str
    operand: str
    position: int
    dtype: Literal["bool", "float"]
    title: str
    replacement: str
    instead: str = ""
