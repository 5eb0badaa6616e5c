"""ONNX models as sides: as they are written, or as an engine with some settings runs them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.graph.executed import drop_duplicate_constants, without_weights
from whynan.capture.onnx.graph.written import read_mapped, read_outline
from whynan.capture.onnx.sessions import CPU, EngineSettings, available_providers, open_user_session
from whynan.compare.sides.onnx import OnnxSide
from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from whynan.capture.onnx.execution import Value
    from whynan.compare.sides.operations import Side
    from whynan.run.comparison.settings import Settings

_BLOCKS: Final = "NchwcTransformer"
"""It keeps values in blocks of channels, which no other run has."""


def open_side(path: str, settings: Settings) -> Side:
    """A model as a side; raises ``UsageError`` where the engine refuses it."""
    engine = engine_settings(path, settings)
    if settings.engine == "reference":
        from whynan.compare.sides.reference import ReferenceSide

        model = without_weights(Path(path))
        return ReferenceSide(path, model, Path(path).parent, engine, model)
    try:
        side = _optimised(path, engine) if settings.level not in (None, "disabled") else _written(path, engine)
    except RunError as error:
        raise UsageError(f"{path} cannot be run: {error.what}", "run it with whynan onnx, which says more") from None
    if settings.dtype is not None:
        from whynan.compare.sides.emulation import EmulatedSide

        return EmulatedSide(side, settings.dtype)
    return side


def _written(path: str, engine: EngineSettings) -> OnnxSide:
    model = _mapped(path)
    return OnnxSide(path, model, Path(path).parent, engine, model)


def _mapped(path: str) -> onnx.ModelProto:
    """A model whose large weights are mapped from its file; an engine follows no link out of a model's folder."""
    if Path(path).is_symlink():
        return without_weights(Path(path))
    return read_mapped(path)


def _optimised(path: str, engine: EngineSettings) -> OnnxSide:
    """The graph that the engine makes of a model, with its weights beside it in a temporary folder."""
    folder = tempfile.mkdtemp(prefix="whynan-")
    target = Path(folder) / "executed.onnx"
    try:
        session: Any = open_user_session(engine, target, None)
        used = {str(value.name) for value in session.get_inputs()}
        model = drop_duplicate_constants(without_weights(target))
        kept = [value for value in model.graph.input if value.name in used]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        side = OnnxSide(path, model, Path(folder), engine, read_outline(path))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(side, shutil.rmtree, folder, ignore_errors=True)
    return side


def engine_settings(path: str, settings: Settings) -> EngineSettings:
    """How ONNX Runtime is to run a model; raises ``UsageError`` for a provider that there is not."""
    providers: tuple[str, ...] = (CPU,)
    if settings.provider is not None:
        there = available_providers()
        short = {name.removesuffix("ExecutionProvider").lower(): name for name in there}
        found = short.get(settings.provider.removesuffix("ExecutionProvider").lower())
        if found is None:
            listed = ", ".join(name.removesuffix("ExecutionProvider") for name in there)
            raise UsageError(f"there is no execution provider {settings.provider}", f"this onnxruntime has {listed}")
        providers = (found, CPU) if found != CPU else (CPU,)
    level = settings.level or "all"
    disabled = (_BLOCKS,) if level == "all" else ()
    return EngineSettings(path=path, level=level, providers=providers, disabled_optimizers=disabled)


def production_outputs(path: str, settings: Settings, feeds: Mapping[str, Any]) -> dict[str, Value]:
    """The outputs of a plain session; raises ``RunError``."""
    from dataclasses import replace

    from whynan.capture.onnx.engine import run_unobserved

    return run_unobserved(replace(engine_settings(path, settings), disabled_optimizers=()), feeds)
