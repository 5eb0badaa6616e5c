"""Tracebacks of the program's exceptions: below a trace they are those of the bare run."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

import whynan


class Refusing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise LookupError("in forward")


class Mismatched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise LookupError("in backward")


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        raise LookupError("in a sample")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.ones(1)
        raise LookupError("in the stream")


@dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818
    """An exception that lets nothing be set on it."""

    what: str


class Freezing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise Frozen("solid")


def leaf() -> Tensor:
    return torch.ones(3, requires_grad=True)


def refuse(*_: Any) -> Any:
    raise LookupError("in a hook")


def in_a_hook_of_a_tensor() -> None:
    x = leaf()
    y = x * 2
    y.register_hook(refuse)
    y.sum().backward()


def in_a_hook_of_a_module() -> None:
    net = nn.Sequential(nn.Linear(3, 3))
    net[0].register_forward_hook(refuse)
    net(leaf())


def in_a_backward_hook_of_a_module() -> None:
    net = nn.Linear(3, 3)
    net.register_full_backward_hook(refuse)
    net(leaf()).sum().backward()


def in_a_hook_of_an_optimizer() -> None:
    optimizer = torch.optim.SGD([leaf()], lr=0.1)
    optimizer.register_step_pre_hook(refuse)
    optimizer.step()


def in_a_closure() -> None:
    torch.optim.LBFGS([leaf()]).step(refuse)


def in_a_checkpoint() -> None:
    checkpoint(lambda x: Backward.apply(x).sin(), leaf(), use_reentrant=False).sum().backward()


def caught_and_raised_again() -> None:
    try:
        Refusing()(leaf())
    except LookupError as error:
        raise ValueError("once more") from error


def while_another_is_handled() -> None:
    try:
        Mismatched()(leaf())
    except RuntimeError:
        torch.load("/nowhere/at/all.pt")


PROGRAMS: list[Callable[[], object]] = [
    lambda: torch.ones(2) @ torch.ones(3),
    lambda: torch.ones(2).add_(torch.ones(3, 3)),
    lambda: torch.ones(2).view(3),
    lambda: torch.cat([torch.ones(1, 2), torch.ones(1, 3)]),
    lambda: torch.nn.functional.layer_norm(torch.ones(3), (2,)),
    lambda: torch.linalg.inv(torch.zeros(2, 2)),
    lambda: torch.ones(2).item(),
    lambda: torch.ones(2, requires_grad=True).numpy(),
    lambda: leaf().backward(),
    lambda: torch.ones(3).sum().backward(),
    lambda: torch.Tensor("x"),
    lambda: torch.from_numpy([1.0]),  # type: ignore[arg-type]
    lambda: np.load("/nowhere/at/all.npy"),
    lambda: torch.save(torch.ones(1), "/nowhere/at/all.pt"),
    lambda: nn.Sequential(Refusing())(leaf()),
    lambda: nn.Sequential(nn.Sequential(Mismatched()))(leaf()),
    lambda: nn.Sequential(Freezing())(leaf()),
    lambda: Backward.apply(leaf()).sum().backward(),
    lambda: torch.autograd.grad(Backward.apply(leaf()).sum(), leaf()),
    lambda: next(iter(DataLoader(Rows()))),
    lambda: list(DataLoader(Stream(), batch_size=None)),
    lambda: torch.func.vmap(lambda x: x @ torch.ones(7))(torch.ones(2, 3)),
    in_a_hook_of_a_tensor,
    in_a_hook_of_a_module,
    in_a_backward_hook_of_a_module,
    in_a_hook_of_an_optimizer,
    in_a_closure,
    in_a_checkpoint,
    caught_and_raised_again,
    while_another_is_handled,
]


def raised_by(program: Callable[[], object]) -> tuple[str, list[tuple[str, str]]]:
    """The text of a program's exception as the program would print it, and the frames of it and of its causes."""
    try:
        program()
    except Exception as error:
        frames: list[tuple[str, str]] = []
        step: BaseException | None = error
        while step is not None:
            frames += [(f.filename, f.name) for f in traceback.extract_tb(step.__traceback__)]
            step = step.__cause__ or step.__context__
        return traceback.format_exc(), frames
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("program", PROGRAMS, ids=[f"{i} {p.__name__}" for i, p in enumerate(PROGRAMS)])
def test_a_traceback_is_that_of_the_bare_run(program: Callable[[], object]) -> None:
    text, frames = raised_by(program)
    assert frames
    with whynan.trace():
        traced_text, traced_frames = raised_by(program)
    assert traced_frames == frames
    assert traced_text == text


def test_an_exception_that_passes_a_door_twice_keeps_the_programs_frames() -> None:
    def outer() -> None:
        try:
            nn.Sequential(Refusing())(leaf())
        except LookupError as error:
            kept.append(error)
            raise

    kept: list[LookupError] = []
    with whynan.trace():
        for again in (True, False):
            with pytest.raises(LookupError):
                if again:
                    outer()
                else:
                    raise kept[0]
    names = [f.name for f in traceback.extract_tb(kept[0].__traceback__)]
    assert names[-1] == "forward"
    assert "outer" in names


def test_an_exception_is_the_same_object_with_all_that_it_holds() -> None:
    class TellingError(LookupError):
        def __init__(self, number: int) -> None:
            super().__init__(number)
            self.number = number
            self.add_note("a note")

    error = TellingError(3)

    class Raising(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise error from pickle.PickleError("the cause")

    with whynan.trace(), pytest.raises(TellingError) as caught:
        Raising()(leaf())
    assert caught.value is error
    assert (error.number, error.__notes__) == (3, ["a note"])
    assert isinstance(error.__cause__, pickle.PickleError)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes_too(kind: type[BaseException]) -> None:
    class Leaving(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise kind

    with whynan.trace() as trace, pytest.raises(kind) as caught:
        Leaving()(leaf())
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "forward"
    assert trace.report.verdict == "clean"
