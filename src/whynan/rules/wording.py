"""The words of a rule's sentence: operators, operands, arithmetic, data, growth, selections, loss scaling."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Final

from whynan.floats import format_value
from whynan.ops.names import base_name, op_type
from whynan.ops.table import TORCH
from whynan.records import Argument, ChainLink, Data, Finding, Neighbourhood, Note, Operand, ScaleFall, Selection, Site
from whynan.rules.facts import (
    base,
    count_of,
    decimal_text,
    exact,
    forward_base,
    forward_operand,
    is_onnx,
    number_text,
    operand,
    product,
    result,
    row,
    value,
)

# -- The words of a rule's sentence: operators and operands by readable names, with their values -----------------------


_DECORATION = re.compile(r"^(native_|linalg_|special_)|(_forward|_interface|_ex)$")
_NAMES: Final = {"self": "the input", "other": "the second operand", "input": "the input", "weight": "the weight"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


def readable(name: str) -> str:
    """``linalg_vector_norm`` is ``vector_norm``, ``nll_loss_forward`` ``nll_loss``, ``mm`` ``a matrix product``."""
    if (noun := TORCH.column("noun").get(name)) is not None:
        return noun
    text = name.strip("_")
    while (shorter := _DECORATION.sub("", text)) != text:
        text = shorter
    return text


def operand_source(finding: Finding, name: str) -> str | None:
    """How the source writes an operand; None where that is not known, or where it is written as a number.

    A node of an ONNX model calls it by the name of its schema.
    """
    found = operand(finding, name)
    if found is not None and is_onnx(finding):
        return _NAMES.get(found.name, found.name)
    return _variable(found.expression if found is not None else None)


def forward_operand_source(finding: Finding, name: str) -> str | None:
    """How the source writes an operand of the forward operation."""
    found = forward_operand(finding, name)
    return _variable(found.expression if found is not None else None)


def _variable(text: str | None) -> str | None:
    return None if text is None or _NUMBER.fullmatch(text) else text


def named_value_text(text: str | None, what: str) -> str:
    """``: x is 0 here``; empty where the source does not name it."""
    return f": {text} is {what} here" if text else ""


def is_second_order(finding: Finding) -> bool:
    """Whether the operation that is differentiated was one of a backward itself, whose operands are not held."""
    return bool(forward_base(finding)) and not finding.forward_operands


def derivative(finding: Finding) -> str:
    """`` in the derivative of hypot at x = 0, y = 0``; empty outside of the backward."""
    if not forward_base(finding):
        return ""
    if is_second_order(finding):
        return f" in the second derivative, of a {readable(forward_base(finding))} that the first one computes"
    known = [o for o in finding.forward_operands if o.dtype is not None and o.index is not None and o.value is not None]
    added = forward_base(finding) in ("addmm", "baddbmm", "addmv", "addbmm")
    names = {**_NAMES, "self": "the bias"} if added else _NAMES
    values = ", ".join(f"{o.expression or names.get(o.name, o.name)} = {format_value(o.value)}" for o in known)
    return f" in the derivative of {readable(forward_base(finding))}" + (f" at {values}" if values else "")


def row_text(found: Operand) -> str:
    """``x (from -1 to 3)``, ``x (all 3)``, ``x = 3``; only the name where no value is known."""
    name = found.expression or _NAMES.get(found.name, found.name)
    if found.min is not None and found.max is not None and found.min == found.min and found.value != found.value:
        return f"{name} (from {format_value(found.min)} to {format_value(found.max)}, and NaN)"
    if found.min is not None and found.max is not None:
        low, high = format_value(found.min), format_value(found.max)
        return f"{name} (all {low})" if found.min == found.max else f"{name} (from {low} to {high})"
    if found.value is None or _variable(name) is None:
        return name
    return f"{name} = {format_value(found.value)}"


def operands_text(finding: Finding) -> str:
    """The tensors that went in, with their values: ``x (from 1 to 3) and y = 2``; settings and indices are left out."""
    known = [o for o in finding.element.operands if o.value is not None or o.min is not None]
    counted = [o for o in known if (o.dtype or "").startswith(("float", "bfloat", "complex"))]
    counted += [o for o in known if o.dtype is None and isinstance(o.value, float)]
    parts = [row_text(o) for o in counted]
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def operator_text(finding: Finding) -> str:
    """The operator in words; that of an ONNX model by its type."""
    return op_type(finding.op or "") if is_onnx(finding) else readable(base(finding))


# -- What an arithmetic event attempted, as a sentence and as an exact number: ``300 × 300 = 90000`` -------------------


@dataclass(frozen=True, slots=True)
class Attempt:
    """The computation in words, and its exact result where all its operands are known."""

    words: str
    result: Decimal | None


def exact_attempt(finding: Finding) -> Attempt | None:
    """The exact result of an event with known operands; None where it is no plain arithmetic or a value is gone."""
    name = base(finding)
    a, b = value(finding, "self"), value(finding, "other")
    match name:
        case "mul":
            return _times(a, b)
        case "add" | "sub":
            return _sum(a, b, value(finding, "alpha"), minus=name == "sub")
        case "rsub":
            return _sum(b, a, value(finding, "alpha"), minus=True)
        case "div" | "true_divide":
            return _over(a, b)
        case "reciprocal":
            return _over(1.0, a)
        case "square":
            return _power(a, 2.0)
        case "pow":
            return _power(a, value(finding, "exponent"))
        case "addcmul":
            return _scaled(value(finding, "tensor1"), value(finding, "tensor2"), value(finding, "value"))
        case "mm" | "bmm" | "dot" | "mv":
            return _products(finding)
        case "sum" | "mean":
            return _sum_of_equals(finding, name)
        case "_log_softmax" | "log_softmax":
            return _difference(finding)
        case "logspace":
            return _power(value(finding, "base") or 10.0, value(finding, "end"))
        case "_to_copy" | "copy":
            return _cast(finding)
        case _:
            return None


def _times(a: float | None, b: float | None) -> Attempt | None:
    if a is None or b is None:
        return None
    return _attempt_of(f"{number_text(a)} × {number_text(b)}", product(a, b), a, b)


def _scaled(a: float | None, b: float | None, scale: float | None) -> Attempt | None:
    if a is None or b is None:
        return None
    factors = (a, b) if scale is None else (a, b, scale)
    return _attempt_of(" × ".join(map(number_text, factors)), product(*factors), *factors)


def _over(a: float | None, b: float | None) -> Attempt | None:
    if a is None or b is None or b == 0:
        return None
    divide = exact(lambda c: c.divide(Decimal(a), Decimal(b))) if math.isfinite(a) and math.isfinite(b) else None
    return _attempt_of(f"{number_text(a)} / {number_text(b)}", divide, a, b)


def _sum(a: float | None, b: float | None, alpha: float | None, *, minus: bool) -> Attempt | None:
    if a is None or b is None:
        return None
    sign = "−" if minus else "+"
    right = number_text(b) if alpha is None else f"{number_text(alpha)} × {number_text(b)}"
    right = f"({right})" if right.startswith("-") else right
    if not (math.isfinite(a) and math.isfinite(b)):
        return None
    scaled = product(b, -1.0 if minus else 1.0, 1.0 if alpha is None else alpha)
    total = None if scaled is None else exact(lambda c: c.add(Decimal(a), scaled))
    return _attempt_of(f"{number_text(a)} {sign} {right}", total, a, b)


def _power(a: float | None, p: float | None) -> Attempt | None:
    if a is None or p is None or (a == 0 and p <= 0) or (a < 0 and not p.is_integer()):
        return None

    def raise_to(context: Context) -> Decimal:
        return context.power(Decimal(a), Decimal(p))

    try:
        return _attempt_of(f"{number_text(a)} ** {number_text(p)}", exact(raise_to), a, p)
    except InvalidOperation:
        return None


def _products(finding: Finding) -> Attempt | None:
    """A sum of products whose factors are all alike."""
    names = ("self", {"dot": "tensor", "mv": "vec"}.get(base(finding), "mat2"))
    spans = [row(finding, n) for n in names]
    shared = operand(finding, names[1])
    if None in spans or shared is None or shared.shape is None:
        return None
    (a, b), (c, d) = (s for s in spans if s is not None)
    if a != b or c != d:
        return None
    count = shared.shape[-1] if base(finding) in ("dot", "mv") else shared.shape[-2]
    return _attempt_of(f"{count} × {number_text(a)} × {number_text(c)}", product(float(count), a, c), a, c)


def _sum_of_equals(finding: Finding, name: str) -> Attempt | None:
    """A sum of equal values, or the one behind their mean."""
    span, count = row(finding, "self"), count_of(finding, "self")
    if span is None or count is None or span[0] != span[1]:
        return None
    words = f"{count} × {number_text(span[0])}"
    return _attempt_of(
        f"the sum behind the mean, {words}" if name == "mean" else words, product(float(count), span[0]), span[0]
    )


def _difference(finding: Finding) -> Attempt | None:
    """The least logit of a row less the greatest, which is what its logarithm of softmax is at most."""
    span = row(finding, "self", "input")
    return None if span is None else _sum(*span, None, minus=True)


def _cast(finding: Finding) -> Attempt | None:
    found = value(finding, "self", "src")
    if found is None or not math.isfinite(found):
        return None
    return Attempt(f"{number_text(found)}, cast to {finding.element.dtype},", Decimal(found))


def _attempt_of(words: str, result: Decimal | None, *operands: float) -> Attempt | None:
    if not all(math.isfinite(o) for o in operands):
        return None
    return Attempt(f"{words} = {decimal_text(result)}", result)


# -- Where a value came in, in words -----------------------------------------------------------------------------------


MOST_TOLD: Final = 4
"""So many rows of a batch are told one by one."""


def origin_kind(finding: Finding) -> str:
    """The kind of the origin of a number that no operation bore; empty where there is none."""
    return "" if finding.origin is None else finding.origin.kind


def bad_since_kind(finding: Finding) -> str:
    """The kind of what is known of since when such a number is bad; empty where that is nothing."""
    known = None if finding.origin is None else finding.origin.values.get("since")
    return known.kind if isinstance(known, Note) else ""


def data_text(data: Data | None) -> str:
    """Where a value came in: ``batch[1], row 5 of batch 312 (dataset index 4,805, worker 1)``; empty if unknown."""
    if data is None:
        return ""
    name = data.name or ""
    if data.kind in ("numpy", "value"):
        made = f"made a tensor at {data.site.file}:{data.site.line}" if data.site is not None else "made a tensor"
        line = data.computed
        source = (
            f"{line.code} at {line.file}:{line.line}, "
            if line is not None and line.code and line.code != data.name
            else ""
        )
        return f"{name or 'a value'} ({source}{'a NumPy array, ' if data.kind == 'numpy' else ''}{made})"
    if data.kind == "file":
        return f"{name} in {data.file}" if name else f"the file {data.file}"
    return f"{name}, {_in_batch(data)}" if name and name != "batch" else _in_batch(data)


def _in_batch(data: Data) -> str:
    batch = f"batch {data.batch:,}" if data.batch is not None else "a batch"
    rows = [f"{row:,}" for row in data.rows]
    row = "" if not rows else f"row {rows[0]} of " if data.n_rows == 1 else f"rows {_some(rows, data.n_rows)} of "
    notes: list[str] = []
    if data.indices:
        told = [f"{i:,}" if isinstance(i, int) else str(i) for i in data.indices]
        count = max(data.n_rows, len(told))
        notes.append(f"dataset index {told[0]}" if count == 1 else f"dataset indices {_some(told, count)}")
    if data.worker is not None:
        notes.append(f"worker {data.worker}")
    if data.passed is not None and data.passed > 1:
        notes.append(f"pass {data.passed} over the data")
    if data.computed is not None and data.computed.code:
        notes.append(f"made by {data.computed.code} at {data.computed.file}:{data.computed.line}")
    known = f" ({', '.join(notes)})" if notes else ""
    return f"{row}{batch}{known}"


def _some(texts: list[str], count: int) -> str:
    shown = texts[:MOST_TOLD]
    more = count - len(shown)
    return f"{', '.join(shown)} and {more:,} more" if more > 0 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# -- How values grew towards the limit that they have passed: the greatest of some operations before -------------------


def growth_text(finding: Finding) -> str:
    """`` 6 operations earlier the greatest value was 5480.``; empty where that is not known, or they did not grow."""
    around = finding.around
    if around is None or finding.phase == "backward":
        return ""
    found = _greatest(around, finding.element.dtype)
    last, first = min(found, default=0), max(found, default=0)
    if first <= last or not found[first] or found[first] >= found[last]:
        return ""
    before, at_last = number_text(found[first]), number_text(found[last])
    return f" {first} operations earlier the greatest value was {before}, and right before it {at_last}."


def _greatest(around: Neighbourhood, dtype: str) -> dict[int, float]:
    """The greatest magnitude of what was computed in this dtype, by how many operations earlier."""
    found: dict[int, float] = {}
    for operation in around.operations:
        for argument in operation.arguments if operation.hops <= 0 else ():
            size = _size(argument, dtype)
            if size is not None:
                distance = 1 - operation.hops
                found[distance] = max(size, found.get(distance, 0.0))
    return found


def _size(argument: Argument, dtype: str) -> float | None:
    if argument.event is None or argument.dtype != dtype or argument.min is None or argument.max is None:
        return None
    size = max(abs(argument.min), abs(argument.max))
    return float(size) if math.isfinite(size) else None


# -- What a loss scaler has tried, in words ----------------------------------------------------------------------------


def scale_fall_text(fall: ScaleFall) -> str:
    """``the loss scaler has skipped 17 steps on end, its scale falling from 65536 to 1``."""
    if fall.last is None:
        return f"the program has discarded bad gradients {fall.skipped:,} times on end"
    scale = f"at a scale of {format_value(fall.last)}"
    if fall.first is not None and fall.first > fall.last:
        scale = f"its scale falling from {format_value(fall.first)} to {format_value(fall.last)}"
    when = "on end" if fall.on_end else "since its scale last rose"
    return f"the loss scaler has skipped {fall.skipped:,} steps {when}, {scale}"


def skipped_steps_text(finding: Finding) -> str:
    """What is said of a birth that another rule explains, where a scaler has skipped its gradients; else nothing."""
    fall = finding.scale_fall
    if fall is None:
        return ""
    told = scale_fall_text(fall)
    return f" {told[0].upper()}{told[1:]}: no scale makes these gradients finite."


# -- The sentence of a selection ---------------------------------------------------------------------------------------


_WRITERS: Final = ("fill", "zero", "copy", "index_put")
_TRUTH: Final = {"where": {"self": "False", "other": "True"}, "masked_fill": {"self": "True"}}
"""What the mask is where an argument is left out."""


def selection_of_finding(finding: Finding) -> Selection | None:
    """What has left the element out; None where nothing has, or where that is not known."""
    return None if finding.around is None else finding.around.left_out


def selection_text(found: Selection, what: str) -> str:
    """``torch.where at line 13 leaves out log at x = 0, for x > 0 is False``."""
    name = base_name(found.op)
    name = name if name.startswith("_") else name.removesuffix("_")
    doer = {"where": "torch.where", "mul": "a product with 0", "slice": "a slice or an index"}.get(
        name, "an assignment" if name in _WRITERS else readable(name)
    )
    line = f" at line {found.line}" if found.line is not None else ""
    truth = "0" if name == "mul" else _TRUTH.get(name, {}).get(found.side)
    why = f", for {found.mask} is {truth}" if found.mask is not None and truth is not None else ""
    return f"{doer}{line} leaves out {what}{why}"


def backward_recurrence(finding: Finding) -> ChainLink | None:
    """The step in which a birth in the forward comes back, if the first in the backward was computed from it."""
    steps = (link for link in finding.chain if link.role == "step" and link.phase == "backward")
    first = next((link for link in steps if link.typed_summary.kind == "bears"), None)
    return first if first is not None and first.typed_summary.values["back"] else None


def product_hint(finding: Finding, code: str) -> str:
    """What is added to an explanation: that a mask which multiplies is no help."""
    kinds = ("times_zero", "infinity_times_zero")
    link = next((each for each in finding.chain if each.typed_summary.kind in kinds), None)
    if link is None or code == "WN601":
        # where nothing was left of a row, the row is what is to be mended
        return ""
    at, own = link.site, finding.site
    line = _line_text(at, own)
    if link.typed_summary.kind == "infinity_times_zero":
        # a rule knows the statement that it is about
        told = at is not None and own is not None and (at.file, at.line) != (own.file, own.line)
        why = f" The product{line} multiplies it by 0, and 0 times Inf is NaN: a weight of 0 leaves nothing out."
        return f"{why} Leave the term out of the sum where its weight is 0." if told else ""
    return (
        f" The product{line} multiplies it by 0, and 0 times NaN is NaN: a mask has to choose, as "
        "torch.where(mask, x, 0) does, ahead of the first operation that reads x: the gradient goes back through each."
    )


def _line_text(at: Site | None, own: Site | None) -> str:
    """Where something is, with its file where that is another than a finding's own."""
    if at is None:
        return ""
    return f" at line {at.line}" if own is None or at.file == own.file else f" at {at.file}:{at.line}"


def selection_hint(finding: Finding, code: str) -> str:
    """What is added to the explanation of another rule: that leaving the result out is no help."""
    found = selection_of_finding(finding)
    if code == "WN510":
        return ""
    if found is not None:
        return f" Here {selection_text(found, 'the result')}; the derivative is computed all the same."
    back = backward_recurrence(finding)
    if back is None or any(reach.kind == "loss" for reach in finding.reaches):
        return ""
    line = _line_text(back.site, finding.site)
    return f" The {result(finding)} is not in the loss; the derivative{line} is computed from it all the same."
