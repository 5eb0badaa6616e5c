"""The expressions of fixes are read as trees."""

from __future__ import annotations

import pytest

from whynan.errors import UsageError
from whynan.fixes.onnx.term import Call, Limit, Number, Variable, parsed, variables

X, D = Variable("x"), Variable("d")


def test_a_called_name_is_an_operator_and_another_a_variable() -> None:
    assert parsed("log(softmax(x, d))") == Call("log", (Call("softmax", (X, D)),))


def test_signs_operators_and_limits_are_what_they_are_in_python() -> None:
    assert parsed("x / where(x == 0, -1, x)") == Call(
        "div", (X, Call("where", (Call("eq", (X, Number(0))), Number(-1), X)))
    )
    assert parsed("finfo(x).tiny") == Limit(X, "tiny")
    assert parsed("sum(x, d, keepdim=True)").named == (("keepdim", Number(True)),)  # type: ignore[union-attr]


def test_all_variables_are_known() -> None:
    assert variables(parsed("clamp(x, min=finfo(y).eps) ** p")) == {"x", "y", "p"}


@pytest.mark.parametrize("text", ["x[0]", "log(", "x if y else z", "a.b(c)"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no expression of a fix"):
        parsed(text)
