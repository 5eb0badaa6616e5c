"""Lowering hazards: operators of torch that the exporter writes as formulas which lose what the operator keeps."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from whynan.compare.spelling import base

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.compare.stretches import Culprit


_NEAR_TURN: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Hazard:
    """A code, the name of the pattern, and why it breaks, with what to do."""

    code: str
    name: str
    explanation: str
    holds: Callable[[Culprit], bool] = lambda culprit: culprit.sort != "meaning"
    """Whether it may be what a divergence comes from; most formulas are the operator's in exact arithmetic."""


def _argument(culprit: Culprit, place: int) -> str:
    """An argument of A's operator as text, empty where it is left out."""
    said: list[Any] = ast.literal_eval(culprit.other.operations[-1].settings)
    return str(said[place]) if place < len(said) and isinstance(said[place], str) else ""


HAZARDS: Final[Mapping[str, Hazard]] = {
    "atan2": Hazard(
        "WNX01",
        "atan2-on-negative-axis",
        "The exporter writes atan2 as the arctangent of a quotient and adds or subtracts pi by the signs. For "
        "(0, x < 0) the quotient is -0, and pi gets the wrong sign. Mask the two parts themselves "
        "instead of magnitude and phase.",
        lambda culprit: abs(abs(culprit.a - culprit.b) - math.tau) < _NEAR_TURN,
    ),
    "log_sigmoid": Hazard(
        "WNX02",
        "logsigmoid-far-below-zero",
        "The exporter writes logsigmoid as log(sigmoid(x)); the sigmoid is 0 far below zero, and its logarithm -Inf. "
        "Write -softplus(-x).",
    ),
    "logaddexp": Hazard(
        "WNX03",
        "logaddexp-overflow",
        "The exporter writes logaddexp as log(exp(x) + exp(y)), and exp overflows above 88. Write logsumexp of the two "
        "stacked, which subtracts the maximum.",
    ),
    "binary_cross_entropy_with_logits": Hazard(
        "WNX04",
        "bce-with-logits-far-from-zero",
        "The exporter writes it with log(sigmoid(x)), which is -Inf far from zero. Write it with softplus.",
    ),
    "log1p": Hazard(
        "WNX05",
        "log1p-near-zero",
        "The exporter writes log1p as log(1 + x); 1 + x is 1 where x is below the roundoff, and the result 0.",
    ),
    "expm1": Hazard(
        "WNX06",
        "expm1-near-zero",
        "The exporter writes expm1 as exp(x) - 1, which is 0 where x is below the roundoff.",
    ),
    "floor_divide": Hazard(
        "WNX07",
        "floor-division-at-multiple",
        "The exporter writes // as the floor of a rounded quotient. Where the true quotient is just below a whole "
        "number, it is rounded up to that, and the result is one too large. Divide integers, or add what decides.",
    ),
    "remainder": Hazard(
        "WNX08",
        "remainder-by-infinity",
        "The exporter writes the remainder as x - floor(x / y) * y, which is 0 * Inf for an infinite y, and one y off "
        "near a multiple.",
    ),
    "avg_pool2d": Hazard(
        "WNX09",
        "average-pool-divisor",
        "ONNX's AveragePool has no divisor_override: the exporter leaves it out, and the mean is over the window.",
        lambda culprit: _argument(culprit, 6) not in ("", "None"),
    ),
    "scatter_reduce": Hazard(
        "WNX10",
        "scatter-mean-as-sum",
        "ONNX's ScatterElements has no mean: the exporter writes the sum. Divide by the counts yourself.",
        lambda culprit: _argument(culprit, 4) == "mean",
    ),
    "cross_entropy_loss": Hazard(
        "WNX11",
        "label-smoothing-lost",
        "ONNX's SoftmaxCrossEntropyLoss has no label smoothing: the exporter leaves it out. Write the loss by hand.",
        lambda culprit: _argument(culprit, 5) not in ("", "0.0"),
    ),
    "scaled_dot_product_attention": Hazard(
        "WNX12",
        "attention-row-fully-masked",
        "A row of which every key is masked is 0 in torch. The exported softmax gives NaN there for a mask of -Inf, "
        "and the mean of the values for one of the smallest number. Keep one key, or multiply the result by the mask.",
        lambda culprit: culprit.a == 0,
    ),
    "topk": Hazard(
        "WNX13",
        "topk-tie",
        "Which of equal elements topk takes is not defined, and the engines take others. Do not rely on its indices "
        "where values can be equal.",
        lambda culprit: culprit.sort == "decision",
    ),
    "elu": Hazard(
        "WNX14",
        "elu-near-zero",
        "The engine computes elu as exp(x) - 1 below zero, which is 0 where x is below the roundoff.",
    ),
    "max": Hazard(
        "WNX15",
        "maximum-drops-nan",
        "torch's maximum carries NaN on, and ONNX Runtime's leaves it out: a NaN upstream is hidden in the export.",
        lambda culprit: math.isnan(culprit.a),
    ),
    "sign": Hazard(
        "WNX16",
        "sign-of-nan",
        "torch gives 0 for the sign of NaN, and ONNX Runtime NaN.",
        lambda culprit: math.isnan(culprit.b) and not math.isnan(culprit.a),
    ),
}  # fmt: skip
"""By torch's operator."""
_SAME: Final = {
    "atan2_": "atan2",
    "logaddexp2": "logaddexp",
    "celu": "elu",
    "selu": "elu",
    "fmod": "remainder",
    "avg_pool3d": "avg_pool2d",
    "amax": "max",
    "amin": "max",
    "min": "max",
    "sort": "topk",
    "argmax": "topk",
    "argmin": "topk",
    "sgn": "sign",
    "soft_margin_loss": "binary_cross_entropy_with_logits",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
}

_FEW: Final = 3
"""Operations of A, the last first, of which one may be the hazard's."""


FAMILY: Final = "WNX"


def find_hazards(wanted: str) -> tuple[Hazard, ...]:
    """The hazard of a code or a name, or all by the name of their family; empty for anything else."""
    low = wanted.lower()
    return tuple(h for h in HAZARDS.values() if low in (FAMILY.lower(), h.code.lower(), h.name))


def hazard_of(culprit: Culprit) -> Hazard | None:
    """The hazard that explains a divergence: of the one operator of A that B has a formula for."""
    for operation in reversed(culprit.other.operations[-_FEW:]):
        name = base(operation.op)
        if name == "div" and any(base(o.op) == "Floor" for o in culprit.stretch.operations):
            name = "floor_divide"
        if (found := HAZARDS.get(_SAME.get(name, name))) is not None:
            return found if found.holds(culprit) else None
    return None
