"""The programs that fixes are proved on break as they should, in each spelling, and their rules say what mends them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.quality.variants.programs import Variant, alone, breaks, written
from tests.rules.fixing import FORMS, ROWS, Row
from whynan.rules.catalogue import rules

FIXES = {rule.code: rule.fixes for rule in rules()}
TICKED = {*range(1, 13), 15, 22, 23, 27, 28, 31, 33, 34, 36, 37, 39, 40, 44, 45, 47, 48, 50, 52, 55, 58, 60, 63, 65}
TICKED |= {66, 67, 69, 75, 81, 85, 86, 87, 90, 91}
"""The rows of the catalogue of hazards whose rewrite was checked."""


def test_every_hazard_with_a_checked_rewrite_is_there() -> None:
    assert {row.number for row in ROWS if row.rewritten} == TICKED


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_its_rule_has_a_fix_that_is_an_expression(row: Row) -> None:
    assert any(fix.kind != "setting" for fix in FIXES[row.hazard.rule])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_program_breaks_and_its_healthy_twin_does_not(row: Row, form: str, tmp_path: Path) -> None:
    variant = Variant(row.hazard, form, row.dtype)
    bad = alone(written(variant, tmp_path, "bad", bad=True))
    good = alone(written(variant, tmp_path, "good", bad=False))
    if bad.raised is not None:
        # autograd refuses to write into what it has kept, and a view of several outputs
        assert form == "in-place"
        return
    assert good.finite
    assert good.finite_slopes
    if row.number == 52:
        # what overflows comes to 0 in the result
        module = written(variant, tmp_path, "zero", bad=True)
        assert torch.equal(module.main(*module.operands()), torch.zeros(2, dtype=torch.float16))
    else:
        assert breaks(variant, bad)
