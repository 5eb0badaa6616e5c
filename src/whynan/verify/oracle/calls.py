"""The calls of a program without control flow: arguments as variables and numbers, and recorded results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from whynan.verify.oracle.balls import Ball, exact_number
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping


# -- A program without control flow: what a formula did, operation by operation, in one dialect ------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a name in a program: an input, a constant or the output of a step."""

    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """One operation as it was executed: ``aten.log_softmax.int`` or the op type of an ONNX node.

    ``arguments`` are by the names of the operator's schema (of an ONNX node its formal inputs and attributes), each a
    ``Ref``, a number, a boolean, a string, None, or a list of these. ``outputs`` are the names that it wrote, with
    their dtypes and shapes; in-place operations are written out, so that no name is written twice. ``result`` holds
    the values that it had in the run where they are not to be computed again: random numbers, masks, indices.
    """

    op: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs by name, constants by name (arrays), steps in order, and the names of the outputs.

    Of an input ``dtypes`` and ``shapes`` tell what it was; ``differentiable`` are those that a gradient is wanted of.
    """

    dialect: Literal["aten", "onnx"]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    differentiable: frozenset[str] = frozenset()


def names_in(value: Any) -> list[str]:
    """The names that an argument of a step, or all of them, refer to."""
    if isinstance(value, Ref):
        return [value.name]
    if isinstance(value, dict):
        return [name for v in cast("dict[str, Any]", value).values() for name in names_in(v)]
    return [name for v in cast("list[Any]", value) for name in names_in(v)] if isinstance(value, list) else []


# -- One step of a program while it is evaluated: its arguments as variables and numbers, and its results in the run


# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from whynan.verify.oracle.functions import Functions
    from whynan.verify.oracle.tape import Tape

    Outcome = Variable | Sequence[Variable]
    Operator = Callable[["Call"], Outcome]


class Unsupported(Exception):  # noqa: N818  (what is said is the operator's name)
    """An operator that no exact value can be told of; ``op`` is its name."""

    def __init__(self, op: str) -> None:
        super().__init__(f"exact values are not known of {op}")
        self.op = op


class Call:
    """A step with the variables that its arguments refer to."""

    def __init__(
        self, step: Step, functions: Functions, known: Mapping[str, Variable], dtypes: Mapping[str, str], base: str
    ) -> None:
        self.step = step
        self.functions = functions
        self.base = base
        self._known = known
        self._dtypes = dtypes

    def respelled(self, names: Mapping[str, str], defaults: Mapping[str, Any]) -> Call:
        """The same call with its arguments under other names, and with what those that are not given are."""
        given = {names.get(name, name): value for name, value in self.step.arguments.items() if value is not None}
        step = replace(self.step, arguments={**defaults, **given})
        return Call(step, self.functions, self._known, self._dtypes, self.base)

    def with_operand(self, x: Variable) -> Call:
        """The same call of another first operand."""
        name = next(name for name, value in self.step.arguments.items() if isinstance(value, Ref))
        step = replace(self.step, arguments={**self.step.arguments, name: Ref("")})
        return Call(step, self.functions, {**self._known, "": x}, self._dtypes, self.base)

    @property
    def tape(self) -> Tape:
        """What the operation is to be written on."""
        return self.functions.tape

    def unsupported(self, why: str) -> Unsupported:
        """That this call of an operator is not known, with what of it is not."""
        return Unsupported(f"{self.step.op} ({why})")

    def raw(self, *names: str) -> Any:
        """The first argument of these names as it was recorded; None where there is none."""
        for name in names:
            if self.step.arguments.get(name) is not None:
                return self.step.arguments[name]
        return None

    def has(self, *names: str) -> bool:
        """Whether an argument is there and is not None."""
        return self.raw(*names) is not None

    def variable(self, *names: str) -> Variable:
        """An argument as a variable; a number as a constant."""
        found = self.raw(*names)
        if found is None:
            raise self.unsupported(f"without {names[0]}")
        return self._variable(found)

    def optional(self, *names: str) -> Variable | None:
        """An argument as a variable, None where it is missing."""
        return self.variable(*names) if self.has(*names) else None

    def known(self, reference: Ref) -> Variable:
        """What a name of the program is."""
        return self._known[reference.name]

    def dtype(self, reference: Ref) -> str:
        """The dtype of a name of the program, without ``torch.``."""
        return self._dtypes.get(reference.name, "").rpartition(".")[2]

    def variables(self, *names: str) -> list[Variable]:
        """A list of tensors."""
        found = self.raw(*names)
        listed = cast("Sequence[Any]", found if isinstance(found, (list, tuple)) else [found])
        return [self._variable(one) for one in listed]

    def number(self, name: str, default: float) -> float:
        """An argument as a Python number; of a tensor of one element its exact value."""
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, Ref):
            return found
        values = self.plain_numbers(self._variable(found)).reshape(-1)
        if values.size != 1:
            raise self.unsupported(f"{name} is no single number")
        return values[0].item()

    def flag(self, name: str, default: bool = False) -> bool:
        """An argument as a boolean."""
        return bool(self.number(name, default))

    def integers(self, *names: str) -> list[int] | None:
        """An argument as a list of integers: from a list, a number or a tensor."""
        found = self.raw(*names)
        if found is None:
            return None
        if isinstance(found, Ref):
            return [int(value) for value in self.plain_numbers(self._variable(found)).reshape(-1).tolist()]
        return [int(value) for value in found] if isinstance(found, (list, tuple)) else [int(found)]

    def places(self, variable: Variable) -> NDArray[np.int64]:
        """The elements of a variable as integers."""
        return self.plain_numbers(variable).astype(np.int64)

    def plain_numbers(self, variable: Variable) -> NDArray[np.float64]:
        """The elements of a variable that are exact float64 numbers; refuses others, which no index can be made of."""

        def plain(x: Any) -> float:
            found = exact_number(x) if type(x) is Ball else x
            if found is None:
                raise self.unsupported("an index or a size is undecided")
            return float(found)

        values = [plain(x) for x in variable.data.reshape(-1)]
        return np.array(values, dtype=np.float64).reshape(variable.shape)

    def recorded_output(self, output: int) -> Variable | None:
        """What an output was in the run, where that is not to be computed again."""
        result = self.step.result
        found = None if result is None or output >= len(result) else result[output]
        return None if found is None else self.tape.constant(numbers_of(found))

    def shape(self, output: int = 0) -> tuple[int, ...]:
        """The shape of an output in the run."""
        return self.step.shapes[output]

    def _variable(self, found: Any) -> Variable:
        return self._known[found.name] if isinstance(found, Ref) else self.tape.constant(found)


def numbers_of(values: Any) -> Any:
    """The numbers of an array, of a tensor of PyTorch or of a number, as NumPy has them; exactly."""
    if hasattr(values, "detach"):
        held = values.detach().cpu().resolve_neg()
        return (held.double() if held.is_floating_point() else held).numpy()
    return np.asarray(values)
