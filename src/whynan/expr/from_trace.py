"""Terms from the operations around a birth: ATen's and ONNX's spellings of one expression."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from whynan.expr.normal import LARGEST, ONE, Term, add, call, leaf, multiply, number, power, scale, sigmoid, subtract
from whynan.ops.aten import base_name
from whynan.ops.onnx import bases, meaning, op_type
from whynan.ops.table import ONNX, TORCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Argument, Neighbourhood, Operation


# -- From the operations around a birth to terms: ATen's and ONNX's spellings of one expression give one term ----------
#
# Views, casts and copies are transparent, and so are a choice of elements, a clip that has changed nothing, and a
# constant that is added to keep something away from 0: whether it does is told by the operands of the birth.


TINY: Final = 1.1e-3
"""Up to here a constant in a sum is one that keeps it away from 0."""
_APART: Final = {"ReduceL1": "sum_of_magnitudes", "ReduceSumSquare": "sum_of_squares"}
"""What ATen has no operator for, beside the one that comes nearest."""


class Expressions:
    """The terms of a neighbourhood's operations, each made once."""

    def __init__(self, around: Neighbourhood) -> None:
        self.middle = around.middle
        self._onnx = around.dialect == "onnx"
        self.operations = {operation.event: operation for operation in around.operations}
        self._terms: dict[int, Term] = {}

    def base(self, operation: Operation) -> str:
        """The base name of what an operation does, in ATen's vocabulary."""
        if self._onnx:
            return _APART.get(op_type(operation.op)) or meaning(operation.op).base
        name = base_name(operation.op)
        return name if name.startswith("__") else name.removesuffix("_")

    def of(self, event: int) -> Term:
        """The term of what an event wrote; a leaf of an event that is not known."""
        known = self._terms.get(event)
        if known is None:
            operation = self.operations.get(event)
            known = leaf(f"event {event}") if operation is None else self._read(operation)
            self._terms[event] = known = known if known.size <= LARGEST else leaf(f"event {event}")
        return known

    def argument(self, event: int, *names: str) -> Term | None:
        """The term of an argument of an event, by its name in ATen's vocabulary; None where there is none."""
        operation = self.operations.get(event)
        found = None if operation is None else self._named(operation, *names)
        return None if found is None else self._term(found)

    def given(self, event: int, *names: str) -> Argument | None:
        """An argument of an event as it was recorded."""
        operation = self.operations.get(event)
        return None if operation is None else self._named(operation, *names)

    def after(self) -> tuple[int, ...]:
        """The events that have read what was born, or what was computed from it; the next first."""
        found = [o for o in self.operations.values() if o.hops > 0]
        return tuple(o.event for o in sorted(found, key=lambda o: (o.hops, o.event)))

    def sees_through(self, event: int) -> bool:
        """Whether an event gives its operand's elements again."""
        return event in self.operations and self.base(self.operations[event]) in bases("see-through")

    # -- one operation -------------------------------------------------------------------------------------------

    def _named(self, operation: Operation, *names: str) -> Argument | None:
        known = meaning(operation.op) if self._onnx else None
        for name in names:
            for found in operation.arguments:
                if (found.name if known is None else known.theirs(found.name)) == name:
                    return found
        return None

    def terms(self, operation: Operation) -> list[Term]:
        """The terms of all tensors among the arguments."""
        return [self._term(a) for a in operation.arguments if a.shape is not None or a.event is not None]

    def _term(self, argument: Argument) -> Term:
        if argument.shape is None and argument.elements is None:
            value = argument.value
            return leaf("?") if value is None or not math.isfinite(value) else number(float(value))
        if self._is_constant(argument):
            return number(float(argument.min or 0.0))
        if argument.event is not None:
            made = self.of(argument.event)
            whole = self.operations.get(argument.event)
            several = whole is not None and self.base(whole) in TORCH.having("several")
            # which of its outputs it is, its elements tell
            return call("part", made, leaf(f"{argument.elements}")) if several else made
        return leaf(f"x{argument.elements}")

    def _is_constant(self, argument: Argument) -> bool:
        """Whether a tensor is a number that the program or the model writes; data that are all equal are none."""
        if argument.min is None or argument.min != argument.max or not math.isfinite(argument.min):
            return False
        single = argument.shape is not None and math.prod(argument.shape) == 1
        if argument.event is None:
            return self._onnx and single
        made = self.operations.get(argument.event)
        if made is None:
            return False
        if self._onnx:
            return single and op_type(made.op) in ONNX.having("constant")
        name = base_name(made.op)
        return name in TORCH.having("value-free") and (single or (name.endswith("_like") and argument.min != 0))

    def numeric(self, operation: Operation, *names: str) -> float | None:
        """An argument that is a number."""
        found = self._named(operation, *names)
        return None if found is None else self._term(found).number

    def _read(self, operation: Operation) -> Term:
        base = self.base(operation)
        reads = _READERS.get(base)
        made = reads(self, operation) if reads is not None else None
        if made is not None:
            return made
        arguments = self.terms(operation)
        if base in bases("see-through"):
            # under vmap a number comes as the copy of a number
            return self.one(operation)
        if base in TORCH.having("limit") and arguments and self._changes_nothing(operation, base):
            return arguments[0]
        return call(base, *arguments) if arguments else leaf(f"event {operation.event}")

    def _changes_nothing(self, operation: Operation, base: str) -> bool:
        given = self._named(operation, "self", "input", "X")
        low = 0.0 if base == "relu" else self.numeric(operation, "min", "min_val")
        high = self.numeric(operation, "max", "max_val")
        if given is None or given.min is None or given.max is None or (low is None and high is None):
            return False
        return (low is None or given.min >= low) and (high is None or given.max <= high)

    # -- what several spellings have in common -------------------------------------------------------------------

    def one(self, operation: Operation, *names: str) -> Term:
        """The argument of this name, else the first."""
        found = self._named(operation, *names, "self", "input")
        if found is not None:
            return self._term(found)
        arguments = self.terms(operation)
        return arguments[0] if arguments else leaf(f"event {operation.event}")

    def two(self, operation: Operation, first: str = "self", second: str = "other") -> tuple[Term, Term]:
        """Two arguments by their names."""
        return self.one(operation, first), self.one(operation, second)

    def apart(self, operation: Operation) -> tuple[Term, Term]:
        """Two arguments, which are told apart where they are two choices of one tensor's elements."""
        a, b = (self._named(operation, name) for name in ("self", "other"))
        x, y = self.two(operation)
        if a is None or b is None or a.event is None or a.event != b.event or a.elements == b.elements:
            return x, y
        return call("part", x, leaf(f"{a.elements}")), call("part", y, leaf(f"{b.elements}"))

    def factor(self, operation: Operation, name: str) -> float:
        """A factor that is 1 unless it is given: alpha, value."""
        return self.numeric(operation, name) or 1.0

    def count(self, operation: Operation) -> float | None:
        """How many elements a reduction takes together; None where that is not known."""
        given = self._named(operation, "self", "input")
        if given is None or given.shape is None or operation.shape is None:
            return None
        whole, made = math.prod(given.shape), math.prod(operation.shape)
        return whole / made if made and whole else None

    def exponent(self, event: int) -> float | None:
        """The exponent of a power: a number, or the value of a tensor that holds only one."""
        operation = self.operations.get(event)
        given = None if operation is None else self._named(operation, "exponent")
        if given is None:
            return None
        if given.min is not None and given.min == given.max and given.shape is not None and math.prod(given.shape) == 1:
            return float(given.min) if math.isfinite(given.min) else None
        return self._term(given).number


