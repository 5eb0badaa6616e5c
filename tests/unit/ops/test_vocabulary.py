"""The names that are PyTorch's own are its own: held against its schemas and its generated nodes."""

from __future__ import annotations

import re

import pytest
import torch

from whynan.ops import public_names
from whynan.ops.public_names import is_dtype, is_torch_argument, is_torch_node, is_torch_operator

SCHEMAS = torch._C._jit_get_all_schemas()


def overload(schema: torch.FunctionSchema) -> str:
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def test_every_overload_of_aten_is_known() -> None:
    names = [overload(s) for s in SCHEMAS if s.name.startswith("aten::")]
    assert len(names) > 3000
    assert [name for name in names if not is_torch_operator(name)] == []


def test_every_argument_in_the_table_is_one_of_atens() -> None:
    arguments = {a.name for s in SCHEMAS if s.name.startswith("aten::") for a in s.arguments}
    assert sorted(public_names._ARGUMENTS - arguments) == []


def test_the_nodes_of_the_graph_are_known() -> None:
    nodes = [n for n in dir(torch._C._functions) if re.search(r"Backward\d+$", n)]
    assert len(nodes) > 300
    assert [name for name in nodes if not is_torch_node(name)] == []
    x = torch.ones(2, requires_grad=True)
    made = [torch.atan2(x, x).grad_fn, (x * 2).grad_fn, x[0].grad_fn, torch.nn.functional.layer_norm(x, (2,)).grad_fn]
    assert all(is_torch_node(type(node).__name__) for node in made)


def test_a_function_of_the_programs_is_none_of_them_whatever_it_is_called() -> None:
    for name in ("Mine", "LogBackward0", "Log0"):
        kind = type(name, (torch.autograd.Function,), {"forward": lambda ctx, x: x.clone(), "backward": None})
        node = kind.apply(torch.ones(2, requires_grad=True)).grad_fn
        assert not is_torch_node(type(node).__name__)


def test_every_dtype_is_known() -> None:
    names = {str(d).removeprefix("torch.") for d in vars(torch).values() if isinstance(d, torch.dtype)}
    assert len(names) > 30
    assert [name for name in names if not is_dtype(name)] == []


@pytest.mark.parametrize("name", ["mylib.f.default", "aten", "aten.", "aten.f.g.h", "Aten.f.default", "aten.f\n", ""])
def test_any_other_operator_is_not(name: str) -> None:
    assert not is_torch_operator(name)


@pytest.mark.parametrize("name", ["patient", "self.x", "self[x]", "self[0][1]", "weight_secret", "self\n", ""])
def test_any_other_argument_is_not(name: str) -> None:
    assert not is_torch_argument(name)


@pytest.mark.parametrize("name", ["self", "tensors[3]", "exp_avg", "arg0"])
def test_arguments_of_lists_and_of_fused_operators_are(name: str) -> None:
    assert is_torch_argument(name)


@pytest.mark.parametrize("name", ["float32x", "secret", "", "int", "float32\n"])
def test_any_other_dtype_is_not(name: str) -> None:
    assert not is_dtype(name)
