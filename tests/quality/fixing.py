"""A fix from end to end: the finding of a program, what would mend it, the verdict, and the edited program, run."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor

import whynan
from tests.quality.variants.programs import Variant, alone, written
from tests.rules.fixing import Row
from whynan.errors import UsageError
from whynan.fixes.candidates import Candidate, Formula
from whynan.fixes.python import candidates
from whynan.records import APPLICABLE, Finding, FixVerdict
from whynan.rules.catalogue import rules
from whynan.verify.formula import compile_formula
from whynan.verify.verdict import judge

MOST_EDITS: Final = 3
"""So many hazards may one program have."""
_GRADIENT_OF_DATA: Final = frozenset({12, 69})
"""Rows whose operands are infinite, so that nothing has a gradient."""
_FIXES: Final = {rule.code: rule.fixes for rule in rules()}


@dataclass
class Mended:
    """What came of a program: the verified fixes, in the order in which they were made, or why there is none."""

    variant: Variant
    made: list[tuple[Candidate, list[dict[str, Any]]]] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    finite: bool = False
    kept: bool = False

    @property
    def right(self) -> bool:
        """Whether the edited program ran, finite where it broke and the same where it did not."""
        return bool(self.made) and self.finite and self.kept


def variant_of(row: Row, form: str) -> Variant:
    """The program of a row, which differentiates where it can."""
    plain = row.hazard.backward or row.number in _GRADIENT_OF_DATA or form != "function"
    return Variant(row.hazard, form, row.dtype, "plain" if plain else "backward")


def is_refused(row: Row, form: str, folder: Path) -> bool:
    """Whether torch itself refuses a spelling: one that overwrites what its own backward needs is no program."""
    return (
        alone(written(variant_of(row, form), folder, f"q{row.number}_{form.replace('-', '_')}", bad=False)).raised
        is not None
    )


def mended(row: Row, form: str, folder: Path) -> Mended:
    """Mend a program until nothing is found in it, and run it."""
    variant = variant_of(row, form)
    found = Mended(variant)
    stem = f"p{row.number}_{form.replace('-', '_')}_{len(list(folder.iterdir()))}"
    good = written(variant, folder, f"{stem}_good", bad=False)
    before = good.main(*good.operands())
    module = written(variant, folder, stem, bad=True)
    for _ in range(MOST_EDITS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = whynan.explain(module.main, *module.operands())
        findings = report.findings or report.damaging
        if not findings:
            break
        candidate = _verified(module, findings[0], folder, found)
        if candidate is None:
            return found
        path = folder / Path(candidate.path).name
        path.write_text(candidate.edited, "utf-8")
        module = loaded(folder, stem)
    outcome = alone(module)
    found.finite = outcome.raised is None and outcome.finite and outcome.finite_slopes
    found.kept = found.finite and _is_near(before, module.main(*good.operands()), row.dtype)
    return found


def loaded(folder: Path, name: str) -> ModuleType:
    """A program's file, as it is now, imported."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(f"part_{name}", None)
    return module


def _verified(module: ModuleType, finding: Finding, folder: Path, found: Mended) -> Candidate | None:
    assert finding.site is not None
    path = folder / Path(finding.site.file).name
    for candidate in candidates(path.read_text("utf-8"), finding, _FIXES[finding.rule]):
        if not isinstance(candidate, Candidate):
            continue
        seen = visits(module, candidate.original, path)
        try:
            verdict = verdict_of(candidate, seen)
        except UsageError as refused:
            found.why.append(f"{candidate.title}: {refused}")
            continue
        if verdict.status in APPLICABLE:
            found.made.append((candidate, seen))
            return candidate
        found.why.append(f"{candidate.title}: {verdict.status}: {verdict.why}")
    found.why.append(f"{finding.rule} at {finding.site.code}: nothing is verified")
    return None


def verdict_of(candidate: Candidate, seen: list[dict[str, Any]], wrong: Wrong | None = None) -> FixVerdict:
    """The verdict of a candidate, or of what is wrong in its place."""
    repaired = compile_formula(candidate.repaired)
    return judge(
        compile_formula(candidate.original), repaired if wrong is None else wrong(repaired), seen, kind=candidate.kind
    )


def visits(module: ModuleType, formula: Formula, path: Path) -> list[dict[str, Any]]:
    """What a formula's inputs are each time that the program comes to its line."""
    seen: list[dict[str, Any]] = []

    def at_line(frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        if event == "line" and frame.f_lineno == formula.line:
            held = {p: _value(frame, i) for p, i in zip(formula.parameters, formula.inputs, strict=True)}
            seen.append({name: value for name, value in held.items() if value is not None})
        return at_line

    def entering(frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        return at_line if frame.f_code.co_filename == str(path) else None

    operands = module.operands()
    before = sys.gettrace()
    sys.settrace(entering)
    try:
        module.main(*operands)
    finally:
        sys.settrace(before)
    return seen


def _value(frame: FrameType, expression: str) -> Any:
    found = eval(expression, frame.f_globals, frame.f_locals)
    return found.detach().clone().requires_grad_(found.requires_grad) if isinstance(found, Tensor) else found


def _is_near(before: Any, after: Any, dtype: str) -> bool:
    room = 64 * torch.finfo(getattr(torch, dtype)).eps
    return all(
        first.shape == second.shape and torch.allclose(first, second, rtol=room, atol=room)
        for first, second in zip(_tensors(before), _tensors(after), strict=True)
    )


def _tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found.detach()
    elif isinstance(found, (tuple, list)):
        for part in found:  # pyright: ignore[reportUnknownVariableType]
            yield from _tensors(part)


# -- what is no fix ---------------------------------------------------------------------------------------------------

Wrong = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes of a repaired function one that only looks so."""


def constant(repaired: Callable[..., Any]) -> Callable[..., Any]:
    """The same number whatever comes in."""
    return _changed(repaired, lambda result: result * 0 + 0.3)


def detached(repaired: Callable[..., Any]) -> Callable[..., Any]:
    """The right value, of which no gradient is left."""
    return _changed(repaired, lambda result: result.detach())


def without_slope(repaired: Callable[..., Any]) -> Callable[..., Any]:
    """The right value with a gradient of 0."""
    return _changed(repaired, lambda result: result.detach() + (result - result))


def _changed(repaired: Callable[..., Any], change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def wrong(**given: Any) -> Any:
        found = repaired(**given)
        return tuple(change(r) for r in found) if isinstance(found, tuple) else change(found)

    return wrong


WRONG: Final[dict[str, Wrong]] = {"constant": constant, "detach": detached, "zeroed gradient": without_slope}
