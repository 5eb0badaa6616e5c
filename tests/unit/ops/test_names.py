"""What the table says of ONNX's operators: operands as their schemas call them, and ATen's names for them."""

from __future__ import annotations

import onnx
import pytest

from whynan.ops.names import FUNCTIONS, bases, meaning, op_type
from whynan.ops.table import ONNX, TORCH

SCHEMAS = {schema.name: schema for schema in onnx.defs.get_all_schemas()}


def inputs(op: str) -> set[str]:
    """The operands of an operator, by ONNX's schema or by its row."""
    schema = SCHEMAS.get(op)
    return {p.name for p in schema.inputs} if schema is not None else set(ONNX.lists("inputs")[op])


@pytest.mark.parametrize("op", ONNX.column("operands"))
def test_operands_are_called_as_the_schema_calls_them(op: str) -> None:
    schema = SCHEMAS.get(op)
    names = set() if schema is None else {p.name for p in schema.inputs} | set(schema.attributes)
    names |= {f"{n}[{i}]" for n in names for i in range(2)} | set(ONNX.lists("inputs").get(op, ())) | {"epsilon"}
    assert set(meaning(op).operands) <= names


def test_a_pole_is_at_an_operand_that_there_is() -> None:
    for op, (name, values) in ONNX.poles.items():
        assert name in inputs(op)
        assert values


def test_what_moves_is_not_pointwise() -> None:
    assert not ONNX.having("pointwise") & ONNX.having("movement", "reshape")
    assert not ONNX.having("movement") & ONNX.having("reshape")


def test_names_are_those_that_rules_speak() -> None:
    assert (meaning("Div").base, meaning("Div").theirs("A"), meaning("Div").theirs("B")) == ("div", "self", "other")
    assert meaning("com.microsoft.FusedConv").base == "convolution"
    assert (op_type("Div"), op_type("com.microsoft.Gelu")) == ("Div", "Gelu")
    assert (meaning("Mine").base, meaning("Mine").theirs("x")) == ("mine", "x")


def test_a_rule_finds_an_operator_of_either_table_by_the_name_that_it_knows() -> None:
    assert bases("WN105") == TORCH.having("WN105") | {"attention", "dft"}
    said = {meaning(op).base for op in ONNX.having("see-through", "WN105", "WN701-inside", "WN701-product")}
    assert said & set(TORCH.rows) == set()


def test_a_function_is_one_operator() -> None:
    assert FUNCTIONS["amax"] == "ReduceMax"
    assert len(FUNCTIONS) == len(ONNX.column("function"))
