"""Reading a finding: base operator, operand values, limits, exact numbers, silent damage, underflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, Overflow
from typing import Final, NamedTuple, cast

from whynan.errors import UsageError
from whynan.floats import describe_limit, format_of, format_value
from whynan.ops.names import meaning
from whynan.records import Damage, DamageKind, Finding, ForwardOperand, Note, Operand

# -- Reading a finding: base operator, operand values, limits ----------------------------------------------------------


INF = math.inf


def base(finding: Finding) -> str:
    """``aten.div_.Tensor`` -> ``div``; of a foreach operator what it does to each tensor; empty for ``entered``.

    Of a node of an ONNX model the operator of ATen that does the same: ``Div`` -> ``div``.
    """
    return meaning(finding.op).base if finding.op is not None and is_onnx(finding) else _bare(finding.op)


def is_onnx(finding: Finding) -> bool:
    """Whether it was born in a node of an ONNX model."""
    return finding.phase == "inference"


def forward_base(finding: Finding) -> str:
    """The base name of the forward operation of a backward birth; empty for every other."""
    return _bare(finding.forward_op) if finding.phase == "backward" else ""


def _bare(op: str | None) -> str:
    if op is None:
        return ""
    name = op.split(".")[1] if "." in op else op
    name = name.removeprefix("_foreach_")
    return name if name.startswith("_") else name.removesuffix("_")


def operand(finding: Finding, *names: str) -> Operand | None:
    """The first operand of one of these schema names, which are ATen's for a node of an ONNX model too."""
    known = meaning(finding.op) if finding.op is not None and is_onnx(finding) else None
    for name in names:
        for found in finding.element.operands:
            if (found.name if known is None else known.theirs(found.name)) == name:
                return found
    return None


def forward_operand(finding: Finding, name: str) -> ForwardOperand | None:
    """An operand of the forward operation of a backward birth."""
    return next((o for o in finding.forward_operands if o.name == name), None)


def value(finding: Finding, *names: str) -> float | None:
    """The numeric value of an operand; None where it is gone or no real number."""
    return _real(operand(finding, *names))


def forward_value(finding: Finding, name: str) -> float | None:
    """The value of a forward operand of a backward birth."""
    return _real(forward_operand(finding, name))


def _real(found: Operand | ForwardOperand | None) -> float | None:
    if found is None or not isinstance(found.value, (int, float)) or isinstance(found.value, bool):
        return None
    return float(found.value)


def is_zero(finding: Finding, name: str) -> bool:
    """Whether an operand is 0, a complex one included."""
    return _zero(operand(finding, name))


def forward_is_zero(finding: Finding, name: str) -> bool:
    """Whether a forward operand is 0, a complex one included."""
    return _zero(forward_operand(finding, name))


def _zero(found: Operand | ForwardOperand | None) -> bool:
    if found is None or found.value is None:
        return False
    return (complex(found.value) if isinstance(found.value, str) else found.value) == 0


def row(finding: Finding, *names: str) -> tuple[float, float] | None:
    """Least and greatest of the row that a reduction ran over; a single value is its own row."""
    found = operand(finding, *names)
    if found is not None and found.min is not None and found.max is not None:
        return float(found.min), float(found.max)
    known = value(finding, *names)
    return None if known is None else (known, known)


