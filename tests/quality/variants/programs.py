"""A variant of a hazard as a real program file: which it is, its text, and its run without whynan."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tests.quality.variants import spelling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.quality.variants.hazards import Hazard, Values

FORMS: Final = ("function", "method", "alias", "split", "helper", "in-place", "broadcast")
"""How the expression is written."""
SETTINGS: Final = ("plain", "backward", "checkpoint", "vmap", "custom", "onnx")
"""What it runs in; elsewhere than in `plain` it is written as functions. A hazard of a backward always runs one."""
DTYPES: Final = ("float32", "float16", "bfloat16", "float64")
ROWS: Final = 2


@dataclass(frozen=True)
class Variant:
    """One program of a hazard."""

    hazard: Hazard
    form: str = "function"
    dtype: str = "float32"
    setting: str = "plain"

    @property
    def axis(self) -> str:
        """What is special about it."""
        return self.form if self.setting == "plain" else self.setting

    @property
    def differentiates(self) -> bool:
        """Whether it runs a backward."""
        return self.hazard.backward or self.setting in ("backward", "checkpoint", "custom")

    def __str__(self) -> str:
        return f"{self.hazard} [{self.axis} {self.dtype}]"


def variants_of(hazard: Hazard) -> Iterator[Variant]:
    """Every variant of a hazard."""
    for dtype in DTYPES:
        for form in FORMS:
            yield Variant(hazard, form, dtype)
        for setting in SETTINGS[1:]:
            if not (hazard.backward and setting in ("backward", "onnx")):
                yield Variant(hazard, dtype=dtype, setting=setting)


def operands(variant: Variant, *, bad: bool) -> Values:
    """The operands with which it breaks, or with which it does not."""
    hazard = variant.hazard
    return hazard.bad(torch.finfo(getattr(torch, variant.dtype))) if bad else hazard.good


def source(variant: Variant, *, bad: bool) -> tuple[str, str | None]:
    """The text of the program, and of its helper module where it has one."""
    values = operands(variant, bad=bad)
    names = [name for name, value in values.items() if isinstance(value, list)]
    code = re.sub(r"\{(\w+)\}", lambda found: _number(values[found[1]]), variant.hazard.code)
    part: str | None = None
    body = [f"return {code}"]
    match variant.form:
        case "method":
            body = [f"return {spelling.methods(code)}"]
        case "alias":
            body = [f"return {spelling.aliases(code)}"]
        case "split":
            body = spelling.lines(spelling.split(code))
        case "in-place":
            body = spelling.in_place(code)
        case "helper":
            inside, body = spelling.helped(code, names)
            part = _IMPORTS + _function("part", names, inside)
        case _:
            pass
    calls = "" if part is None else "from {part} import part\n"
    return calls + _IMPORTS + _function("compute", names, body) + _main(variant, values, names), part


_IMPORTS: Final = "import math\n\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
_CUSTOM: Final = """
class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *operands):
        with torch.enable_grad():
            ctx.own = [o.detach().requires_grad_(o.is_floating_point()) for o in operands]
            ctx.result = compute(*ctx.own)
        return ctx.result.detach()

    @staticmethod
    def backward(ctx, gradient):
        slopes = [o for o in ctx.own if o.requires_grad]
        found = iter(torch.autograd.grad(ctx.result, slopes, gradient, allow_unused=True))
        return tuple(next(found) if o.requires_grad else None for o in ctx.own)

