"""The operations that bore bad numbers, kept whole: arguments as they were before, results, and what else decided them.

Only where somebody has asked for them: it costs a copy of whatever an operation is about to overwrite.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.broadcasting import broadcast_index
from whynan.capture.torch import experiments
from whynan.capture.torch.arguments import entry_of_lists
from whynan.capture.torch.planes import FLOATS, PLAIN, bad_mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from whynan.capture.torch.operators import Operator
    from whynan.records import Element, Finding
    from whynan.traces import Birth

DEFAULT_BUDGET: Final = 256 << 20
"""Bytes of kept operations where no budget is given."""
NO_ROOM: Final = "there was no room for it beside others that bore bad numbers; --memory gives more"
_VALUES: Final = (int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_TINY: Final = 1e-40
"""A subnormal number of float32."""


class UnkeptError(Exception):
    """Why an operation cannot be kept; its text is a clause."""


class Copied(NamedTuple):
    """A tensor by value: its elements in row-major order, without what only repeats them, and how they lay."""

    data: Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


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
class Kept:
    """One operation that bore bad numbers; of one that cannot be kept only ``why``.

    ``entry`` is the one that was kept of a foreach operator's lists, where they were too large together. ``cut``: the
    element that alone was kept of an operation that works element by element.
    """

    op: str
    births: tuple[Birth, ...]
    why: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    results: tuple[Copied, ...] = ()
    circumstances: Circumstances | None = None
    random: Copied | None = None
    entry: int | None = None
    cut: tuple[int, ...] | None = None
    bytes: int = 0


class Keeper:
    """Keeps the operations that bore bad numbers, the earliest of each kind, within a budget of bytes."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = DEFAULT_BUDGET if budget is None else budget
        self.bytes = 0
        self._kept: list[Kept] = []

    def asks(self, operator: Operator) -> bool:
        """Whether something of an operation will not be there any more after it."""
        return bool(operator.mutable) or operator.random

    def before(self, operator: Operator, args: Any, kwargs: dict[str, Any]) -> dict[int, Tensor]:
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

    def keep(
        self,
        births: Sequence[Birth],
        operator: Operator,
        args: Any,
        kwargs: dict[str, Any],
        written: Sequence[Tensor],
        before: dict[int, Tensor] | None,
        gone: frozenset[int],
    ) -> None:
        """Keep an operation that has borne something; `gone`: ids of operands that were overwritten since."""
        try:
            made = _whole(operator, args, kwargs, written, before or {}, gone)
            if made.bytes > self.budget:
                made = _smaller(made, operator, births[0].element, len(written), self.budget)
            made = replace(made, births=tuple(births))
            self._make_room(made)
        except UnkeptError as error:
            made = Kept(operator.name, tuple(births), str(error))
        except (RuntimeError, NotImplementedError, MemoryError) as error:
            made = Kept(operator.name, tuple(births), f"its operands could not be copied ({str(error).splitlines()[0]})")
        self._kept.append(made)
        self.bytes += made.bytes

    def of(self, finding: Finding) -> Kept | None:
        """The operation that bore what a finding tells of."""
        same = (k for k in self._kept if any(is_told(finding, b) for b in k.births))
        return next(same, None)

    def _make_room(self, made: Kept) -> None:
        """Let go of operations of which earlier ones of the same kind are kept, for the first of another kind."""
        kinds = Counter(_kind(k) for k in self._kept if k.bytes)
        for place in () if kinds[_kind(made)] else range(len(self._kept) - 1, -1, -1):
            if self.bytes + made.bytes <= self.budget:
                return
            held = self._kept[place]
            if held.bytes and kinds[_kind(held)] > 1:
                kinds[_kind(held)] -= 1
                self.bytes -= held.bytes
                self._kept[place] = Kept(held.op, held.births, NO_ROOM)
        if self.bytes + made.bytes > self.budget:
            raise UnkeptError(NO_ROOM)


def _kind(kept: Kept) -> object:
    event = kept.births[0].event
    return event.op, event.site, event.phase, event.grad_fn


def is_told(finding: Finding, birth: Birth) -> bool:
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


def _whole(
    operator: Operator,
    args: Any,
    kwargs: dict[str, Any],
    written: Sequence[Tensor],
    before: dict[int, Tensor],
    gone: frozenset[int],
) -> Kept:
    if operator.name.startswith("higher_order.") or operator.collective:
        raise UnkeptError("it is no operator of its own")
    random = None
    if operator.random:
        generator = kwargs.get("generator") or _default_generator(args, kwargs)
        if id(generator) not in before:
            raise UnkeptError("the state that it drew random numbers from is not known")
        random = copied(before[id(generator)])
    known: dict[int, Copied] = {}
    overwritten = gone | _targets(operator, args, kwargs)

    def value(held: Any, *, unread: bool = False) -> Any:
        if isinstance(held, torch.Tensor):
            if id(held) not in known:
                known[id(held)] = _operand(held, before.get(id(held)), lost=id(held) in overwritten and not unread)
            return known[id(held)]
        if isinstance(held, list | tuple):
            return [value(each, unread=unread) for each in held]  # pyright: ignore[reportUnknownVariableType]
        if held is None or isinstance(held, (*_VALUES, torch.Generator)):
            return held
        if isinstance(held, (torch.SymInt, torch.SymFloat)):
            raise UnkeptError("a size among its arguments is a symbol")
        raise UnkeptError(f"one of its arguments is of the type {type(held).__name__}")

    unread = operator.mutable if operator.overwrites else ()
    kept_args = tuple(value(a, unread=n in unread) for n, a in enumerate(args))
    kept_kwargs = {name: value(a, unread=name in unread) for name, a in kwargs.items()}
    results = tuple(copied(t) for t in written)
    size = sum(map(_bytes, known.values())) + sum(map(_bytes, results))
    return Kept(operator.name, (), None, kept_args, kept_kwargs, results, circumstances(), random, bytes=size)


