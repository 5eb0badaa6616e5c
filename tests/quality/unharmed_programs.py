"""Small programs that take every way through the capture, each with the values that its user would see."""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

# imported here: whether it is would else hang on what ran before
import torch._inductor.output_code as home
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import whynan
from tests.quality.unharmed_births import outputs, selections, turns
from tests.quality.unharmed_entries import files, guards, kinds, loaders, sparse, steps
from whynan.api import Trace
from whynan.capture.torch import sites
from whynan.capture.torch.operators import KNOWN
from whynan.capture.torch.tracer import Tracer
from whynan.config import Options
from whynan.run import region as watching
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.output.run_trace import report_of_directory
from whynan.traces.writer import TraceWriter

INF = float("inf")
Values = list[Any]
INPUT, SCALE = torch.tensor([-1.0, INF]), torch.tensor(2.0)
Region = Callable[[Callable[[], Values]], tuple[Values, Any]]


@dataclass(frozen=True)
class Program:
    """A program, and how it is traced.

    Args:
        body: gives the values that its user would see.
        region: runs the body under whynan and gives its values and the report.
        runs: how many times each of its operations may run in all; none where edits of it are run too, and its first
            run alone counts.
        alone: no other dispatch mode is on, so that operations are not counted.
    """

    name: str
    body: Callable[[], Values]
    region: Region
    runs: tuple[int, ...] = (1,)
    alone: bool = False
    around: Callable[[], AbstractContextManager[object]] | None = None


def in_trace(body: Callable[[], Values]) -> tuple[Values, Any]:
    """Run under a plain trace."""
    with whynan.trace() as trace:
        values = body()
    return values, trace.report


def in_recording(body: Callable[[], Values]) -> tuple[Values, Any]:
    """Run under a trace that is written to disk."""
    with tempfile.TemporaryDirectory() as directory:
        with Trace(recording=TraceWriter(Path(directory) / "t"), ranges=True) as trace:
            values = body()
        if not any("error of its own" in note for note in trace.report.coverage.notes):
            assert report_of_directory(Path(directory) / "t").to_json() == trace.report.to_json()
    return values, trace.report


def in_trace_with_ranges(body: Callable[[], Values]) -> tuple[Values, Any]:
    """Run under a trace that records every tensor's range, part of it meant."""
    with whynan.trace(ranges=True) as trace, whynan.allow("WN5", reason="padding"):
        values = body()
    return values, trace.report


def in_little_memory(body: Callable[[], Values]) -> tuple[Values, Any]:
    """Run under a trace that can hold the operands of a few events only."""
    with whynan.trace(memory=16_384) as trace:
        values = body()
    return values, trace.report


def explained(*, rerun: bool = False, packed: bool = False, memory: int | None = None) -> Region:
    """Run as the target of `explain`; the values are those of the first call."""

    def run(body: Callable[[], Values]) -> tuple[Values, Any]:
        seen: list[Values] = []
        taken, left = iter([1, 2]), enumerate((1, 2))

        def target(x: Tensor, *, scale: Tensor) -> tuple[Tensor, Tensor]:
            seen.append(body() if next(taken) and left else [])
            return x, scale

        with tempfile.TemporaryDirectory() as folder:
            capsule = Path(folder) / "capsule" if packed else None
            report = whynan.explain(target, INPUT, scale=SCALE, rerun=rerun, capsule=capsule, memory=memory)
        return seen[0], report

    return run


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


def state_of(*modules: nn.Module) -> Values:
    """Parameters, their gradients and buffers as they are now."""
    found: Values = []
    for module in modules:
        for p in module.parameters():
            found += [p.detach().clone(), None if p.grad is None else p.grad.detach().clone()]
        found += [b.detach().clone() for b in module.buffers()]
    return found


