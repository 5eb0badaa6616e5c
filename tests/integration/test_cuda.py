"""On a real CUDA device: a watch and a trace change no bit, and a bad step there is found, run again and explained."""

from __future__ import annotations

import os
import random
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whynan
from tests.quality.test_watch_identity import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

STEPS = 12


@dataclass(frozen=True)
class Training:
    """A training on the device: its model, its optimizer, the dtype of autocast, and whether its losses are scaled."""

    model: Callable[[], nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    autocast: torch.dtype | None = None
    scaled: bool = False
    graph: bool = False


class Recurrent(nn.Module):
    """Two layers of cuDNN's LSTM with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 32, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.view(len(x), 6, 8))[0][:, -1])


class Attending(nn.Module):
    """The fused attention of a device, with dropout of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 3 * 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.view(len(x), 1, 6, 8)).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)[:, 0].mean(1))


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))


def _pictures() -> nn.Module:
    shape = nn.Unflatten(1, (3, 4, 4))
    return nn.Sequential(shape, nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(32, 4))


def _fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, fused=True)


def _captured(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2, capturable=True)


TRAININGS = {
    "sgd": Training(_dense, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "adam, foreach": Training(_dense, lambda p: torch.optim.Adam(p, lr=0.01, foreach=True)),
    "adamw, fused": Training(_pictures, _fused),
    "adam, capturable": Training(_dense, _captured),
    "float16, scaled": Training(_pictures, _fused, torch.float16, scaled=True),
    "float16, scaled, not fused": Training(_dense, lambda p: torch.optim.SGD(p, lr=0.01), torch.float16, scaled=True),
    "bfloat16": Training(Attending, _fused, torch.bfloat16),
    "cudnn lstm": Training(Recurrent, lambda p: torch.optim.RMSprop(p, lr=0.01)),
    "graph": Training(_dense, _captured, graph=True),
}
LOOKS: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "watch": lambda optimizer: whynan.watch(optimizer, quiet=True),
    "deferred": lambda optimizer: whynan.watch(optimizer, sync="deferred", quiet=True),
    "trace": lambda _: whynan.trace(),
}


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    """Kernels of a device that give the same bits twice."""
    before = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    if before is None:
        del os.environ["CUBLAS_WORKSPACE_CONFIG"]
    else:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = before


def _run(training: Training, look: Callable[[Any], AbstractContextManager[Any]]) -> tuple[Any, Any]:
    """What a training comes to, bit for bit, with the numbers that are drawn after it; and what the look returned."""
    torch.manual_seed(0)
    random.seed(0)
    model = training.model().to("cuda")
    optimizer = training.optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=4, enabled=training.scaled)
    x, labels = torch.randn(16, 48, device="cuda"), torch.randint(0, 4, (16,), device="cuda")
    losses: list[Tensor] = []

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=not training.graph)
        with torch.autocast("cuda", dtype=training.autocast or torch.float16, enabled=training.autocast is not None):
            loss = F.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    with look(optimizer) as looking:
        if training.graph:
            again = _capture(step)
        for _ in range(STEPS):
            x.copy_(torch.randn(16, 48, device="cuda"))
            if training.graph:
                graph, loss = again
                graph.replay()
            else:
                loss = step()
            losses.append(loss.detach().clone())
    state = [model.state_dict(), optimizer.state_dict(), scaler.state_dict(), losses]
    return bits([*state, torch.randn(4, device="cuda"), torch.randn(4)]), looking


def _capture(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", TRAININGS)
def test_no_bit_is_changed(name: str, look: str) -> None:
    training = TRAININGS[name]
    if training.graph and look == "trace":
        pytest.skip("nothing is traced while a graph is captured")
    bare, _ = _run(training, lambda _: nullcontext())
    assert _run(training, lambda _: nullcontext())[0] == bare  # else it says nothing
    found, looking = _run(training, LOOKS[look])
    assert found == bare
    assert looking.report.verdict == "clean"
    replays = [note for note in looking.report.coverage.notes if "CUDA graphs" in note]
    assert bool(replays) is (training.graph and look != "trace")


def _bad(step: int, x: Tensor) -> None:
    if step == 5:
        x[3] = 0


@pytest.mark.proof
@pytest.mark.parametrize("sync", ["step", "deferred"])
def test_a_bad_step_on_the_device(sync: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 4).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    with whynan.watch(optimizer, sync=sync, quiet=True) as watching:
        for step in range(8):
            x = torch.randn(16, 8, device="cuda")
            _bad(step, x)
            loss = model(x / x.norm(dim=-1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    report = watching.report
    if sync == "deferred":
        assert report.verdict == "inconclusive"
        return
    (finding,) = report.findings
    assert (finding.step, finding.phase, finding.birth) == (6, "forward", "invalid")
    assert finding.site.code == "x / x.norm(dim=-1, keepdim=True)"
    assert [each.value for each in finding.element.operands] == [0.0, 0.0]
    assert report.run.replay.faithful
    assert report.run.device == "cuda"
