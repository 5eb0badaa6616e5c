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
    place of each parameter whose gradient is bad, and a digest of which of its elements are. `weights`, `random`:
    digests of the parameters before the step and of torch's random state. Where all is NaN, the rest says little.
    """

    optimizer: int
    step: int
    losses: tuple[str, ...]
    bad: tuple[tuple[int, str], ...]
    weights: str
    random: str

    @classmethod
    def of(cls, fault: Fault, guard: Guard) -> Self:
        """That of a bad step of a program that is watched."""
        import torch

        weights = fault.parameters()
        places = {id(p): place for place, p in enumerate(weights)}
        losses = tuple(bits.hex() for bits in fault.judged.losses)
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():  # pyright: ignore
            bad = sorted((places[id(p)], _digest(mask)) for p, mask in fault.judged.bad)
            moved, random = _digest(*weights), _digest(torch.get_rng_state())
        return cls(place_of(fault.optimizer, guard), fault.step, losses, tuple(bad), moved, random)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        """The one that ``stored()`` gave in another process."""
        bad = tuple((int(place), str(digest)) for place, digest in stored["bad"])
        losses = tuple(str(bits) for bits in stored["losses"])
        weights, random = str(stored["weights"]), str(stored["random"])
        return cls(int(stored["optimizer"]), int(stored["step"]), losses, bad, weights, random)

    def stored(self) -> dict[str, Any]:
        """It as a document for another process."""
        return asdict(self)


def place_of(optimizer: Any, guard: Guard) -> int:
    """The place of an optimizer among those that have tried a step; -1 where it has tried none."""
    return next((place for place, known in enumerate(guard.optimizers()) if known is optimizer), -1)


def _digest(*tensors: Any) -> str:
    """Of shapes, types and bits."""
    from torch import uint8

    digest = hashlib.blake2b(digest_size=32)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode("ascii"))
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy())
    return digest.hexdigest()
