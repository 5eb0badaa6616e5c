"""Tensors of every kind pass through unharmed, and healthy ones say nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import only, traced


def _sparse() -> Any:
    return torch.eye(3).to_sparse().matmul(torch.ones(3, 2)).tolist()


def _sparse_rows() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (torch.eye(3).to_sparse_csr() @ torch.ones(3, 1)).tolist()


def _nested() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        return [t.tolist() for t in (nested * 2).unbind()]


def _jagged() -> Any:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    return (nested * 2).values().tolist()


def _fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return tuple((torch.ones(2, 3) @ torch.ones(3, 4)).log().shape)


def _exported() -> Any:
    exported = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    return len(list(exported.graph.nodes))


def _traced_by_fx() -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return len(list(make_fx(lambda x: x.exp().sum())(torch.ones(2)).graph.nodes))


def _functional() -> Any:
    return torch.func.functionalize(lambda x: x.clone().add_(1))(torch.ones(2)).tolist()


def _two_tensors() -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(torch.ones(2), torch.ones(2))
    return ((two * 2) + 1).a.tolist()


class Named(Tensor):
    """A subclass without a dispatch of its own."""


class NamedParameter(nn.Parameter):
    """So is this one."""


def _data_of_subclasses() -> Any:
    return NamedParameter(torch.ones(2)).data.tolist(), torch.ones(2).as_subclass(Named).data.tolist()


def _step_of_a_subclass() -> Any:
    weight = NamedParameter(torch.ones(2))
    (weight * 2).sum().backward()
    torch.optim.Adam([weight]).step()
    return weight.tolist()


def _subclass() -> Any:
    return torch.ones(2).as_subclass(Named).mul(2).tolist()


def _wrapped_by_function() -> Any:
    class Logged(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs)

    return torch.ones(2).as_subclass(Logged).exp().sum().item()


def _lazy_parameters() -> Any:
    torch.manual_seed(0)
    return nn.LazyLinear(2)(torch.ones(1, 3)).tolist()


KINDS: dict[str, Callable[[], Any]] = {
    "empty": lambda: (torch.zeros(0, 3) @ torch.ones(3, 2)).sum().item(),
    "no elements along one axis": lambda: torch.zeros(2, 0).sum(1).tolist(),
    "bool": lambda: (torch.ones(2) > 0).logical_not().tolist(),
    "int": lambda: torch.arange(4).cumsum(0).tolist(),
    "uint8": lambda: (torch.tensor([3], dtype=torch.uint8) - 4).tolist(),
    "complex": lambda: torch.fft.fft(torch.ones(4)).abs().tolist(),
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj().mul(1j).real.tolist(),
    "float64": lambda: torch.ones(2, dtype=torch.float64).exp().tolist(),
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16).exp().tolist(),
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn).float().tolist(),
    "float8 with a wide range": lambda: torch.ones(2).to(torch.float8_e5m2).clone().float().tolist(),
    "sparse": _sparse,
    "sparse rows": _sparse_rows,
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).dequantize().tolist(),
    "meta": lambda: tuple((torch.ones(2, 3, device="meta") @ torch.ones(3, 1, device="meta")).shape),
    "fake": _fake,
    "nested": _nested,
    "jagged": _jagged,
    "exported": _exported,
    "made into a graph": _traced_by_fx,
    "functional": _functional,
    "a wrapper of two": _two_tensors,
    "a plain subclass": _subclass,
    "the data of subclasses": _data_of_subclasses,
    "a step of a subclass": _step_of_a_subclass,
    "a subclass with a function of its own": _wrapped_by_function,
    "a parameter without a shape": _lazy_parameters,
    "a zero tensor": lambda: torch._efficientzerotensor((2,)).add(torch.ones(2)).tolist(),
    "a scalar": lambda: torch.tensor(2.0).sqrt().item(),
    "a channels-last image": lambda: torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last).sum().item(),
    "a negative stride by flip": lambda: torch.arange(3.0).flip(0).tolist(),
    "an overlapping view": lambda: torch.ones(3).as_strided((2, 2), (1, 1)).sum().item(),
    "a deep copy": lambda: __import__("copy").deepcopy(nn.Linear(1, 1, bias=False)).weight.shape,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_through_unharmed(kind: str) -> None:
    bare = KINDS[kind]()
    results: list[Any] = []
    report = traced(lambda: results.append(KINDS[kind]()))
    assert results == [bare]
    assert report.verdict == "clean", report
    assert not any("error of its own" in n for n in report.coverage.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_through_unharmed_with_ranges(kind: str) -> None:
    bare = KINDS[kind]()
    results: list[Any] = []
    assert traced(lambda: results.append(KINDS[kind]()), ranges=True).verdict == "clean"
    assert results == [bare]


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_through_unharmed_beside_something_bad(kind: str) -> None:
    bare = KINDS[kind]()
    results: list[Any] = []

    def work() -> Tensor:
        bad = torch.zeros(2).log()
        results.append(KINDS[kind]())
        return bad

    finding = only(whynan.explain(work))
    assert finding.op == "aten.log.default"
    assert results == [bare]


def test_a_bad_value_in_a_complex_tensor() -> None:
    finding = only(whynan.explain(lambda: torch.zeros(2, dtype=torch.complex64).reciprocal()))
    assert finding.element.count == 2


def test_a_bad_value_in_float8() -> None:
    finding = only(whynan.explain(lambda: torch.full((2,), 1e6).to(torch.float8_e5m2)))
    assert (finding.birth, finding.element.dtype) == ("overflow", "float8_e5m2")


def test_a_bad_value_inside_a_wrapper() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    finding = only(whynan.explain(lambda: TwoTensor(torch.zeros(2), torch.ones(2)).log().a))
    assert finding.op == "aten.log.default"


def test_a_plain_subclass_is_looked_at() -> None:
    finding = only(whynan.explain(lambda: torch.zeros(2).as_subclass(Named).log()))
    assert finding.op == "aten.log.default"


@pytest.mark.parametrize("product", [torch.dot, torch.vdot, lambda a, b: a @ b], ids=["dot", "vdot", "@"])
def test_a_derivative_of_zeros_has_no_memory_to_be_read(product: Callable[[Tensor, Tensor], Tensor]) -> None:
    ones = torch.ones(3)

    def work() -> list[float]:
        value, slope = torch.func.jvp(lambda z: product(ones, z), (ones,), (ones,))
        curve = torch.func.hessian(lambda z: product(ones, z) * z.sum())(ones)
        return [value.item(), slope.item(), curve.sum().item()]

    seen: list[list[float]] = []
    report = traced(lambda: seen.append(work()))
    assert (report.verdict, seen) == ("clean", [[3.0, 3.0, 18.0]])


def test_a_part_that_is_seen_as_complex_may_leave_one_element() -> None:
    seen: list[int] = []

    def work() -> None:
        found = torch.tensor([-1.0, 2, 3]).log()
        seen.append(torch.view_as_complex(found[:2]).numel())

    assert (traced(work).verdict, seen) == ("clean", [1])
