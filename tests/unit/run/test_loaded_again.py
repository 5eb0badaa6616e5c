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
        HELD
        self.clips = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
        self.clips[9] = 0.25

    def __len__(self):
        return 16

    def __getitem__(self, index):
        clip = MADE
        return (clip - clip.mean()) / clip.std(), float(index % 2)

def train(workers):
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with whynan.watch(net, optimizer, quiet=True, on_nonfinite=GOES) as watch:
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
    loaded: Callable[[str], ModuleType],
    *,
    workers: int,
    made: str = TORCH,
    read: str = "",
    held: str = "",
    goes: str | None = None,
) -> Report:
    """The report of a training whose third batch has a constant sample."""
    text = PROGRAM.replace("MADE", made).replace("READ", read).replace("HELD", held).replace("GOES", repr(goes))
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


@pytest.mark.full
def test_a_dataset_that_gives_other_numbers_each_time_is_not_believed(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: what is loaded again is another batch."""
    noisy = "torch.from_numpy(self.clips[index]) + (index != 9) * np.random.rand()"
    finding = only(trained(loaded, workers=2, made=noisy))
    assert (finding.rule, finding.birth) == ("WN001", "entered")
    assert finding.site is not None
    assert finding.site.function == "train"
    assert "what is computed in a worker is not looked at" in finding.explanation


@pytest.mark.full
def test_a_dataset_that_fails_when_it_is_asked_again_leaves_the_report(loaded: Callable[[str], ModuleType]) -> None:
    once = "torch.from_numpy(self.clips[self.__dict__.setdefault('left', list(range(16))).pop(0)])"
    finding = only(trained(loaded, workers=0, made=once))
    assert (finding.rule, finding.step) == ("WN001", 3)
    assert "It was there when it was first read." in finding.explanation


@pytest.mark.full
@pytest.mark.parametrize(
    ("workers", "made", "held", "goes"),
    [
        (0, TORCH, "self.seen = __import__('multiprocessing').Value('i', 0)", None),
        (2, TORCH, "self.file = __import__('mmap').mmap(-1, 8)", None),
        (2, TORCH, "", "continue"),
        (0, "self.large.__setitem__(0, 1.0) or " + TORCH, "self.large = np.zeros(1 << 18)", None),
        (
            0,
            "__import__('os').write(OUT, b'') * 0 or " + TORCH,
            "global OUT; OUT = __import__('os').memfd_create('x')",
            None,
        ),
    ],
    ids=["a value of several processes", "mapped memory", "a run that goes on", "a large array", "a descriptor"],
)
def test_what_could_be_left_behind_is_not_loaded_again(
    workers: int, made: str, held: str, goes: str | None, loaded: Callable[[str], ModuleType]
) -> None:
    finding = trained(loaded, workers=workers, made=made, held=held, goes=goes).findings[0]
    assert (finding.rule, finding.step) == ("WN001", 3)