def _added(e: Expressions, o: Operation) -> Term:
    return _padded(add(e.one(o), scale(e.factor(o, "alpha"), e.one(o, "other"))))


def _subtracted(e: Expressions, o: Operation) -> Term:
    first, second = e.apart(o)
    return _padded(subtract(first, scale(e.factor(o, "alpha"), second)))


def _rsub(e: Expressions, o: Operation) -> Term:
    return _padded(subtract(e.one(o, "other"), scale(e.factor(o, "alpha"), e.one(o))))


def _padded(term: Term) -> Term:
    """A sum without the constant that keeps it away from 0."""
    if term.kind == "sum" and term.parts and 0 < abs(term.constant) <= TINY:
        return add(term, number(-term.constant))
    return term


def _powered(e: Expressions, o: Operation) -> Term | None:
    base, exponent = e.two(o, "self", "exponent")
    if (value := e.exponent(o.event)) is not None:
        return power(base, value)
    if (value := base.number) is not None and value > 0:
        return call("exp", scale(math.log(value), exponent))
    return call("pow", base, exponent)


def _mean(e: Expressions, o: Operation) -> Term:
    count = e.count(o)
    return call("mean", e.one(o)) if count is None else scale(1 / count, call("sum", e.one(o)))


def _variance(e: Expressions, o: Operation) -> Term:
    count, x = e.count(o), e.one(o)
    correction = e.numeric(o, "correction", "unbiased")
    free = None if count is None else count - (1.0 if correction is None else correction)
    return scale(1 / free, call("deviations", x)) if free and free > 0 else call("var", x)


