"""Fixes from end to end: of each hazard with a known rewrite a fix is verified, and the edited program runs finite.

What only looks like a fix (a constant, a detach, a zeroed gradient) is rejected for the same formula and inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.quality import fixing
from tests.quality.fixing import WRONG, Mended, is_refused, mended, verdict_of
from tests.rules.fixing import FORMS, ROWS, Row
from whynan.fixes.candidates import Declined

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quality.conftest import Tally

SHARE: Final = 0.95
UNPROVED: Final = {
    85: "a matrix without an inverse has none, and every number on its diagonal moves healthy ones",
    87: "no exact eigenvectors of a matrix are known, and every number on its diagonal moves healthy ones",
}
"""Rows that get no verified fix, and why; each is counted as missed."""
REWRITTEN: Final = [row for row in ROWS if row.rewritten]
PROVED: Final = [row for row in ROWS if row.number not in UNPROVED]
FEW: Final = 9
"""Every so many rows stand for all where not all are tried."""


def _tried(rows: list[Row], forms: tuple[str, ...], folder: Path) -> list[tuple[Row, Mended]]:
    return [(row, mended(row, form, folder)) for row in rows for form in forms]


def _told(name: str, found: list[tuple[Row, Mended]], tally: Tally) -> None:
    tally.count(name, sum(m.right for _, m in found), len(found), "verified, and finite when they run")
    for row, m in found:
        if not m.right:
            tally.listed(name, f"{row} [{m.variant.axis}]: {'; '.join(m.why[-2:]) or 'not finite when it runs'}")


def _share(found: list[tuple[Row, Mended]]) -> float:
    return sum(m.right for _, m in found) / len(found)


@pytest.mark.full
def test_the_hazards_with_a_known_rewrite_are_mended(tmp_path: Path, tally: Tally) -> None:
    found = _tried(REWRITTEN, ("function",), tmp_path)
    _told("fixes of hazards with a known rewrite", found, tally)
    assert _share(found) >= SHARE
    assert {row.number for row, m in found if not m.right} <= set(UNPROVED)


@pytest.mark.parametrize("defect", ["no candidates", "no intents", "the edit is not written"])
def test_fixes_that_are_not_made_are_missed(defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    match defect:
        case "no candidates":
            monkeypatch.setattr(fixing, "candidates", lambda *given: [Declined(i.title, "") for i in given[2]])
        case "no intents":
            monkeypatch.setattr(fixing, "_FIXES", dict.fromkeys(fixing._FIXES, ()))
        case _:
            monkeypatch.setattr(fixing, "MOST_EDITS", 0)
    assert _share(_tried(REWRITTEN[::FEW], ("function",), tmp_path)) < SHARE


@pytest.mark.full
def test_further_hazards_are_mended(tmp_path: Path, tally: Tally) -> None:
    found = _tried([row for row in ROWS if not row.rewritten], ("function",), tmp_path)
    _told("fixes of further hazards", found, tally)
    assert _share(found) >= SHARE


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS[1:])
def test_other_spellings_are_mended(form: str, tmp_path: Path, tally: Tally) -> None:
    found = _tried([row for row in PROVED if not is_refused(row, form, tmp_path)], (form,), tmp_path)
    _told(f"fixes, {form}", found, tally)
    assert _share(found) >= (0.6 if form == "helper" else 0.9)


def _hold_wrong(row: Row, folder: Path, tally: Tally) -> None:
    found = mended(row, "function", folder)
    assert found.made, found.why
    candidate, seen = found.made[0]
    slopes = any(getattr(value, "requires_grad", False) for value in seen[0].values())
    for name, wrong in WRONG.items():
        if name == "constant" or slopes:
            verdict = verdict_of(candidate, seen, wrong)
            tally.count("wrong fixes", int(verdict.status == "rejected"), 1, "rejected")
            assert verdict.status == "rejected", f"{name}: {verdict}"


@pytest.mark.parametrize("row", PROVED[::FEW], ids=str)
def test_what_only_looks_like_a_fix_is_rejected(row: Row, tmp_path: Path, tally: Tally) -> None:
    _hold_wrong(row, tmp_path, tally)


@pytest.mark.full
@pytest.mark.parametrize("row", PROVED, ids=str)
def test_what_only_looks_like_any_fix_is_rejected(row: Row, tmp_path: Path, tally: Tally) -> None:
    _hold_wrong(row, tmp_path, tally)
