"""The evaluator: a program in balls, forwards and backwards, with as many bits as it takes; its rounding noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats.formats import FORMATS
from whynan.verify.oracle.balls import Ball, check_time, midpoint, precision, radius
from whynan.verify.oracle.calls import Call, names_in, numbers_of
from whynan.verify.oracle.complex_numbers import ComplexCall, Pair, is_complex
from whynan.verify.oracle.elements import Elements, plain
from whynan.verify.oracle.functions import Functions
from whynan.verify.oracle.linear import ELIMINATIONS
from whynan.verify.oracle.table import ATEN, canonical, operator, rounds
from whynan.verify.oracle.tape import Decisions, Tape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from whynan.verify.oracle.calls import Program, Step


# -- What the exact values of a program came to, and how they compare with floating-point numbers ----------------------


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from whynan.verify.oracle.elements import Array, Elements

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Balls:
    """An array of exact values of a dtype: balls, infinities, what is undefined, and None for what is undecided.

    ``bits`` is the precision that the balls were made with. What is asked of a dtype without fractions is asked of
    float64.
    """

    elements: Array
    dtype: str
    bits: int
    arithmetic: Elements = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.elements.shape

    def midpoint(self) -> Floats:
        """The values as float64: infinite where they are, and beyond its range; NaN where there is none."""
        return self._each(self._midpoint, np.float64)

    def undecided(self, dtype: str | None = None) -> Mask:
        """Where the ball is too wide to tell the value within a quarter of a unit in the last place of a dtype."""
        form = FORMATS.get(dtype or self.dtype, FORMATS["float64"])

        def asked(x: Any) -> bool:
            if type(x) is not Ball:
                return x is None
            reach = radius(x)
            if reach == 0:
                return False
            low = max(0.0, abs(midpoint(x)) - reach)
            # a quarter of the smallest float64 is none: there a half does, which is what the least radius stands for
            return not (reach <= max(form.ulp(min(low, form.max)) / 4, 2.0**-1074))

        return self._each(asked, np.bool_)

    def infinite(self) -> Mask:
        """Where the exact value is infinite: at a pole, or of an infinity that came in."""
        return self._each(self.arithmetic.is_infinite, np.bool_)

    def undefined(self) -> Mask:
        """Where there is no exact value: 0/0, 0 * Inf, outside of a domain, or of a NaN that came in."""
        return self._each(self.arithmetic.is_undefined, np.bool_)

    def _midpoint(self, x: Any) -> float:
        if type(x) is Ball:
            return midpoint(x)
        return math.nan if x is None else float(x)

    def _each(self, function: Callable[[Any], Any], dtype: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(np.frompyfunc(function, 1, 1)(self.elements), dtype=dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """The exact outputs of a program and the gradients of its differentiable inputs, by name.

    ``bits`` is the precision that they took, ``undecided`` how many elements it did not suffice for.
    """

    outputs: Mapping[str, Balls]
    gradients: Mapping[str, Balls]
    bits: int

    @property
    def undecided(self) -> int:
        """How many elements of all outputs and gradients are undecided, each in its own dtype."""
        return sum(int(balls.undecided().sum()) for balls in (*self.outputs.values(), *self.gradients.values()))


# -- A program evaluated in balls, forwards and backwards, with as many bits as it takes; and its rounding noise -------


BITS: Final = 512
MOST_BITS: Final = 4096
_NOISY_BITS: Final = 256
"""Noise is larger by far than what so many bits leave open."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The largest deviation of each output and gradient from its exact value in some noisy runs; 0 where unknown."""

    outputs: Mapping[str, NDArray[np.float64]]
    gradients: Mapping[str, NDArray[np.float64]]


def exact(
    program: Program,
    inputs: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    *,
    bits: int = BITS,
    most_bits: int = MOST_BITS,
) -> Exact:
    """The exact values of a program's outputs, and of its differentiable inputs' gradients for some cotangents.

    Inputs and cotangents are arrays, tensors or numbers, taken as they are; an output without a cotangent has no part
    in a gradient. The precision is doubled from ``bits`` up to ``most_bits`` while an element is undecided; what then
    is stays so.

    Raises ``Unsupported`` for an operator that no exact values are known of.
    """
    while True:
        found = _Run(program, inputs, cotangents).exact(bits)
        if bits >= most_bits or not found.undecided:
            return found
        bits = min(2 * bits, most_bits)


