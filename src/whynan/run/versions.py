"""Versions of whynan, of Python, and of the frameworks that a process has loaded."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib import metadata

from whynan.version import own_version

# read from files, and asked for once a test by the pytest plugin
_version = cache(metadata.version)


def versions() -> dict[str, str]:
    """Versions of whynan, Python and the frameworks that are loaded."""
    found = {"whynan": own_version(), "python": platform.python_version()}
    for name in ("torch", "numpy", "transformers", "onnx", "onnxruntime"):
        if name in sys.modules:
            try:
                found[name] = _version(name)
            except metadata.PackageNotFoundError:
                continue
    return found
