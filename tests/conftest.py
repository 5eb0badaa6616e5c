"""What holds in every test."""

from __future__ import annotations

import signal
import sys

import pytest


def pytest_configure() -> None:
    """A shell that starts something in the background lets it, and all that it starts, ignore interrupts and quits."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def internal_errors_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside whynan fails the test that met it; a test about such errors takes the variable away."""
    monkeypatch.setenv("WHYNAN_RAISE_INTERNAL", "1")


@pytest.fixture(autouse=True)
def nothing_compiled_yet() -> None:
    """No test takes what another one has compiled for its own program's: torch counts for the whole process."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()
