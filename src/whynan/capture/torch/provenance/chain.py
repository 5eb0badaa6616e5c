"""The decisive operand of a birth, by what the operator means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from whynan.capture.provenance.dependence import magnitude_of, number_of, of_batch, of_power, of_product, of_quotient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.records import BirthKind, Operand


_QUOTIENTS: Final = frozenset("div divide true_divide floor_divide fmod remainder".split())
# operator -> its factors, and what it adds to their product
_PRODUCTS: Final[Mapping[str, tuple[str, str, str | None]]] = {
    "mm": ("self", "mat2", None),
    "bmm": ("self", "mat2", None),
    "mv": ("self", "vec", None),
    "dot": ("self", "tensor", None),
    "vdot": ("self", "other", None),
    "addmm": ("mat1", "mat2", "self"),
    "_addmm_activation": ("mat1", "mat2", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
    "addbmm": ("batch1", "batch2", "self"),
    "addmv": ("mat", "vec", "self"),
    "addr": ("vec1", "vec2", "self"),
    "addcmul": ("tensor1", "tensor2", "self"),
    "linear": ("input", "weight", "bias"),
    "convolution": ("input", "weight", "bias"),
    "_convolution": ("input", "weight", "bias"),
}
_NORMS: Final = frozenset("native_layer_norm native_group_norm layer_norm group_norm _fused_rms_norm".split())
# the operand whose logarithm or root is taken, and by which the others are multiplied
_ARGUMENTS: Final[Mapping[str, str]] = {"xlogy": "other", "xlog1py": "other", "special_xlog1py": "other"}
_BATCH: Final = frozenset(
    "native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit cudnn_batch_norm".split()
)


def decisive(base: str, kind: BirthKind, operands: tuple[Operand, ...]) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor.

    Of an operator that is not known it is the greatest in magnitude where a range was exceeded, else a zero first.
    """
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if not known:
        return None
    named = {o.name: o for o in operands if isinstance(o.value, (int, float))}
    plain = base.removesuffix("_").removeprefix("_foreach_")
    found = _known(plain, kind, named, known)
    if found is not None and found.dtype is not None:
        return found
    zeros = [o for o in known if o.value == 0]
    return zeros[-1] if zeros and kind != "overflow" else max(known, key=magnitude_of)


def _known(base: str, kind: BirthKind, named: dict[str, Operand], known: list[Operand]) -> Operand | None:
    if base in _QUOTIENTS and "self" in named and "other" in named:
        return of_quotient(kind, named["self"], named["other"])
    if base == "pow" and "self" in named and "exponent" in named:
        return of_power(kind, named["self"], named["exponent"])
    if base == "addcdiv" and "tensor1" in named and "tensor2" in named:
        return of_quotient(kind, named["tensor1"], named["tensor2"])
    if base in _PRODUCTS:
        return _of_product(_PRODUCTS[base], named)
    if base in _BATCH and "running_var" in named:
        epsilon = number_of(named["eps"]) if "eps" in named else 0.0
        return of_batch(kind, named["running_var"], epsilon, known)
    if base in _NORMS:
        return _of_norm(kind, known)
    if base in _ARGUMENTS and kind != "overflow":
        return named.get(_ARGUMENTS[base])
    if base.startswith("nll_loss"):
        weight = named.get("weight")
        return weight if weight is not None and weight.value == 0 and kind != "overflow" else known[0]
    return None


def _of_product(names: tuple[str, str, str | None], named: dict[str, Operand]) -> Operand | None:
    first, second, third = names
    if first not in named or second not in named:
        return None
    factors = named[first], named[second]
    added = [named[third]] if third is not None and third in named else []
    return of_product(factors, [_greatest(o) for o in factors], added)


def _of_norm(kind: BirthKind, known: list[Operand]) -> Operand:
    """What is normalised comes first, unless a parameter is greater where what was normalised overflows with it."""
    return known[0] if kind != "overflow" else max(known, key=magnitude_of)


def _greatest(operand: Operand) -> float:
    """How great the elements of a row are, or the one that there is."""
    ends = [abs(float(end)) for end in (operand.min, operand.max) if isinstance(end, (int, float))]
    return max((math.inf if math.isnan(end) else end for end in ends), default=magnitude_of(operand))
