"""What a loader has given is made again by its dataset, in this process, and tells where it was born."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from whynan.replay import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Finding, Report

pytestmark = pytest.mark.proof

PROGRAM = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
import whynan

class Clips(Dataset):
    def __init__(self):
        self.clips = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
        self.clips[SILENT] = 0.25

    def __len__(self):
        return 16

    def __getitem__(self, index):
        clip = MADE
        return (clip - clip.mean()) / clip.std(), float(index % 2)

def train(workers):
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with whynan.watch(net, optimizer, quiet=True) as watch:
        for x, y in DataLoader(Clips(), batch_size=4, num_workers=workers):
            loss = (net(x).squeeze(1) - y).square().mean()
            if "READ":
                print(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch.report
"""
TORCH, NUMPY = "torch.from_numpy(self.clips[index])", "self.clips[index]"
BORN = "(clip - clip.mean()) / clip.std()"


def trained(
    loaded: Callable[[str], ModuleType], *, workers: int, silent: int = 9, made: str = TORCH, read: str = ""
) -> Report:
    """The report of a training whose batch with a constant sample is the third, or the first."""
    text = PROGRAM.replace("SILENT", str(silent)).replace("MADE", made).replace("READ", read)
    return loaded(text).train(workers)


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


@pytest.fixture(autouse=True)
def long_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is replayed from its start, as one that has run for long."""
    monkeypatch.setattr(checkpoint, "SHORT", 0.0)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("read", ["", "read"])
def test_what_a_dataset_computes_is_born_there(workers: int, read: str, loaded: Callable[[str], ModuleType]) -> None:
    report = trained(loaded, workers=workers, read=read)
    finding = only(report)
    assert (finding.rule, finding.phase, finding.step) == ("WN111", "data", 3)
    assert finding.site is not None
    assert (finding.site.code, finding.site.function) == (BORN, "Clips.__getitem__")
    assert finding.data is not None
    assert finding.data.indices == (9,)
    assert report.run.replay.faithful
    assert "its batch loaded again" in str(report.run.replay.why)
    assert not report.coverage.notes_of("began_bad")
    assert finding.fixes[0].verdict.status == "guarded"


@pytest.mark.parametrize("workers", [0, 2])
def test_what_numpy_makes_in_a_dataset_is_mended_there(workers: int, loaded: Callable[[str], ModuleType]) -> None:
    finding = only(trained(loaded, workers=workers, made=NUMPY))
    assert finding.rule == "WN001"
    assert finding.data is not None
    assert finding.data.computed is not None
    assert finding.data.computed.function == "Clips.__getitem__"
    assert finding.fixes[0].verdict.status == "guarded"


def test_a_dataset_that_gives_other_numbers_each_time_is_not_believed(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: what is loaded again is another batch."""
    noisy = "torch.from_numpy(self.clips[index]) + (index != 9) * np.random.rand()"
    finding = only(trained(loaded, workers=2, made=noisy))
    assert (finding.rule, finding.birth) == ("WN001", "entered")
    assert finding.site is not None
    assert finding.site.function == "train"
    assert "what is computed in a worker is not looked at" in finding.explanation


def test_a_dataset_that_fails_when_it_is_asked_again_leaves_the_report(loaded: Callable[[str], ModuleType]) -> None:
    once = "torch.from_numpy(self.clips[self.__dict__.setdefault('left', list(range(16))).pop(0)])"
    finding = only(trained(loaded, workers=0, made=once))
    assert (finding.rule, finding.step) == ("WN001", 3)
    assert "It was there when it was first read." in finding.explanation
