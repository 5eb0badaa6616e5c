"""The exact values of a case, asked of the oracle as arrays that can be compared."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.ops.names import base_name
from whynan.ops.table import TORCH
from whynan.verify.arrays import array_of, dtype_name, is_float, tensors_in
from whynan.verify.comparison import Truth, is_far, spacing, standing
from whynan.verify.oracle import Unsupported, exact, noise_floors, noisy_outputs
from whynan.verify.oracle.calls import names_in

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from whynan.verify.cases import Case, TestedProgram
    from whynan.verify.oracle import Balls
    from whynan.verify.oracle.calls import Program, Step

_BITS: Final = {"float64": 1280}
"""As many to begin with as the smallest numbers of the dtype need beside one; of the narrower ones far fewer."""
_FEW: Final = 320
_WITHIN: Final = 8
"""Of the distance to the next number, less than a quarter is rounded away on either side of a power of two."""
_LOGARITHMS: Final = ("log", "xlogy")
_LIGHT: Final = TORCH.having("elementwise", "pointwise", "reduction", "view", "movement", "see-through")
_PRODUCTS: Final = TORCH.having("sum-of-products")
_MOST_TERMS: Final = 1 << 20
"""Of matrix products; so many are some seconds."""
_BY_ELEMENT: Final = TORCH.having("elementwise", "pointwise")
_SIDES: Final = 4
_LIMIT_BITS: Final = 1024
"""A limit is known to a few digits: what is undecided with so many bits beside an input has none that is told."""
_ENOUGH: Final = 2
_BEYOND: Final = 1024.0
"""So many times what three noisy runs differ by, eight of them do not."""
BESIDE: Final = 1e-6
"""So far beside an input, relative to it or to a usual one, are the values that have a limit there or not."""
_WORSE: Final = (8.0, 64.0, 512.0)
"""By so many unit roundoffs more may what is out of a domain have come there by rounding."""
_OWN_NOISE: Final = 64.0
"""So many times its own rounding noise may a repaired formula be off at extremes where the original is bad."""
_SIGNS: Final = 191
"""The seed of the signs of gradients from behind."""


class UnknowableError(Exception):
    """The exact values cannot be had; the text names the operation that the oracle lacks."""


def truths(original: TestedProgram, case: Case, new: Mapping[str, Any], *, bits: int) -> dict[str, Truth]:
    """The exact arrays of a case by name, with so many bits at the most; raises ``UnknowableError``.

    The noise of the original is asked for only where it can decide: where the repaired is further from the truth.
    """
    program = original.oracle_program(case.sample.arguments, case.sample.needs_grad)
    inputs, behind = _inputs(case), _cotangents_by_name(program, case)
    few = _BITS.get(case.sample.dtype, _FEW)
    with _unsupported():
        found = exact(program, inputs, behind, bits=few, most_bits=max(bits, few))
        known = _by_array(program, case, found.outputs, found.gradients)
        told = {name: _truth(balls) for name, balls in known.items()}
        if not _needs_noise(case, new, told):
            return told
        bare = told
        for number, noise in enumerate(_floors(program, case, inputs, behind)):
            told = {name: _noisy(name, truth, noise[name]) for name, truth in bare.items()}
            # what is excused by some of the noise is so by more of it
            if not _needs_noise(case, new, told):
                return told
            if number >= _ENOUGH and _is_beyond(case, new, told):
                break
        if not _needs_noise(case, new, told, gradients=True):
            return told
        noisy = told
        for number, noise in enumerate(_floors(program, case, inputs, _with_random_signs(behind))):
            told = {name: replace(truth, noise=np.fmax(truth.noise, noise[name])) for name, truth in noisy.items()}
            if not _needs_noise(case, new, told, gradients=True) or (number >= _ENOUGH and _is_beyond(case, new, told)):
                break
    return told


@contextmanager
def _unsupported() -> Generator[None]:
    """An operator that the oracle lacks, as what is not known."""
    try:
        yield
    except Unsupported as error:
        raise UnknowableError(error.op) from error


def excused_truths(
    repaired: TestedProgram, case: Case, new: Mapping[str, Any], told: Mapping[str, Truth]
) -> Mapping[str, Truth]:
    """The truths, undecided where what was bad is a number now that the repaired's own rounding keeps from the exact.

    Beside a great number no digit is left for what is added to it, and the original, which is bad there, does not tell
    how much of that rounding may take. Gradients are used as a whole, and have the noise of all their elements.
    """
    off = {
        name: standing(
            *(old, new[name], dtype, told[name]), usual=case.usual.get(name, 0.0), rounded=case.rounded(name, new)
        ).invented
        for name, (old, dtype) in case.old.items()
        if name in told
    }
    if not any(mask.any() for mask in off.values()):
        return told
    try:
        program = repaired.oracle_program(case.sample.arguments, case.sample.needs_grad)
        with _unsupported():
            *_, noise = _floors(program, case, _inputs(case), _cotangents_by_name(program, case))
    except UnknowableError:
        return told
    found = dict(told)
    for name, mask in off.items():
        room = noise[name] if name.isdecimal() else noise[name].max(initial=0.0)
        with np.errstate(invalid="ignore"):
            own = mask & (np.abs(new[name] - told[name].values) <= _OWN_NOISE * room)
        found[name] = replace(told[name], undecided=told[name].undecided | own)
    return found


def nearby_truths(original: TestedProgram, case: Case, *, bits: int) -> Iterator[dict[str, Truth]]:
    """The exact outputs where one of the inputs at a time is not what was captured but what rounds to it.

    Whole numbers that no gradient goes back through, as of a mask or a count, are taken for exact. Raises
    ``UnknowableError``.
    """
    inputs, moved = _inputs(case), list[dict[str, Any]]()
    for name, tensor in _floats(case).items():
        if name not in case.sample.needs_grad and bool((inputs[name] == np.rint(inputs[name])).all()):
            continue
        step = spacing(inputs[name], dtype_name(tensor)) / _WITHIN
        moved += [{**inputs, name: inputs[name] - step}, {**inputs, name: inputs[name] + step}]
    yield from _moved_truths(original, case, moved, bits)


def takes_logarithms(original: TestedProgram, case: Case) -> bool:
    """Whether a logarithm is among what the original computes, as far as that is known."""
    program = _known_program(original, case)
    steps = () if program is None else program.steps
    return any(step.op.lower().removeprefix("aten.").startswith(_LOGARITHMS) for step in steps)


def is_by_element(original: TestedProgram, case: Case) -> bool:
    """Whether all that the original computes is of one element of each of its operands, as far as that is known."""
    program = _known_program(original, case, case.sample.needs_grad)
    return program is not None and all(base_name(step.op).rstrip("_") in _BY_ELEMENT for step in program.steps)


def _known_program(original: TestedProgram, case: Case, needs_grad: frozenset[str] = frozenset()) -> Program | None:
    """What the original computes, as far as that is known."""
    try:
        return original.oracle_program(case.sample.arguments, needs_grad)
    except UnknowableError:
        return None


def steps_of(original: TestedProgram, case: Case) -> int:
    """How many elements all steps of the original compute together, as far as that is known."""
    program = _known_program(original, case, case.sample.needs_grad)
    return 0 if program is None else sum(math.prod(shape) for step in program.steps for shape in step.shapes)


def is_light(original: TestedProgram, case: Case) -> bool:
    """Whether the exact values of a large case are soon had: no gradient is asked for, and each number is read once.

    Or so few times in a matrix product that all of its terms are not many.
    """
    program = None if case.sample.needs_grad else _known_program(original, case)
    if program is None:
        return False
    sizes = {name: math.prod(shape) for name, shape in program.shapes.items()}
    terms = 0.0
    for step in program.steps:
        sizes.update(zip(step.outputs, map(math.prod, step.shapes), strict=True))
        operator = base_name(step.op).rstrip("_")
        if operator in _PRODUCTS:
            # n k, k m and n m of two matrices come to the square of n k m
            read = (sizes.get(name, 1) for name in names_in(dict(step.arguments)))
            terms += math.sqrt(math.prod(read) * math.prod(sizes[name] for name in step.outputs))
        elif operator not in _LIGHT:
            return False
    return terms <= _MOST_TERMS


def nearest_values(original: TestedProgram, case: Case) -> dict[str, Any]:
    """The outputs where every step is rounded a little worse than it was, NaN where they are none then either.

    What is out of a domain by its own rounding alone is in it with a rounding that is some units larger: there is its
    value, of so many as there may be the one of the largest magnitude. Raises ``UnknowableError``.
    """
    program, inputs = original.oracle_program(case.sample.arguments), _inputs(case)
    found: dict[str, Any] = {}
    with _unsupported():
        for scale in _WORSE:
            nearest: dict[str, Any] = {}
            for outputs in noisy_outputs(program, inputs, scale):
                for number, name in enumerate(program.outputs):
                    nearest[str(number)] = np.fmax(
                        nearest.get(str(number), np.nan), np.abs(_finite(_truth(outputs[name])))
                    )
            for name, values in nearest.items():
                known = found.get(name, values)
                found[name] = np.where(np.isnan(known), values, known)
    return found


def values_around(
    original: TestedProgram,
    case: Case,
    *,
    side: float = BESIDE,
    gradients: bool = False,
    scaled: bool = False,
) -> dict[str, list[Any]]:
    """The exact outputs a little beside a captured input, on sides at random and above all, NaN where they are none.

    ``side``: how far, relative to an input or to a usual one; the opposite of it for the other sides. ``gradients``:
    these, too. ``scaled``: beside the same zeros, with each other number times one of its own. Raises
    ``UnknowableError``.
    """
    draw = np.random.default_rng(_SIGNS)
    inputs, moved = _inputs(case), list[dict[str, Any]]()
    for name, tensor in _floats(case).items() if scaled else ():
        inputs[name] = inputs[name] * draw.uniform(0.5, 1.5, tuple(tensor.shape))
    for number in range(_SIDES):
        beside = dict(inputs)
        for order, (name, tensor) in enumerate(_floats(case).items()):
            shape = tuple(tensor.shape)
            finite = np.abs(inputs[name][np.isfinite(inputs[name])])
            usual = float(finite.mean()) if finite.size and finite.any() else 1.0
            step = np.copysign(draw.uniform(0.5, 1.0, shape), draw.normal(size=shape) if number > 1 else 1.0)
            if number == 1 and order % 2:
                # a limit is one however much faster one input comes to its zeros than another
                step = np.where(inputs[name] == 0, BESIDE * step, step)
            with np.errstate(invalid="ignore"):
                beside[name] = inputs[name] + side * np.maximum(np.abs(inputs[name]), usual) * step
        moved.append(beside)
    found: dict[str, list[Any]] = {}
    for told in _moved_truths(original, case, moved, _LIMIT_BITS, gradients=gradients, chosen_anew=True):
        for name, truth in told.items():
            found.setdefault(name, []).append(_finite(truth))
    return found


def _moved_truths(
    original: TestedProgram,
    case: Case,
    moved: Iterable[Mapping[str, Any]],
    bits: int,
    *,
    gradients: bool = False,
    chosen_anew: bool = False,
) -> Iterator[dict[str, Truth]]:
    """The exact outputs of a case on other inputs, and its ``gradients``.

    ``chosen_anew``: which element is the largest of a row is asked of these inputs, and not what it was in the run.
    """
    needs_grad = case.sample.needs_grad if gradients else frozenset[str]()
    few, program = _BITS.get(case.sample.dtype, _FEW), original.oracle_program(case.sample.arguments, needs_grad)
    program = replace(program, steps=tuple(map(_without_choice, program.steps))) if chosen_anew else program
    behind = _cotangents_by_name(program, case) if gradients else {}
    with _unsupported():
        for inputs in moved:
            found = exact(program, inputs, behind, bits=few, most_bits=max(bits, few))
            told = _by_array(program, case, found.outputs, found.gradients if gradients else {})
            yield {name: _truth(balls) for name, balls in told.items()}


def _without_choice(step: Step) -> Step:
    """A step that does not hold which element of a row was the largest."""
    return replace(step, result=None) if base_name(step.op) in TORCH.having("reduction") else step


def _inputs(case: Case) -> dict[str, Any]:
    return {name: array_of(tensor) for name, tensor in tensors_in(case.sample.arguments).items()}


def _floats(case: Case) -> dict[str, Any]:
    return {name: tensor for name, tensor in tensors_in(case.sample.arguments).items() if is_float(tensor)}


def _finite(truth: Truth) -> Any:
    """The exact values, NaN where there is none that is known and finite."""
    return np.where(truth.infinite | truth.undefined | truth.undecided, np.nan, truth.values)


def _floors(
    program: Program, case: Case, inputs: Mapping[str, Any], behind: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The noise of more and more runs, by the names that a case gives its arrays."""
    for floor in noise_floors(program, inputs, behind):
        yield _by_array(program, case, floor.outputs, floor.gradients)


