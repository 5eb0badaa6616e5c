"""Terms from the operations around a birth: ATen's and ONNX's spellings of one expression."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from whynan.expr.normal import (
    LARGEST,
    NEGATIONS,
    ONE,
    NormalForm,
    add,
    call,
    leaf,
    multiply,
    number,
    power,
    scale,
    sigmoid,
    subtract,
)
from whynan.ops.names import base_name, bases, meaning, op_type
from whynan.ops.table import ONNX, TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        self._terms: dict[int, NormalForm] = {}

    def operator_name(self, operation: Operation) -> str:
        """The base name of what an operation does, in ATen's vocabulary."""
        if self._onnx:
            return _APART.get(op_type(operation.op)) or meaning(operation.op).base
        name = base_name(operation.op)
        return name if name.startswith("__") else name.removesuffix("_")

    def output_term(self, event: int) -> NormalForm:
        """The term of what an event wrote; a leaf of an event that is not known."""
        known = self._terms.get(event)
        if known is None:
            operation = self.operations.get(event)
            known = leaf(f"event {event}") if operation is None else self._operation_term(operation)
            self._terms[event] = known = known if known.size <= LARGEST else leaf(f"event {event}")
        return known

    def argument_term(self, event: int, *names: str) -> NormalForm | None:
        """The term of an argument of an event, by its name in ATen's vocabulary; None where there is none."""
        operation = self.operations.get(event)
        found = None if operation is None else self._find_argument(operation, *names)
        return None if found is None else self._term(found)

    def recorded_argument(self, event: int, *names: str) -> Argument | None:
        """An argument of an event as it was recorded."""
        operation = self.operations.get(event)
        return None if operation is None else self._find_argument(operation, *names)

    def consumers(self) -> tuple[int, ...]:
        """The events that have read what was born, or what was computed from it; the next first."""
        found = [o for o in self.operations.values() if o.hops > 0]
        return tuple(o.event for o in sorted(found, key=lambda o: (o.hops, o.event)))

    def producers(self, event: int, *names: str) -> Iterator[Operation]:
        """The operations that an argument comes from, the last first: what made it, what made the operand of that."""
        given = self.recorded_argument(event, *names)
        # what has written an argument came before what reads it
        while given is not None and given.event is not None and given.event < event and given.event in self.operations:
            event = given.event
            yield self.operations[event]
            given = self.recorded_argument(event, "self", "input")

    def named(self, *names: str) -> list[Operation]:
        """The operations of these names."""
        return [operation for operation in self.operations.values() if self.operator_name(operation) in names]

    def is_copy(self, event: int) -> bool:
        """Whether an event gives its operand's elements again."""
        return event in self.operations and self.operator_name(self.operations[event]) in bases("see-through")

    # -- one operation -------------------------------------------------------------------------------------------

    def _find_argument(self, operation: Operation, *names: str) -> Argument | None:
        known = meaning(operation.op) if self._onnx else None
        for name in names:
            for found in operation.arguments:
                if (found.name if known is None else known.theirs(found.name)) == name:
                    return found
        return None

    def tensor_terms(self, operation: Operation) -> list[NormalForm]:
        """The terms of all tensors among the arguments."""
        return [self._term(a) for a in operation.arguments if a.shape is not None or a.event is not None]

    def _term(self, argument: Argument) -> NormalForm:
        if argument.shape is None and argument.elements is None:
            value = argument.value
            return leaf("?") if value is None or not math.isfinite(value) else number(float(value))
        if self._is_constant(argument):
            return number(float(argument.min or 0.0))
        if argument.event is not None:
            made = self.output_term(argument.event)
            whole = self.operations.get(argument.event)
            several = whole is not None and self.operator_name(whole) in TORCH.having("several")
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

    def numeric_argument(self, operation: Operation, *names: str) -> float | None:
        """An argument that is a number."""
        found = self._find_argument(operation, *names)
        return None if found is None else self._term(found).number

    def _operation_term(self, operation: Operation) -> NormalForm:
        base = self.operator_name(operation)
        reads = _READERS.get(base)
        made = reads(self, operation) if reads is not None else None
        if made is not None:
            return made
        arguments = self.tensor_terms(operation)
        if base in bases("see-through"):
            # under vmap a number comes as the copy of a number
            return self.operand_term(operation)
        if base in TORCH.having("limit") and arguments and self._is_identity(operation, base):
            return arguments[0]
        return call(base, *arguments) if arguments else leaf(f"event {operation.event}")

    def _is_identity(self, operation: Operation, base: str) -> bool:
        given = self._find_argument(operation, "self", "input", "X")
        low = 0.0 if base == "relu" else self.numeric_argument(operation, "min", "min_val")
        high = self.numeric_argument(operation, "max", "max_val")
        if given is None or given.min is None or given.max is None or (low is None and high is None):
            return False
        return (low is None or given.min >= low) and (high is None or given.max <= high)

    # -- what several spellings have in common -------------------------------------------------------------------

    def operand_term(self, operation: Operation, *names: str) -> NormalForm:
        """The argument of this name, else the first."""
        found = self._find_argument(operation, *names, "self", "input")
        if found is not None:
            return self._term(found)
        arguments = self.tensor_terms(operation)
        return arguments[0] if arguments else leaf(f"event {operation.event}")

    def operand_terms(
        self, operation: Operation, first: str = "self", second: str = "other"
    ) -> tuple[NormalForm, NormalForm]:
        """Two arguments by their names."""
        return self.operand_term(operation, first), self.operand_term(operation, second)

    def distinct_operand_terms(self, operation: Operation) -> tuple[NormalForm, NormalForm]:
        """Two arguments, which are told apart where they are two choices of one tensor's elements."""
        a, b = (self._find_argument(operation, name) for name in ("self", "other"))
        x, y = self.operand_terms(operation)
        if a is None or b is None or a.event is None or a.event != b.event or a.elements == b.elements:
            return x, y
        return call("part", x, leaf(f"{a.elements}")), call("part", y, leaf(f"{b.elements}"))

    def factor(self, operation: Operation, name: str) -> float:
        """A factor that is 1 unless it is given: alpha, value."""
        return self.numeric_argument(operation, name) or 1.0

    def reduced_count(self, operation: Operation) -> float | None:
        """How many elements a reduction takes together; None where that is not known."""
        given = self._find_argument(operation, "self", "input")
        if given is None or given.shape is None or operation.shape is None:
            return None
        whole, made = math.prod(given.shape), math.prod(operation.shape)
        return whole / made if made and whole else None

    def exponent(self, event: int) -> float | None:
        """The exponent of a power: a number, or the value of a tensor that holds only one."""
        operation = self.operations.get(event)
        given = None if operation is None else self._find_argument(operation, "exponent")
        if given is None:
            return None
        if given.min is not None and given.min == given.max and given.shape is not None and math.prod(given.shape) == 1:
            return float(given.min) if math.isfinite(given.min) else None
        return self._term(given).number


