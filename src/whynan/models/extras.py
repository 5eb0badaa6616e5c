"""Whether the packages that an extra brings are installed, and as new as they have to be."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from typing import Final

from whynan.errors import MissingExtraError

LEAST: Final = {"onnx": (1, 19), "onnxruntime": (1, 23)}
"""The oldest versions with which whynan is known to work; pyproject.toml says the same."""
_PACKAGES: Final = {"onnx": ("onnx", "onnx_ir"), "ort": ("onnxruntime",)}
_DISTRIBUTIONS: Final = {
    "onnx": ("onnx", "onnx-weekly"),
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
        "onnxruntime-training",
        "onnxruntime-rocm",
        "ort-nightly",
    ),
}
"""Who brings these packages; of another distribution the version is not looked at."""
version: Final = cache(metadata.version)
_NUMBER: Final = re.compile(r"(\d+)\.(\d+)")


def need(extra: str) -> None:
    """Raises ``MissingExtraError`` where a package of the extra ``onnx`` or ``ort`` is not there, or too old."""
    for package in _PACKAGES[extra]:
        if find_spec(package) is None:
            raise MissingExtraError(extra)
        least, found = LEAST.get(package), _installed(package)
        number = _NUMBER.match(found or "")
        if least is not None and number is not None and (int(number[1]), int(number[2])) < least:
            raise MissingExtraError(extra, older=f"{package} {found}", least=".".join(map(str, least)))


def _installed(package: str) -> str | None:
    for distribution in _DISTRIBUTIONS.get(package, ()):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None