def _with_random_signs(behind: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients from behind of the same sizes and other signs.

    A gradient is a sum of terms, one for each output. Where these cancel, as those of a softmax for gradients that are
    all alike, what is left is nothing, and so is what a noisy run of the original makes of it, though the terms have
    rounding errors that know nothing of each other.
    """
    draw = np.random.default_rng(_SIGNS)
    return {name: np.asarray(g) * draw.choice([-1.0, 1.0], np.shape(g)) for name, g in behind.items()}


def _cotangents_by_name(program: Program, case: Case) -> dict[str, Any]:
    """The gradients from behind by the program's names; one output that is returned twice has the sum of both."""
    found: dict[str, Any] = {}
    for name, cotangent in zip(program.outputs, case.cotangents, strict=False):
        if cotangent is not None:
            found[name] = found.get(name, 0.0) + array_of(cotangent)
    return found


def _by_array(program: Program, case: Case, outputs: Mapping[str, Any], gradients: Mapping[str, Any]) -> dict[str, Any]:
    """What the oracle gives, by the names that a case gives its arrays."""
    named = {str(i): outputs[name] for i, name in enumerate(program.outputs)}
    named |= {f"d {name}": gradient for name, gradient in gradients.items()}
    return {name: named[name] for name in case.old if name in named}


def _truth(balls: Balls) -> Truth:
    middle = balls.midpoint()
    return Truth(
        values=np.where(np.isnan(middle), 0.0, middle),
        infinite=balls.infinite(),
        undefined=balls.undefined(),
        undecided=balls.undecided(),
        noise=np.zeros(balls.shape),
    )


def _noisy(name: str, truth: Truth, noise: Any) -> Truth:
    """The truth with its noise. Every gradient that is not 0 has some: where there is none, it could not be told."""
    lost = (noise == 0) & (truth.values != 0) if not name.isdecimal() else False
    return replace(truth, noise=noise, undecided=truth.undecided | lost)


def _is_beyond(case: Case, new: Mapping[str, Any], told: Mapping[str, Truth]) -> bool:
    """Whether an element is further from the truth than any number of noisy runs more will excuse.

    One without noise so far may come to have that of the others.
    """
    with np.errstate(over="ignore"):
        wider = {name: replace(one, noise=_BEYOND * np.fmax(one.noise, _mean(one.noise))) for name, one in told.items()}
    return _needs_noise(case, new, wider)


def _mean(noise: Any) -> float:
    finite = noise[np.isfinite(noise)]
    return float(finite.mean()) if finite.size else 0.0


def _needs_noise(case: Case, new: Mapping[str, Any], told: Mapping[str, Truth], *, gradients: bool = False) -> bool:
    """Whether an element is further from the truth than is excused so far; of all arrays, or of the gradients alone."""
    for name, (old, dtype) in case.old.items():
        if gradients and name.isdecimal():
            continue
        usual = case.usual.get(name, 0.0)
        found = standing(old, new[name], dtype, told[name], usual=usual, rounded=case.rounded(name, new))
        if found.worse.any() or found.invented.any():
            return True
        wrong, still = (is_far(values, dtype, told[name], usual=usual) for values in (old, new[name]))
        if (wrong & still & np.isfinite(new[name])).any():
            return True
    return False
