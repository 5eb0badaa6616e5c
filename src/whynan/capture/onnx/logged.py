"""Builds one session of ONNX Runtime and lets it say on standard error what it does: ``python -m ... < settings``."""

# pyright: strict

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any, Final

LEVELS: Final = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}


def build(settings: dict[str, Any]) -> None:
    """Build the session; whatever it raises is raised."""
    ort: Any = import_module("onnxruntime")  # it has no types
    options: Any = ort.SessionOptions()
    options.log_severity_level = 0
    options.log_verbosity_level = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[settings["level"]])
    for key, entry in settings["config"].items():
        options.add_session_config_entry(key, entry)
    for name, size in settings["free_dimensions"].items():
        options.add_free_dimension_override_by_name(name, size)
    for library in settings["custom_ops"]:
        options.register_custom_ops_library(library)
    more: dict[str, Any] = {"disabled_optimizers": settings["disabled"]} if settings["disabled"] else {}
    given: list[Any] = settings["providers"]
    providers = [name if isinstance(name, str) else tuple(name) for name in given]
    ort.InferenceSession(settings["path"], options, providers=providers, enable_fallback=0, **more)


if __name__ == "__main__":
    build(json.load(sys.stdin))
