"""A node of a branch is told at its expression where the operators say which function it is of, else at the call."""

from __future__ import annotations

import ast

import pytest

from whynan.source.exported_expressions import ExportedNode, control_flow_call, expression_in_branch
from whynan.source.syntax import Syntax, span_of

LOG, DIV = ExportedNode("log", "log", "x"), ExportedNode("div", "div", "log")
SOURCE = """\
def one(x):
    return torch.log(x) / 2
def other(x):
    {other}
def forward(x):
    return torch.cond(x.any(), one, other, (x,))
"""


def told(other: str, *beside: ExportedNode) -> list[str | None]:
    syntax = Syntax(SOURCE.format(other=other).splitlines(keepends=True))
    call = control_flow_call([node for node in syntax.parents if isinstance(node, ast.Call)])
    assert call is not None
    found = (expression_in_branch(syntax, call, mine, beside) for mine in beside)
    return [None if node is None else syntax.line_of(span_of(node)) for node in found]


def test_the_function_is_told_by_its_operators() -> None:
    assert told("return x * 3", LOG, DIV) == ["torch.log(x)", "torch.log(x) / 2"]
    assert told("return x * 3", ExportedNode("mul", "mul", "x")) == ["x * 3"]


@pytest.mark.parametrize("other", ["return 2 / torch.log(x)", "y = x.log()\n    return y / y"])
def test_of_two_functions_that_it_may_be_none_is_told(other: str) -> None:
    assert told(other, LOG, DIV) == [None, None]


def test_what_neither_function_asks_for_so_often_is_not_told() -> None:
    assert told("return x * 3", LOG, ExportedNode("log_1", "log", "log"), DIV) == [None, None, None]


def test_two_calls_in_a_line_leave_a_doubt() -> None:
    syntax = Syntax(["torch.cond(p, f, g) + torch.cond(q, f, g)"])
    assert control_flow_call([node for node in syntax.parents if isinstance(node, ast.Call)]) is None
