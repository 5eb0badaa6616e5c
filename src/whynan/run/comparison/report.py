"""The report of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.compare.attribution import attribute
from whynan.compare.effects import growth
from whynan.compare.hazards import hazard_of
from whynan.compare.sides.double import is_floating
from whynan.compare.tolerance import unit_roundoff
from whynan.floats import format_of, format_value
from whynan.records import (
    Aligned,
    Attribution,
    Coverage,
    Divergence,
    Element,
    ExitStatus,
    Finding,
    Growth,
    IntroducedError,
    Note,
    Operand,
    PropagatedError,
    Report,
    Run,
)
from whynan.run.comparison.comparison import left_out
from whynan.run.versions import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.compare.bodies import Inner
    from whynan.compare.hazards import Hazard
    from whynan.compare.stretches import Culprit, SideRun
    from whynan.run.comparison.comparison import Found

_CURVE: Final = 10
_NAMED: Final = 6
_OPERANDS: Final = 6


def report_of(found: Found, command: str) -> Report:
    """What was found, as a report."""
    findings = () if found.culprit is None else (_finding(found, found.culprit, found.inner),)
    verdict = "divergent" if findings else "nonfinite" if found.both_bad else "clean"
    made = [name for name in found.b.producers if name in found.alignment.pairs]
    aligned = Aligned(
        values=len(made),
        of=len(found.b.producers),
        by=found.alignment.counts(made),
        unaligned=tuple(left_out(found)[:_NAMED]),
    )
    coverage = Coverage(
        events=len(found.b.side.operations), aligned=aligned, typed_notes=tuple(dict.fromkeys(_notes(found)))
    )
    return Report(
        verdict=verdict,
        run=Run(
            command=command,
            exit_status=ExitStatus(script=0, whynan=int(verdict != "clean")),
            versions=versions(),
            device="cpu",
        ),
        findings=findings,
        coverage=coverage,
        outputs=found.outputs,
    )


def _notes(found: Found) -> Iterator[Note]:
    for text in found.notes:
        yield Note.create("sides_differ", what=text)
    for culprit in found.harmless[:3]:
        yield Note.create(
            "harmless_difference",
            op=culprit.operation.op,
            value_name=culprit.value,
            max_abs=float(culprit.max_abs),
        )
    if found.unjudged:
        yield Note.create("not_judged", count=len(found.unjudged), names=tuple(found.unjudged[:3]))
    worst = max(found.outputs, key=lambda output: float(output.max_rel or 0.0), default=None)
    if found.culprit is None and worst is not None and float(worst.max_rel or 0.0) > 1e-3:
        yield Note.create("amplified", output=worst.name, max_rel=float(worst.max_rel or 0.0))


def _finding(found: Found, outer: Culprit, inner: Inner | None) -> Finding:
    """The finding of a culprit; of one in a body the error grows from the node that holds it."""
    a, b, culprit, path = found.a, found.b, outer, ""
    if inner is not None:
        a, b, culprit, path = inner.a, inner.b, inner.culprit, inner.path
    operation, other = culprit.operation, culprit.other.operations[-1] if culprit.other.operations else None
    unit, hazard = _unit(a, culprit), _hazard(found, culprit)
    divergence = Divergence(
        introduced=IntroducedError(
            max_abs=culprit.max_abs,
            max_rel=culprit.max_rel,
            max_ulp=_ulps(culprit, unit),
            index=culprit.index,
            a=culprit.a,
            b=culprit.b,
            exact=culprit.exact,
        ),
        propagated=PropagatedError(max_abs=culprit.propagated_abs, max_rel=culprit.propagated_rel),
        tolerance=culprit.bound,
        why=_why(culprit),
        count=culprit.bad,
        total=culprit.total,
        other_node=other.name if other is not None else culprit.other_value,
        other_op=other.op if other is not None else "input",
        other_value=culprit.other_value,
        other_site=None if other is None else a.side.site(other),
        nodes=tuple(o.name for o in culprit.stretch.operations if o is not operation)
        if len(culprit.stretch.operations) > 1
        else (),
        growth=tuple(
            Growth(value=value, op=op, max_rel=size)
            for value, op, size in growth(found.a, found.b, found.alignment, outer, _CURVE)
        ),
        attributions=tuple(
            Attribution(source=origin, evidence=evidence)
            for origin, evidence in attribute(a, b, culprit, found.setting)
        ),
    )
    made = culprit.made
    element = Element(
        index=culprit.index,
        shape=made.shape,
        dtype=made.dtype.name,
        value=culprit.b if not isinstance(culprit.b, bool) else int(culprit.b),
        count=culprit.bad,
        total=culprit.total,
        operands=tuple(_operands(culprit)),
    )
    return Finding(
        severity="error",
        fate="escaped",
        birth=None,
        phase="inference",
        op=operation.op,
        site=b.side.site(operation),
        node=path + operation.name,
        value=next((name for name in operation.outputs if name == culprit.value), operation.outputs[0]),
        element=element,
        divergence=divergence,
        rule="WN000" if hazard is None else hazard.code,
        name="divergence" if hazard is None else hazard.name,
        message=divergence.why,
        explanation="" if hazard is None else hazard.explanation,
    )


def _hazard(found: Found, culprit: Culprit) -> Hazard | None:
    """The known hazard of the exporter, where an export is compared with its program."""
    return hazard_of(culprit) if found.a.side.kind == "torch" and found.b.side.kind == "onnx" else None


def _unit(a: SideRun, culprit: Culprit) -> float:
    ours = a.value(culprit.other_value)
    units = [unit_roundoff(culprit.made.dtype), 0.0 if ours is None else unit_roundoff(ours.dtype)]
    return max(units)


def _ulps(culprit: Culprit, unit: float) -> float | None:
    """The introduced error at the element in units in the last place of A's value."""
    names = [name for name in ("float64", "float32", "float16", "bfloat16") if format_of(name).eps / 2 == unit]
    if not names or isinstance(culprit.a, bool):
        return None
    ulp = format_of(names[0]).ulp(float(culprit.a))
    far = abs(float(culprit.a) - float(culprit.b))
    return far / ulp if np.isfinite(far) and np.isfinite(ulp) else None