def training() -> Values:
    """Two micro-batches with a loss scaler under autocast; gradients add up in `.grad`."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    seen: list[int] = []
    model.last.weight.register_hook(lambda g: seen.append(1))
    kept: Values = []
    optimizer.zero_grad()
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(5, 4)).square().mean()
        scaler.scale(loss).backward()
        kept.append(loss.item())
    scaler.step(optimizer)
    scaler.update()
    return [*kept, *state_of(model), len(seen)]


def skipped_step() -> Values:
    """A step that the scaler skips, and one that it takes; a fused optimizer is called all the same."""
    kept: Values = []
    for fused in (True, False):
        model = nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 3) * 8).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update(1.0)
        kept += state_of(model)
    return kept


def births() -> Values:
    """Births of every fate: read, lost, damaging, in a gradient, in a parameter, from outside, never read."""
    kept: Values = []
    scores = torch.zeros(2, 3).masked_fill_(torch.tensor([[True] * 3, [False] * 3]), -INF)
    kept.append(scores.softmax(-1).tolist())
    kept.append((torch.zeros(2) / torch.zeros(2)).nan_to_num(1.0).sum().item())
    kept.append(int(torch.tensor([1e38, 0.0]).mul(10).argmax()))
    weight = nn.Parameter(torch.tensor([0.0, 1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for sign in (1.0, -1.0):
        (weight.sqrt() * sign).sum().backward()
    optimizer.step()
    kept += [weight.detach().clone(), weight.grad]
    return kept


def carried() -> Values:
    """Bad numbers carried through products, selections, copies, views and operations in place."""
    x = torch.tensor([[1.0, -1.0], [0.0, 4.0]])
    bad = x.log()
    product = bad @ torch.ones(2, 2)
    picked = torch.cat([product, x]).index_select(0, torch.tensor([1, 2]))
    picked[0] += 1
    chosen = torch.where(picked > 0, picked, torch.zeros(()))
    moved = torch.stack([chosen, bad]).transpose(0, 1).contiguous()
    narrow = bad.clone().sqrt_().clamp(max=3.0).sum(0)
    (greatest, where) = moved.flatten().max(0)
    layer = nn.functional.layer_norm(product, (2,))
    # arithmetic at the end of float32: what is lost there damages what is finite later
    small = (torch.tensor([1e30]) * 1e30).reciprocal() + 1.0
    softened = torch.tensor([1e4, 0.0]).exp().reciprocal().sum()
    entered = torch.tensor([float("nan"), 1.0]) * 2
    norm = torch.linalg.vector_norm(bad)
    return [product, picked, moved, narrow, greatest, where.item(), layer, small, softened.item(), entered, norm.item()]


def optimizers() -> Values:
    """Optimizers of each implementation, one that divides zero by zero, one with a closure."""
    kept: Values = []
    for flags in ({"foreach": True}, {"fused": True}, {"foreach": False, "eps": 0.0}):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **flags)
        model(torch.tensor([[1.0, 0.0]])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept += state_of(model)
    x = torch.zeros(1, requires_grad=True)
    searching = torch.optim.LBFGS([x], lr=200.0, max_iter=3)

    def closure() -> Tensor:
        searching.zero_grad()
        loss = (x.exp() - x * 3).sum()
        loss.backward()
        return loss

    searching.step(closure)
    kept.append(x.detach().clone())
    return kept


def transforms() -> Values:
    """Inference, double backward, function transforms, sparse, complex and empty tensors, generators, a hook."""
    kept: Values = []
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    first.square().sum().backward()
    kept.append(x.grad)
    kept.append(torch.func.vmap(torch.func.grad(lambda v: v.square().sum()))(torch.randn(2, 3)))
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3])).sum().backward()
    kept.append(table.weight.grad.to_dense())
    kept.append(torch.fft.rfft(torch.randn(4)).abs())
    kept.append(torch.empty(0).sum().item())
    filled = torch.empty(2, 2)
    filled[0] = 1.0
    kept.append(filled[0] + 1)
    with torch.inference_mode():
        kept.append(nn.Linear(3, 2)(torch.ones(1, 3)).tolist())
    with torch.no_grad():
        view = torch.arange(6.0).view(2, 3)[1]
        view += 1
        kept.append(view.numpy().copy().tobytes())
    file = io.BytesIO()
    torch.save({"view": view}, file)
    kept.append(len(file.getvalue()))
    kept.append(torch.bernoulli(torch.full((4,), 0.5)))
    other = torch.ones(3, requires_grad=True)
    other.sin().sum().backward()
    torch.utils.swap_tensors(other, torch.zeros(3, requires_grad=True))
    kept.append(other.detach())
    return kept


class Entropy(nn.Module):
    """Of a table with a zero, behind a layer with a bad weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor([0.0, 0.5]))
        self.mix = nn.Linear(2, 2)
        with torch.no_grad():
            self.mix.weight[0, 1] = INF - INF

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x) + self.table.log()


