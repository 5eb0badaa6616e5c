"""``explain`` of an ONNX model: arrays of the program's own as its inputs."""

# pyright: strict

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from whynan.errors import UsageError
from whynan.models.extras import need

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.config import Options
    from whynan.models.onnx_opening import OnnxModel
    from whynan.records import Report


def explained(
    path: str | os.PathLike[str], inputs: Sequence[Any], named: Mapping[str, Any], options: Options
) -> Report:
    """Run a model on arrays; raises ``UsageError`` where it is none, or they do not fit its inputs."""
    need("onnx")
    need("ort")
    from whynan.models.onnx_inputs import case_of
    from whynan.models.onnx_opening import open_model
    from whynan.session.engines import Settings
    from whynan.session.inference import infer

    model = open_model(path)
    return infer(model, [case_of(model, _by_name(model, inputs, named))], Settings(), options)


def _by_name(model: OnnxModel, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    if len(inputs) == 1 and isinstance(inputs[0], dict):
        return {**cast("dict[str, Any]", inputs[0]), **named}
    names = [signature.name for signature in model.inputs]
    if len(inputs) > len(names):
        listed = ", ".join(str(signature) for signature in model.inputs)
        raise UsageError(f"{model.path} has {len(names)} inputs, and {len(inputs)} were given", f"they are {listed}")
    return {**dict(zip(names, inputs, strict=False)), **named}
