"""A program evaluated in balls, forwards and backwards, with as many bits as it takes; and its rounding noise."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats.formats import FORMATS
from whynan.verify.oracle.balls import Ball, midpoint, precision
from whynan.verify.oracle.calls import Call, Unsupported, numbers_of
from whynan.verify.oracle.elements import Elements, plain
from whynan.verify.oracle.functions import Functions
from whynan.verify.oracle.results import Balls, Exact
from whynan.verify.oracle.table import CASTS, operator, rounds
from whynan.verify.oracle.tape import Decisions, Tape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from whynan.verify.oracle.programs import Program, Step

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
    noise: int | None = None,
) -> Exact:
    """The exact values of a program's outputs, and of its differentiable inputs' gradients for some cotangents.

    Inputs and cotangents are arrays, tensors or numbers, taken as they are; an output without a cotangent has no part
    in a gradient. The precision is doubled from ``bits`` up to ``most_bits`` while an element is undecided; what then
    is stays so. With ``noise``, the seed of its draws, every input, cotangent, intermediate result and gradient is
    off by one unit roundoff of its dtype, up or down; the program's comparisons are those of its exact run.

    Raises ``Unsupported`` for an operator that no exact values are known of.
    """
    if noise is not None:
        clean = _Run(program, inputs, cotangents)
        clean.exact(_NOISY_BITS)
        return _Run(program, inputs, cotangents, clean.decisions.again(), noise).exact(_NOISY_BITS)
    while True:
        found = _Run(program, inputs, cotangents).exact(bits)
        if bits >= most_bits or not found.undecided:
            return found
        bits = min(2 * bits, most_bits)


def noise_floor(
    program: Program, inputs: Mapping[str, Any], cotangents: Mapping[str, Any], *, runs: int = 8, seed: int = 0
) -> Noise:
    """How far each element of a program's results may be off by the rounding of its own steps alone."""
    clean = _Run(program, inputs, cotangents)
    truth = clean.exact(_NOISY_BITS)
    noise = Noise(_zeros(truth.outputs), _zeros(truth.gradients))
    for run in range(runs):
        draws = (seed << 8) + run
        noisy = _Run(program, inputs, cotangents, clean.decisions.again(), draws).exact(_NOISY_BITS)
        for floors, exacts, noisies in (
            (noise.outputs, truth.outputs, noisy.outputs),
            (noise.gradients, truth.gradients, noisy.gradients),
        ):
            for name, floor in floors.items():
                np.fmax(floor, _apart(exacts[name], noisies[name]), out=floor)
    return noise


def noisy_outputs(
    program: Program, inputs: Mapping[str, Any], scale: float, *, runs: int = 4, seed: int = 0
) -> Iterator[Mapping[str, Balls]]:
    """A program's outputs in some runs whose steps are all off by so many unit roundoffs, up or down."""
    clean = _Run(program, inputs, {})
    clean.exact(_NOISY_BITS)
    for run in range(runs):
        draws = (seed << 8) + run
        noisy = _Run(program, inputs, {}, clean.decisions.again(), draws, scale)
        yield noisy.exact(_NOISY_BITS).outputs


def missing(program: Program) -> tuple[str, ...]:
    """The operators of a program that no exact values are known of."""
    found: list[str] = []
    for step in program.steps:
        if not _is_given(step):
            try:
                operator(program, step)
            except Unsupported as error:
                found.append(error.op)
    return tuple(dict.fromkeys(found))


def _zeros(found: Mapping[str, Balls]) -> dict[str, NDArray[np.float64]]:
    return {name: np.zeros(balls.shape) for name, balls in found.items()}


def _apart(one: Balls, other: Balls) -> NDArray[np.float64]:
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
        self._casts: list[str] = []

    def exact(self, bits: int) -> Exact:
        """The outputs and gradients at this precision."""
        with precision(bits), np.errstate(all="ignore"):
            tape = self._functions.tape
            for name, value in self._program.constants.items():
                numbers = numbers_of(value)
                self._dtypes.setdefault(name, str(numbers.dtype))
                self._known[name] = tape.constant(numbers)
            leaves = {name: self._enter(name) for name in self._program.inputs}
            for step in self._program.steps:
                self._take(step)
            outputs = {name: self._balls(name, self._known[name].data, bits) for name in self._program.outputs}
            tape.backward([self._seed(name) for name in self._program.outputs if name in self._cotangents])
            gradients = {
                name: self._balls(name, self._gradient(leaf), bits)
                for name, leaf in leaves.items()
                if name in self._program.differentiable
            }
        return Exact(outputs, gradients, bits, tuple(dict.fromkeys(self._casts)))

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
        if any("complex" in dtype for dtype in step.dtypes):
            raise Unsupported(f"{step.op} (complex)")
        name, apply = operator(self._program, step)
        found = apply(Call(step, self._functions, self._known, self._dtypes, name))
        made = [found] if isinstance(found, Variable) else list(found)
        self._note_cast(step, name)
        for output, dtype, variable in zip(step.outputs, step.dtypes, made, strict=False):
            self._known[output] = self._with_noise(variable, dtype) if rounds(name) else variable

    def _note_cast(self, step: Step, name: str) -> None:
        if name in CASTS:
            source = step.arguments.get("self", step.arguments.get("input"))
            before, after = (
                FORMATS.get(d.rpartition(".")[2])
                for d in (self._dtypes.get(getattr(source, "name", ""), ""), step.dtypes[0])
            )
            if before is not None and after is not None and after.fraction_bits < before.fraction_bits:
                self._casts.append(f"{before.name} to {after.name}")

    def _with_noise(self, variable: Variable, dtype: str) -> Variable:
        form = FORMATS.get(dtype.rpartition(".")[2])
        if self._draws is None or form is None:
            return variable
        return self._functions.tape.noisy(variable, self._rounding(self._scale * form.eps / 2))

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
