"""The links of a chain: what an event did to an element, and which operand the birth turns on."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.provenance.dependence import magnitude_of, number_of, of_batch, of_power, of_product, of_quotient
from whynan.capture.torch.provenance.operands import dtype_name
from whynan.floats import format_of
from whynan.records import Note, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from whynan.capture.torch.event_log import Held, Row
    from whynan.records import BirthKind, Operand


# -- The sentences of a chain: what an event did to an element, and which of its operands to look at next --------------


TRANSPARENT = frozenset("clone _to_copy contiguous copy_ copy expand view reshape _unsafe_view cat stack index".split())
CLIPS = frozenset(
    "relu relu_ clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ hardtanh relu6 threshold maximum minimum "
    "leaky_relu hardsigmoid masked_fill masked_fill_ where nan_to_num native_dropout".split()
)
CONSTANTS = frozenset(
    "lift_fresh full full_like zeros zeros_like ones ones_like scalar_tensor fill zero new_full new_zeros new_ones eye "
    "arange linspace".split()
)
RANDOM = frozenset(
    "rand randn randint rand_like randn_like randperm uniform normal bernoulli exponential geometric log_normal cauchy "
    "multinomial".split()
)

_SHRINKING = frozenset("mul pow square exp div sigmoid".split())
_COMPUTED: dict[str, Callable[[float, float], Any]] = {
    "mul": operator.mul,
    "div": operator.truediv,
    "sub": operator.sub,
    "rsub": operator.sub,
    "add": operator.add,
    "pow": operator.pow,
}
NEGLIGIBLE = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""

# name, value or range, operand, and where in it
Part = tuple[str, Any, "Held | None", "tuple[int, ...] | None"]


def made(row: Row, value: Any) -> Note:
    """What an event did to an element whose operands are gone."""
    plain = row.operator.base.removesuffix("_")
    if value is None:
        return Note.of("wrote_last", operator=plain)
    if plain in CONSTANTS:
        return Note.of("program_writes", result=shown(value))
    return Note.of("drew" if plain in RANDOM else "made", operator=plain, result=shown(value))


def computed(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> Note:
    """What an operator makes of what it was given: arithmetic, where that is what it was."""
    seen = tuple(shown(v) for _, v, _, _ in parts if v is not None and not isinstance(v, tuple))
    plainly = plain in _COMPUTED and len(seen) == 2 and _holds(plain, value, parts, dtype)
    small = underflows(plain, value, parts, dtype)
    return Note.of(
        "computed",
        operator=plain,
        operands=seen,
        result=shown(value),
        arithmetic=plainly,
        dtype=dtype_name(dtype) if small else None,
        smallest=_least(dtype) if small else None,
    )


def cast(value: Any, part: Part, dtype: torch.dtype) -> Note | None:
    """What to say where a copy in another dtype has lost a number; None where it has not."""
    given = part[1]
    if value != 0 or not isinstance(given, (int, float)) or given == 0:
        return None
    return Note.of("cast", operand=shown(given), dtype=dtype_name(dtype), result=shown(value), smallest=_least(dtype))


def to_follow(plain: str, value: Any, parts: list[Part]) -> tuple[Held | None, tuple[int, ...] | None]:
    """The operand that made the value what it is; none where the event itself is the explanation."""
    if plain in ("rand", "randn") or not isinstance(value, (int, float)):
        return None, None
    tensors = [(h, w, v) for _, v, h, w in parts if h is not None and w is not None and isinstance(v, (int, float))]
    if len(tensors) == 1 and math.isinf(tensors[0][2]) and math.isfinite(value):
        # what is finite again of an infinity: the infinity is to be explained
        return tensors[0][0], tensors[0][1]
    if plain == "exp":
        return None, None
    if plain in ("sub", "rsub"):
        # two sides of like size cancel, which explains the value
        tensors = [t for t in tensors if abs(float(t[2])) * NEGLIGIBLE > abs(value)] or tensors
        return (tensors[0][0], tensors[0][1]) if len(tensors) == 1 else (None, None)
    if value == 0:
        for h, w, v in tensors:
            if v == 0:
                return h, w
        return None, None
    if len(tensors) == 1:
        return tensors[0][0], tensors[0][1]
    if plain in ("mul", "add", "div") and tensors:
        # a tiny product comes from its smallest factor, anything else from its greatest part
        choose = min if plain == "mul" and abs(value) < 1 else max
        h, w, _ = choose(tensors, key=lambda t: abs(float(t[2])))
        return h, w
    return None, None


def underflows(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> bool:
    """Whether nothing but zero was too small to be written."""
    seen = [v for _, v, _, _ in parts if isinstance(v, (int, float))]
    if value != 0 or plain not in _SHRINKING or not seen or 0 in seen or any(abs(v) == float("inf") for v in seen):
        return False
    if plain in _COMPUTED and not _holds(plain, value, parts, dtype):
        # a quotient that was rounded down
        return False
    return dtype.is_floating_point


def _least(dtype: torch.dtype) -> float | None:
    """The smallest number of a dtype."""
    return format_of(dtype_name(dtype)).smallest_subnormal if dtype.is_floating_point else None


def _holds(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> bool:
    """Whether a value is what the plain operator makes of two numbers, to the rounding of its dtype.

    Not with an ``alpha``, and not where a quotient was rounded.
    """
    seen = [v for _, v, _, _ in parts if isinstance(v, (int, float))]
    if not isinstance(value, (int, float)) or len(seen) != 2:
        return False
    first, second = reversed(seen) if plain == "rsub" else seen
    try:
        exact = _COMPUTED[plain](float(first), float(second))
    except (ArithmeticError, ValueError):
        return True
    if isinstance(exact, complex) or exact - exact != 0 or value - value != 0:
        return True
    limits = format_of(dtype_name(dtype)) if dtype.is_floating_point else None
    off = abs(exact) * 2 * limits.eps + limits.smallest_subnormal if limits is not None else 0.0
    return abs(exact - value) <= off


# -- Which operand a birth turns on, by what the operator means --------------------------------------------------------


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
