"""The names of the operands of nodes that only ONNX Runtime knows, as its own schemas give them."""

from __future__ import annotations

import pytest
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as engine

from whynan.capture.onnx import execution
from whynan.capture.onnx.execution import Node
from whynan.ops.table import ONNX

OWN = {
    (schema.domain, schema.name): [p.name for p in schema.inputs]
    for schema in engine.get_all_operator_schema()
    if schema.domain.startswith(("com.microsoft", "com.ms.internal"))
}


def node(op: str, domain: str, operands: int) -> Node:
    inputs = tuple(f"i{n}" for n in range(operands))
    made = helper.make_node(op, inputs, ["y"], domain=domain)
    return Node(0, "", op, domain, inputs, ("y",), made, None, (), 1)


@pytest.mark.parametrize(("domain", "op"), OWN)
def test_operands_are_called_as_the_engine_calls_them(domain: str, op: str) -> None:
    names = [name for name in OWN[domain, op] if not name.endswith("*")]
    found = execution.operand_names(node(op, domain, len(names)))
    assert [name.partition("[")[0] for name in found] == names


def test_some_of_them_are_there() -> None:
    assert {("com.microsoft.nchwc", "Conv"), ("com.microsoft", "FusedMatMul"), ("com.microsoft", "BiasGelu")} <= set(
        OWN
    )
    assert execution.operand_names(node("Conv", "com.microsoft.nchwc", 4)) == ("X", "W", "B", "Sum")


def test_without_its_schemas_it_is_the_operator_that_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_contributed", dict)
    assert execution.operand_names(node("Conv", "com.microsoft.nchwc", 3)) == ("X", "W", "B")
    assert execution.operand_names(node("FusedConv", "com.microsoft", 4)) == ONNX.lists("inputs")["FusedConv"]


def test_what_only_has_the_name_of_an_operator_has_none_of_its_operands() -> None:
    assert execution.operand_names(node("Conv", "my.own", 2)) == ("input0", "input1")
    assert execution.operand_names(node("BiasGelu", "my.own", 2)) == ("input0", "input1")


def test_an_epsilon_that_is_left_to_its_default_is_told() -> None:
    assert execution.numbers_of(node("SkipLayerNormalization", "com.microsoft", 3)) == {"epsilon": 1e-12}
