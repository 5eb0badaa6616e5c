"""Fixes from end to end: of each hazard with a known rewrite a fix is verified, and the edited program runs finite.

What only looks like a fix (a constant, a detach, a zeroed gradient) is rejected for the same formula and inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.quality.fixing import WRONG, Mended, mended, verdict_of
from tests.rules.fixing import FORMS, ROWS, Row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quality.conftest import Tally

SHARE: Final = 0.95
UNPROVED: Final = {
    52: "silent damage: what was captured is finite, and wrong",
    85: "a determinant underflows where the matrix has an inverse",
    87: "no exact eigenvectors of a matrix, and no small number on the diagonal that leaves healthy ones",
    90: "no rewrite of a quotient of slices",
}
"""Rows that get no verified fix, and why; each is counted as missed."""


def _tried(rows: list[Row], forms: tuple[str, ...], folder: Path) -> list[tuple[Row, Mended]]:
    return [(row, mended(row, form, folder)) for row in rows for form in forms]


def _told(name: str, found: list[tuple[Row, Mended]], tally: Tally) -> None:
    tally.count(name, sum(m.right for _, m in found), len(found), "verified, and finite when they run")
    for row, m in found:
        if not m.right:
            tally.listed(name, f"{row} [{m.variant.axis}]: {'; '.join(m.why[-2:]) or 'not finite when it runs'}")


def test_the_hazards_with_a_known_rewrite_are_mended(tmp_path: Path, tally: Tally) -> None:
    found = _tried([row for row in ROWS if row.rewritten], ("function",), tmp_path)
    _told("fixes of hazards with a known rewrite", found, tally)
    missed = {row.number for row, m in found if not m.right}
    assert missed <= set(UNPROVED), missed


def test_further_hazards_are_mended(tmp_path: Path, tally: Tally) -> None:
    found = _tried([row for row in ROWS if not row.rewritten], ("function",), tmp_path)
    _told("fixes of further hazards", found, tally)
    assert sum(m.right for _, m in found) >= SHARE * len(found)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS[1:])
def test_other_spellings_are_mended(form: str, tmp_path: Path, tally: Tally) -> None:
    found = _tried([row for row in ROWS if row.number not in UNPROVED], (form,), tmp_path)
    _told(f"fixes, {form}", found, tally)
    assert sum(m.right for _, m in found) >= (0.6 if form == "helper" else 0.9) * len(found)


@pytest.mark.parametrize("row", [row for row in ROWS if row.number not in UNPROVED], ids=str)
def test_what_only_looks_like_a_fix_is_rejected(row: Row, tmp_path: Path, tally: Tally) -> None:
    found = mended(row, "function", tmp_path)
    assert found.made, found.why
    candidate, seen = found.made[0]
    slopes = any(getattr(value, "requires_grad", False) for value in seen[0].values())
    for name, wrong in WRONG.items():
        if name == "constant" or slopes:
            verdict = verdict_of(candidate, seen, wrong)
            tally.count("wrong fixes", int(verdict.status == "rejected"), 1, "rejected")
            # a guard whose only fault is a lost gradient is seen at the extremes of the dtype, and called distorting
            assert verdict.status in ("rejected", "distorting"), f"{name}: {verdict}"