def _add_term(e: Expressions, o: Operation) -> NormalForm:
    return _strip_epsilon(add(e.operand_term(o), scale(e.factor(o, "alpha"), e.operand_term(o, "other"))))


def _sub_term(e: Expressions, o: Operation) -> NormalForm:
    first, second = e.distinct_operand_terms(o)
    return _strip_epsilon(subtract(first, scale(e.factor(o, "alpha"), second)))


def _rsub(e: Expressions, o: Operation) -> NormalForm:
    return _strip_epsilon(subtract(e.operand_term(o, "other"), scale(e.factor(o, "alpha"), e.operand_term(o))))


def _strip_epsilon(term: NormalForm) -> NormalForm:
    """A sum without the constant that keeps it away from 0."""
    if term.kind == "sum" and term.parts and 0 < abs(term.constant) <= TINY:
        return add(term, number(-term.constant))
    return term


def _pow_term(e: Expressions, o: Operation) -> NormalForm | None:
    base, exponent = e.operand_terms(o, "self", "exponent")
    if (value := e.exponent(o.event)) is not None:
        return power(base, value)
    if (value := base.number) is not None and value > 0:
        return call("exp", scale(math.log(value), exponent))
    return call("pow", base, exponent)


def _mean(e: Expressions, o: Operation) -> NormalForm:
    count = e.reduced_count(o)
    return call("mean", e.operand_term(o)) if count is None else scale(1 / count, call("sum", e.operand_term(o)))


def _variance(e: Expressions, o: Operation) -> NormalForm:
    count, x = e.reduced_count(o), e.operand_term(o)
    correction = e.numeric_argument(o, "correction", "unbiased")
    free = None if count is None else count - (1.0 if correction is None else correction)
    return scale(1 / free, call("deviations", x)) if free and free > 0 else call("var", x)


def _norm(e: Expressions, o: Operation) -> NormalForm | None:
    kind = e.numeric_argument(o, "ord", "p")
    x = e.operand_term(o)
    if kind in (None, 2.0):
        return power(call("sum", power(x, 2)), 0.5)
    return call("sum", call("abs", x)) if kind == 1 else call("norm", x)


