"""The version of whynan itself."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def own_version() -> str:
    """Of the installed distribution; ``unknown`` in a source tree on the path, or in a bundle without its metadata."""
    try:
        return metadata.version("whynan")
    except metadata.PackageNotFoundError:
        return "unknown"
