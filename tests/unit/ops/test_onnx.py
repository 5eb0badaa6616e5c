"""The tables of ONNX operators name operators that there are, and operands as their schemas call them."""

from __future__ import annotations

import onnx
import pytest

from whynan.ops import onnx as table
from whynan.ops.onnx import CONTRIBUTED, meaning, op_type

SCHEMAS = {schema.name: schema for schema in onnx.defs.get_all_schemas()}
# what only ONNX Runtime has: it puts them in the place of others, and they take part by name
RUNTIME = set(CONTRIBUTED) | {"BiasSoftmax", "Rsqrt"}
SETS = [name for name in vars(table) if name.isupper() and isinstance(getattr(table, name), frozenset)]


@pytest.mark.parametrize("name", SETS)
def test_a_table_names_operators_that_there_are(name: str) -> None:
    assert getattr(table, name) <= set(SCHEMAS) | RUNTIME


def test_every_operator_of_a_table_stands_in_it_once_and_means_something() -> None:
    lines = table._TABLE.replace("\\\n", "").strip().splitlines()
    ops = [line.split()[0] for line in lines]
    assert len(ops) == len(set(ops))
    assert set(ops) <= set(SCHEMAS) | RUNTIME


@pytest.mark.parametrize("op", [line.split()[0] for line in table._TABLE.strip().splitlines() if line[0].isupper()])
def test_operands_are_called_as_the_schema_calls_them(op: str) -> None:
    schema = SCHEMAS.get(op)
    names = set() if schema is None else {p.name for p in schema.inputs} | set(schema.attributes)
    names |= {f"{n}[{i}]" for n in names for i in range(2)} | set(CONTRIBUTED.get(op, ())) | {"epsilon"}
    assert set(meaning(op).operands) <= names


def test_a_pole_is_at_an_operand_that_there_is() -> None:
    for op, (name, values) in table.POLES.items():
        names = {p.name for p in SCHEMAS[op].inputs} if op in SCHEMAS else set(CONTRIBUTED[op])
        assert name in names
        assert values


def test_what_moves_is_not_pointwise() -> None:
    assert not table.POINTWISE & (table.MOVEMENT | table.RESHAPES)
    assert not table.MOVEMENT & table.RESHAPES


def test_names_are_those_that_rules_speak() -> None:
    assert (meaning("Div").base, meaning("Div").theirs("A"), meaning("Div").theirs("B")) == ("div", "self", "other")
    assert meaning("com.microsoft.FusedConv").base == "convolution"
    assert (op_type("Div"), op_type("com.microsoft.Gelu")) == ("Div", "Gelu")
    assert (meaning("Mine").base, meaning("Mine").theirs("x")) == ("mine", "x")
