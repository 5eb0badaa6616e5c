"""A formula of the source is a function of its parameters; what it needs and cannot have is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from whynan.errors import UsageError
from whynan.fixes.candidates import Formula
from whynan.verify.formula import compile_formula

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def test_a_formula_is_called_by_keyword_with_its_own_imports() -> None:
    body = "p = F.softmax(a, -1)\nfor _ in range(2):\n    p = p * b\nreturn p, math.pi"
    formula = Formula(("x", "self.scale"), ("a", "b"), 7, body, ("import torch.nn.functional as F",))
    x = torch.rand(3)
    value, pi = compile_formula(formula)(a=x, b=2.0)
    assert torch.equal(value, x.softmax(-1) * 2 * 2)
    assert pi == pytest.approx(3.14159, abs=1e-5)


def test_the_globals_of_the_file_are_seen_and_not_written_to() -> None:
    names = {"eps": 0.5}
    formula = Formula(("x",), ("a",), 1, "global left\nleft = 1\nreturn a + eps", ("import statistics",))
    assert compile_formula(formula, names)(a=1.0) == 1.5
    assert names == {"eps": 0.5}


def test_a_formula_of_nothing_is_called_without_arguments() -> None:
    assert compile_formula(Formula((), (), 1, "return torch.zeros(2)"))().shape == (2,)


@pytest.mark.parametrize(
    "formula",
    [
        Formula(("x",), ("a",), 12, "return a", ("from torch import no_such_name",)),
        Formula(("x",), ("a",), 12, "return a +"),
    ],
    ids=["import", "syntax"],
)
def test_what_cannot_be_compiled_is_said(formula: Formula, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as raised:
        compile_formula(formula)
    assert str(raised.value).partition(" (/")[0] == snapshot