"""
_CALLS: Final = {
    "checkpoint": "torch.utils.checkpoint.checkpoint(compute, {names}, use_reentrant=False)",
    "vmap": "torch.vmap(compute)({names})",
    "custom": "Custom.apply({names})",
}


def _function(name: str, names: list[str], body: list[str]) -> str:
    return f"def {name}({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in body) + "\n\n"


def _main(variant: Variant, values: Values, names: list[str]) -> str:
    made = [_operand(variant, name, values[name], first=name == names[0]) for name in names]
    listed = ", ".join(names)
    call = _CALLS.get(variant.setting, "compute({names})").format(names=listed)
    text = _CUSTOM if variant.setting == "custom" else ""
    text += "def operands():\n" + "".join(f"    {line}\n" for line in made) + f"    return [{listed}]\n\n\n"
    text += f"class Net(nn.Module):\n    def forward(self, {listed}):\n        return compute({listed})\n\n\n"
    text += f"def main({listed}):\n"
    if not variant.differentiates:
        return f"{text}    return {call}\n"
    leaves = [name for name in names if _has_slope(variant, name)]
    if not leaves:
        # data that are infinite meet a parameter first
        leaves = ["factor"]
        text += f"    factor = torch.ones((), dtype=torch.{variant.dtype}, requires_grad=True)\n"
        text += f"    {names[0]} = {names[0]} * factor\n"
    text += f"    result = {call}\n    result.sum().backward()\n"
    return f"{text}    return [{', '.join(f'{name}.grad' for name in leaves)}], result.detach()\n"


def _operand(variant: Variant, name: str, value: Any, *, first: bool) -> str:
    if variant.setting == "vmap":
        other = variant.hazard.good.get(name, value)
        value = [other, value] if _shape(other) == _shape(value) else [value] * ROWS
    if not _is_floating(value):
        return f"{name} = torch.tensor({value!r})"
    slope = ", requires_grad=True" if variant.differentiates and _has_slope(variant, name) else ""
    text = f"{name} = torch.tensor({_text(value)}, dtype=torch.{variant.dtype}{slope})"
    if variant.form == "broadcast" and first:
        # the rest of the expression meets it with fewer dimensions
        text = text.replace(slope, "") + f".expand({ROWS}, {', '.join(['-1'] * len(_shape(value)))})"
        text += ".detach().requires_grad_()" if slope else ""
    return text


def _has_slope(variant: Variant, name: str) -> bool:
    """Whether an operand is a parameter; what is infinite on purpose, as a mask, is none."""
    both = [operands(variant, bad=bad).get(name) for bad in (True, False)]
    return all(value is None or (_is_floating(value) and _is_finite(value)) for value in both)


def _is_finite(value: Any) -> bool:
    return all(map(_is_finite, value)) if isinstance(value, list) else math.isfinite(value)


def _text(value: Any) -> str:
    return f"[{', '.join(_text(v) for v in value)}]" if isinstance(value, list) else _number(value)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "math.nan" if math.isnan(value) else "-math.inf" if value < 0 else "math.inf"


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value), *_shape(value[0])) if isinstance(value, list) else ()


def _is_floating(value: Any) -> bool:
    return _is_floating(value[0]) if isinstance(value, list) else isinstance(value, float)


def written(variant: Variant, folder: Path, name: str, *, bad: bool) -> ModuleType:
    """The program in a file of its own, imported."""
    text, part = source(variant, bad=bad)
    if part is not None:
        (folder / f"part_{name}.py").write_text(part, "utf-8")
        text = text.replace("{part}", f"part_{name}")
    path = folder / f"{name}.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(f"part_{name}", None)
    return module


@dataclass(frozen=True)
class Outcome:
    """What a program does in plain torch: what it raises, or whether its result and its gradients are finite."""

    raised: str | None = None
    finite: bool = True
    finite_slopes: bool = True


def alone(module: ModuleType) -> Outcome:
    """Run a program without whynan."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = module.main(*module.operands())
    except Exception as error:  # whatever torch refuses is no variant
        return Outcome(raised=f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
    if not isinstance(found, tuple):
        return Outcome(finite=_finite(found))
    slopes, result = found  # pyright: ignore[reportUnknownVariableType]
    return Outcome(finite=_finite(result), finite_slopes=all(_finite(s) for s in slopes if s is not None))  # pyright: ignore[reportUnknownVariableType]


def _finite(tensor: Any) -> bool:
    return bool(tensor.isfinite().all())


def breaks(variant: Variant, outcome: Outcome) -> bool:
    """Whether a program breaks as the hazard says."""
    if variant.hazard.backward:
        return outcome.finite and not outcome.finite_slopes
    return not outcome.finite
