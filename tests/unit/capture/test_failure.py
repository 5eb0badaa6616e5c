"""An error of whynan's own is a warning: also where the program makes errors of warnings, and silence of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from whynan.faults import InternalError, report_internal_error


def fail() -> None:
    try:
        raise OSError("no")
    except OSError:
        report_internal_error()


@pytest.mark.parametrize(("action", "shown"), [("default", 1), ("error", 1), ("ignore", 0)])
def test_it_is_a_warning_that_raises_nothing(action: str, shown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)  # type: ignore[arg-type]
        fail()
    assert len(caught) == shown
    for warning in caught:
        path = str(warning.message).rpartition("Traceback: ")[2]
        assert "OSError: no" in Path(path).read_text(encoding="utf-8")
        Path(path).unlink()


def test_in_whynans_own_tests_it_raises() -> None:
    with pytest.raises(InternalError):
        fail()
