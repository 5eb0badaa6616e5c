"""What a checkpoint holds, as records: each tensor counted once, each number that is not finite."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from whynan.models.counting import NOTHING
from whynan.models.elements import UncountableError, counted, layout_of
from whynan.models.literals import Allowances, literal, literal_number
from whynan.records.checkpoint import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.models.counting import Counted
    from whynan.models.walking import Numbers


class Unread(NamedTuple):
    """A tensor that the library of its file cannot read: its type, shape, and why."""

    dtype: str
    shape: tuple[int, ...]
    why: str


Held: TypeAlias = "Tensor | Numbers | Unread"


class Contents:
    """The records of one checkpoint, as its files are walked through."""

    def __init__(self, allowances: Allowances, tick: Callable[[int], None] | None = None) -> None:
        self.tensors: list[Stored] = []
        self.numbers: list[Stored] = []
        self._allowances = allowances
        self._tick = tick
        self._shared: dict[Any, Stored] = {}

    def forget(self) -> None:
        """A file is done with, and its memory may be another tensor's now."""
        self._shared.clear()

    def add(self, name: str, value: Held, file: str | None) -> None:
        """One thing that was found in a file."""
        if isinstance(value, Unread):
            unread = Stored(name=name, file=file, dtype=value.dtype, shape=value.shape, unread=value.why)
            self.tensors.append(unread)
            return
        if isinstance(value, Tensor):
            self._tensor(name, value, file)
        else:
            self._number(name, value, file)

    def _tensor(self, name: str, tensor: Tensor, file: str | None) -> None:
        memory = _memory(tensor)
        first = None if memory is None else self._shared.get(memory)
        if first is not None:
            self.tensors.append(first.model_copy(update={"name": name, "file": file, "same_as": first.name}))
            return
        try:
            found, unread = counted(tensor, self._tick), None
        except UncountableError as error:
            found, unread = NOTHING, str(error)
        stored = self._judged(name, found, file, tensor, unread)
        self.tensors.append(stored)
        if memory is not None:
            self._shared[memory] = stored

    def _judged(self, name: str, found: Counted, file: str | None, tensor: Tensor, unread: str | None) -> Stored:
        counts, low, high = found
        shape = None if tensor.is_nested else tuple(tensor.shape)
        why = self._allowed(name, counts) or literal(name, counts, (low, high), shape)
        return Stored(
            name=name,
            file=file,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=shape,
            layout=layout_of(tensor),
            finite_min=low,
            finite_max=high,
            bad=why is None and _is_bad(counts),
            literal=why,
            unread=unread,
            **cast("dict[str, Any]", counts),
        )

    def _number(self, name: str, numbers: Numbers, file: str | None) -> None:
        counts = _counts(numbers)
        finite = [number for number in numbers if not isinstance(number, float) or math.isfinite(number)]
        why = self._allowed(name, counts) or literal_number(counts)
        self.numbers.append(
            Stored(
                name=name,
                file=file,
                dtype="number",
                shape=(len(numbers),) if len(numbers) > 1 else (),
                layout="number",
                finite_min=min(finite, default=None),
                finite_max=max(finite, default=None),
                bad=why is None,
                literal=why,
                **cast("dict[str, Any]", counts),
            )
        )

    def _allowed(self, name: str, counts: dict[str, int]) -> str | None:
        pattern = self._allowances.find(name) if _is_bad(counts) else None
        return None if pattern is None else f"allowed by {pattern}"


def _is_bad(counts: dict[str, int]) -> bool:
    return counts["n_nan"] + counts["n_posinf"] + counts["n_neginf"] > 0


def _memory(tensor: Tensor) -> Any:
    """Which elements of which memory a tensor shows; None where it has none of its own."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return None
    where = tensor.untyped_storage().data_ptr()
    if not where or not tensor.numel():
        return None
    return where, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj()


def _counts(numbers: Numbers) -> dict[str, int]:
    floats = [number for number in numbers if isinstance(number, float)]
    return {
        "n": len(numbers),
        "n_nan": sum(map(math.isnan, floats)),
        "n_posinf": floats.count(math.inf),
        "n_neginf": floats.count(-math.inf),
        "n_zero": sum(not number for number in numbers),
        "n_subnormal": sum(0 < abs(number) < 2**-1022 for number in floats),
    }
