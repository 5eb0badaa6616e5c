"""What whynan says of a variant, beside what the hazard's rule should say."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

import whynan
from tests.quality.variants.hazards import NoSuchNumberError
from tests.quality.variants.programs import Variant, alone, breaks, operands, written

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from whynan.records import Report

SKIPPED: Final = (
    "torch refuses it",
    "does not break in plain torch",
    "not exported",
    "the engine refuses it",
    "no program can write the number",
    "the number is rounded in the exported file",
)


@dataclass(frozen=True)
class Judged:
    """One program: the rules of its findings, the first finding's first, or why there is no such variant."""

    variant: Variant
    bad: bool
    rules: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    skipped: str | None = None
    why: str = ""

    @property
    def right(self) -> bool:
        """Whether the specific rule speaks, or nothing does where nothing is wrong."""
        return self.rules[:1] == (self.variant.hazard.rule,) if self.bad else not self.rules


class GoneError(Exception):
    """There is no such variant: the reason, and the words of whoever says so."""


def judge(variant: Variant, folder: Path, name: str, *, bad: bool) -> Judged:
    """Run a variant, first without whynan."""
    try:
        report = (_modelled if variant.setting == "onnx" else _eager)(variant, folder, name, bad=bad)
    except NoSuchNumberError:
        return Judged(variant, bad, skipped=SKIPPED[4])
    except GoneError as gone:
        return Judged(variant, bad, skipped=gone.args[0], why=gone.args[1])
    found = [*report.findings, *report.damaging]
    return Judged(variant, bad, tuple(f.rule for f in found), found[0].matched if found else ())


def _eager(variant: Variant, folder: Path, name: str, *, bad: bool) -> Report:
    module = written(variant, folder, name, bad=bad)
    outcome = alone(module)
    if outcome.raised is not None:
        raise GoneError(SKIPPED[0], outcome.raised)
    if bad and not breaks(variant, outcome):
        raise GoneError(SKIPPED[1], "")
    if not bad and not (outcome.finite and outcome.finite_slopes):
        raise AssertionError(f"{variant}: no healthy program")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return whynan.explain(module.main, *module.operands())


def _modelled(variant: Variant, folder: Path, name: str, *, bad: bool) -> Report:
    module = written(variant, folder, name, bad=bad)
    try:
        arrays = {f"in{i}": _array(o) for i, o in enumerate(module.operands())}
    except TypeError as error:
        raise GoneError(SKIPPED[3], str(error)) from error
    path = folder / f"{name}.onnx"
    _export(module, path, list(arrays))
    outputs = _outputs(path, arrays)
    if bad and (lost := _rounded_away(variant, path)):
        raise GoneError(SKIPPED[5], lost)
    if bad == all(np.isfinite(o).all() for o in outputs):
        raise GoneError(SKIPPED[1], "")
    return whynan.explain(path, arrays)


def _array(operand: torch.Tensor) -> np.ndarray[Any, Any]:
    return operand.detach().numpy()


def _export(module: ModuleType, path: Path, names: list[str]) -> None:
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.Net(), tuple(module.operands()), str(path), dynamo=True, verbose=False, input_names=names
            )
    except Exception as error:  # whatever the exporter does not know is no variant
        raise GoneError(SKIPPED[2], f"{type(error).__name__}: {str(error).splitlines()[0][:100]}") from error


def _rounded_away(variant: Variant, path: Path) -> str:
    """The numbers of the hazard that stand in no constant of a model: in its dtype they are 0, 1 or an infinity."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    held = [i for i in model.graph.initializer if i.data_type in (1, 10, 11)]
    held += [a.t for n in model.graph.node for a in n.attribute if n.op_type == "Constant" and a.name == "value"]
    values = [abs(float(v)) for t in held for v in numpy_helper.to_array(t).ravel()[:9]]
    wanted = [v for v in operands(variant, bad=True).values() if isinstance(v, float) and np.isfinite(v)]
    lost = [v for v in wanted if not any(np.isclose(v, known, rtol=1e-9, atol=0) for known in values)]
    return ", ".join(map(str, lost))


def _outputs(path: Path, arrays: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        known = {i.name for i in session.get_inputs()}
        return session.run(None, {name: array for name, array in arrays.items() if name in known})
    except Exception as error:  # an operator that the engine lacks in this dtype
        raise GoneError(SKIPPED[3], f"{type(error).__name__}: {str(error).splitlines()[0][:100]}") from error
