"""What several tests of runs start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from whynan.session.retelling import Replaying

if TYPE_CHECKING:
    from whynan.records import Report


@pytest.fixture
def without_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is replayed is told of, and its fixes are not sought: for tests that are about something else."""

    def as_it_is(_again: Replaying, report: Report, **_: object) -> Report:
        return report

    monkeypatch.setattr(Replaying, "proved", as_it_is)
