"""What operators write while a mode is entered, put back bit for bit when it is left.

A storage that was there before is copied as bytes before it is first written; one that an operator has made since is
not. What is written without an operator is not seen: through NumPy, by a storage's own methods, and inside a compiled
region, whose tensors are to be handed to `UndoLog.keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import torch
from torch import Tensor, UntypedStorage
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame

from whynan.capture.torch.dispatch_mode import _PASSING, BesideCompiled, _no_dispatch
from whynan.ops.table import TORCH

_set_versions: Any = getattr(torch._C, "_autograd")._unsafe_set_version_counter  # noqa: B009

LIMIT: Final = 1 << 30
"""Bytes of copies."""

_RUNNING: Final = frozenset(("running_mean", "running_var"))
"""Written by operators that do not say so."""


class TooMuch(BaseException):
    """What is written before the end would take more memory to keep than there may be."""


@dataclass(frozen=True)
class _Effect:
    """What an overload does to its arguments: which it writes, whether it changes how they are seen, what it makes."""

    written: tuple[int | str, ...] | None
    """None where nothing says so: any."""
    reseats: bool
    makes: tuple[bool, ...]


_effects: dict[int, tuple[Any, _Effect]] = {}


def _effect_of(func: Any) -> _Effect:
    known = _effects.get(id(func))
    if known is None or known[0] is not func:
        known = _effects[id(func)] = func, _read_effect(func)
    return known[1]


def _read_effect(func: Any) -> _Effect:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return _Effect(None, False, ())
    base = schema.name.partition("::")[2]
    hidden = TORCH.numbers("mutates").get(base, ())
    written = [
        a.name if a.kwarg_only else i
        for i, a in enumerate(schema.arguments)
        if (a.alias_info is not None and a.alias_info.is_write) or i in hidden or a.name in _RUNNING
    ]
    # an operator of a program's may hand out what it keeps, and one made of others what it was given
    own = schema.name.startswith("aten::") and not torch._C._dispatch_has_kernel_for_dispatch_key(
        f"{schema.name}.{schema.overload_name}".removesuffix("."), "CompositeImplicitAutograd"
    )
    lifts = base in ("lift_fresh", "lift_fresh_copy")
    undeclared = base in TORCH.having("undeclared-view")
    makes = tuple(lifts or (own and not undeclared and r.alias_info is None) for r in schema.returns)
    return _Effect(tuple(written), torch.Tag.inplace_view in func.tags, makes)


class UndoLog(BesideCompiled):
    """Makes what the operators of this thread write while it is entered be as it was, once it is left.

    A tensor's ``_version`` is put back too, so that a graph from before can still be differentiated; where that
    cannot be (inference tensors have none) it stays. A tensor that a value with a gradient was written into is a leaf
    again, if it was one; a view that there was of it keeps its graph, for nothing takes that away. Memory that was
    made larger is elsewhere afterwards.

    `limit`: bytes of copies, beyond which `error` is raised in what runs.
    """

    supports_higher_order_operators = True

    def __init__(self, *, limit: int = LIMIT, error: Callable[[], BaseException] = TooMuch) -> None:
        super().__init__()
        self.bytes = 0
        self.missed: dict[str, None] = {}
        """Operators that wrote what has no bytes to copy: sparse tensors and their like."""
        self._limit = limit
        self._error = error
        # by address: one that was given up since is taken only by another that was made since
        self._made: set[int] = set()
        self._kept: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
        self._seen: dict[int, tuple[Tensor, Tensor | None, int | None, bool]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.restore()

    def leave(self) -> None:
        """Note nothing any more, and put nothing back yet."""
        super().__exit__(None, None, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if kind is not torch.Tensor and kind.__torch_dispatch__ is not _no_dispatch:
                if kind.__name__ not in _PASSING:
                    return NotImplemented  # its own operators come next, on what it wraps
                return func(*args, **kwargs)
        # below a compiled function that went back to Python, dynamo would compile what is ours
        outside = _set_eval_frame(None)
        try:
            effect = _effect_of(func)
            if effect.written != ():
                with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                    for tensor in _mutated(effect, args, kwargs):
                        self._before(tensor, str(func), reseats=effect.reseats)
        finally:
            _set_eval_frame(outside)
        out = func(*args, **kwargs)
        outside = _set_eval_frame(None)
        try:
            if any(effect.makes):
                self._note(effect, out)
        finally:
            _set_eval_frame(outside)
        return out

    def keep(self, tensor: Tensor) -> None:
        """Keep what a tensor holds, for one that is written without an operator."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            self._before(tensor, "", reseats=False)

    def restore(self) -> None:
        """Put everything back; it is done when the mode is left, and a second time does nothing."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            for storage, copy in self._kept.values():
                if storage.nbytes() != copy.nbytes():
                    storage.resize_(copy.nbytes())
                storage.copy_(copy)
            # the first of those that share a counter comes last
            for tensor, seat, version, leaf in reversed(self._seen.values()):
                if leaf and not tensor._is_view() and not tensor.is_leaf:
                    tensor.detach_()
                if seat is not None:
                    tensor.data = seat
                if version is not None and tensor._version != version:
                    _set_versions((tensor,), (version,))
        self._kept.clear()
        self._seen.clear()
        self._made.clear()

    def _before(self, tensor: Tensor, name: str, *, reseats: bool) -> None:
        """A tensor is about to be written."""
        storage = _storage(tensor)
        # memory that is not torch's own (NumPy's) can be older than the storage over it
        torchs = storage is None or storage.resizable()
        if tensor.is_meta or (torchs and (tensor._cdata if storage is None else storage._cdata) in self._made):
            return
        base = tensor._base
        if base is not None and id(base) not in self._seen:
            self._see(base, seat=False)
        if id(tensor) not in self._seen or (reseats and self._seen[id(tensor)][1] is None):
            self._see(tensor, seat=reseats)
        if storage is None:
            self.missed[name] = None
        elif storage._cdata not in self._kept:
            self.bytes += storage.nbytes()
            if self.bytes > self._limit:
                raise self._error()
            self._kept[storage._cdata] = storage, storage.clone()

    def _see(self, tensor: Tensor, *, seat: bool) -> None:
        known = self._seen.get(id(tensor))
        version = None if tensor.is_inference() else tensor._version
        leaf = tensor.is_leaf
        if known is not None:
            _, _, version, leaf = known
        self._seen[id(tensor)] = tensor, tensor.data if seat else None, version, leaf

    def _note(self, effect: _Effect, out: Any) -> None:
        """Note what an operator has made."""
        outs = out if len(effect.makes) > 1 else (out,)
        for made, value in zip(effect.makes, outs, strict=False):
            if made:
                for tensor in _tensors(value):
                    storage = _storage(tensor)
                    self._made.add(tensor._cdata if storage is None else storage._cdata)


def _mutated(effect: _Effect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    if effect.written is None:
        yield from _tensors((args, kwargs))
        return
    for key in effect.written:
        yield from _tensors(kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _storage(tensor: Tensor) -> UntypedStorage | None:
    """The memory of a tensor; None where it has none of its own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
