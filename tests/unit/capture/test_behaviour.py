"""What a program does beside computing is the same under a trace: modes, threads, patches, swaps, its own operators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

import whynan
from tests.unit.capture.seen import only, traced

INF = float("inf")


class Logged(TorchFunctionMode):
    """A mode of the program's own, which sees every function it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def functions_called() -> list[str]:
    with Logged() as mode:
        scores = torch.zeros(3).masked_fill(torch.tensor([True, False, False]), -INF)
        scores.softmax(0).numpy()
        torch.log(torch.zeros(2)).tolist()
        weight = torch.ones(3, requires_grad=True)
        (weight / 0).sum().backward()
        nn.Identity()(torch.tensor([float("nan")]))
        torch.optim.SGD([weight], 0.1).step()
    return mode.names


def test_a_function_mode_sees_only_what_the_program_calls() -> None:
    bare = functions_called()
    seen: list[list[str]] = []
    traced(lambda: seen.append(functions_called()))
    assert seen == [bare]


def test_an_operator_written_in_python_runs_once() -> None:
    calls = [0]

    @torch.library.custom_op("whynan_tests::counted_log", mutates_args=())
    def counted_log(x: Tensor) -> Tensor:
        calls[0] += 1
        return torch.log(x)

    report = whynan.explain(lambda x: counted_log(x - 1), torch.ones(2))
    assert only(report).op == "whynan_tests.counted_log.default"
    assert calls == [1]
    # a bad operand explains what such an operator makes of it
    assert only(whynan.explain(lambda x: counted_log(x.log()), torch.zeros(2))).op == "aten.log.default"
    assert calls == [2]


def test_module_conversion_by_swapping_works_after_a_backward() -> None:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(2, 2)
        kinds: list[torch.dtype] = []

        def convert() -> None:
            model(torch.ones(1, 2)).sum().backward()
            model.zero_grad()
            kinds.append(model.double().weight.dtype)

        assert traced(convert).verdict == "clean"
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert kinds == [torch.float64]


def test_module_conversion_by_swapping_works_after_a_trace() -> None:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(2, 2)
        assert traced(lambda: model(torch.ones(1, 2)).sum().backward()).verdict == "clean"
        assert model.double().weight.dtype == torch.float64
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def test_a_backward_from_a_wrapper_is_left_alone() -> None:
    def work() -> None:
        x = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
        (x * 2).exp().sum().backward()

    assert traced(work).verdict == "clean"


@pytest.mark.parametrize("bad", [False, True])
def test_what_another_thread_trains_is_none_of_the_trace(bad: bool) -> None:
    failed: list[BaseException] = []

    def other() -> None:
        try:
            weight = torch.full((2,), 0.0 if bad else 1.0, requires_grad=True)
            optimizer = torch.optim.Adam([weight], lr=0.1)
            for _ in range(20):
                optimizer.zero_grad()
                nn.Identity()(weight.sqrt()).sum().backward()
                optimizer.step()
                weight.detach().tolist()
        except BaseException as error:  # reported below, in the thread of the test
            failed.append(error)

    def work() -> None:
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        for _ in range(200):
            (torch.ones(4) * 2).sum().item()
        thread.join()

    assert traced(work).verdict == "clean"
    assert failed == []


def test_a_patch_that_the_program_makes_inside_stays() -> None:
    original = nn.Module.__call__
    calls: list[int] = []
    try:
        with whynan.trace():
            inner = nn.Module.__call__

            def mine(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
                calls.append(1)
                return inner(self, *args, **kwargs)

            nn.Module.__call__ = mine  # type: ignore[method-assign]
        assert nn.Module.__call__ is mine
        assert nn.Identity()(torch.ones(1)).item() == 1.0
        assert calls == [1]
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


def test_an_optimizer_need_not_be_hashable() -> None:
    class Odd(torch.optim.SGD):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd)

        __hash__ = None  # type: ignore[assignment]

    weight = torch.zeros(2, requires_grad=True)

    def work() -> None:
        weight.sqrt().sum().backward()
        Odd([weight], 0.1).step()

    assert only(traced(work)).step == 1


def test_a_compiled_function_that_breaks_its_graph_ends() -> None:
    @torch.compile(backend="eager")
    def work(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    values: list[list[float]] = []
    traced(lambda: values.extend((work(torch.ones(2)).tolist(), work(-torch.ones(2)).tolist())))
    assert values == [[3.0, 3.0], [-3.0, -3.0]]


def in_inference() -> list[Tensor]:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(48, 16))
    x = torch.randn(2, 5, 16).transpose(0, 1)
    waves = torch.randn(5, dtype=torch.complex64)
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    mask = torch.triu(torch.full((5, 5), -INF), 1)
    query = torch.randn(2, 5, 16)
    with torch.inference_mode():
        return [
            nn.functional.linear(x, weight),
            torch.linalg.vecdot(waves, waves),
            torch.fft.hfft(waves),
            weight.narrow(0, 1, 2),
            weight.chunk(3)[1],
            nn.functional.pad(weight[None], (1, 1), mode="circular"),
            attention(query, query, query, attn_mask=mask)[0],
        ]


def test_inference_mode_gives_the_same_bits_and_views() -> None:
    bare = in_inference()
    seen: list[list[Tensor]] = []
    traced(lambda: seen.append(in_inference()))
    for a, b in zip(bare, seen[0], strict=True):
        assert torch.equal(a, b)
        assert (a.requires_grad, a._is_view()) == (b.requires_grad, b._is_view())


def of_numpy() -> Tensor:
    return torch.from_numpy(np.ones(1 << 16, np.float32))


@pytest.mark.parametrize(
    "use",
    [
        lambda: (x := of_numpy(), x.mean())[0],
        lambda: (x := torch.ones(1 << 16), torch.stack([x, x]).sum())[0],
        lambda: (x := torch.ones(1 << 16), torch._foreach_norm([x, x]))[0],
        lambda: (x := torch.ones(1 << 16), x.mul_(2))[0],
    ],
    ids=["an array of NumPy's", "a list", "a list of a foreach operation", "in place"],
)
def test_what_the_window_holds_is_within_its_budget(use: Callable[[], Tensor]) -> None:
    with whynan.trace(memory=1 << 20):
        # each is a quarter of a megabyte
        held = [StorageWeakRef(use().untyped_storage()) for _ in range(40)]
        assert sum(not h.expired() for h in held) <= 4


def test_what_only_the_window_holds_is_not_held_by_the_program() -> None:
    def work() -> None:
        y = torch.full((4,), 1e30)
        y.mul_(1e30)
        del y

    assert traced(work).verdict == "clean"


def test_a_view_that_was_written_without_a_graph_is_passed_over() -> None:
    model = nn.Linear(4, 3)
    with whynan.trace() as t:
        with torch.no_grad():
            # torch will not say whether such a view is a leaf
            model.weight[2] *= 0.05
        torch.log(model(torch.ones(2, 4)).mean() * 0 - 1).backward()
    assert [f.op for f in t.report.findings] == ["aten.log.default"]
