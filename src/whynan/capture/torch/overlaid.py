"""Where a NaN and an infinity meet: whether the result is bad for the NaN alone, or for either of the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.planes import bad_mask, nan_mask

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.arguments import Question


def nan_alone(question: Question, index: int, tensors: list[Tensor], output: Tensor) -> Tensor | None:
    """Where one of several bad operands is NaN, and so is output `index`, and the others alone would do no harm there.

    An infinity that the NaN only hides is none of these: with the NaN mended the result would be bad all the same.
    """
    if sum(id(t) in question.carriers for t in tensors) < 2:
        return None
    found = torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    others = torch.zeros_like(found)
    for tensor in tensors:
        carrier = question.carriers.get(id(tensor))
        if carrier is None:
            continue
        nan = nan_mask(tensor)
        if carrier.explains is not None and id(tensor) not in question.gone:
            found |= nan & (carrier.explains != 0)
            others |= (carrier.explains != 0) & ~nan
    found &= nan_mask(output)
    hidden = found & others
    return found & ~(hidden & _bad_without_nan(question, index, output)) if bool(hidden.any()) else found


def _bad_without_nan(question: Question, index: int, output: Tensor) -> Tensor:
    """Which elements would be bad if what is NaN among the operands were a number."""

    def mended(tensor: Tensor) -> Tensor:
        carrier = question.carriers.get(id(tensor))
        if carrier is None or carrier.explains is None:
            return tensor
        one = torch.ones((), dtype=tensor.dtype, device=tensor.device)
        return torch.where(nan_mask(tensor) & (carrier.explains != 0), one, tensor)

    try:
        with experiments.unseen():
            return bad_mask(experiments.run(question.operator, question.arguments, mended)[index])
    except experiments.ANSWERLESS:
        return torch.zeros(output.shape, dtype=torch.bool, device=output.device)