def _squared_error(e: Expressions, o: Operation) -> NormalForm | None:
    squared = power(subtract(e.operand_term(o), e.operand_term(o, "target")), 2)
    reduction, count = e.numeric_argument(o, "reduction"), e.reduced_count(o)
    if reduction == 0:
        return squared
    return call("sum", squared) if reduction == 2 or count is None else scale(1 / count, call("sum", squared))


def _where_term(e: Expressions, o: Operation) -> NormalForm | None:
    terms = e.tensor_terms(o)
    if len(terms) != 3:
        return None
    return _where(terms[0], e.operand_term(o, "self", "X"), e.operand_term(o, "other", "Y"))


def _masked_fill_term(e: Expressions, o: Operation) -> NormalForm:
    return _where(e.operand_term(o, "mask"), e.operand_term(o, "value"), e.operand_term(o))


def _where(mask: NormalForm, chosen: NormalForm, other: NormalForm) -> NormalForm:
    if mask.is_call(*NEGATIONS):
        return call("where", mask.arguments[0], other, chosen)
    if mask.is_call("isnan") and mask.arguments[0] == chosen:
        # of a NaN it is NaN anyway
        return other
    return other if _is_limit(mask, chosen, other) else call("where", mask, chosen, other)


def _is_limit(mask: NormalForm, chosen: NormalForm, product: NormalForm) -> bool:
    """Whether 0 is chosen for ``x log(y)`` where x is 0, as xlogy does."""
    at = mask.arguments[0] if mask.is_call("equal") and mask.arguments[1:] == (number(0),) else None
    if at is None or chosen not in (at, number(0)) or product.kind != "product":
        return False
    return at in product.arguments and any(part.is_call("log") for part in product.arguments)


# -- Products of matrices and vectors as sums of products of numbers, where they are that ------------------------------


_EQUATION: Final = re.compile(r"([^,]+),([^,]+)->(.*)")
"""Of two operands, with what is written of the result; what leaves that out is not read."""


def _product_of_matrices(e: Expressions, o: Operation) -> NormalForm | None:
    """A product of matrices; of vectors it is a sum of products, and with ones a sum."""
    a, b = e.operand_term(o), e.operand_term(o, "mat2", "vec", "tensor", "other")
    if not _is_dot(e, o):
        if any(_is_ones(e, o, name) for name in ("mat2", "vec", "other")):
            return call("sum", a)
        if _is_ones(e, o, "self"):
            return call("sum", b)
    if (found := _einsum_term(e, o, a, b)) is not None:
        return found
    return call("sum", multiply(a, b)) if _is_vectors(e, o) else call("matmul", a, b)


def _einsum_term(e: Expressions, o: Operation, a: NormalForm, b: NormalForm) -> NormalForm | None:
    """A product element by element, or the sum of one, where the equation says so."""
    given = e.recorded_argument(o.event, "equation")
    found = None if given is None or given.text is None else _EQUATION.fullmatch(given.text.replace(" ", ""))
    if found is None or found[1] != found[2]:
        return None
    return multiply(a, b) if found[3] == found[1] else call("sum", multiply(a, b))


def _is_ones(e: Expressions, o: Operation, name: str) -> bool:
    """Whether all elements of an argument are 1."""
    given = e.recorded_argument(o.event, name)
    return given is not None and given.min == given.max == 1


def _is_dot(e: Expressions, o: Operation) -> bool:
    """Whether it is a product of two vectors by its name, which nobody takes a sum with."""
    return e.operator_name(o) in ("dot", "vdot")


def _is_vectors(e: Expressions, o: Operation) -> bool:
    """Whether a product of matrices is one of vectors, one number each."""
    given = [e.recorded_argument(o.event, name) for name in ("self", "mat2")]
    flat = all(found is not None and found.shape is not None and len(found.shape) == 1 for found in given)
    return flat or _is_dot(e, o) or (o.shape or (0,))[-2:] == (1, 1)


# -- Functions that ATen and ONNX have in common -----------------------------------------------------------------------


def _softplus(e: Expressions, o: Operation) -> NormalForm | None:
    beta = e.numeric_argument(o, "beta")
    return call("log", add(ONE, call("exp", e.operand_term(o)))) if beta in (None, 1.0) else None


def _min_max_reader(name: str) -> Callable[[Expressions, Operation], NormalForm | None]:
    def read(e: Expressions, o: Operation) -> NormalForm | None:
        terms = e.tensor_terms(o)
        return call("maximum" if name == "max" else "minimum", *terms) if len(terms) == 2 else call(name, *terms[:1])

    return read