HELD: Values = []
# made before any trace
ENTROPY = Entropy()


def chains() -> Values:
    """Births whose operands were clipped, moved, multiplied, subtracted, summed, or came in."""
    kept: Values = []
    x = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 1e-30, 0.5]])
    kept.append((x - x.clone()).log()[:1].flip(0))
    kept.append((x * 1e-20 * x).roll(1, 0).reciprocal())
    kept.append((x.relu() + 0).sum(0).sub(1.0).log())
    kept.append(x.mul(0).sum().log())
    kept.append((x.exp() @ (x - x).T).add(x @ x.T).sub(3).log())
    scale = torch.zeros(1, requires_grad=True)
    divided = torch.ones(2) * 1
    divided /= scale
    torch.where(divided.isfinite(), divided, 0.0).sum().backward()
    kept.append(scale.grad)
    layers = [nn.Linear(1, 1), nn.Linear(1, 1)]
    layers[1](layers[0](torch.full((1, 1), 1e38)) * 1e10).sum().backward()
    kept += [p.grad for layer in layers for p in layer.parameters()]
    again = checkpoint(lambda y: y.log().sin(), x[0].clone().requires_grad_(), use_reentrant=False)
    again.sum().backward()
    kept.append(again.detach())
    kept.append((x - 0.5 + x * 0.25).log())
    kept.append(ENTROPY(torch.ones(1, 2)).detach())
    stale = nn.Parameter(torch.tensor([INF - INF, 1.0]))
    torch.optim.SGD([stale], lr=0.1).step()
    kept.append(stale.detach().clone())
    return kept


def mixtures() -> Values:
    """Events that carry some bad elements and bear others, from operands of several kinds."""
    kept: Values = []
    x = torch.tensor([-1.0, 1e30, 1e30, 2.0], requires_grad=True)
    roots = x.detach().sqrt()
    kept.append(torch.stack([roots[0], x[1].detach(), x[2].detach()]).cumprod(0))
    kept.append(torch.ones(2) * INF)
    mask = torch.full((2,), -INF)
    kept.append(torch.stack([mask[0], mask.sum()]).logsumexp(0))
    wide = (x * 1e30).view(2, 2)
    normal = nn.functional.layer_norm(wide, (2,))
    torch.where(torch.isfinite(normal), normal, torch.zeros(())).sum().backward()
    kept.append(x.grad)
    return kept


def backwards() -> Values:
    """A gradient that is set to zero between two backwards, and an engine that an exception stops."""
    kept: Values = []
    weight = torch.tensor([0.0, 4.0], requires_grad=True)
    for _ in range(2):
        weight.sqrt().sum().backward()
        weight.grad.zero_()

    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            raise ArithmeticError("no gradient")

    weight.sin().backward(torch.tensor([INF, 1.0]) * 2)
    # alive until the trace has ended
    HELD[:] = [weight]
    try:
        Refusing.apply(weight).sqrt().sum().backward()
    except ArithmeticError as error:
        kept.append(str(error))
    return [*kept, weight.detach(), weight.grad]


