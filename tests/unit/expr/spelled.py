"""Expressions spelled at random: the operations that a program would have run, and the numbers that they gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from whynan.expr import Expressions, NormalForm
from whynan.records import Argument, Neighbourhood, Operation

Value = tuple[int | str, Any]
"""The event that gave it, or the name of a leaf, and its numbers."""
Spelling = Callable[["Program", Value], Value]

LEAVES = {"a": np.array([0.7, 1.3, 2.1, 0.4]), "b": np.array([1.9, 0.6, 0.8, 1.2])}
_NUMBERS = {"a": 0, "b": 1}


def _softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum()


_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "_softmax": _softmax,
    "_log_softmax": lambda x: np.log(_softmax(x)),
    "logsumexp": lambda x: np.log(np.exp(x).sum(keepdims=True)),
    "sum": lambda x: x.sum(keepdims=True),
    "mean": lambda x: x.mean(keepdims=True),
    "amax": lambda x: x.max(keepdims=True),
    "std": lambda x: x.std(ddof=1, keepdims=True),
    "var": lambda x: x.var(ddof=1, keepdims=True),
    "linalg_vector_norm": lambda x: np.sqrt((x**2).sum(keepdims=True)),
    "dot": lambda x, y: (x * y).sum(keepdims=True),
    "clone": lambda x: x,
}
_SECOND = {"pow": "exponent", "dot": "tensor"}
_ONNX = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "neg": "Neg", "reciprocal": "Reciprocal",
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh", "sigmoid": "Sigmoid", "_softmax": "Softmax",
    "_log_softmax": "LogSoftmax", "logsumexp": "ReduceLogSumExp", "sum": "ReduceSum", "mean": "ReduceMean",
    "amax": "ReduceMax", "linalg_vector_norm": "ReduceL2", "clone": "Identity",
}  # fmt: skip
_OPERANDS = {
    "Add": "AB", "Sub": "AB", "Mul": "AB", "Div": "AB", "Pow": "XY", "Neg": "X", "Reciprocal": "X", "Sqrt": "X",
    "Identity": "X",
}  # fmt: skip


@dataclass
class Program:
    """What has been run so far."""

    dialect: Literal["aten", "onnx"] = "aten"
    operations: list[Operation] = field(default_factory=list)

    def run(self, name: str, *operands: Value | float) -> Value:
        """Run one operation."""
        values = [o[1] if isinstance(o, tuple) else o for o in operands]
        out = np.asarray(_COMPUTED[name](*values))
        aten = ["self", _SECOND.get(name, "other")]
        op = f"aten.{name}.default"
        if self.dialect == "onnx":
            op = _ONNX[name]
            default = ["data"] if op.startswith("Reduce") else ["input"]
            aten = list(_OPERANDS.get(op, "")) or default
        event = len(self.operations)
        given = tuple(self._argument(n, o) for n, o in zip(aten, operands, strict=False))
        self.operations.append(Operation(event=event, op=op, hops=0, arguments=given, shape=tuple(out.shape)))
        return event, out

    def _argument(self, name: str, operand: Value | float) -> Argument:
        if not isinstance(operand, tuple):
            if self.dialect == "aten":
                return Argument(name=name, value=operand)
            return Argument(name=name, elements=hash(operand) % 9973 + 2, shape=(), min=operand, max=operand)
        of, values = operand
        where: dict[str, Any] = {"event": of} if isinstance(of, int) else {"elements": _NUMBERS[of]}
        shown = {"shape": np.shape(values), "min": float(values.min()), "max": float(values.max())}
        return Argument(name=name, **where, **shown)

    def term(self, value: Value) -> NormalForm:
        """The normal form of a value."""
        assert isinstance(value[0], int)
        around = Neighbourhood(dialect=self.dialect, middle=value[0], operations=tuple(self.operations))
        return Expressions(around).output_term(value[0])


def computed(term: NormalForm, leaves: dict[str, Any]) -> Any:
    """The numbers of a term."""
    if term.kind == "leaf":
        return leaves[term.name]
    parts = [(computed(part, leaves), number) for part, number in term.parts]
    if term.kind == "sum":
        return term.constant + sum(value * factor for value, factor in parts)
    if term.kind == "product":
        return np.prod(np.broadcast_arrays(*[value**power for value, power in parts]), axis=0)
    (only, _), *_ = parts
    if term.name == "deviations":
        return ((only - only.mean()) ** 2).sum(keepdims=True)
    known = {"softmax": "_softmax", "log_softmax": "_log_softmax", "max": "amax"}
    return _COMPUTED[known.get(term.name, term.name)](only)


def spelled(name: str, program: Program, x: Value, y: Value, choice: int) -> Value:
    """One of the ways to write an expression, by its number."""
    ways = SPELLINGS[name]
    return ways[choice % len(ways)](program, x, y)


SPELLINGS: dict[str, Sequence[Callable[[Program, Value, Value], Value]]] = {
    "sub": (
        lambda p, x, y: p.run("sub", x, y),
        lambda p, x, y: p.run("add", x, p.run("neg", y)),
        lambda p, x, y: p.run("neg", p.run("sub", y, x)),
        lambda p, x, y: p.run("add", p.run("mul", y, -1.0), x),
    ),
    "div": (
        lambda p, x, y: p.run("div", x, y),
        lambda p, x, y: p.run("mul", x, p.run("reciprocal", y)),
        lambda p, x, y: p.run("mul", p.run("pow", y, -1.0), x),
        lambda p, x, y: p.run("div", p.run("clone", x), y),
    ),
    "root": (
        lambda p, x, _: p.run("sqrt", x),
        lambda p, x, _: p.run("pow", x, 0.5),
    ),
    "square": (
        lambda p, x, _: p.run("mul", x, x),
        lambda p, x, _: p.run("pow", x, 2.0),
    ),
    "sigmoid": (
        lambda p, x, _: p.run("sigmoid", x),
        lambda p, x, _: p.run("reciprocal", p.run("add", p.run("exp", p.run("neg", x)), 1.0)),
        lambda p, x, _: p.run("div", p.run("exp", x), p.run("add", p.run("exp", x), 1.0)),
        lambda p, x, _: p.run("add", p.run("mul", p.run("tanh", p.run("div", x, 2.0)), 0.5), 0.5),
    ),
    "tanh": (
        lambda p, x, _: p.run("tanh", x),
        lambda p, x, _: p.run(
            "div",
            p.run("sub", p.run("exp", x), p.run("exp", p.run("neg", x))),
            p.run("add", p.run("exp", x), p.run("exp", p.run("neg", x))),
        ),
        lambda p, x, _: p.run("sub", p.run("mul", p.run("sigmoid", p.run("mul", x, 2.0)), 2.0), 1.0),
        lambda p, x, _: p.run(
            "div",
            p.run("sub", p.run("exp", p.run("mul", x, 2.0)), 1.0),
            p.run("add", p.run("exp", p.run("mul", x, 2.0)), 1.0),
        ),
    ),
    "softmax": (
        lambda p, x, _: p.run("_softmax", x),
        lambda p, x, _: p.run("div", p.run("exp", x), p.run("sum", p.run("exp", x))),
        lambda p, x, _: by_hand(p, p.run("sub", x, p.run("amax", x))),
    ),
    "log_softmax": (
        lambda p, x, _: p.run("_log_softmax", x),
        lambda p, x, _: p.run("sub", x, p.run("logsumexp", x)),
        lambda p, x, _: p.run("sub", x, p.run("log", p.run("sum", p.run("exp", x)))),
    ),
    "logsumexp": (
        lambda p, x, _: p.run("logsumexp", x),
        lambda p, x, _: p.run("log", p.run("sum", p.run("exp", x))),
        lambda p, x, _: p.run(
            "add",
            p.run("amax", x),
            p.run("log", p.run("sum", p.run("exp", p.run("sub", x, p.run("amax", x))))),
        ),
    ),
    "norm": (
        lambda p, x, _: p.run("linalg_vector_norm", x),
        lambda p, x, _: p.run("sqrt", p.run("sum", p.run("mul", x, x))),
        lambda p, x, _: p.run("pow", p.run("sum", p.run("pow", x, 2.0)), 0.5),
    ),
    "one minus": (
        lambda p, x, _: p.run("add", p.run("neg", x), 1.0),
        lambda p, x, _: p.run("neg", p.run("sub", x, 1.0)),
    ),
}
"""Each expression in all its ways, of x and y."""

IN_ATEN_ONLY: dict[str, Sequence[Callable[[Program, Value, Value], Value]]] = {
    "sub": (lambda p, x, y: p.run("rsub", y, x),),
    "root": (lambda p, x, _: p.run("reciprocal", p.run("rsqrt", x)),),
    "square": (lambda p, x, _: p.run("square", x),),
    "norm": (lambda p, x, _: p.run("sqrt", p.run("dot", x, x)),),
    "one minus": (lambda p, x, _: p.run("rsub", x, 1.0),),
    "bits": (
        lambda p, x, _: p.run("log2", x),
        lambda p, x, _: p.run("div", p.run("log", x), float(np.log(2.0))),
    ),
    "log1p": (
        lambda p, x, _: p.run("log1p", x),
        lambda p, x, _: p.run("log", p.run("add", x, 1.0)),
    ),
    "deviation": (
        lambda p, x, _: p.run("std", x),
        lambda p, x, _: p.run("sqrt", p.run("var", x)),
        lambda p, x, _: p.run(
            "sqrt", p.run("div", p.run("sum", p.run("pow", p.run("sub", x, p.run("mean", x)), 2.0)), 3.0)
        ),
    ),
}


def by_hand(program: Program, x: Value) -> Value:
    """A softmax, written out."""
    return program.run("div", program.run("exp", x), program.run("sum", program.run("exp", x)))
