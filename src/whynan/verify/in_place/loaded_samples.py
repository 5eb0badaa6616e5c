"""Loaded samples: which samples of the datasets that the program gives to its loaders hold NaN or Inf."""

# pyright: basic

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from whynan.replay.snapshot import restore, rng
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import resolve

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from whynan.records import Site

_MOST: Final = 20_000
_SECONDS: Final = 2.0
"""So many samples are looked at, and so long."""


@dataclass(frozen=True, slots=True)
class LoadedSamples:
    """The bad samples of the dataset that a call of ``DataLoader`` was given, of how many, by the call's place."""

    site: Site
    bad: tuple[int, ...]
    total: int


class LoaderCalls:
    """The program's own calls of ``DataLoader`` in a run made again; ``part`` of each sample is looked at.

    ``part``: its place in a batch, as ``[0]`` or ``['image']``, where a sample has such a part; else all of it counts.
    """

    def __init__(self, part: str = "") -> None:
        self._part = part
        self.found: list[LoadedSamples] = []

    @contextmanager
    def heard(self) -> Generator[None]:
        """Hear every one while the block runs."""
        from torch.utils import data

        kind: Any = data.DataLoader
        own = kind.__init__

        @functools.wraps(own)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            own(loader, *args, **kwargs)
            frame = sys._getframe(1)
            while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
                frame = frame.f_back
            bad = None if frame is None else self._bad_samples(loader)
            if bad and frame is not None:
                self.found.append(LoadedSamples(resolve(frame.f_code, frame.f_lasti), tuple(bad), len(loader.dataset)))

        kind.__init__ = init
        try:
            yield
        finally:
            kind.__init__ = own

    def _bad_samples(self, loader: Any) -> list[int]:
        """Those of a loader that takes its samples one by one, in an order that it chooses itself."""
        from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

        plain = (
            type(loader.sampler) in (RandomSampler, SequentialSampler) and type(loader.batch_sampler) is BatchSampler
        )
        if isinstance(loader.dataset, IterableDataset) or not plain or not hasattr(loader.dataset, "__len__"):
            return []
        state, until = rng(), process_time() + _SECONDS
        try:
            total, bad = len(loader.dataset), []
            for index in range(total if total <= _MOST else 0):
                if process_time() > until:
                    return []
                if _is_bad(_part_of(loader.dataset[index], self._part)):
                    bad.append(index)
            return bad
        except Exception:
            # what the program's own dataset raises here it may raise for whatever reason
            return []
        finally:
            restore(state)


def _part_of(sample: Any, part: str) -> Any:
    """The part of a sample that is at a place; all of it where it has none."""
    for key, value in sample.items() if isinstance(sample, dict) else enumerate(sample if _is_row(sample) else ()):
        if part == f"[{key!r}]":
            return value
    return sample


def _is_row(sample: Any) -> bool:
    return isinstance(sample, (tuple, list))


def _is_bad(value: Any) -> bool:
    return any(_numbers(value))


def _numbers(value: Any) -> Iterator[bool]:
    """Whether each of the arrays and numbers in a sample is not finite somewhere."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        yield bool(value.is_floating_point() and not torch.isfinite(value).all())
    elif isinstance(value, (float, np.ndarray, np.floating)):
        array = np.asarray(value)
        yield array.dtype.kind == "f" and not bool(np.isfinite(array).all())
    elif isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif _is_row(value):
        for each in value:
            yield from _numbers(each)
