"""A loader's batch made again by its dataset within a replay: whether nothing of that can be left behind."""

from __future__ import annotations

import mmap
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.capture.torch.provenance.origins import parts_of
from whynan.capture.torch.shadow_memory import is_plain, is_strided
from whynan.replay.class_lookup import module_of
from whynan.replay.mutable_state import ARRAY_BYTES, ObjectSnapshot
from whynan.replay.snapshot import context_of, restore, rng, same_bits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from torch import Tensor

    from whynan.capture.torch.interposition.data_loading import BatchOrigin, Fetch

    Batches = list[tuple[Any, BatchOrigin]]

_VIEWS_OF_VIEWS: Final = 3
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
            return context_of(known).run(fetch.fetch)
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
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            return any(not bool(torch.isfinite(tensor).all()) for tensor in _tensors_in(batch))
    except (NotImplementedError, RuntimeError):
        # a format that torch does not compute with
        return False


def _is_shared(roots: tuple[Any, ...]) -> bool:
    """Whether what is reached from somewhere is memory that is a file, or that other processes hold, or may be."""
    contents = ObjectSnapshot(roots)
    return contents.exceeded or any(map(_may_be_left, contents.reached()))


def _may_be_left(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return is_plain(value) and is_strided(value) and value.is_shared() and value.is_cpu
    if isinstance(value, np.ndarray):
        base = _base_of(value)
        # of a tensor, or of whatever else lends its memory, it could not be made to be written again
        return not isinstance(base, np.ndarray | bytes) or isinstance(base, np.memmap)
    return isinstance(value, mmap.mmap) or str(module_of(type(value))).partition(".")[0] in _SHARED


def _base_of(array: Any) -> Any:
    """The array that owns the memory of another, or what else does."""
    while isinstance(array, np.ndarray) and array.base is not None and not isinstance(array, np.memmap):
        array = array.base
    return array


def _is_left(array: Any) -> bool:
    """Whether an array is not put back: a large one, one of objects, or of a class of its own."""
    return array.nbytes > ARRAY_BYTES or array.dtype.hasobject or type(array) is not np.ndarray


@contextmanager
def _unwritten(arrays: list[Any]) -> Generator[None]:
    """Have NumPy refuse to write into some arrays."""
    kept = sorted((array for array in arrays if array.flags.writeable), key=lambda array: array.base is not None)
    for array in kept:
        array.flags.writeable = False
    try:
        yield
    finally:
        # a view may be written where what it is of may be
        for _ in range(_VIEWS_OF_VIEWS):
            for array in kept:
                with suppress(ValueError):
                    array.flags.writeable = True
