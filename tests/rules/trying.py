"""A fix, tried on the operands of its pattern."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from tests.rules.evaluating import evaluated
from tests.rules.operands import GIVEN, OPERANDS, SHORT, WITHOUT_HAZARD, Values
from whynan.records.intents import FixIntent

DTYPES: Final = ("float32", "float16", "bfloat16", "float64")
FORWARD: Final = {("WN302", "sqrt(clamp(x, min=0))"), ("WN506", "where(m == 0, 0, c)")}
"""What is put in place of an operation of which no gradient is wanted, as of a mask or in an optimizer's step."""
_ROOM: Final = {"reformulation": 32.0, "guard": 2.0}
"""So many units of rounding may a healthy element differ by."""
Found = tuple[list[Tensor], dict[str, Tensor]]


def tensors(values: Values, dtype: str, *, forward_only: bool = False) -> Values:
    """The operands as tensors; those of the dtype have a gradient where they are finite, and where any is wanted."""

    data = values if forward_only else values.get("data", ())

    def made(name: str, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        tensor = torch.tensor(value)
        if not tensor.is_floating_point():
            return tensor
        tensor = torch.tensor(value, dtype=getattr(torch, dtype))
        return tensor.requires_grad_(name not in data and bool(tensor.isfinite().all()))

    return {**GIVEN, **{name: made(name, value) for name, value in values.items()}}


def widened(given: Values) -> Values:
    """The same numbers in float64."""
    return {
        name: v.detach().double().requires_grad_(v.requires_grad)
        if isinstance(v, Tensor) and v.is_floating_point()
        else v
        for name, v in given.items()
    }


def run(text: str, given: Values) -> Found:
    """What an expression gives, and the gradients of its sum."""
    found = evaluated(text, given)
    results = [found] if isinstance(found, Tensor) else [r for r in found if r.is_floating_point()]
    leaves = {name: v for name, v in given.items() if isinstance(v, Tensor) and v.requires_grad}
    sums = [r.sum() for r in results if r.requires_grad]
    if sums:
        torch.stack(sums).sum().backward()
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return [r.detach() for r in results], gradients


def is_finite(found: Found) -> bool:
    """Whether values and gradients are."""
    return all(bool(t.isfinite().all()) for t in (*found[0], *found[1].values()))


def dtypes_of(fix: FixIntent) -> tuple[str, ...]:
    """Where a fix has to hold: one for a dtype there, a customary epsilon where it is customary."""
    if fix.kind == "epsilon":
        return DTYPES[::3]
    if fix.dtypes:
        return fix.dtypes
    if "float(" in fix.replacement:
        return DTYPES[1:2]
    return DTYPES[:3] if fix.pattern in SHORT or "double(" in fix.replacement else DTYPES


def tried(code: str, fix: FixIntent, dtype: str) -> list[str]:
    """What is wrong with a rule's fix on the operands of its pattern; nothing where all is right."""
    bad, good = OPERANDS.get(f"{code} {fix.pattern}") or OPERANDS[fix.pattern]
    hazard = bad(torch.finfo(getattr(torch, dtype)))

    def given(values: Values) -> Values:
        return tensors(values, dtype, forward_only=(code, fix.replacement) in FORWARD)

    try:
        old = run(fix.pattern, given(good))
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented" in str(error) or "not supported" in str(error):
            return []
        raise
    wrong: list[str] = []
    if is_finite(run(fix.pattern, given(hazard))) and fix.pattern not in WITHOUT_HAZARD:
        wrong.append("the pattern is finite on what should break it")
    if not is_finite(mended := run(fix.replacement, given(hazard))):
        wrong.append(f"not finite: {mended}")
    if fix.kind != "epsilon" and dtype != "float64":
        wrong += _invented(run(fix.pattern, widened(given(hazard))), mended)
    return wrong + _differences(old, run(fix.replacement, given(good)), fix.kind)


def _invented(exact: Found, mended: Found) -> list[str]:
    """What is finite and wrong, as far as float64 can tell."""
    wrong: list[str] = []
    pairs = [("value", *both) for both in zip(exact[0], mended[0], strict=True)]
    if all(bool(value.isfinite().all()) for value in exact[0]):
        kept = exact[1].keys() & mended[1].keys()
        pairs += [(f"gradient of {name}", exact[1][name], mended[1][name]) for name in kept]
    for name, true, found in pairs:
        limits = torch.finfo(found.dtype)
        told = true.isfinite() & (true.abs() <= limits.max)
        off = (found.double() - true)[told].abs()
        if bool((off > 64 * limits.eps * true[told].abs().clamp_min(1.0)).any()):
            wrong.append(f"invented {name}: {found.tolist()}, and {true.tolist()} is true")
    return wrong


def _differences(old: Found, new: Found, kind: str) -> list[str]:
    wrong: list[str] = []
    pairs = [("value", *both) for both in zip(old[0], new[0], strict=True)]
    pairs += [(f"gradient of {name}", old[1][name], new[1][name]) for name in old[1] if name in new[1]]
    wrong += [f"gradient of {name}: there is none any more" for name in old[1] if name not in new[1]]
    for name, before, after in pairs:
        if before.dtype != after.dtype or before.shape != after.shape:
            wrong.append(f"{name}: {before.dtype} {before.shape} became {after.dtype} {after.shape}")
        elif kind != "epsilon" and not is_near(before, after, kind):
            wrong.append(f"{name}: {before.tolist()} became {after.tolist()}")
    return wrong


def is_near(before: Tensor, after: Tensor, kind: str) -> bool:
    """Whether healthy elements are kept as the kind of the fix asks for."""
    healthy = before.isfinite()
    first, second = before[healthy].double(), after[healthy].double()
    scale = first.abs() if kind == "guard" else first.abs().clamp_min(1.0)
    return bool(((first - second).abs() <= _ROOM[kind] * torch.finfo(before.dtype).eps * scale).all())
