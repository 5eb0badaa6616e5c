"""Where tensors come from that no operation made: a batch of a loader, an array of NumPy's, a file.

What is known is kept on the storage of the tensor, or by the address of an array that a tensor may be made of later,
and asked for only if a bad value comes in with it.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader, default_collate

from whynan.capture.torch.doors import named
from whynan.capture.torch.frames import unseen
from whynan.capture.torch.names import tensors_of
from whynan.capture.torch.planes import strided
from whynan.capture.torch.rows import address
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from whynan.capture.torch.tracer import Tracer

ORIGIN = "_whynan_origin"
MOST_ROWS = 16
MOST_TENSORS = 4096
_SENT = "_whynan_sent"
_ONE = "_whynan_one"


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of a tensor when it came in; the layout tells the row that an element of a view belongs to."""

    data: Data
    indices: tuple[Any, ...] | None = None
    site: int = 0
    shape: tuple[int, ...] = ()
    offset: int = 0
    stride: int = 0

    def at(self, tensor: Tensor, mask: Tensor) -> Data:
        """The data of a tensor's marked elements: which rows of its batch, and which entries of the dataset."""
        rows = self._rows(tensor, mask) if self.data.kind == "batch" and self.shape else []
        if not rows:
            return self.data
        known = self.indices is not None and len(self.indices) == self.shape[0]
        indices = tuple(_plain(self.indices[r]) for r in rows[:MOST_ROWS]) if known and self.indices else ()
        return self.data.model_copy(
            update={
                "rows": tuple(rows[:MOST_ROWS]),
                "n_rows": len(rows),
                "indices": indices if all(i is not None for i in indices) else (),
            }
        )

    def _rows(self, tensor: Tensor, mask: Tensor) -> list[int]:
        if tuple(tensor.shape) == self.shape and tensor.storage_offset() == self.offset:
            found = mask.reshape(self.shape[0], -1).any(1).nonzero().flatten() if mask.numel() else mask
            return [int(r) for r in found.tolist()]
        if self.stride <= 0:
            return []
        places = mask.nonzero()
        steps = torch.tensor(tensor.stride(), dtype=torch.int64)
        offsets = (places * steps).sum(1) + (int(tensor.storage_offset()) - self.offset)
        rows = torch.unique(torch.div(offsets, self.stride, rounding_mode="floor")).tolist()
        return [int(r) for r in rows if 0 <= r < self.shape[0]]