def _norm(e: Expressions, o: Operation) -> Term | None:
    kind = e.numeric(o, "ord", "p")
    x = e.one(o)
    if kind in (None, 2.0):
        return power(call("sum", power(x, 2)), 0.5)
    return call("sum", call("abs", x)) if kind == 1 else call("norm", x)


def _squared_error(e: Expressions, o: Operation) -> Term | None:
    squared = power(subtract(e.one(o), e.one(o, "target")), 2)
    reduction, count = e.numeric(o, "reduction"), e.count(o)
    if reduction == 0:
        return squared
    return call("sum", squared) if reduction == 2 or count is None else scale(1 / count, call("sum", squared))


def _chosen(e: Expressions, o: Operation) -> Term | None:
    terms = e.terms(o)
    if len(terms) != 3:
        return None
    return _where(terms[0], e.one(o, "self", "X"), e.one(o, "other", "Y"))


def _filled(e: Expressions, o: Operation) -> Term:
    return _where(e.one(o, "mask"), e.one(o, "value"), e.one(o))


def _where(mask: Term, chosen: Term, other: Term) -> Term:
    if mask.is_call("bitwise_not", "logical_not", "not"):
        return call("where", mask.arguments[0], other, chosen)
    if mask.is_call("isnan") and mask.arguments[0] == chosen:
        # of a NaN it is NaN anyway
        return other
    return other if _is_limit(mask, chosen, other) else call("where", mask, chosen, other)


def _is_limit(mask: Term, chosen: Term, product: Term) -> bool:
    """Whether 0 is chosen for ``x log(y)`` where x is 0, as xlogy does."""
    at = mask.arguments[0] if mask.is_call("equal") and mask.arguments[1:] == (number(0),) else None
    if at is None or chosen not in (at, number(0)) or product.kind != "product":
        return False
    return at in product.arguments and any(part.is_call("log") for part in product.arguments)


# -- Products of matrices and vectors as sums of products of numbers, where they are that ------------------------------


_EQUATION: Final = re.compile(r"([^,]+),([^,]+)->(.*)")
"""Of two operands, with what is written of the result; what leaves that out is not read."""


def _product_of_matrices(e: Expressions, o: Operation) -> Term | None:
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


def _by_equation(e: Expressions, o: Operation, a: Term, b: Term) -> Term | None:
    """A product element by element, or the sum of one, where the equation says so."""
    given = e.given(o.event, "equation")
    found = None if given is None or given.text is None else _EQUATION.fullmatch(given.text.replace(" ", ""))
    if found is None or found[1] != found[2]:
        return None
    return multiply(a, b) if found[3] == found[1] else call("sum", multiply(a, b))


def _is_ones(e: Expressions, o: Operation, name: str) -> bool:
    """Whether all elements of an argument are 1."""
    given = e.given(o.event, name)
    return given is not None and given.min == given.max == 1


def _is_dot(e: Expressions, o: Operation) -> bool:
    """Whether it is a product of two vectors by its name, which nobody takes a sum with."""
    return e.base(o) in ("dot", "vdot")


def _is_vectors(e: Expressions, o: Operation) -> bool:
    """Whether a product of matrices is one of vectors, one number each."""
    given = [e.given(o.event, name) for name in ("self", "mat2")]
    flat = all(found is not None and found.shape is not None and len(found.shape) == 1 for found in given)
    return flat or _is_dot(e, o) or (o.shape or (0,))[-2:] == (1, 1)


# -- Functions that ATen and ONNX have in common -----------------------------------------------------------------------


def _softplus(e: Expressions, o: Operation) -> Term | None:
    beta = e.numeric(o, "beta")
    return call("log", add(ONE, call("exp", e.one(o)))) if beta in (None, 1.0) else None


