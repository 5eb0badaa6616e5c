"""Which optimizers of ONNX Runtime changed a graph, and without which of them what was found is not so."""

# pyright: strict

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from whynan.capture.onnx.execution import RunError

RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "Level1_RuleBasedTransformer": (
        *("ConvBNFusion", "ConvMulFusion", "ConvAddFusion", "MatMul_BatchNormalization_Fusion", "Pad_Fusion"),
        *("DivMulFusion", "GemmSumFusion", "GemmTransposeFusion", "FuseReluClip", "NotWhereFusion"),
        *("EliminateIdentity", "EliminateSlice", "EliminateDropout", "UnsqueezeElimination", "ExpandElimination"),
        *("CastElimination", "CastChainElimination", "NoopElimination", "PreShapeNodeElimination"),
        "LabelEncoderFusion",
    ),
    "Level2_RuleBasedTransformer": ("ClipQuantRewrite", "ReluQuantRewrite", "GemmTransposeFusion"),
}
"""The single rules that an optimizer applies, by which it can be taken apart; the log does not name them."""
_CHANGED: Final = re.compile(rb"GraphTransformer (\w{1,100}) modified: 1 with status")
_CAST: Final = "CastFloat16Transformer"
"""Not an optimization: without it some nodes have no kernel."""

Signature = TypeVar("Signature", bound=Hashable)
Verdict = Callable[[tuple[str, ...]], Signature]
"""Runs the model without the optimizers of these names, and gives what was found, in a form that can be compared."""


class Built(Protocol):
    """What is read of ``EngineSettings``."""

    @property
    def path(self) -> str: ...
    @property
    def level(self) -> str | None: ...
    @property
    def providers(self) -> tuple[str | tuple[str, dict[str, str]], ...]: ...
    @property
    def session_config(self) -> dict[str, str]: ...
    @property
    def custom_ops(self) -> tuple[str, ...]: ...
    @property
    def disabled_optimizers(self) -> tuple[str, ...]: ...
    @property
    def free_dimensions(self) -> dict[str, int]: ...


def modified_by(settings: Built) -> tuple[str, ...]:
    """The optimizers that changed the graph, in order, by what a session says of itself in a process of its own.

    Raises ``RunError`` where the session cannot be built.
    """
    told = {
        "path": settings.path,
        "level": settings.level or "all",
        "providers": settings.providers,
        "config": settings.session_config,
        "custom_ops": settings.custom_ops,
        "disabled": settings.disabled_optimizers,
        "free_dimensions": settings.free_dimensions,
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-m", "whynan.capture.onnx.logged"]
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            command,
            input=json.dumps(told).encode(),
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
            check=False,
        )
        said.seek(0)
        names = dict.fromkeys(found[1].decode() for line in said if (found := _CHANGED.search(line)))
    if done.returncode:
        raise RunError(f"{Path(settings.path).name} could not be built again to see what its optimizers do", 0)
    return tuple(names)


def responsible(settings: Built, verdict: Verdict[Signature], found: Signature) -> tuple[str, ...]:
    """The optimizers without which what was found is not so: each of them alone, else the fewest together.

    ``found`` is what ``verdict`` gives with all of them. Empty where none of them makes the difference.
    """
    return decisive(modified_by(settings), verdict, found)


def decisive(names: Sequence[str], verdict: Verdict[Signature], found: Signature) -> tuple[str, ...]:
    """The same, of optimizers that are known to have changed the graph."""

    def differs(disabled: Sequence[str]) -> bool:
        try:
            return verdict(tuple(disabled)) != found
        except RunError:  # without these the model cannot be run
            return False

    tried = [name for name in names if name != _CAST]
    alone = [name for name in tried if differs((name,))]
    if alone:
        return tuple(part for name in alone for part in _taken_apart(name, differs))
    if len(tried) < 2 or not differs(tried):
        return ()
    needed = list(tried)
    for name in tried:
        rest = [other for other in needed if other != name]
        if differs(rest):
            needed = rest
    return tuple(needed)


def _taken_apart(name: str, differs: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The single rules of an optimizer that make the difference; the optimizer, where no single one does."""
    return tuple(rule for rule in RULES.get(name, ()) if differs((rule,))) or (name,)