class Origins:
    """The origins of one trace."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._arrays: dict[int, tuple[weakref.ref[Any], Origin]] = {}
        # by identity: a sampler need not be hashable
        self._passes: dict[int, tuple[weakref.ref[Any], int]] = {}

    def of(self, tensor: Tensor) -> Origin | None:
        """Where a tensor came from, by its storage, or by the array that it shares its memory with."""
        try:
            known = getattr(tensor.untyped_storage(), ORIGIN, None)
            place = address(tensor)
        except (RuntimeError, NotImplementedError, ValueError):
            return None
        array = self._arrays.get(place)
        behind = array[1] if array is not None and array[0]() is not None else None
        if type(known) is not Origin:
            return behind
        if behind is None or known.data.kind != "numpy":
            return known
        # an array that a loader gave, or that was read from a file, says more than that it was one
        return replace(known, data=behind.data.model_copy(update={"name": known.data.name}))

    def data_of(self, tensor: Tensor, mask: Tensor) -> Data | None:
        """What the report says of the marked elements of a tensor that came in."""
        origin = self.of(tensor)
        if origin is None:
            return None
        data = origin.at(tensor, mask)
        if not origin.site:
            return data
        site, _ = self.tracer.sites.resolve(origin.site, None)
        return data.model_copy(
            update={"site": site, "name": data.name or self.tracer.sites.first_argument(origin.site)}
        )

    def value_at(self, number: int) -> Data:
        """A value that was given to ``torch.tensor`` at a site."""
        site, _ = self.tracer.sites.resolve(number, None)
        return Data(kind="value", site=site, name=self.tracer.sites.first_argument(number))

    def note(self, value: Any, data: Data, indices: tuple[Any, ...] | None = None, prefix: str = "") -> None:
        """Remember the origin of all tensors and arrays in a value."""
        for name, tensor in itertools.islice(tensors_of(value, prefix), MOST_TENSORS):
            self._note_tensor(tensor, Origin(data.model_copy(update={"name": _key(name)}), indices))
        numpy: Any = sys.modules.get("numpy")
        if numpy is None:
            return
        parts = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else (value,)
        for array in itertools.islice(parts, MOST_TENSORS):
            if isinstance(array, numpy.ndarray) and array.dtype.kind == "f":
                origin = Origin(
                    data, indices, 0, tuple(array.shape), 0, array.strides[0] // array.itemsize if array.ndim else 0
                )
                self._arrays[array.__array_interface__["data"][0]] = weakref.ref(array), origin

    def explain_since(self, first: int, batch: Any) -> None:
        """Births of the fetch itself, whose values the batch holds now: they have its rows."""
        tracer = self.tracer
        tracer.deferred.settle()
        for _, tensor in itertools.islice(tensors_of(batch, "batch"), MOST_TENSORS):
            state, origin = tracer.state_of(tensor), self.of(tensor)
            if state is None or state.plane is None or origin is None:
                continue
            plane = strided(state.plane, state.itemsize, tensor)
            for set_id in tracer.labels.present(plane):
                for label in tracer.labels.sets[set_id]:
                    birth = tracer.labels.births[label]
                    if label >= first and birth is not None and (birth.data is None or birth.data.kind != "batch"):
                        birth.data = origin.at(tensor, plane == set_id)

    def note_array(self, tensor: Tensor, site: int) -> None:
        """Remember that a tensor is an array of NumPy's, and where it was made one."""
        self._note_tensor(tensor, Origin(Data(kind="numpy"), site=site))

    def passed(self, loader: Any, *, again: bool) -> int:
        """Which pass over a loader's data is under way, from 1."""
        known = self._passes.get(id(loader))
        before = known[1] if known is not None and known[0]() is loader else 0
        count = max(before + again, 1)
        self._passes[id(loader)] = weakref.ref(loader), count
        return count

    def _note_tensor(self, tensor: Tensor, origin: Origin) -> None:
        try:
            if tensor.layout is torch.strided and not tensor.is_nested:
                stride = tensor.stride(0) if tensor.dim() else 0
                origin = replace(
                    origin, shape=tuple(tensor.shape), offset=int(tensor.storage_offset()), stride=int(stride)
                )
            setattr(tensor.untyped_storage(), ORIGIN, origin)
        except (RuntimeError, NotImplementedError):
            return


def _key(name: str) -> str | None:
    return name.lstrip(".") or None


def _plain(index: Any) -> int | str | None:
    if index is None or isinstance(index, str):
        return index
    try:
        return int(index)
    except (TypeError, ValueError):
        return str(index)[:80]


