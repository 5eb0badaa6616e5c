"""Loaded samples: which samples of the datasets that the program gives to its loaders hold NaN or Inf."""

# pyright: basic

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.provenance.origins import format_path, parts_of
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import resolve
from whynan.verify.torch_program import isolated_random_state

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.records import Site

_MOST: Final = 20_000
_SECONDS: Final = 2.0
"""So many samples are looked at, and so long."""


@dataclass(frozen=True, slots=True)
class LoadedSamples:
    """The bad samples of the dataset that a call of ``DataLoader`` was given, of how many, by the call's place.

    ``digest`` is of all that was looked at, and ``in_order`` whether the loader keeps its order.
    """

    site: Site
    bad: tuple[int, ...]
    total: int
    in_order: bool = False
    digest: str = ""


class LoaderCalls:
    """The program's own calls of ``DataLoader`` in a run made again; one part of each sample is looked at.

    ``name`` is what that is called in a batch (``batch[0].image``). With a ``seed`` random numbers are others than they
    were.
    """

    def __init__(self, name: str | None, seed: int = 0) -> None:
        self._name = name
        self._seed = seed
        self._memory: dict[int, Any] = {}
        """The datasets by their addresses, and those of the arrays that they hold."""
        self._found: dict[Site, LoadedSamples | None] = {}

    def alike(self, other: LoaderCalls) -> list[LoadedSamples]:
        """The calls with bad samples whose datasets another run, of other random numbers, has made anew alike."""
        if self._memory.keys() & other._memory.keys():
            return []
        return [one for one in self._found.values() if one and one.bad and other._found.get(one.site) == one]

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
            if frame is not None:
                site = resolve(frame.f_code, frame.f_lasti)
                found = self._samples(loader, site)
                # one place may make loaders of several datasets
                self._found[site] = found if self._found.get(site, found) == found else None

        kind.__init__ = init
        try:
            with isolated_random_state(self._seed) if self._seed else nullcontext():
                yield
        finally:
            kind.__init__ = own

    def _samples(self, loader: Any, site: Site) -> LoadedSamples | None:
        """Those of a loader that takes its samples one by one, in an order that it chooses itself."""
        import torch
        from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

        plain = (
            type(loader.sampler) in (RandomSampler, SequentialSampler) and type(loader.batch_sampler) is BatchSampler
        )
        if isinstance(loader.dataset, IterableDataset) or not plain or not hasattr(loader.dataset, "__len__"):
            return None
        until, seen, bad, dataset = process_time() + _SECONDS, sha256(), list[int](), loader.dataset
        try:
            with isolated_random_state(self._seed):
                held = {torch.as_tensor(array, device="cpu").data_ptr() for _, array in parts_of(dataset, "")}
                self._memory.update(dict.fromkeys({id(dataset), *held} - {0}, dataset))
                total = len(dataset)
                for index in range(total):
                    if process_time() > until or total > _MOST:
                        return None
                    batch = loader.collate_fn([dataset[index]])
                    parts = {format_path(way): part for way, part in parts_of(batch, "batch")}
                    part = torch.as_tensor(parts[self._name or ""], device="cpu").detach()
                    seen.update(part.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
                    if not torch.isfinite(part).all():
                        bad.append(index)
        except Exception:
            # what the program's own dataset raises here it may raise for whatever reason
            return None
        in_order = type(loader.sampler) is SequentialSampler
        return LoadedSamples(site, tuple(bad), total, in_order, seen.hexdigest())