def recorded() -> Values:
    """Steps whose gradients are bad, used, thrown away or let go of, and more events than the ring holds."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for scale in (1.0, INF):
        sgd.zero_grad()
        (model(torch.ones(1, 2)) * scale).log().sum().backward()
        sgd.step()
    kept: Values = [p.detach().clone() for p in model.parameters()]
    weight = torch.zeros(2, requires_grad=True)
    weight.log().sum().backward()
    weight.grad = None
    torch.ones(1, requires_grad=True).sum().backward()
    torch.zeros(2, requires_grad=True).log().sum().backward()
    torch.ones(1, requires_grad=True).sum().backward()
    x = torch.ones(2)
    for _ in range(SMALL_RING):
        x = x * 1.0
    return [*kept, x]


SMALL_RING = 1 << 10


@contextmanager
def _small_ring() -> Iterator[None]:
    """The ring of recent events begins anew after a thousand of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("tracer.RING_MASK", "event_log.MASK", "trace_segments.MASK"):
            patch.setattr(f"whynan.capture.torch.{name}", SMALL_RING - 1)
        yield


@contextmanager
def _cold() -> Iterator[None]:
    """What earlier traces have learned of operators and code is forgotten."""
    KNOWN.clear()
    sites._owners.clear()
    with pytest.MonkeyPatch.context() as patch:
        # as in a process that has compiled nothing yet
        patch.delitem(sys.modules, "torch._inductor.output_code", raising=False)
        yield


def threads() -> Values:
    """A thread of the program's own, and an exception that it catches."""
    kept: Values = []
    thread = threading.Thread(target=lambda: kept.append((torch.ones(2) * 2).sum().item()))
    thread.start()
    thread.join()
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError as error:
        kept.append(str(error))
    return kept


def regions() -> Values:
    """A compiled region between two operations that run as they are."""
    region: Any = home.CompiledFxGraph(lambda x: (x / x,))
    bad = torch.tensor([1e38, 0.0]) * 10
    (out,) = region([bad])
    return [out + 1, out.sum().item()]


class _Graph:
    """What inductor hands to the program, without the minutes of a compiler."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, inputs: list[Tensor]) -> Any:
        taken = list(inputs)
        inputs.clear()
        with torch._C._DisableTorchDispatch():
            return self.function(*taken)


@contextmanager
def _graphs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "CompiledFxGraph", _Graph)
        yield


@contextmanager
def _waiting() -> Iterator[None]:
    """Events wait for a sink, as they do on an accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracer, "defers", True)
        yield


@contextmanager
def _unproved() -> Iterator[None]:
    """There is no time to prove a fix of what was found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHYNAN_PROOF_SECONDS", "1e-9")
        yield


def root() -> Values:
    """One bad number, which an edit mends."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.sqrt(x).sum().backward()
    return [x.grad.clone()]  # type: ignore[union-attr]


def bulky() -> Values:
    """Births of operations that are drawn, overwrite, overlap, or are too large for a little memory."""
    small, large = torch.zeros(3), torch.zeros(4, 8192)
    kept = [torch.empty(64).normal_(0, 3e38).sum().item(), torch.zeros(5).unfold(0, 3, 1).log().sum().item()]
    kept += [t.sum().item() for t in torch._foreach_div([large, small], [torch.ones(4, 8192), torch.zeros(3)])]
    kept.append(large.log().sum().item())
    kept.append(large.reciprocal_().sum().item())
    return kept


@contextmanager
def _as_a_whole() -> Iterator[None]:
    """Each sparse tensor is too large to be looked at element by element."""
    from whynan.capture.torch import sparse as home

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "MOST_ELEMENTS", 1)
        yield


def raises() -> Values:
    """A program that ends with an exception of its own."""
    bad = torch.tensor([0.0]).log()
    raise ArithmeticError(f"{bad.shape} holds NaN or Inf")


def told(**what: Any) -> Region:
    """Run in a region that is told more than a trace can be."""

    def run(body: Callable[[], Values]) -> tuple[Values, Any]:
        region = watching.Region(Options(), command="region", watched=CaptureOptions(**what), quiet=True)
        with region:
            values = body()
        return values, region.report

    return run