def noise_floors(program: Program, inputs: Mapping[str, Any], cotangents: Mapping[str, Any]) -> Iterator[Noise]:
    """How far each element of a program's results may be off by the rounding of its own steps alone.

    Each is of one noisy run more, up to eight, and nowhere less than those before it.
    """
    truth, noisy_runs = _noisy_runs(program, inputs, cotangents, 8)
    noise = Noise(_zeros(truth.outputs), _zeros(truth.gradients))
    for noisy in noisy_runs:
        noise = Noise(
            _raised(noise.outputs, truth.outputs, noisy.outputs),
            _raised(noise.gradients, truth.gradients, noisy.gradients),
        )
        yield noise


def _raised(
    floors: Mapping[str, NDArray[np.float64]], exacts: Mapping[str, Balls], noisies: Mapping[str, Balls]
) -> dict[str, NDArray[np.float64]]:
    return {name: np.fmax(floor, _distances(exacts[name], noisies[name])) for name, floor in floors.items()}


def noisy_outputs(program: Program, inputs: Mapping[str, Any], scale: float) -> Iterator[Mapping[str, Balls]]:
    """A program's outputs in some runs whose steps are all off by so many unit roundoffs, up or down."""
    return (noisy.outputs for noisy in _noisy_runs(program, inputs, {}, 4, scale)[1])


def _noisy_runs(
    program: Program, inputs: Mapping[str, Any], cotangents: Mapping[str, Any], runs: int, scale: float = 1.0
) -> tuple[Exact, Iterator[Exact]]:
    """The exact results, and those of runs in which every value is off by a rounding; comparisons are the exact run's.

    Every input, cotangent, intermediate result and gradient is off by so many unit roundoffs of its dtype.
    """
    clean = _Run(program, inputs, cotangents)
    truth = clean.exact(_NOISY_BITS)
    noisy = (_Run(program, inputs, cotangents, clean.decisions.replay(), seed, scale) for seed in range(runs))
    return truth, (run.exact(_NOISY_BITS) for run in noisy)


def _zeros(found: Mapping[str, Balls]) -> dict[str, NDArray[np.float64]]:
    return {name: np.zeros(balls.shape) for name, balls in found.items()}


def _distances(one: Balls, other: Balls) -> NDArray[np.float64]:
    def apart(x: Any, y: Any) -> float:
        both = type(x) is Ball and type(y) is Ball
        return abs(midpoint(x - y)) if both else 0.0

    with precision(_NOISY_BITS):
        return np.asarray(plain(np.frompyfunc(apart, 2, 1)(one.elements, other.elements)), dtype=np.float64)


def _is_given(step: Step) -> bool:
    """Whether all that a step writes is to be taken from the run."""
    return step.result is not None and all(found is not None for found in step.result)


