"""A right mend is verified and a wrong one never is, in four dtypes; each disagreement is explained.

The formulas and their mends are in ``verdicts/fixes.py``. To each right mend belong the constant, the detached and,
where the exact value is known, the one whose bad gradients are zeroed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.quality.verdicts.fixes import DTYPES, ROWS, Mend, Row, harmful
from whynan.verify import comparison
from whynan.verify import verdict as judging
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.quality.conftest import Tally
    from whynan.records.report import FixVerdict

DISAGREED: Final[dict[tuple[str, str, str], str]] = {
    ("product by logarithms", "guarded", dtype): "at the extremes the other factors overflow where one is 0: 0 * Inf"
    for dtype in ("float32", "float16", "bfloat16")
}
"""Right mends that are rejected, by row, mend and dtype, each with the reason."""

STATED: Final = (
    "x log x",
    "reciprocal",
    "square root",
    "logarithm",
    "over its own norm",
    "standardised",
    "arc cosine",
    "masked mean",
    "power of a negative base",
)
"""Rows whose right mends give a number where there is no exact value or gradient, which has to be stated."""
PASSED: Final = ("verified", "guarded")


def judged(row: Row, mend: Mend, dtype: str) -> FixVerdict:
    """The verdict of one mend."""
    return judge(row.original, mend.function, [row.captured(dtype)], kind=mend.kind)


def right_of(dtype: str | None) -> Iterator[tuple[Row, Mend, str]]:
    """The right mends in a dtype; each in one dtype of its own without."""
    for number, row in enumerate(ROWS):
        own = row.dtypes[number % len(row.dtypes)]
        for mend in row.right:
            if (dtype or own) in row.dtypes and (dtype or own) in mend.dtypes:
                yield row, mend, dtype or own


def wrong_of(dtype: str | None) -> Iterator[tuple[Row, Mend, str]]:
    """The wrong mends, in the same way."""
    for row, mend, kind in right_of(dtype):
        yield from ((row, wrong, kind) for wrong in harmful(row, mend))
    for number, row in enumerate(ROWS):
        for mend in row.wrong:
            own = mend.dtypes[number % len(mend.dtypes)]
            if (dtype or own) in mend.dtypes and (dtype or own) in row.dtypes:
                yield row, mend, dtype or own


def _right_status(row: Row) -> str:
    return "guarded" if row.name in STATED else "verified"


def _hold_right(dtype: str | None, tally: Tally) -> None:
    found = [(row, mend, kind, judged(row, mend, kind)) for row, mend, kind in right_of(dtype)]
    missed = [(r.name, m.name, d) for r, m, d, v in found if v.status != _right_status(r)]
    tally.count("verdicts, right mends", len(found) - len(missed), len(found), "verified")
    for r, m, d, v in found:
        if v.status != _right_status(r):
            tally.listed("verdicts, right mends", f"{r.name}, {m.name}, {d}: {v.status}: {v.why}")
    assert set(missed) <= DISAGREED.keys(), missed
    assert len({(row, mend) for row, mend, _ in missed}) <= 1, missed


def _hold_wrong(dtype: str | None, tally: Tally, every: int = 1) -> None:
    found = [(row, mend, kind, judged(row, mend, kind)) for row, mend, kind in [*wrong_of(dtype)][::every]]
    passed = [f"{r.name}, {m.name}, {d}: {v.why}" for r, m, d, v in found if v.status in PASSED]
    tally.count("verdicts, wrong mends", len(found) - len(passed), len(found), "neither verified nor guarded")
    assert not passed


def test_right_mends_are_verified(tally: Tally) -> None:
    assert len(list(right_of(None))) >= 20
    _hold_right(None, tally)


def test_wrong_mends_are_not_verified(tally: Tally) -> None:
    assert len([*wrong_of(None)][::3]) >= 30
    _hold_wrong(None, tally, 3)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_right_mends_are_verified_in(dtype: str, tally: Tally) -> None:
    _hold_right(dtype, tally)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_mends_are_not_verified_in(dtype: str, tally: Tally) -> None:
    _hold_wrong(dtype, tally)


def _row(name: str) -> tuple[Row, Mend]:
    row = next(row for row in ROWS if row.name == name)
    return row, row.right[0]


def test_without_the_noise_of_the_original_right_mends_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    row, mend = _row("softmax by hand")
    assert judged(row, mend, "float32").status == "verified"
    monkeypatch.setattr(comparison, "NOISY", 0.0)
    assert judged(row, mend, "float32").status == "rejected"


def test_a_check_that_forgives_all_lets_wrong_mends_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    row, mend = _row("log of softmax")
    wrong = harmful(row, mend)[1]
    assert judged(row, wrong, "float32").status == "rejected"
    monkeypatch.setattr(comparison, "NOISY", 1e12)
    assert judged(row, wrong, "float32").status == "verified"


def test_a_verdict_is_the_same_each_time() -> None:
    row, mend = _row("log of sigmoid")
    assert judged(row, mend, "float16") == judged(row, mend, "float16")


def test_fixes_that_change_nothing_at_extremes_alone_are_not_told_from_right_ones_by_few_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = next(row for row in ROWS if row.name == "over its own norm")
    wrong = next(mend for mend in row.wrong if mend.name == "normalize")
    assert judged(row, wrong, "float32").status == "rejected"
    real: Any = judging.fresh_samples
    monkeypatch.setattr(judging, "fresh_samples", lambda *given: (s for s in real(*given) if s.nature != "extreme"))
    assert judged(row, wrong, "float32").status != "rejected"
