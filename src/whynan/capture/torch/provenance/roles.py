"""Roles of operands: which of them a birth turns on, by what the operator means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.capture.provenance.dependence import decisive, magnitude_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.provenance.dependence import Roles
    from whynan.records import BirthKind, Operand

_ROLES: Final[Mapping[str, Roles]] = {
    **dict.fromkeys("div divide true_divide floor_divide fmod remainder".split(), ("quotient", "self", "other")),
    "addcdiv": ("quotient", "tensor1", "tensor2"),
    "pow": ("power", "self", "exponent"),
    "mm": ("product", "self", "mat2"),
    "bmm": ("product", "self", "mat2"),
    "mv": ("product", "self", "vec"),
    "dot": ("product", "self", "tensor"),
    "vdot": ("product", "self", "other"),
    "addmm": ("product", "mat1", "mat2", "self"),
    "_addmm_activation": ("product", "mat1", "mat2", "self"),
    "baddbmm": ("product", "batch1", "batch2", "self"),
    "addbmm": ("product", "batch1", "batch2", "self"),
    "addmv": ("product", "mat", "vec", "self"),
    "addr": ("product", "vec1", "vec2", "self"),
    "addcmul": ("product", "tensor1", "tensor2", "self"),
    **dict.fromkeys(("linear", "convolution", "_convolution"), ("product", "input", "weight", "bias")),
    **dict.fromkeys(
        "native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit cudnn_batch_norm".split(),
        ("batch", "running_var"),
    ),
    # the operand whose logarithm or root is taken, and by which the others are multiplied
    **dict.fromkeys(("xlogy", "xlog1py", "special_xlog1py"), ("argument", "other")),
    **dict.fromkeys(("nll_loss", "nll_loss_forward", "nll_loss2d_forward"), ("weights", "weight")),
}
_NORMS: Final = frozenset("native_layer_norm native_group_norm layer_norm group_norm _fused_rms_norm".split())


def decisive_operand(base: str, kind: BirthKind, operands: tuple[Operand, ...]) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor.

    Of an operator that is not known it is the greatest in magnitude where a range was exceeded, else a zero first.
    """
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if not known:
        return None
    plain = base.removesuffix("_").removeprefix("_foreach_")
    if plain in _NORMS:
        # what is normalised, unless a parameter is greater where what was normalised overflows with it
        return known[0] if kind != "overflow" else max(known, key=magnitude_of)
    found = decisive(_ROLES.get(plain), kind, operands, known)
    if found is not None and found.dtype is not None:
        return found
    zeros = [o for o in known if o.value == 0]
    return zeros[-1] if zeros and kind != "overflow" else max(known, key=magnitude_of)
