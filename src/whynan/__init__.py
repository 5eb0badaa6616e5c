"""whynan: why is it NaN? Where a bad number was born, why, what it reached."""

# pyright: strict

from __future__ import annotations

# not that of `typing`: nothing is loaded into a program that only waits for torch
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    __version__: str
    from whynan.api import allow as allow
    from whynan.api import diff as diff
    from whynan.api import explain as explain
    from whynan.api import trace as trace
    from whynan.api import watch as watch
    from whynan.errors import NonFiniteError as NonFiniteError
    from whynan.errors import WhynanError as WhynanError
    from whynan.records import Finding as Finding
    from whynan.records import Report as Report
    from whynan.run.watch.metrics import MetricSink as MetricSink

_HOMES = {
    "allow": "whynan.api",
    "diff": "whynan.api",
    "explain": "whynan.api",
    "trace": "whynan.api",
    "watch": "whynan.api",
    "NonFiniteError": "whynan.errors",
    "WhynanError": "whynan.errors",
    "Finding": "whynan.records",
    "Report": "whynan.records",
    "MetricSink": "whynan.run.watch.metrics",
}
__all__ = [
    "Finding",
    "MetricSink",
    "NonFiniteError",
    "Report",
    "WhynanError",
    "__version__",
    "allow",
    "diff",
    "explain",
    "trace",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from whynan.version import own_version

        return own_version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whynan' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