def _unary_reader(make: Callable[[NormalForm], NormalForm]) -> Callable[[Expressions, Operation], NormalForm | None]:
    return lambda e, o: make(e.operand_term(o))


def _call_reader(name: str) -> Callable[[Expressions, Operation], NormalForm | None]:
    return lambda e, o: call(name, e.operand_term(o))


_READERS: Final[dict[str, Callable[[Expressions, Operation], NormalForm | None]]] = {
    "add": _add_term,
    "sub": _sub_term,
    "rsub": _rsub,
    "neg": _unary_reader(lambda x: scale(-1, x)),
    "mul": lambda e, o: multiply(*e.operand_terms(o)),
    "div": lambda e, o: multiply(e.operand_term(o), power(e.operand_term(o, "other"), -1)),
    "true_divide": lambda e, o: multiply(e.operand_term(o), power(e.operand_term(o, "other"), -1)),
    "reciprocal": _unary_reader(lambda x: power(x, -1)),
    "sqrt": _unary_reader(lambda x: power(x, 0.5)),
    "rsqrt": _unary_reader(lambda x: power(x, -0.5)),
    "square": _unary_reader(lambda x: power(x, 2)),
    "pow": _pow_term,
    "float_power": _pow_term,
    "addcmul": lambda e, o: add(
        e.operand_term(o),
        scale(e.factor(o, "value"), multiply(e.operand_term(o, "tensor1"), e.operand_term(o, "tensor2"))),
    ),
    "addcdiv": lambda e, o: add(
        e.operand_term(o),
        scale(e.factor(o, "value"), multiply(e.operand_term(o, "tensor1"), power(e.operand_term(o, "tensor2"), -1))),
    ),
    "lerp": lambda e, o: add(
        e.operand_term(o), multiply(e.operand_term(o, "weight"), subtract(e.operand_term(o, "end"), e.operand_term(o)))
    ),
    "exp": _call_reader("exp"),
    "exp2": _unary_reader(lambda x: call("exp", scale(math.log(2), x))),
    "expm1": _unary_reader(lambda x: subtract(call("exp", x), ONE)),
    "log": _call_reader("log"),
    "log2": _unary_reader(lambda x: scale(1 / math.log(2), call("log", x))),
    "log10": _unary_reader(lambda x: scale(1 / math.log(10), call("log", x))),
    "log1p": _unary_reader(lambda x: call("log", add(ONE, x))),
    "xlogy": lambda e, o: multiply(e.operand_term(o), call("log", e.operand_term(o, "other"))),
    "special_xlog1py": lambda e, o: multiply(e.operand_term(o), call("log", add(ONE, e.operand_term(o, "other")))),
    "special_entr": _unary_reader(lambda x: scale(-1, multiply(x, call("log", x)))),
    "sigmoid": _unary_reader(sigmoid),
    "log_sigmoid_forward": _unary_reader(lambda x: scale(-1, call("log", add(ONE, call("exp", scale(-1, x)))))),
    "softplus": _softplus,
    "tanh": _call_reader("tanh"),
    "cosh": _unary_reader(lambda x: add(scale(0.5, call("exp", x)), scale(0.5, call("exp", scale(-1, x))))),
    "sinh": _unary_reader(lambda x: subtract(scale(0.5, call("exp", x)), scale(0.5, call("exp", scale(-1, x))))),
    "_softmax": _call_reader("softmax"),
    "softmax": _call_reader("softmax"),
    "_log_softmax": _call_reader("log_softmax"),
    "log_softmax": _call_reader("log_softmax"),
    "logsumexp": _call_reader("logsumexp"),
    "reducelogsum": _unary_reader(lambda x: call("log", call("sum", x))),
    "abs": _call_reader("abs"),
    "sum": _call_reader("sum"),
    "nansum": _call_reader("sum"),
    "mean": _mean,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _mean),
    "var": _variance,
    "std": lambda e, o: power(_variance(e, o), 0.5),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "sum_of_magnitudes": _unary_reader(lambda x: call("sum", call("abs", x))),
    "sum_of_squares": _unary_reader(lambda x: call("sum", power(x, 2))),
    "max": _min_max_reader("max"),
    # the axes of an ONNX node are an operand too
    "amax": _call_reader("max"),
    "maximum": _min_max_reader("max"),
    "min": _min_max_reader("min"),
    "amin": _call_reader("min"),
    "minimum": _min_max_reader("min"),
    "mse_loss": _squared_error,
    "where": _where_term,
    "masked_fill": _masked_fill_term,
    **dict.fromkeys(("mm", "bmm", "mv", "matmul", "dot", "vdot", "einsum"), _product_of_matrices),
}