def silent() -> Values:
    """Numbers that are lost without a bad one, every kind in every way that it is looked for."""
    x = torch.linspace(-2, 2, 20)
    near = x < 1e-6
    written = x.clone()
    written[written <= 1e-4] = 1e-4
    kept = x * near.logical_not() + near * 1e-6
    chosen = torch.where(near, torch.full_like(x, 1e-6), x)
    half = (torch.zeros(3).half() + 1e-8).clamp(1e-8, 1)
    # the program asks for it itself
    asked = (torch.zeros(3).half() + 1e-8) == 0
    bound = torch.ones(3).clamp(max=1 - 1e-8)
    cast = torch.full((2,), 1e6).to(torch.float8_e4m3fn).float()
    values = [written, kept, chosen, half, asked, bound, cast]
    for dtype, scale, rate in ((torch.bfloat16, 1.0, 1e-5), (torch.float32, 1e12, 1e-20), (torch.float16, 3e4, 0.1)):
        w = torch.ones(8, dtype=dtype, requires_grad=True)
        w.backward(torch.full_like(w, scale))
        if dtype is torch.float16:
            torch.nn.utils.clip_grad_norm_([w], 1.0)
        torch.optim.SGD([w], lr=rate).step()
        values.append(w.detach().float())
    return values


PROGRAMS = (
    Program("training", training, in_trace),
    Program("training alone", training, in_trace, alone=True),
    Program("skipped step", skipped_step, in_trace),
    Program("births", births, in_trace),
    Program("births with ranges", births, in_trace_with_ranges),
    Program("births that wait", births, in_trace, around=_waiting),
    Program("carried", carried, in_trace),
    Program("carried, explained", carried, explained()),
    Program("births, explained twice", births, explained(rerun=True), runs=(1, 2), around=_unproved),
    Program("births, packed", births, explained(packed=True), runs=(), around=_unproved),
    Program("bulky, packed", bulky, explained(packed=True, memory=65_536), runs=(), around=_unproved),
    Program("a root, proved", root, explained(rerun=True), runs=()),
    Program("optimizers", optimizers, in_trace),
    Program("transforms", transforms, in_trace),
    Program("transforms alone", transforms, in_trace, alone=True),
    Program("chains", chains, in_trace),
    Program("mixtures", mixtures, in_trace),
    Program("sparse", sparse, in_trace),
    Program("sparse as a whole", sparse, in_trace, around=_as_a_whole),
    Program("backwards", backwards, in_trace),
    Program("little memory", births, in_little_memory),
    Program("nothing known", births, in_trace, around=_cold),
    Program("threads", threads, in_trace),
    Program("regions", regions, in_trace, around=_graphs),
    Program("raises", raises, in_trace),
    Program("loaders", loaders, in_trace),
    Program("files", files, in_trace),
    Program("kinds", kinds, in_trace, alone=True),
    Program("guards", guards, in_trace),
    Program("steps", steps, in_trace),
    Program("one module", steps, told(only="1")),
    Program("late", steps, told(first_step=2)),
    Program("a window of steps", steps, told(first_step=2, steps=2)),
    Program("asked", steps, told(on_sink=lambda _: None)),
    Program("threads looked at", threads, told(threads=True)),
    Program("silent", silent, in_trace),
    Program("selections", selections, in_trace),
    Program("turns", turns, in_trace),
    Program("outputs", outputs, in_trace),
    Program("recorded", recorded, in_recording, around=_small_ring),
)
BY_NAME = {p.name: p for p in PROGRAMS}


def seeded(body: Callable[[], Values], region: Region) -> tuple[Values, Any]:
    """A program's values, or the exception that it ends with, and its report; with the generator's state after it."""
    torch.manual_seed(0)
    try:
        values, report = region(body)
    except ArithmeticError as error:
        values, report = [repr(error)], None
    return [*values, torch.get_rng_state()], report
