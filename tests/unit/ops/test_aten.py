"""The tables of operators say what torch's operators really do, on torch's own samples."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.capture.provenance.dependence import Refused
from whynan.capture.torch.operators import Operator, operator_of
from whynan.capture.torch.provenance.interventions import no_trace, run
from whynan.ops.names import base_name, is_foreach
from whynan.ops.table import TORCH

CALLS_OF_EACH = 6
FEWEST = {"pointwise": 80, "movement": 20, "value_free": 10, "copying": 40}


class Calls(TorchDispatchMode):
    """The first few calls of each operator, with its arguments as they were."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[tuple[Operator, Any, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = operator_of(func)
        calls = self.seen.setdefault(operator.name, [])
        if len(calls) < CALLS_OF_EACH and all(_plain(t) for t in _tensors((args, kwargs or {}))):
            calls.append((operator, _copied(args), _copied(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor)]


def _plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_nested


def _copied(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda t: t.detach().contiguous().clone(), value)


@functools.cache
def _calls() -> dict[str, list[tuple[Operator, Any, Any]]]:
    """What torch's samples of every third operator dispatch, forward and backward."""
    calls = Calls()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in op_db[::3]:
            if not info.supports_dtype(torch.float32, "cpu") or "linalg" in info.name:
                continue
            for sample in list(info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd))[:3]:
                try:
                    with calls:
                        out = info(sample.input, *sample.args, **sample.kwargs)
                        if isinstance(out, Tensor) and out.requires_grad:
                            out.sum().backward()
                except Exception:
                    continue
    return calls.seen


def _of_kind(kind: str) -> Iterator[tuple[Operator, Any, Any]]:
    for calls in _calls().values():
        for operator, args, kwargs in calls:
            if getattr(operator, kind) and not operator.random and not operator.mutable and not operator.foreach:
                yield operator, args, kwargs


def _again(operator: Operator, arguments: Any, replace: Any = lambda t: t) -> list[Tensor]:
    with no_trace():
        return [t for t in run(operator, arguments, replace) if t.dtype is torch.float32]


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _spreads(operator: Operator, args: Any, kwargs: Any) -> str | None:
    """A pointwise operator, if another element of an operand changes an element of the result."""
    if getattr(args[0], "numel", lambda: 0)() < 2:
        return None
    outputs = _again(operator, (args, kwargs))
    for position, changed in enumerate(args):
        if not isinstance(changed, Tensor) or changed.dtype is not torch.float32 or changed.numel() < 2:
            continue
        other = changed.clone()
        assert other.is_contiguous()
        other.view(-1)[-1] += 0.375
        again = _again(operator, ([other if i == position else a for i, a in enumerate(args)], kwargs))
        where = torch.zeros(changed.shape, dtype=torch.bool)
        where.view(-1)[-1] = True
        for before, after in zip(outputs, again, strict=True):
            differs = ~_same(before, after)
            if bool((differs & ~where.expand(before.shape)).any()):
                return operator.name
    return None


@pytest.mark.full
def test_pointwise_operators_are_pointwise() -> None:
    checked: set[str] = set()
    for operator, args, kwargs in _of_kind("pointwise"):
        assert _spreads(operator, args, kwargs) is None
        checked.add(operator.name)
    assert len(checked) > FEWEST["pointwise"]


def test_a_sum_that_is_called_pointwise_is_caught() -> None:
    softmax = operator_of(torch.ops.aten._softmax.default)
    assert _spreads(softmax, [torch.randn(2, 3), -1, False], {}) == "aten._softmax.default"


def _makes(operator: Operator, args: Any, kwargs: Any) -> str | None:
    """A moving operator, if its result has a float that is neither an operand's nor one that it was told."""
    floats = [t for t in _tensors((args, kwargs)) if t.dtype is torch.float32]
    if not floats:
        return None
    told = [float(v) for v in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(v, (int, float))]
    known = torch.cat([t.reshape(-1) for t in floats] + [torch.tensor([0.0, *told])])
    for out in _again(operator, (args, kwargs)):
        if not bool((torch.isin(out, known) | out.isnan()).all()):
            return operator.name
    return None


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["movement", "copying"])
def test_operators_that_move_give_what_they_were_given(kind: str) -> None:
    checked: set[str] = set()
    for operator, args, kwargs in _of_kind(kind):
        if operator.view or operator.value_free:
            continue
        assert _makes(operator, args, kwargs) is None
        checked.add(operator.name)
    assert len(checked) > FEWEST[kind]


def test_a_sum_that_is_called_movement_is_caught() -> None:
    assert _makes(operator_of(torch.ops.aten.sum.default), [torch.randn(3)], {}) == "aten.sum.default"


@pytest.mark.breadth
def test_what_is_free_of_values_gives_the_same_for_others() -> None:
    checked: set[str] = set()
    for operator, args, kwargs in _of_kind("value_free"):
        if operator.view or operator.base in TORCH.having("uninitialised"):
            continue
        try:
            same = zip(_again(operator, (args, kwargs)), _again(operator, (args, kwargs), torch.ones_like), strict=True)
        except Refused:
            continue
        assert all(bool(_same(a, b).all()) for a, b in same), operator.name
        checked.add(operator.name)
    assert len(checked) >= FEWEST["value_free"]


@pytest.mark.parametrize(
    ("name", "base", "foreach"),
    [
        ("aten.add.Tensor", "add", False),
        ("aten._foreach_add_.List", "add_", True),
        ("aten._fused_adam_.default", "_fused_adam_", True),
        ("mine.op.default", "op", False),
        ("odd", "odd", False),
    ],
)
def test_a_name_tells_base_and_lists(name: str, base: str, foreach: bool) -> None:
    assert (base_name(name), is_foreach(name)) == (base, foreach)
