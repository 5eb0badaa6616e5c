"""A training in coroutines is replayed in an event loop of its own, and the program's own loop stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.process

WHYNAN = Path(sys.executable).with_name("whynan")
FULL = pytest.mark.full
NAMES = ["one coroutine", "beside another", "in a loop that is set"]
SESSION = """\
from contextvars import ContextVar

rounds = ContextVar("rounds", default=0)
"""
START = """\
import asyncio

import torch

from session import rounds

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fit(x):
    unit = x / x.sum(1, keepdim=True)  # born
    loss = (model(x) - unit[:, :2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rounds.set(rounds.get() + 1)
    print(loss.item(), rounds.get(), asyncio.get_running_loop() is loop, asyncio.current_task() is task)
"""
ALONE = """

async def train():
    global loop, task
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for k in range(6):
        await asyncio.sleep(0)
        fit(torch.zeros(4, 3) if k == 3 else torch.full((4, 3), k + 1.0))


asyncio.run(train())
"""
BESIDE = """

async def produce(queue):
    for k in range(6):
        await queue.put(torch.zeros(4, 3) if k == 3 else torch.full((4, 3), k + 1.0))
    await queue.put(None)


async def train(queue):
    global loop, task
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    while (x := await queue.get()) is not None:
        fit(x)


async def main():
    queue = asyncio.Queue(maxsize=2)
    await asyncio.gather(produce(queue), train(queue))


asyncio.run(main())
"""
SET = (
    ALONE.rsplit("asyncio.run", 1)[0]
    + """\
set_loop = asyncio.new_event_loop()
asyncio.set_event_loop(set_loop)
waiting = set_loop.create_task(asyncio.sleep(0.01))
asyncio.get_event_loop().run_until_complete(train())
set_loop.run_until_complete(waiting)
set_loop.close()
"""
)


def run(folder: Path, way: str, options: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (folder / "program.py").write_text(START + way, encoding="utf-8")
    (folder / "session.py").write_text(SESSION, encoding="utf-8")
    command = [WHYNAN, "run", "--json", "report.json", "--proof-seconds", "1", *options, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    return done, json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("way", [pytest.param(ALONE, marks=FULL), BESIDE, SET], ids=NAMES)
def test_a_bad_step_in_a_coroutine_is_replayed_and_nothing_but_the_report_is_said(way: str, tmp_path: Path) -> None:
    done, report = run(tmp_path, way, ())
    assert (done.returncode, report["verdict"]) == (1, "nonfinite"), done.stderr
    assert report["run"]["replay"]["faithful"] is True
    (finding,) = report["findings"]
    (born,) = (number for number, line in enumerate(START.splitlines(), 1) if line.endswith("# born"))
    assert (finding["step"], finding["site"]["line"]) == (4, born)
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr
    assert "Task " not in done.stderr


@pytest.mark.parametrize("way", [ALONE, pytest.param(BESIDE, marks=FULL), pytest.param(SET, marks=FULL)], ids=NAMES)
def test_the_programs_loop_and_task_go_on_after_a_replay(way: str, tmp_path: Path) -> None:
    done, report = run(tmp_path, way, ["--on-nonfinite", "continue"])
    assert report["run"]["replay"]["faithful"] is True
    bare = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == bare.stdout
    assert all(line.endswith("True True") for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 6