class _Run:
    """One evaluation of a program at one precision."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        cotangents: Mapping[str, Any],
        decisions: Decisions | None = None,
        seed: int | None = None,
        scale: float = 1.0,
    ) -> None:
        self._scale = scale
        self.decisions = decisions or Decisions()
        self._program, self._inputs, self._cotangents = program, inputs, cotangents
        self._elements = Elements()
        self._functions = Functions(Tape(self._elements, self.decisions))
        self._draws = None if seed is None else np.random.default_rng(seed)
        self._dtypes = dict(program.dtypes)
        self._known: dict[str, Variable] = {}
        self._pairs: dict[str, Pair] = {}

    def exact(self, bits: int) -> Exact:
        """The outputs and gradients at this precision."""
        with precision(bits), np.errstate(all="ignore"):
            tape = self._functions.tape
            for name, value in self._program.constants.items():
                numbers = numbers_of(value)
                self._dtypes.setdefault(name, str(numbers.dtype))
                if np.iscomplexobj(numbers):
                    self._pairs[name] = Pair(tape.constant(numbers.real), tape.constant(numbers.imag))
                    continue
                self._known[name] = tape.constant(numbers)
            leaves = {name: self._enter(name) for name in self._program.inputs}
            for step in self._program.steps:
                check_time()
                self._take(step)
            outputs = {name: self._balls(name, self._known[name].data, bits) for name in self._program.outputs}
            tape.backward([self._seed(name) for name in self._program.outputs if name in self._cotangents])
            gradients = {
                name: self._balls(name, self._gradient(leaf), bits)
                for name, leaf in leaves.items()
                if name in self._program.differentiable
            }
        return Exact(outputs, gradients, bits)

    def _enter(self, name: str) -> Variable:
        numbers = numbers_of(self._inputs[name])
        self._dtypes.setdefault(name, str(numbers.dtype))
        data = self._elements.array(numbers)
        tape = self._functions.tape
        leaf = tape.leaf(data) if name in self._program.differentiable else Variable(data)
        self._known[name] = self._with_noise(leaf, self._dtypes[name])
        return leaf

    def _seed(self, name: str) -> tuple[Variable, Any]:
        given = self._elements.array(numbers_of(self._cotangents[name]))
        output = self._known[name]
        noisy = self._with_noise(Variable(given), self._dtypes.get(name, ""))
        return output, np.broadcast_to(noisy.data, output.shape)

    def _take(self, step: Step) -> None:
        tape = self._functions.tape
        self._dtypes.update(zip(step.outputs, step.dtypes, strict=True))
        if _is_given(step):
            assert step.result is not None
            for name, value in zip(step.outputs, step.result, strict=True):
                self._known[name] = tape.constant(numbers_of(value))
            return
        if is_complex(" ".join(step.dtypes)) or any(name in self._pairs for name in names_in(step.arguments)):
            self._take_complex(step)
            return
        name, apply = operator(self._program, step)
        known = self._known
        if name in ELIMINATIONS and self._draws is not None:
            known = {**known, **self._eliminated(next(iter(names_in(step.arguments)), ""))}
        found = apply(Call(step, self._functions, known, self._dtypes, name))
        made = [found] if isinstance(found, Variable) else list(found)
        for output, dtype, variable in zip(step.outputs, step.dtypes, made, strict=False):
            self._known[output] = self._with_noise(variable, dtype) if rounds(name) else variable

    def _take_complex(self, step: Step) -> None:
        """A step of complex numbers, each of which is a pair of variables."""
        name = canonical(step.op)
        call = ComplexCall(Call(step, self._functions, self._known, self._dtypes, name), self._pairs, self._dtypes)
        found = call.result(name, ATEN.get(name) if self._program.dialect == "aten" else None)
        made = found if isinstance(found, list) else [found]
        for output, dtype, one in zip(step.outputs, step.dtypes, made, strict=False):
            if isinstance(one, Variable):
                self._known[output] = self._with_noise(one, dtype)
                continue
            parts = "float64" if dtype.endswith("128") else "float32"
            self._pairs[output] = Pair(*(self._with_noise(part, parts) if rounds(name) else part for part in one))

    def _with_noise(self, variable: Variable, dtype: str) -> Variable:
        form = FORMATS.get(dtype.rpartition(".")[2])
        if self._draws is None or form is None:
            return variable
        return self._functions.tape.noisy(variable, self._rounding(self._scale * form.eps / 2))

    def _eliminated(self, name: str) -> dict[str, Variable]:
        """A matrix as its elimination rounds it: by so many roundoffs of its largest element, whatever the others are.

        Source: Higham, Accuracy and Stability of Numerical Algorithms, section 9.3 (Gaussian elimination with partial
        pivoting is stable by the norm of the matrix, and not element by element).
        """
        form, matrix = FORMATS.get(self._dtypes.get(name, "").rpartition(".")[2]), self._known.get(name)
        if self._draws is None or form is None or matrix is None or len(matrix.shape) < 2:
            return {}
        sizes = np.abs(self._balls(name, matrix.data, _NOISY_BITS).midpoint())
        largest = np.nan_to_num(sizes, nan=0.0, posinf=0.0).max(axis=(-2, -1), keepdims=True, initial=0.0)
        signs = self._draws.choice((-1.0, 1.0), size=sizes.shape)
        off = self._functions.tape.constant(signs * largest * (self._scale * form.eps / 2))
        return {name: self._functions.add(matrix, off)}

    def _rounding(self, roundoff: float) -> Callable[[Any], Any]:
        assert self._draws is not None
        draws = self._draws
        up, down = (Ball(1) + Ball(sign * roundoff) for sign in (1, -1))
        bits: list[int] = []

        def rounded(x: Any) -> Any:
            if type(x) is not Ball:
                return x
            if not bits:
                bits.extend(draws.integers(0, 2, 256).tolist())
            return x * (up if bits.pop() else down)

        return rounded

    def _gradient(self, leaf: Variable) -> Any:
        zero = self._elements.zero
        if leaf.gradient is None:
            return self._functions.zeros(leaf).data
        return plain(np.frompyfunc(lambda x: zero if type(x) is int else x, 1, 1)(leaf.gradient))

    def _balls(self, name: str, data: Any, bits: int) -> Balls:
        return Balls(data, self._dtypes.get(name, "float64").rpartition(".")[2], bits, self._elements)
