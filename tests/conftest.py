"""What holds in every test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def internal_errors_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside whynan fails the test that met it; a test about such errors takes the variable away."""
    monkeypatch.setenv("WHYNAN_RAISE_INTERNAL", "1")
