"""Memory of this process in MiB, as Linux counts it; NaN where it does not."""

from __future__ import annotations

from pathlib import Path


def resident() -> float:
    """What is in memory now."""
    return _status("VmRSS")


def peak() -> float:
    """The most that was ever in memory.

    Not ``ru_maxrss``: a new program inherits that from the process that started it, which may be the larger one.
    """
    return _status("VmHWM")


def _status(field: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(field + ":"))
