"""A bad step, told from any other: which step of which optimizer, its losses bit for bit, its bad gradients."""

# pyright: strict

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.torch.judging import Fault
    from whynan.capture.torch.watch import Guard


@dataclass(frozen=True)
class Signature:
    """What has to be the same for a step to be the same.

    `optimizer`: its place among those that have tried a step, by their first one. `losses`: their bits. `bad`: the
    place of each parameter whose gradient is bad, and a digest of which of its elements are.
    """

    optimizer: int
    step: int
    losses: tuple[str, ...]
    bad: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, fault: Fault, guard: Guard) -> Self:
        """That of a bad step of a program that is watched."""
        places = {id(p): place for place, p in enumerate(fault.parameters())}
        bad = sorted((places[id(p)], _digest(mask)) for p, mask in fault.judged.bad)
        losses = tuple(bits.hex() for bits in fault.judged.losses)
        return cls(place_of(fault.optimizer, guard), fault.step, losses, tuple(bad))

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        """The one that ``stored()`` gave in another process."""
        bad = tuple((int(place), str(digest)) for place, digest in stored["bad"])
        return cls(int(stored["optimizer"]), int(stored["step"]), tuple(stored["losses"]), bad)

    def stored(self) -> dict[str, Any]:
        """It as a document for another process."""
        return asdict(self)


def place_of(optimizer: Any, guard: Guard) -> int:
    """The place of an optimizer among those that have tried a step; -1 where it has tried none."""
    return next((place for place, known in enumerate(guard.optimizers()) if known is optimizer), -1)


def _digest(mask: Any) -> str:
    shape = repr(tuple(mask.shape)).encode("ascii")
    return hashlib.sha256(shape + mask.cpu().contiguous().numpy().tobytes()).hexdigest()
