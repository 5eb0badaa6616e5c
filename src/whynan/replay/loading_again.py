"""A loader's batch made again by its dataset within a replay: whether nothing of that can be left behind."""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.capture.torch.provenance.origins import parts_of
from whynan.replay.mutable_state import ARRAY_BYTES, ObjectSnapshot
from whynan.replay.snapshot import restore, rng, same_bits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from torch import Tensor

    from whynan.capture.torch.interposition.data_loading import BatchOrigin, Fetch

    Batches = list[tuple[Any, BatchOrigin]]

_SHARED: Final = ("multiprocessing", "multiprocess")
"""The modules whose objects other processes hold too."""


def loadable(batches: Batches, *, workers: bool) -> list[tuple[Any, Fetch]]:
    """The batches that are bad, each with what makes it again without an effect; `workers`: of workers too."""
    bad = ((batch, came) for batch, came in batches if came.again is not None and (workers or came.worker is None))
    return [
        (batch, came.again)
        for batch, came in bad
        if came.again is not None and _holds_bad(batch) and not _is_shared(came.again.roots)
    ]


def load_again(fetch: Fetch) -> Any:
    """A batch made again; what the dataset holds, and the generators of random numbers, stay as they are."""
    known, held = rng(), ObjectSnapshot(fetch.roots)
    with _unwritten([value for value in held.reached() if isinstance(value, np.ndarray) and _is_left(value)]):
        try:
            return fetch.fetch()
        finally:
            held.restore()
            restore(known)


def is_loaded_the_same(batches: Iterable[tuple[Any, Fetch]]) -> bool:
    """Whether batches have the same numbers, bit for bit, as what was made again of them last."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        return all(same_bits(_tensors_in(batch), _tensors_in(fetch.batch)) for batch, fetch in batches)


def _tensors_in(batch: Any) -> list[Tensor]:
    return [part for _, part in parts_of(batch, "") if isinstance(part, torch.Tensor)]


def _holds_bad(batch: Any) -> bool:
    """Whether a batch holds a NaN or an Inf."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        return any(not bool(torch.isfinite(tensor).all()) for tensor in _tensors_in(batch))


def _is_shared(roots: tuple[Any, ...]) -> bool:
    """Whether what is reached from somewhere is memory that is a file, or that other processes hold."""
    reached = ObjectSnapshot(roots).reached()
    return any(
        isinstance(value, mmap.mmap | np.memmap) or type(value).__module__.partition(".")[0] in _SHARED
        for value in reached
    )


def _is_left(array: Any) -> bool:
    """Whether an array is not put back: a large one, one of objects, or of a class of its own."""
    return array.nbytes > ARRAY_BYTES or array.dtype.hasobject or type(array) is not np.ndarray


@contextmanager
def _unwritten(arrays: list[Any]) -> Generator[None]:
    """Have NumPy refuse to write into some arrays."""
    kept = [array for array in arrays if array.flags.writeable]
    for array in kept:
        array.flags.writeable = False
    try:
        yield
    finally:
        for array in kept:
            array.flags.writeable = True
