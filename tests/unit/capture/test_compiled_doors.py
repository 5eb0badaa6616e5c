"""Compiled functions that come by our doors: as many graphs and breaks as without, and the doors work still."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.selection import spread
from tests.unit.capture.seen import only, sinks, watched

X = torch.ones(1, 3)
ARRAY = np.ones(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> Generator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Own(torch.Tensor):
    """A kind of tensor of the program's own."""


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU())


def compiled(function: Callable[[Tensor], Any], *, whole: bool = False) -> Callable[[Tensor], Any]:
    return torch.compile(function, backend="eager", fullgraph=whole)


def a_module() -> Any:
    return torch.compile(network(), backend="eager")


def a_module_inside() -> Any:
    net = network()
    return compiled(lambda x: net(x).sum(), whole=True)


def a_break_between_modules() -> Any:
    net = network()

    def work(x: Tensor) -> Tensor:
        y = net(x)
        print(end="")
        return net(y).sum()

    return compiled(work)


def a_value_read() -> Any:
    net = network()
    return compiled(lambda x: net(x * net(x).tolist()[0][0]))


def an_array_read() -> Any:
    return compiled(lambda x: torch.zeros_like(x).numpy() + 1)


def an_array_brought_in() -> Any:
    def work(x: Tensor) -> Tensor:
        print(end="")
        return torch.from_numpy(ARRAY) + x

    return compiled(work)


def an_array_brought_in_whole() -> Any:
    return compiled(lambda x: torch.from_numpy(ARRAY) + x, whole=True)


def something_saved() -> Any:
    net = network()

    def work(x: Tensor) -> Tensor:
        y = net(x)
        torch.save(y, io.BytesIO())
        return net(y)

    return compiled(work)


def something_printed() -> Any:
    net = network()
    return compiled(lambda x: (str(net(x)), net(x + 1))[1])


def a_tensor_of_a_list() -> Any:
    return compiled(lambda x: torch.Tensor([1.0, 2.0, 3.0]) + torch.FloatTensor([1.0]) + x, whole=True)


def a_kind_of_its_own() -> Any:
    return compiled(lambda x: x.as_subclass(Own) + 1)


def a_step() -> Any:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work(x: Tensor) -> Tensor:
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return compiled(work)


PROGRAMS = [
    a_module,
    a_module_inside,
    a_break_between_modules,
    a_value_read,
    an_array_read,
    an_array_brought_in,
    an_array_brought_in_whole,
    something_saved,
    something_printed,
    a_tensor_of_a_list,
    a_kind_of_its_own,
    a_step,
]


def counted(make: Callable[[], Any], run: Callable[[Callable[[], Any]], object]) -> tuple[dict[str, int], list[str]]:
    """The graphs that dynamo has made of four calls, and why it has broken off."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    function = make()
    for _ in range(4):
        run(lambda: function(X))
    breaks = [reason.splitlines()[0] for reason in counters["graph_break"]]
    return dict(counters["stats"]), breaks


def in_a_trace(work: Callable[[], Any]) -> None:
    with whynan.trace():
        work()


def module_by_module(work: Callable[[], Any]) -> None:
    watched(work, only="0", threads=True, on_sink=lambda _: None)


@pytest.mark.parametrize("region", [in_a_trace, module_by_module], ids=["all", "one module"])
@pytest.mark.parametrize("make", spread(PROGRAMS, 3), ids=lambda make: make.__name__)
def test_what_is_compiled_is_compiled_as_without(make: Callable[[], Any], region: Callable[..., Any]) -> None:
    bare = counted(make, lambda work: work())
    assert counted(make, region) == bare
    # and so it is when the trace is over
    assert counted(make, lambda work: work()) == bare


COMPILED_BEFORE_A_TRACE = """
import torch
from torch._dynamo import config
from tests.unit.capture.test_compiled_doors import X, a_module, a_module_inside, in_a_trace
for make in (a_module, a_module_inside):
    torch.compiler.reset()
    function = make()
    function(X)
    with config.patch(error_on_recompile=True):
        for _ in range(3):
            in_a_trace(lambda: function(X))
print("compiled once")
"""


@pytest.mark.full
def test_what_was_compiled_before_a_trace_is_not_compiled_again_in_it() -> None:
    # in a process of its own: what other programs have compiled in this one decides of what is compiled again
    command, root = [sys.executable, "-c", COMPILED_BEFORE_A_TRACE], Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "compiled once\n", done.stderr


def test_the_doors_of_a_function_that_breaks_off_are_seen() -> None:
    weight = nn.Parameter(torch.tensor([4.0, -1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        loss = weight.sqrt().sum()
        loss.backward()
        optimizer.step()
        loss.tolist()

    finding = only(watched(torch.compile(step, backend="eager")).report)
    assert (finding.birth, finding.op) == ("invalid", "aten.sqrt.default")
    assert {kind for kind, _ in sinks(finding)} == {"loss", "gradient", "parameter", "observed"}


FIRST_COMPILED_UNDER_A_TRACE = """
import numpy as np, torch, whynan
array = np.ones(3, dtype=np.float32)
def work(x):
    print(end="")
    return torch.from_numpy(array) + x
{before}
with whynan.trace():
    {inside}
    function = torch.compile(work, backend="eager")
    print(function(torch.ones(3)).tolist())
torch.compiler.reset()
function = torch.compile(work, backend="eager")
print(function(torch.ones(3)).tolist())
with whynan.trace():
    torch.compiler.reset()
    print(function(torch.ones(3)).tolist())
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("before", "inside"),
    [
        pytest.param("", "", marks=pytest.mark.full),
        pytest.param("import torch._dynamo", "", marks=pytest.mark.full),
        ("", "import torch._dynamo.variables.torch"),
    ],
)
def test_what_dynamo_knows_by_what_it_is_it_knows_after_the_trace(before: str, inside: str) -> None:
    text = FIRST_COMPILED_UNDER_A_TRACE.format(before=before, inside=inside or "pass")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[2.0, 2.0, 2.0]"] * 3, done.stderr