def watch_origins(tracer: Tracer, replace_: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Note what loaders give, what files hold, and which tensors are arrays."""
    guarded = functools.partial(_noting, tracer)
    iterator = dataloader._BaseDataLoaderIter
    replace_(iterator, "__next__", functools.partial(_loading, tracer))
    replace_(iterator, "_next_index", guarded(_sent))
    if hasattr(dataloader._MultiProcessingDataLoaderIter, "_process_data"):
        replace_(dataloader._MultiProcessingDataLoaderIter, "_process_data", guarded(_received, first=True))
    load = guarded(_loaded)(torch.load)
    for home in (torch, torch.serialization):
        # one function in both places: pickle looks for it in its own module
        replace_(home, "load", lambda _: load)
    # not `as_tensor`: dynamo knows that one by what it is
    replace_(torch, "from_numpy", guarded(_from_numpy, module="torch"))
    safetensors: Any = sys.modules.get("safetensors.torch")
    if safetensors is not None:
        replace_(safetensors, "load_file", guarded(_loaded))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        replace_(numpy, "load", guarded(_loaded))


def _noting(
    tracer: Tracer,
    note: Callable[[Origins, Any, Any, Any], None],
    *,
    first: bool = False,
    module: str | None = None,
) -> Callable[[Any], Any]:
    """A door that passes on what the original gives, and notes it: before the call with `first`, else after it."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def door(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **kwargs)
            if first:
                _quietly(tracer, note, args, kwargs, None)
            try:
                out = original(*args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            if not first:
                _quietly(tracer, note, args, kwargs, out)
            return out

        # a builtin does not say where pickle finds it
        return named(door, module, original.__name__) if module is not None else door

    return make


def _quietly(tracer: Tracer, note: Callable[..., None], args: Any, kwargs: Any, out: Any) -> None:
    if not tracer.active or torch.compiler.is_compiling():
        return
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            note(tracer.origins, args, kwargs, out)
    except Exception:
        tracer.fail()


def _loading(tracer: Tracer, original: Any) -> Any:
    """The door through which a loader's batch comes; what runs inside is the data's phase."""

    @functools.wraps(original)
    def fetch(iterator: Any) -> Any:
        lane = tracer.lane()
        before = len(tracer.labels.births)
        lane.loading += 1
        try:
            out = original(iterator)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            lane.loading -= 1
        _quietly(tracer, _batch, (iterator, before), {}, out)
        return out

    return fetch


def _sent(_origins: Origins, args: Any, _kwargs: Any, index: Any) -> None:
    """A sampler has said which entries the next batch is made of."""
    iterator = args[0]
    number = getattr(iterator, "_send_idx", None)
    if number is None:
        setattr(iterator, _ONE, (index, None))
        return
    if number == 0 or not hasattr(iterator, _SENT):
        setattr(iterator, _SENT, {})
    getattr(iterator, _SENT)[number] = index


def _received(_origins: Origins, args: Any, kwargs: Any, _out: Any) -> None:
    """A worker's batch is being handed out: the task that is no longer waited for is its."""
    iterator = args[0]
    worker = args[2] if len(args) > 2 else kwargs.get("worker_idx")
    sent: dict[int, Any] = getattr(iterator, _SENT, {})
    done = [number for number in sent if number not in iterator._task_info]
    expected = iterator._rcvd_idx - 1
    number = expected if expected in done else (done[-1] if done else None)
    setattr(iterator, _ONE, (None if number is None else sent[number], worker))
    for other in done:
        del sent[other]


def _batch(origins: Origins, args: Any, _kwargs: Any, batch: Any) -> None:
    iterator, before = args
    index, worker = getattr(iterator, _ONE, (None, None))
    number = iterator._num_yielded - 1
    many = isinstance(index, (list, tuple))
    indices: Sequence[Any] | None = index if many else None
    collate = getattr(iterator, "_collate_fn", None)
    data = Data(
        kind="batch",
        batch=number,
        passed=origins.passed(_loader_key(iterator), again=number == 0),
        worker=worker,
        indices=() if many or index is None else tuple(v for v in (_plain(index),) if v is not None),
        in_order=collate is default_collate or not many,
    )
    origins.note(batch, data, tuple(indices) if indices is not None else None, "batch")
    if len(origins.tracer.labels.births) > before:
        origins.explain_since(before, batch)


def _loader_key(iterator: Any) -> Any:
    # the iterator knows the dataset of its loader, not the loader
    return getattr(iterator, "_index_sampler", iterator)


def _loaded(origins: Origins, args: Any, kwargs: Any, out: Any) -> None:
    source = args[0] if args else next(iter(kwargs.values()), None)
    name = getattr(source, "name", source)
    if not isinstance(name, (str, bytes)) and not hasattr(name, "__fspath__"):
        return
    import os

    origins.note(out, Data(kind="file", file=os.fsdecode(name)))


def _from_numpy(origins: Origins, args: Any, _kwargs: Any, out: Any) -> None:
    if args and hasattr(args[0], "__array_interface__") and origins.of(out) is None:
        origins.note_array(out, origins.tracer.sites.here())
