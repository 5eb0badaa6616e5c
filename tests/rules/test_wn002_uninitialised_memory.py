"""WN002 uninitialised-memory: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def read_before_written() -> object:
    memory = torch.empty(3)
    memory.view(torch.int32).numpy()[:] = 0x7FC00000
    return memory * 2


def written_before_read() -> object:
    return torch.empty(3).fill_(1.0) * 2


@pytest.mark.parametrize("program", [read_before_written])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN002"
    assert said == snapshot


@pytest.mark.parametrize("program", [written_before_read])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
