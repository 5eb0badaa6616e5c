"""Torch programs as sides: exported for the inputs at hand, in evaluation mode, and compiled where asked for."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.sides.operations import Array, Side
    from whynan.run.comparison.settings import Settings

_STATEFUL = ("Dropout", "BatchNorm", "AlphaDropout", "InstanceNorm")


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was named: a module or an exported program, how it is run, and what is to be said of it."""

    label: str
    held: Any
    settings: Settings
    notes: list[str]
    positional: int
    """How many of the inputs it takes by their place alone."""

    @property
    def is_exported(self) -> bool:
        """Whether it is an exported program."""
        return hasattr(self.held, "graph_signature")


def exported_side(source: Program, feeds: Mapping[str, Array]) -> Side:
    """A program as a graph; raises ``UsageError`` where it cannot be exported."""
    from whynan.compare.sides.torch import TorchSide, from_numpy

    torch: Any = import_module("torch")
    device = source.settings.device or "cpu"
    module: Any = None
    if source.is_exported:
        side = TorchSide(source.label, source.held, device=device)
    else:
        module = _in_evaluation(source, source.held)
        given = [(name, from_numpy(value)) for name, value in feeds.items()]
        args, kwargs = tuple(value for _, value in given[: source.positional]), dict(given[source.positional :])
        try:
            with warnings.catch_warnings():
                # what torch's own code has to say of itself
                warnings.simplefilter("ignore")
                program = torch.export.export(module.cpu(), args, kwargs=kwargs)
        except Exception as error:
            why = " ".join(str(error).split())[:300]
            raise UsageError(
                f"{source.label} cannot be exported: {why}",
                "save its program with torch.export.save, or compare models",
            ) from None
        side = TorchSide(source.label, program, device=device, names=tuple(feeds))
    if source.settings.compiled:
        from whynan.compare.sides.compiled import CompiledSide

        return CompiledSide(side, source.held.module() if module is None else module)
    if source.settings.dtype is not None:
        from whynan.compare.sides.emulation import EmulatedSide

        return EmulatedSide(side, source.settings.dtype)
    return side


def _in_evaluation(source: Program, module: Any) -> Any:
    """A module as it is run for inference; what was left in training is said."""
    left = [
        f"{name or 'the module'} ({type(one).__name__})"
        for name, one in module.named_modules()
        if one.training and type(one).__name__.startswith(_STATEFUL)
    ]
    if not any(one.training for one in module.modules()):
        return module
    if left:
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        source.notes.append(
            f"{source.label} was in training mode, in which {shown} gives other numbers: it was compared after eval()"
        )
    return copy.deepcopy(module).eval()
