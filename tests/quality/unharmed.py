"""A rich little program, and a way to make any call inside whynan's capture fail."""

from __future__ import annotations

import io
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import whynan
import whynan.capture

HOME = str(Path(whynan.capture.__file__).parent)


class Forced(Exception):  # noqa: N818
    """The failure that a test forces."""


class Scaled(torch.autograd.Function):
    """A custom function whose backward is Python."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 2 + x * 0


class Model(nn.Module):
    """Normalisation, dropout, a checkpointed block, a buffer, a custom function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        x = checkpoint(lambda y: self.drop(y).relu(), x, use_reentrant=False)
        return self.last(Scaled.apply(x))


def program() -> list[Any]:
    """Two micro-batches and two steps with a loss scaler, values read in every way, and births of every fate."""
    torch.manual_seed(0)
    kept: list[Any] = []
    model = Model()
    weight = nn.Parameter(torch.tensor([0.0, 1.0]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    other = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    seen: list[int] = []
    model.last.weight.register_hook(lambda g: seen.append(1))
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(5, 4)).square().mean()
            scaler.scale(loss).backward()
            kept.append(loss.item())
        scaler.step(optimizer)
        scaler.update()
    scores = torch.zeros(2, 3).masked_fill_(torch.tensor([[True] * 3, [False] * 3]), float("-inf"))
    kept.append(scores.softmax(-1).tolist())
    kept.append((torch.zeros(2) / torch.zeros(2)).nan_to_num(1.0).sum().item())
    kept.append(int(torch.tensor([1e38, 0.0]).mul(10).argmax()))
    (weight.sqrt().sum() * 1.0).backward()
    other.step()
    torch._foreach_add_([weight.detach()], 1.0)
    view = torch.arange(6.0).view(2, 3)[1]
    view += 1
    file = io.BytesIO()
    torch.save(view, file)
    kept += [p.detach().clone() for p in model.parameters()] + [b.clone() for b in model.buffers()]
    kept += [
        weight.detach().clone(),
        view.numpy().copy().tobytes(),
        len(seen),
        torch.get_rng_state(),
        len(file.getvalue()),
    ]
    return kept


def bits(value: Any) -> Any:
    """A value by its bits, so that NaN equals itself and 0 is not -0."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, float):
        return value.hex()
    return [bits(v) for v in value] if isinstance(value, list) else value


class Executed(TorchDispatchMode):
    """Below whynan's mode: every operation that really runs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


@dataclass
class Calls:
    """How often each function of the capture is called in the program; one call of one of them may fail."""

    target: tuple[CodeType, int] | None = None
    error: type[BaseException] = Forced
    seen: Counter[CodeType] = field(default_factory=Counter)
    fired: bool = False

    # the user's own call goes through these frames: they do nothing of ours outside of a `try`
    doors: tuple[str, ...] = (
        "TraceMode.__torch_dispatch__",
        *(f"<locals>.{door}" for door in "call engine_run_backward read save before after start compile_".split()),
    )

    def trace(self, frame: FrameType, event: str, _argument: Any) -> None:
        """A trace function: what it raises is raised at the entry of the function that is called."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOME) or code.co_name.startswith("<"):
            return
        if code.co_qualname.endswith(self.doors):
            return
        self.seen[code] += 1
        if self.target is not None and self.target == (code, self.seen[code]):
            self.fired = True
            raise self.error("forced")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count, and fail where it is wanted."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)


@dataclass(frozen=True)
class Outcome:
    """What a run of the program left: its results, the operations that ran, the warnings of whynan."""

    results: Any
    executed: Counter[str]
    warned: list[str]


def bare() -> Outcome:
    """The program without whynan."""
    with Executed() as executed:
        results = program()
    return Outcome(bits(results), executed.calls, [])


def traced(calls: Calls) -> Outcome:
    """The program under a trace in which a call may fail."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Executed() as executed, calls.watching(), whynan.trace():
            results = program()
    own = [str(w.message) for w in caught if "whynan met an error of its own" in str(w.message)]
    return Outcome(bits(results), executed.calls, own)
