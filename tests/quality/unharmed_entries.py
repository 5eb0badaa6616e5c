"""Programs whose numbers come in from elsewhere, and programs that train a few steps: to be failed at every call."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.data import DataLoader, Dataset

INF = float("inf")
Values = list[Any]


class Gapped(Dataset[Any]):
    """Rows of which one holds a NaN that NumPy has written, and one divides by zero."""

    def __init__(self) -> None:
        self.table = np.ones((6, 4), dtype=np.float32)
        self.table[4, 3] = np.nan

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        row = torch.from_numpy(self.table[index])
        return row / torch.tensor(float(index != 1)), self.table[index]


@dataclass(slots=True)
class Pair:
    """A batch of the program's own kind."""

    rows: torch.Tensor
    names: tuple[str, ...] = ()


def _halves(rows: list[Any]) -> Any:
    whole = torch.stack([row for row, _ in rows])
    return {"left": whole[:, :2], "right": whole[:, 2:], "rows": np.stack([row for _, row in rows])}


def loaders() -> Values:
    """Batches with bad rows, looked at through views; arrays, a stream, a loader that raises, one with a worker; and
    numbers of which one is beyond the dtype.
    """
    kept: Values = []
    data = Gapped()
    for batch in DataLoader(data, batch_size=3, shuffle=True, collate_fn=_halves):
        kept.append(batch["right"].t().sum().item())
        kept.append(torch.from_numpy(batch["rows"][1:]).mul(2).sum().item())
    for row in DataLoader(torch.from_numpy(data.table), batch_size=None):  # type: ignore[arg-type]
        kept.append((row * 2).tolist())
    try:
        list(DataLoader(data, sampler=[9]))
    except IndexError as error:
        kept.append(type(error).__name__)
    for row, _ in DataLoader(data, batch_size=6, num_workers=1):
        kept.append(row[3:].sum().item())
    for pair in DataLoader(data, batch_size=6, collate_fn=lambda rows: Pair(torch.stack([row for row, _ in rows]))):
        kept.append(pair.rows.sum().item())
    found = data.table[4].tolist()
    kept.append(torch.tensor(found).sum().item())
    kept.append(torch.tensor([1.0, 5.4e39]).sum().item())
    return kept


def files() -> Values:
    """A checkpoint, safetensors and an array that are bad, read from files."""
    kept: Values = []
    with tempfile.TemporaryDirectory() as folder:
        state = {"model": {"0.weight": torch.tensor([1.0, INF - INF])}}
        torch.save(state, f"{folder}/last.pt")
        safetensors.torch.save_file(state["model"], f"{folder}/last.safetensors")
        np.save(f"{folder}/x.npy", Gapped().table)
        kept.append(torch.load(f"{folder}/last.pt")["model"]["0.weight"].mul(2).tolist())
        kept.append(safetensors.torch.load_file(f"{folder}/last.safetensors")["0.weight"].mul(2).tolist())
        kept.append(torch.from_numpy(np.load(f"{folder}/x.npy")).sum().item())
    return kept


class Marked(torch.Tensor):
    """A kind of tensor of the program's own."""


def kinds() -> Values:
    """Tensors of a kind of the program's own, made of lists and of others; one that holds no numbers."""
    made = Marked([1.0, 2.0])
    fake = FakeTensorMode().from_tensor(torch.ones(2))
    shown = [made.sum().item(), torch.ones(2).as_subclass(Marked).add(1).tolist(), torch.Tensor([3.0]).item()]
    return [*shown, tuple((fake + fake).shape)]


def guards() -> Values:
    """Losses and gradients that are bad, on which the program decides; and a bound that is Inf."""
    weight = torch.tensor([0.0, 2.0], requires_grad=True)
    kept: Values = []
    for scale in (1.0, -1.0):
        loss = (torch.log(weight + scale) * scale).sum()
        if not torch.isfinite(loss.detach() * 1.0):
            break
        loss.backward()
    kept.append(loss.detach())
    bound = weight.sum() + float("inf")
    for scale in (1.0, 2.0):
        loss = (weight * scale).sum()
        if loss.detach() < bound:
            break
        loss.backward()
    for _ in range(2):
        (slope,) = torch.autograd.grad(torch.sqrt(weight).sum(), weight)
        if any(torch.isinf(part).any() for part in slope.unbind()):
            break
        kept.append(weight.sum().backward())
    kept.append(slope)
    if not float(torch.log(weight.detach()).sum()) > float("-inf"):
        kept.append("skipped")
    return kept


def steps() -> Values:
    """A few steps, of which a scaler skips one, and the third is bad; then numbers that are finite and wrong."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh(), nn.Linear(2, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    kept: Values = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 2)).sum() * (2.0**127 if step == 1 else 1.0)
        if step == 2:
            loss = (-loss.abs() - 1).sqrt()
        if step % 2:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update(2.0)
        else:
            loss.backward()
            optimizer.step()
        kept += [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        kept.append(model(torch.ones(1, 2)))
    half = torch.tensor([300.0], dtype=torch.float16)
    kept.append((1 / (half / 2.0**22).mul(2.0**-20).float()).tolist())
    kept.append((half * (half * half).rsqrt()).tolist())
    return kept


def sparse() -> Values:
    """Bad sparse gradients: added, coalesced, changed in place, made dense, and used."""
    kept: Values = []
    table = nn.Embedding(5, 2, sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.arange(10.0).view(5, 2))
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for words in ([0, 1, 1], [2, 0]):
        table(torch.tensor(words)).sqrt().sum().backward()
    grad = table.weight.grad
    assert grad is not None
    kept += [grad.to_dense(), (grad.coalesce() * 2).values(), grad.mul_(1e30).to_dense()]
    optimizer.step()
    kept.append((torch.eye(2).to_sparse() * float("nan")).to_dense())
    return [*kept, table.weight.detach()]
