"""Numbers on their way from a device to the host: all of a step together, waited for now or when they are read.

Only what is here knows of streams, events and pinned memory. On the host nothing is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


class Transfer:
    """Vectors, gathered into one on each device that they are on and sent to the host.

    `waits`: here and now, with one synchronisation for each device; else where `numbers` is called, by which time they
    have arrived as a rule.
    """

    def __init__(self, vectors: Sequence[Tensor], *, waits: bool) -> None:
        self._places = [(str(v.device), v.numel()) for v in vectors]
        apart: dict[str, list[Tensor]] = {}
        for (device, _), vector in zip(self._places, vectors, strict=True):
            apart.setdefault(device, []).append(wide(vector))
        send = fetched if waits else sent
        self._arrivals = {device: send(torch.cat(each)) for device, each in apart.items()}

    def numbers(self) -> list[list[float]]:
        """The vectors, in the order in which they were given."""
        arrived = {device: iter(arrival()) for device, arrival in self._arrivals.items()}
        return [[next(arrived[device]) for _ in range(count)] for device, count in self._places]


def wide(vector: Tensor) -> Tensor:
    """The same numbers in a type that holds those of every narrower one."""
    return vector.to(torch.float32 if vector.device.type == "mps" else torch.float64)


def fetched(vector: Tensor) -> Callable[[], list[float]]:
    """The numbers of a vector, which its device is waited for."""
    numbers: list[float] = vector.tolist()
    return lambda: numbers


def sent(vector: Tensor) -> Callable[[], list[float]]:
    """What waits for the numbers of a vector; without waiting for its device now, where it can be sent meanwhile."""
    if vector.device.type != "cuda":
        return vector.tolist
    host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
    host.copy_(vector, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(vector.device))

    def arrived() -> list[float]:
        event.synchronize()
        return host.tolist()

    return arrived