def all_finite(finding: Finding) -> bool:
    """Whether every operand value that is known is finite, and at least one is known."""
    known = [v for o in finding.element.operands for v in (o.value, o.min, o.max)]
    numbers = [float(v) for v in known if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return bool(numbers) and all(math.isfinite(v) for v in numbers)


def has_infinite_operand(finding: Finding) -> bool:
    """Whether a value of an operand, or an end of its row, is Inf or -Inf."""
    return any(v in (INF, -INF) for o in finding.element.operands for v in (o.value, o.min, o.max))


def has_empty_operand(finding: Finding) -> bool:
    """Whether an operand has no elements at all."""
    return any(o.shape is not None and 0 in o.shape for o in finding.element.operands)


def count_of(finding: Finding, *names: str) -> int | None:
    """How many elements of an operand went into each element of the result."""
    found = operand(finding, *names)
    if found is None or found.shape is None or not finding.element.total:
        return None
    return math.prod(found.shape) // finding.element.total


def is_in_library_step(finding: Finding) -> bool:
    """Whether it is born in the step of an optimizer that is not the program's own: its site is the call of that."""
    return finding.phase == "optimizer" and (finding.site is None or ".step(" in (finding.site.code or ".step("))


def is_nan(finding: Finding) -> bool:
    """Whether the offending element is NaN."""
    found = finding.element.value
    return found is None or math.isnan(found)


def limit(finding: Finding) -> str:
    """``the float16 maximum 65504``."""
    return f"the {finding.element.dtype} maximum {describe_limit(finding.element.dtype)}"


def number_text(number: float | None) -> str:
    """A value as text."""
    return format_value(number)


def result(finding: Finding) -> str:
    """The offending value as text."""
    return "NaN" if is_nan(finding) else number_text(finding.element.value)


# -- Numbers in a rule's sentence: exact results far beyond any format, and by how much they are out of range ----------


_WIDER = {"float16": ("bfloat16", "float32"), "bfloat16": ("float32", "float64"), "float32": ("float64",)}
# 30 digits: every float64 product is exact enough to be told from the limit of its format.
_CONTEXT = Context(prec=30, Emax=999_999, Emin=-999_999)


def maximum(dtype: str) -> float | None:
    """The largest finite number of a dtype; None where it is no floating-point format."""
    try:
        return format_of(dtype).max
    except UsageError:
        return None


def smallest_normal(dtype: str) -> float | None:
    """The smallest normal number of a dtype; None where it is no floating-point format."""
    try:
        return format_of(dtype).tiny
    except UsageError:
        return None


def exact(compute: Callable[[Context], Decimal]) -> Decimal | None:
    """The result of a computation in 30 digits; None where even its exponent has no room."""
    try:
        return compute(_CONTEXT)
    except Overflow:
        return None


def product(*factors: float) -> Decimal | None:
    """The exact product of finite numbers."""

    def multiply(context: Context) -> Decimal:
        result = Decimal(1)
        for factor in factors:
            result = context.multiply(result, Decimal(factor))
        return result

    return exact(multiply) if all(math.isfinite(f) for f in factors) else None


def decimal_text(value: Decimal | None) -> str:
    """An exact result with three digits: ``4.05e39``."""
    if value is None:
        return "more than 1e999999"
    if value == 0 or -300 < value.adjusted() < 300:
        return format_value(float(value))
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def excess(value: Decimal | None, dtype: str, *, shown: bool = True) -> str:
    """``90000 exceeds the float16 maximum 65504``, with as many digits as it takes to see it.

    The number itself is left out where the sentence has just written it (``shown=False``).
    """
    limit = maximum(dtype)
    if limit is None:
        return f"{decimal_text(value)} is out of the range of {dtype}"
    negative = value is not None and value < 0
    number, bound, digits = decimal_text(value), format_value(limit, digits=2), 2
    while value is not None and number.lstrip("-") == bound and digits < 12:
        digits += 1
        number, bound = format_value(float(value), digits=max(digits, 3)), format_value(limit, digits=digits)
    side = f"lies below the {dtype} minimum -{bound}" if negative else f"exceeds the {dtype} maximum {bound}"
    return f"{number} {side}" if shown else side


def overflows(value: Decimal | None, dtype: str) -> bool:
    """Whether an exact result rounds to Inf in a dtype; a result without room even for its exponent does."""
    limit = maximum(dtype)
    if limit is None or value is None:
        return limit is not None
    # half a unit in the last place above the maximum still rounds to it
    return abs(value) >= Decimal(limit) + Decimal(format_of(dtype).ulp(limit)) / 2


def wider_formats_text(value: Decimal | None, dtype: str) -> str:
    """``it fits bfloat16 and float32``; empty where no usual format is wide enough, or the result is not known."""
    if value is None or dtype not in _WIDER:
        return ""
    fits = [name for name in _WIDER[dtype] if not overflows(value, name)]
    return f"it fits {' and '.join(fits)}" if fits else ""


# -- Reading silent damage: what kind it is, of how much, and what the element was before ------------------------------


def damage_of(finding: Finding, kind: DamageKind) -> Damage | None:
    """The damage of a finding, if it is of this kind."""
    return finding.damage if finding.damage is not None and finding.damage.kind == kind else None


def operand_before(finding: Finding) -> Operand | None:
    """What the element was before; None where that is not known."""
    return finding.element.operands[0] if finding.element.operands else None


def value_before(finding: Finding) -> float | None:
    """The value of the element before; None where that is not known."""
    found = operand_before(finding)
    known = None if found is None else found.value
    return float(known) if isinstance(known, (int, float)) else None


def share(damage: Damage) -> str:
    """``47 of 100 values (47%)``."""
    if damage.concerned >= damage.total:
        return f"all {damage.total:,} values" if damage.total > 1 else "the value"
    return f"{damage.concerned:,} of {damage.total:,} values ({100 * damage.concerned / damage.total:.3g}%)"


def other_elements_text(damage: Damage) -> str:
    """``, and so are 3 more of 100``; nothing for one."""
    more = damage.concerned - 1
    return f", as {'is' if more == 1 else 'are'} {more:,} more of {damage.total:,}" if more else ""


# -- A cause that is 0 only because its dtype has no number so small ---------------------------------------------------


_WORDS: Final = {"mul": "×", "Mul": "×", "pow": "**", "Pow": "**"}


class _Attempt(NamedTuple):
    words: str
    exact: float


def underflow(finding: Finding) -> str:
    """What is said of a chain that begins with a product, power or exponential that underflowed; else nothing."""
    first = next((link for link in finding.chain if link.role == "cause"), None)
    attempt = None if first is None else _underflow_attempt(first.typed_summary)
    dtype = None if attempt is None else _underflowing_dtype(attempt.exact, finding.element.dtype)
    if attempt is None or dtype is None:
        return ""
    wide = next((w for w in ("float32", "float64") if abs(attempt.exact) >= format_of(w).tiny), None)
    if wide is None:
        return ""
    return f" That 0 is an underflow of {dtype}: in {wide} {attempt.words} is {format_value(attempt.exact)}."


def _underflow_attempt(said: Note) -> _Attempt | None:
    """What a product, power or exponential would be that is told to be 0; None where it is none."""
    if said.kind != "computed" or said.values["result"] != 0:
        return None
    operator, operands = str(said.values["operator"]), _numbers(said.values["operands"])
    if operator in ("exp", "Exp") and len(operands) == 1:
        (a,) = operands
        return _Attempt(f"exp({format_value(a)})", math.exp(a)) if a < 0 else None
    if operator not in _WORDS or not said.values["arithmetic"] or len(operands) != 2:
        return None
    (a, b), sign = operands, _WORDS[operator]
    second = format_value(b)
    words = f"{format_value(a)} {sign} {f'({second})' if b < 0 else second}"
    if sign == "×":
        return _Attempt(words, a * b)
    return _Attempt(words, a**b) if a > 0 or (a and b.is_integer()) else None


def _numbers(operands: object) -> tuple[float, ...]:
    """The operands of a step as it shows them; none where one is no finite number."""
    held = cast("tuple[object, ...]", operands) if isinstance(operands, tuple) else ()
    numbers = [float(v) for v in held if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return tuple(float(format_value(v, digits=4)) for v in numbers) if len(numbers) == len(held) else ()


def _underflowing_dtype(exact: float, dtype: str) -> str | None:
    """The dtype in which a number that is not 0 rounds to it: the birth's own, or float16, the only one so coarse.

    Half of the smallest number rounds to 0; less is asked, because the values of a chain are rounded themselves.
    """
    if exact == 0:
        return None
    try:
        if abs(exact) < 0.49 * format_of(dtype).smallest_subnormal:
            return dtype
    except UsageError:
        return None
    coarse = format_of("bfloat16").smallest_subnormal < abs(exact) < 0.49 * format_of("float16").smallest_subnormal
    return "float16" if coarse else None