def _why(culprit: Culprit) -> str:
    a, b, exact = (format_value(v, digits=6) for v in (culprit.a, culprit.b, culprit.exact))
    match culprit.sort:
        case "nonfinite":
            known = "" if culprit.exact is None else f"; exact arithmetic gives {exact}"
            return f"on the same operands B gives {b} where A gives {a}{known}"
        case "meaning":
            other = format_value(culprit.exact_b, digits=6)
            return f"on the same operands B computes another function: in exact arithmetic {other} where A has {exact}"
        case "decision":
            return f"on the same operands B decides for {b} where A decides for {a}, and no rounding explains that"
        case "kernel":
            far = _times(culprit)
            return f"on the same operands B gives {b} and A {a}, {far} what rounding may make of them"
        case _:
            return f"on the same operands B gives {b} and A {a}; the exact value is not known"


def _times(culprit: Culprit) -> str:
    far = abs(float(culprit.a) - float(culprit.b))
    return f"{far / culprit.bound:,.3g} times" if culprit.bound > 0 and np.isfinite(far) else "more than"


def _operands(culprit: Culprit) -> Iterator[Operand]:
    """The operands of the element where they have one each, else their range."""
    for name, value in list(culprit.given.items())[:_OPERANDS]:
        index = _place(culprit.index, culprit.made.shape, value.shape)
        if index is not None:
            held = value[index]
            number = held.astype(np.float64).item() if is_floating(value) else held.item()
            yield Operand(name=name, index=index, value=number, dtype=value.dtype.name, shape=value.shape)
        elif is_floating(value) and value.size:
            numbers = value.astype(np.float64)
            yield Operand(
                name=name,
                dtype=value.dtype.name,
                shape=value.shape,
                min=float(np.min(numbers)),
                max=float(np.max(numbers)),
            )


def _place(index: tuple[int, ...], made: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The element of an operand that is broadcast to another one; None where it is not."""
    if len(shape) > len(made):
        return None
    sizes, places = made[len(made) - len(shape) :], index[len(index) - len(shape) :]
    if any(size not in (1, whole) for size, whole in zip(shape, sizes, strict=True)):
        return None
    return tuple(0 if size == 1 else place for size, place in zip(shape, places, strict=True))
