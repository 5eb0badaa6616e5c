"""The exact values of a case, asked of the oracle as arrays that can be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.comparing import Truth, standing
from whynan.verify.memories import UnrecordableError
from whynan.verify.oracle import Unsupported, exact, noise_floor
from whynan.verify.recording import recorded
from whynan.verify.tensors import array_of, tensors_in, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.verify.cases import Case
    from whynan.verify.oracle import Balls
    from whynan.verify.oracle.programs import Program

_BITS: Final = {"float64": 1280}
"""As many to begin with as the smallest numbers of the dtype need beside one; of the narrower ones far fewer."""
_FEW: Final = 320


class UnknowableError(Exception):
    """The exact values cannot be had; the text names the operation that the oracle lacks."""


def truths(original: Callable[..., Any], case: Case, new: Mapping[str, Any], *, bits: int) -> dict[str, Truth]:
    """The exact arrays of a case by name, with so many bits at the most; raises ``UnknowableError``.

    The noise of the original is asked for only where it can decide: where the repaired is further from the truth.
    """
    tensors = tensors_in(case.sample.arguments)
    try:
        with undisturbed(list(tensors.values())):
            program = recorded(original, case.sample.arguments, needs_grad=case.sample.needs_grad)
        inputs = {name: array_of(tensor) for name, tensor in tensors.items()}
        behind = _behind(program, case)
        few = _BITS.get(case.sample.dtype, _FEW)
        found = exact(program, inputs, behind, bits=few, most_bits=max(bits, few))
        known = _by_array(program, case, found.outputs, found.gradients)
        told = {name: _truth(balls) for name, balls in known.items()}
        if not _needs_noise(case, new, told):
            return told
        floor = noise_floor(program, inputs, behind)
    except Unsupported as error:
        raise UnknowableError(error.op) from error
    except UnrecordableError as error:
        raise UnknowableError(str(error)) from error
    noise = _by_array(program, case, floor.outputs, floor.gradients)
    return {name: _noisy(name, told[name], noise[name]) for name in known}


def _behind(program: Program, case: Case) -> dict[str, Any]:
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
    return {name: named[name] for name in case.old}


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


def _needs_noise(case: Case, new: Mapping[str, Any], told: Mapping[str, Truth]) -> bool:
    for name, (old, dtype) in case.old.items():
        found = standing(old, new[name], dtype, told[name], usual=case.usual.get(name, 0.0))
        if found.worse.any() or found.invented.any():
            return True
    return False
