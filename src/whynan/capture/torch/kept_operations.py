"""Operations that bore bad numbers, kept whole: arguments before the call, results, and what else decided them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.provenance.dependence import broadcast_index
from whynan.capture.torch.event_log import entry_of_lists
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import FLOATS, PLAIN, bad_mask, is_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from whynan.capture.torch.event_log import LiveEvent
    from whynan.capture.torch.operators import Operator
    from whynan.records import Element, Finding
    from whynan.traces import Birth


# -- Tensors by value: their elements, without what only repeats them, and how they lay in memory ----------------------


class UnkeptError(Exception):
    """Why an operation cannot be kept; its text is a clause."""


class TensorCopy(NamedTuple):
    """A tensor by value: its elements in row-major order, without what only repeats them, and how they lay."""

    data: Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


def copy_tensor(tensor: Tensor, content: Tensor | None = None) -> TensorCopy:
    """A tensor by value; `content`: what it held before. Raises ``UnkeptError`` for one that has no plain elements."""
    tensor = detach_plain(tensor)
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    held = tensor if content is None else content.detach()
    data = held[once(tensor)]
    if _overlaps(data.shape, stride):
        data, stride = held, _contiguous(shape)
    data = data.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).cpu()
    return TensorCopy(data, shape, stride, str(tensor.device))


def once(tensor: Tensor) -> tuple[slice, ...]:
    """The part of a tensor of which the rest is only a repetition."""
    layout = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(slice(0, 1) if step == 0 and size > 1 else slice(None) for size, step in layout)


def _overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements share memory otherwise than by being repeated as a whole."""
    reach = 0
    for step, size in sorted((st, sz) for st, sz in zip(stride, shape, strict=True) if sz > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def detach_plain(tensor: Tensor) -> Tensor:
    """A tensor apart from its graph; raises ``UnkeptError`` for one that has no plain elements of its own."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise UnkeptError("one of its tensors is sparse, nested, quantized, or of a class of its own")
    if tensor.is_meta or is_wrapped(tensor):
        raise UnkeptError("one of its tensors has no memory of its own")
    return tensor.detach()


# -- The operations that bore bad numbers, kept whole: arguments as they were before, results, and what else decided
# them
#
# Only where somebody has asked for them: it costs a copy of whatever an operation is about to overwrite.


DEFAULT_BUDGET: Final = 256 << 20
"""Bytes of kept operations where no budget is given."""
NO_ROOM: Final = "there was no room for it beside others that bore bad numbers; --memory gives more"
_VALUES: Final = (int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_TINY: Final = 1e-40
"""A subnormal number of float32."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides of the numbers of an operation besides its arguments."""

    grad: bool
    inference: bool
    threads: int
    deterministic: bool
    matmul_precision: str
    default_dtype: str
    flush_denormal: bool


@dataclass(frozen=True, slots=True)
class KeptOperation:
    """One operation that bore bad numbers; of one that cannot be kept only ``why``.

    ``entry`` is the one that was kept of a foreach operator's lists, where they were too large together. ``cut``: the
    element that alone was kept of an operation that works element by element.
    """

    op: str
    births: tuple[Birth, ...]
    why: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    results: tuple[TensorCopy, ...] = ()
    circumstances: Circumstances | None = None
    random: TensorCopy | None = None
    entry: int | None = None
    cut: tuple[int, ...] | None = None
    bytes: int = 0


class OperationKeeper:
    """Keeps the operations that bore bad numbers, the earliest of each kind, within a budget of bytes."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = DEFAULT_BUDGET if budget is None else budget
        self.bytes = 0
        self._kept: list[KeptOperation] = []

    def asks(self, operator: Operator) -> bool:
        """Whether something of an operation will not be there any more after it."""
        return bool(operator.mutable) or operator.random

    def copy_inputs(self, operator: Operator, args: Any, kwargs: dict[str, Any]) -> dict[int, Tensor]:
        """What an operation is about to overwrite and the state that it draws random numbers from, by identity."""
        found: dict[int, Tensor] = {}
        if operator.random:
            generator = kwargs.get("generator") or _default_generator(args, kwargs)
            found[id(generator)] = generator.get_state()
        written = _written(operator, args, kwargs)
        for tensor in _read(operator, args, kwargs) if written else ():
            if _storage(tensor) in written and tensor.numel() * tensor.element_size() <= self.budget:
                found[id(tensor)] = tensor.detach().clone()
        return found

    def keep(self, births: Sequence[Birth], live: LiveEvent) -> None:
        """Keep an operation that has borne something."""
        operator = live.row.operator
        try:
            event = _event(live)
            if _size(event) > self.budget:
                event = _smaller(event, operator, births[0].element, self.budget)
            made = replace(_kept(event, operator), births=tuple(births))
            if made.cut is not None and not _fails(operator, made):
                raise UnkeptError("it is too large, and its bad element alone does not come out bad")
            self._make_room(made)
        except UnkeptError as error:
            made = KeptOperation(operator.name, tuple(births), str(error))
        except (RuntimeError, NotImplementedError, MemoryError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            made = KeptOperation(operator.name, tuple(births), f"its operands could not be copied ({said})")
        self._kept.append(made)
        self.bytes += made.bytes

    def operation_of_finding(self, finding: Finding) -> KeptOperation | None:
        """The operation that bore what a finding tells of."""
        same = (k for k in self._kept if any(is_birth_of(finding, b) for b in k.births))
        return next(same, None)

    def _make_room(self, made: KeptOperation) -> None:
        """Let go of operations of which earlier ones of the same kind are kept, for the first of another kind."""
        kinds = Counter(_kind(k) for k in self._kept if k.bytes)
        for place in () if kinds[_kind(made)] else range(len(self._kept) - 1, -1, -1):
            if self.bytes + made.bytes <= self.budget:
                return
            held = self._kept[place]
            if held.bytes and kinds[_kind(held)] > 1:
                kinds[_kind(held)] -= 1
                self.bytes -= held.bytes
                self._kept[place] = KeptOperation(held.op, held.births, NO_ROOM)
        if self.bytes + made.bytes > self.budget:
            raise UnkeptError(NO_ROOM)


def _kind(kept: KeptOperation) -> object:
    event = kept.births[0].event
    return event.op, event.site, event.phase, event.grad_fn


def is_birth_of(finding: Finding, birth: Birth) -> bool:
    """Whether a finding tells of a birth."""
    told, known = finding.element, birth.element
    if told is known:
        return True
    place = ("index", "output", "list_index", "tensor", "shape", "dtype", "count", "total")
    return (
        (finding.op, finding.phase, finding.birth, finding.site)
        == (birth.event.op, birth.event.phase, birth.kind, birth.event.site)
        and all(getattr(told, name) == getattr(known, name) for name in place)
        and repr(told.value) == repr(known.value)
    )


def circumstances() -> Circumstances:
    """What decides of numbers now, on this thread."""
    return Circumstances(
        grad=torch.is_grad_enabled(),
        inference=torch.is_inference_mode_enabled(),
        threads=torch.get_num_threads(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        matmul_precision=torch.get_float32_matmul_precision(),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        flush_denormal=bool(torch.tensor(_TINY, dtype=torch.float32, device="cpu").mul(1) == 0),
    )


class _Held(NamedTuple):
    """A tensor of an event, and what it held before, where that is another one; or is ``lost``."""

    tensor: Tensor
    content: Tensor | None = None
    lost: bool = False

    def at(self, place: tuple[slice, ...]) -> _Held:
        """A part of it."""
        return self._replace(tensor=self.tensor[place], content=None if self.content is None else self.content[place])


class _Event(NamedTuple):
    """An operation with its arguments as they were, none of them copied yet."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[_Held, ...]
    random: Tensor | None = None
    entry: int | None = None
    cut: tuple[int, ...] | None = None

    def mapped(self, change: Callable[[Any], Any]) -> _Event:
        """The event with other arguments."""
        kwargs = {name: change(value) for name, value in self.kwargs.items()}
        return self._replace(args=tuple(map(change, self.args)), kwargs=kwargs)


def _event(live: LiveEvent) -> _Event:
    operator, args, kwargs, before = live.row.operator, live.args, live.kwargs, live.before or {}
    if operator.name.startswith("higher_order.") or operator.collective:
        raise UnkeptError("it is no operator of its own")
    random = None
    if operator.random:
        random = before.get(id(kwargs.get("generator") or _default_generator(args, kwargs)))
        if random is None:
            raise UnkeptError("the state that it drew random numbers from is not known")
    overwritten = live.changed_since | _targets(operator, args, kwargs)
    unread = operator.mutable if operator.overwrites else ()

    def value(held: Any, *, read: bool = True) -> Any:
        if isinstance(held, torch.Tensor):
            content = before.get(id(held))
            return _Held(detach_plain(held), content, lost=read and content is None and id(held) in overwritten)
        if isinstance(held, list | tuple):
            return [value(each, read=read) for each in held]  # pyright: ignore[reportUnknownVariableType]
        if held is None or isinstance(held, (*_VALUES, torch.Generator)):
            return held
        raise UnkeptError(f"one of its arguments is of the type {type(held).__name__}")

    return _Event(
        tuple(value(a, read=n not in unread) for n, a in enumerate(args)),
        {name: value(a, read=name not in unread) for name, a in kwargs.items()},
        tuple(_Held(detach_plain(t)) for t in live.written),
        random,
    )


def _size(event: _Event) -> int:
    """Bytes of what a copy of an event would hold, the same tensor as often as it is an argument."""
    held = _tensors([*event.args, *event.kwargs.values(), *event.results])
    return sum(t.tensor[once(t.tensor)].numel() * t.tensor.element_size() for t in held)


def _tensors(values: Iterable[Any]) -> Iterable[_Held]:
    for value in values:
        if isinstance(value, _Held):
            yield value
        elif isinstance(value, list):
            yield from _tensors(value)  # pyright: ignore[reportUnknownArgumentType]


def _smaller(event: _Event, operator: Operator, element: Element, budget: int) -> _Event:
    """Of an operation that is too large the part that fails: one entry of its lists, or one element."""
    whole = _size(event)
    if operator.foreach and element.list_index is not None:
        event = _one_entry(event, element.list_index)
        if _size(event) <= budget:
            return event
    if not operator.pointwise or operator.random or element.index is None:
        raise UnkeptError(f"it takes {whole:,} bytes, and there is room for {budget:,}; --memory gives more")
    return _one_element(event, element.index)


def _one_entry(event: _Event, entry: int) -> _Event:
    length = entry_of_lists((event.args, event.kwargs))
    own = tuple(result for n, result in enumerate(event.results) if n % length == entry)

    def one(value: Any) -> Any:
        return [value[entry]] if isinstance(value, list) and len(value) == length else value

    return event.mapped(one)._replace(results=own, entry=entry)


def _one_element(event: _Event, index: tuple[int, ...]) -> _Event:
    def one(value: Any) -> Any:
        if isinstance(value, _Held):
            at = broadcast_index(value.tensor.shape, index)
            if at is None:
                raise UnkeptError("it is too large, and its operands are of other shapes than its result")
            return value.at(tuple(slice(i, i + 1) for i in at))
        return [one(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    return event.mapped(one)._replace(results=tuple(map(one, event.results)), cut=index)


def _kept(event: _Event, operator: Operator) -> KeptOperation:
    known: dict[tuple[Any, ...], TensorCopy] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, _Held):
            tensor = value.tensor
            if value.lost:
                raise UnkeptError("it has overwritten an operand that was too large to be copied; --memory gives more")
            key = (tensor.data_ptr(), id(value.content), tensor.dtype, *tensor.shape, -1, *tensor.stride())
            if key not in known:
                known[key] = copy_tensor(tensor, value.content)
            return known[key]
        return [copy(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    made = event.mapped(copy)
    results = tuple(copy_tensor(result.tensor) for result in event.results)
    size = sum(c.data.numel() * c.data.element_size() for c in (*known.values(), *results))
    random = None if event.random is None else copy_tensor(event.random)
    return KeptOperation(
        operator.name, (), None, made.args, made.kwargs, results, circumstances(), random, event.entry, event.cut, size
    )


def _fails(operator: Operator, kept: KeptOperation) -> bool:
    """Whether an operation on what was kept of it gives a bad number still."""

    def tensors(value: Any) -> Any:
        if isinstance(value, TensorCopy):
            return value.data.clone()
        return [tensors(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    arguments = tuple(map(tensors, kept.args)), {name: tensors(value) for name, value in kept.kwargs.items()}
    try:
        with interventions.no_trace():
            found = interventions.run(operator, arguments, lambda t: t)
    except interventions.ANSWERLESS:
        return False
    return any(t.dtype in FLOATS and bool(bad_mask(t).any()) for t in found)


def _targets(operator: Operator, args: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    """The ids of the tensors whose memory an operation has written to."""
    written = _written(operator, args, kwargs)
    return frozenset(id(t) for t in interventions.tensors_in([*args, *kwargs.values()]) if _storage(t) in written)


def _written(operator: Operator, args: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    """The storages that an operation writes to."""
    mutable = (kwargs.get(k) if isinstance(k, str) else args[k] if k < len(args) else None for k in operator.mutable)
    found = (_storage(t) for value in mutable for t in interventions.tensors_in(value))
    return frozenset(storage for storage in found if storage is not None)


def _read(operator: Operator, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operation reads: all but those that it only writes over."""
    only_written = operator.mutable if operator.overwrites else ()
    values = [a for n, a in enumerate(args) if n not in only_written]
    return interventions.tensors_in([*values, *(a for name, a in kwargs.items() if name not in only_written)])


def _storage(tensor: Tensor) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def _default_generator(args: Any, kwargs: dict[str, Any]) -> Any:
    """The generator of the device of the first tensor, or of the device that is named."""
    devices = [t.device for t in interventions.tensors_in([*args, *kwargs.values()])]
    devices += [d for d in (kwargs.get("device"),) if isinstance(d, torch.device)]
    if devices and devices[0].type == "cuda":
        index = devices[0].index
        return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
    return torch.default_generator