def _operand(tensor: Tensor, content: Tensor | None, *, lost: bool) -> Copied:
    if lost and content is None:
        raise UnkeptError("it has overwritten an operand of which there was no copy")
    return copied(tensor, content)


def copied(tensor: Tensor, content: Tensor | None = None) -> Copied:
    """A tensor by value; `content`: what it held before."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise UnkeptError("one of its tensors is sparse, nested, quantized, or of a class of its own")
    if tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # pyright: ignore[reportAttributeAccessIssue]
        raise UnkeptError("one of its tensors has no memory of its own")
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    once = tuple(slice(0, 1) if step == 0 and size > 1 else slice(None) for size, step in zip(shape, stride, strict=True))
    data = (tensor if content is None else content).detach()[once]
    if _overlaps(data.shape, stride):
        data = (tensor if content is None else content).detach()
        stride = _contiguous(shape)
    data = data.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).cpu()
    return Copied(data, shape, stride, str(tensor.device))


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


def _smaller(kept: Kept, operator: Operator, element: Element, results: int, budget: int) -> Kept:
    """Of an operation that is too large the part that fails: one entry of its lists, or one element."""
    made = kept
    if operator.foreach and element.list_index is not None:
        made = _one_entry(kept, element.list_index, results)
        if made.bytes <= budget:
            return made
    if not operator.pointwise or operator.random or element.index is None:
        raise UnkeptError(f"it takes {kept.bytes:,} bytes, and --memory allows {budget:,}")
    cut = _one_element(made, element.index)
    if not _fails(operator, cut):
        raise UnkeptError("it is too large, and its bad element alone does not come out bad")
    return cut


def _one_entry(kept: Kept, entry: int, results: int) -> Kept:
    length = entry_of_lists((kept.args, kept.kwargs))

    def one(value: Any) -> Any:
        return [value[entry]] if isinstance(value, list) and len(value) == length else value

    args, kwargs = tuple(map(one, kept.args)), {name: one(value) for name, value in kept.kwargs.items()}
    own = tuple(kept.results[n] for n in range(results) if n % length == entry)
    return _counted(replace(kept, args=args, kwargs=kwargs, results=own, entry=entry))


def _one_element(kept: Kept, index: tuple[int, ...]) -> Kept:
    def one(value: Any) -> Any:
        if isinstance(value, Copied):
            stored = tuple(value.data.shape)
            at = broadcast_index(stored, index) if stored else ()
            data = value.data[tuple(slice(i, i + 1) for i in at)].clone()
            return Copied(data, tuple(data.shape), _contiguous(data.shape), value.device)
        return [one(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    args, kwargs = tuple(map(one, kept.args)), {name: one(value) for name, value in kept.kwargs.items()}
    return _counted(replace(kept, args=args, kwargs=kwargs, results=tuple(map(one, kept.results)), cut=index))


def _fails(operator: Operator, kept: Kept) -> bool:
    def tensors(value: Any) -> Any:
        if isinstance(value, Copied):
            return value.data.clone()
        return [tensors(each) for each in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    arguments = tuple(map(tensors, kept.args)), {name: tensors(value) for name, value in kept.kwargs.items()}
    try:
        with experiments.unseen():
            found = experiments.run(operator, arguments, lambda t: t)
    except experiments.ANSWERLESS:
        return False
    return any(t.dtype in FLOATS and bool(bad_mask(t).any()) for t in found)


def _counted(kept: Kept) -> Kept:
    return replace(kept, bytes=sum(map(_bytes, _copies([*kept.args, *kept.kwargs.values(), *kept.results]))))


def _copies(values: Iterable[Any]) -> Iterable[Copied]:
    for value in values:
        if isinstance(value, Copied):
            yield value
        elif isinstance(value, list):
            yield from _copies(value)  # pyright: ignore[reportUnknownArgumentType]


def _bytes(held: Copied) -> int:
    return held.data.numel() * held.data.element_size()


def _targets(operator: Operator, args: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    """The ids of the tensors whose memory an operation has written to."""
    written = _written(operator, args, kwargs)
    return frozenset(id(t) for t in experiments.tensors_in([*args, *kwargs.values()]) if _storage(t) in written)


def _written(operator: Operator, args: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    """The storages that an operation writes to."""
    mutable = (kwargs.get(k) if isinstance(k, str) else args[k] if k < len(args) else None for k in operator.mutable)
    found = (_storage(t) for value in mutable for t in experiments.tensors_in(value))
    return frozenset(storage for storage in found if storage is not None)


def _read(operator: Operator, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operation reads: all but those that it only writes over."""
    only_written = operator.mutable if operator.overwrites else ()
    values = [a for n, a in enumerate(args) if n not in only_written]
    return experiments.tensors_in([*values, *(a for name, a in kwargs.items() if name not in only_written)])


def _storage(tensor: Tensor) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def _default_generator(args: Any, kwargs: dict[str, Any]) -> Any:
    """The generator of the device of the first tensor, or of the device that is named."""
    devices = [t.device for t in experiments.tensors_in([*args, *kwargs.values()])]
    devices += [d for d in (kwargs.get("device"),) if isinstance(d, torch.device)]
    if devices and devices[0].type == "cuda":
        index = devices[0].index
        return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
    return torch.default_generator