def _extreme(name: str) -> Callable[[Expressions, Operation], Term | None]:
    def read(e: Expressions, o: Operation) -> Term | None:
        terms = e.terms(o)
        return call("maximum" if name == "max" else "minimum", *terms) if len(terms) == 2 else call(name, *terms[:1])

    return read


def _of_one(make: Callable[[Term], Term]) -> Callable[[Expressions, Operation], Term | None]:
    return lambda e, o: make(e.one(o))


def _named(name: str) -> Callable[[Expressions, Operation], Term | None]:
    return lambda e, o: call(name, e.one(o))


_READERS: Final[dict[str, Callable[[Expressions, Operation], Term | None]]] = {
    "add": _added,
    "sub": _subtracted,
    "rsub": _rsub,
    "neg": _of_one(lambda x: scale(-1, x)),
    "mul": lambda e, o: multiply(*e.two(o)),
    "div": lambda e, o: multiply(e.one(o), power(e.one(o, "other"), -1)),
    "true_divide": lambda e, o: multiply(e.one(o), power(e.one(o, "other"), -1)),
    "reciprocal": _of_one(lambda x: power(x, -1)),
    "sqrt": _of_one(lambda x: power(x, 0.5)),
    "rsqrt": _of_one(lambda x: power(x, -0.5)),
    "square": _of_one(lambda x: power(x, 2)),
    "pow": _powered,
    "float_power": _powered,
    "addcmul": lambda e, o: add(
        e.one(o), scale(e.factor(o, "value"), multiply(e.one(o, "tensor1"), e.one(o, "tensor2")))
    ),
    "addcdiv": lambda e, o: add(
        e.one(o), scale(e.factor(o, "value"), multiply(e.one(o, "tensor1"), power(e.one(o, "tensor2"), -1)))
    ),
    "lerp": lambda e, o: add(e.one(o), multiply(e.one(o, "weight"), subtract(e.one(o, "end"), e.one(o)))),
    "exp": _named("exp"),
    "exp2": _of_one(lambda x: call("exp", scale(math.log(2), x))),
    "expm1": _of_one(lambda x: subtract(call("exp", x), ONE)),
    "log": _named("log"),
    "log2": _of_one(lambda x: scale(1 / math.log(2), call("log", x))),
    "log10": _of_one(lambda x: scale(1 / math.log(10), call("log", x))),
    "log1p": _of_one(lambda x: call("log", add(ONE, x))),
    "xlogy": lambda e, o: multiply(e.one(o), call("log", e.one(o, "other"))),
    "special_xlog1py": lambda e, o: multiply(e.one(o), call("log", add(ONE, e.one(o, "other")))),
    "special_entr": _of_one(lambda x: scale(-1, multiply(x, call("log", x)))),
    "sigmoid": _of_one(sigmoid),
    "log_sigmoid_forward": _of_one(lambda x: scale(-1, call("log", add(ONE, call("exp", scale(-1, x)))))),
    "softplus": _softplus,
    "tanh": _named("tanh"),
    "cosh": _of_one(lambda x: add(scale(0.5, call("exp", x)), scale(0.5, call("exp", scale(-1, x))))),
    "sinh": _of_one(lambda x: subtract(scale(0.5, call("exp", x)), scale(0.5, call("exp", scale(-1, x))))),
    "_softmax": _named("softmax"),
    "softmax": _named("softmax"),
    "_log_softmax": _named("log_softmax"),
    "log_softmax": _named("log_softmax"),
    "logsumexp": _named("logsumexp"),
    "reducelogsum": _of_one(lambda x: call("log", call("sum", x))),
    "abs": _named("abs"),
    "sum": _named("sum"),
    "nansum": _named("sum"),
    "mean": _mean,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _mean),
    "var": _variance,
    "std": lambda e, o: power(_variance(e, o), 0.5),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "sum_of_magnitudes": _of_one(lambda x: call("sum", call("abs", x))),
    "sum_of_squares": _of_one(lambda x: call("sum", power(x, 2))),
    "max": _extreme("max"),
    # the axes of an ONNX node are an operand too
    "amax": _named("max"),
    "maximum": _extreme("max"),
    "min": _extreme("min"),
    "amin": _named("min"),
    "minimum": _extreme("min"),
    "mse_loss": _squared_error,
    "where": _chosen,
    "masked_fill": _filled,
    **dict.fromkeys(("mm", "bmm", "mv", "matmul", "dot", "vdot", "einsum"), _product_of_matrices),
}
