"""PyTorch's values in a capsule: the arguments of an operation, the visited names of a function."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.capsule import document
from whynan.capsule.document import Layout, Visited, VisitedFunction
from whynan.capsule.folder import (
    MOST_TENSORS,
    VISITS_DOCUMENT,
    VISITS_TENSORS,
    CapsuleFolder,
    Stored,
    deserialize_tensors,
    serialize_tensors,
    stored_shape,
    write_private,
)
from whynan.report.json import to_json
from whynan.verify.in_place.visits import Visit, Visits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.torch.kept_operations import TensorCopy


# -- Between PyTorch's values and a capsule's: arguments of an operation, visited names --------------------------------


_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_MEMORY: Final = 1 << 34
"""Bytes that a tensor of a capsule may lie in, with what is between its elements."""
_NAMED: Final = ("dtype", "layout", "memory_format")


class ValueEncoder:
    """Spells values out, and gathers the tensors among them under names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Stored] = {}
        self.layouts: dict[str, Layout] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []

    def value(self, value: Any) -> Any:
        """The spelling of a value; a tensor is to be a ``TensorCopy``. Raises ``TypeError`` for what has none."""
        import torch

        from whynan.capture.torch.kept_operations import TensorCopy

        if isinstance(value, TensorCopy):
            return document.Tensor(name=self.tensor(value))
        if value is None:
            return document.Nothing()
        if isinstance(value, bool):
            return document.Truth(value=value)
        if isinstance(value, int):
            return document.Whole(value=int(value))
        if isinstance(value, float):
            return document.Real(value=float(value))
        if isinstance(value, complex):
            return document.Complex(real=value.real, imag=value.imag)
        if isinstance(value, str):
            return document.Text(kind="str", value=value)
        if isinstance(value, torch.device):
            return document.Text(kind="device", value=str(value))
        if isinstance(value, torch.Generator):
            return document.Generator(device=str(value.device))
        for kind in _NAMED:
            if isinstance(value, getattr(torch, kind)):
                return document.Text.model_validate({"kind": kind, "value": str(value).removeprefix("torch.")})
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            values = tuple(map(self.value, cast("list[Any]", value)))
            return document.Several.model_validate({"kind": kind, "values": values})
        raise TypeError(f"a {type(value).__name__} has no place in a capsule")

    def tensor(self, tensor: TensorCopy, name: str | None = None) -> str:
        """The name of a tensor: the same for the same one."""
        import torch

        if name is None and id(tensor) in self._names:
            return self._names[id(tensor)]
        name = str(len(self._names)) if name is None else name
        self._names[id(tensor)] = name
        # for as long as its id is a key
        self._held.append(tensor)
        dtype = str(tensor.data.dtype).removeprefix("torch.")
        flat = tensor.data.contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        self.tensors[name] = Stored(dtype, tuple(tensor.data.shape), data)
        self.layouts[name] = Layout(
            dtype=dtype, shape=tuple(tensor.shape), stride=tuple(tensor.stride), device=tensor.device
        )
        return name


class ValueDecoder:
    """Makes values of their spelling; `device`: where a tensor goes that was on this one."""

    def __init__(self, tensors: Mapping[str, Stored], layouts: Mapping[str, Layout]) -> None:
        self._tensors = tensors
        self._layouts = layouts
        self._made: dict[str, Any] = {}
        self.generator: Any = None
        """What a generator among the arguments is."""
        self.moved: dict[str, str] = {}
        """The devices that are not here, and what took their place."""

    def value(self, value: Any) -> Any:
        """The value; raises ``ValueError`` where its spelling is none."""
        import torch

        match value:
            case document.Tensor():
                return self.tensor(value.name)
            case document.Nothing():
                return None
            case document.Real():
                return _WORDS[value.value] if isinstance(value.value, str) else value.value
            case document.Complex():
                parts = (_WORDS[p] if isinstance(p, str) else p for p in (value.real, value.imag))
                return complex(*parts)
            case document.Whole() | document.Truth():
                return value.value
            case document.Generator():
                return self.generator
            case document.Several():
                values = [self.value(each) for each in value.values]
                return tuple(values) if value.kind == "tuple" else values
            case document.Text(kind="str"):
                return value.value
            case document.Text(kind="device"):
                return torch.device(self.device(value.value))
            case document.Text():
                named = getattr(torch, value.value, None)
                if not isinstance(named, getattr(torch, value.kind)):
                    raise ValueError(f"{value.value} is no {value.kind}")
                return named
            case _:
                raise ValueError("a value is none that a capsule holds")

    def tensor(self, name: str) -> Any:
        """A tensor with the strides and on the device that it had; the same one for the same name."""
        if name not in self._made:
            if name not in self._tensors:
                raise ValueError(f"there is no tensor {name}")
            self._made[name] = self._tensor(self._tensors[name], self._layouts[name])
        return self._made[name]

    def device(self, name: str) -> str:
        """The device of this name, or the CPU where there is none."""
        import torch

        kind = name.partition(":")[0]
        if kind == "cpu" or (kind == "cuda" and torch.cuda.is_available()):
            return name if kind == "cpu" else "cuda"
        self.moved[kind] = "cpu"
        return "cpu"

    def _tensor(self, stored: Stored, layout: Layout) -> Any:
        import torch

        dtype = getattr(torch, stored.dtype)
        shape = stored_shape(layout)
        reach = 1 + sum((size - 1) * step for size, step in zip(shape, layout.stride, strict=True))
        if reach * dtype.itemsize > _MOST_MEMORY or max((0, *layout.shape)) >= 1 << 40:
            raise ValueError("a tensor would lie in more memory than there is room for")
        flat = (
            torch.frombuffer(bytearray(stored.data), dtype=dtype)
            if stored.data
            else torch.empty(0, dtype=dtype, device="cpu")
        )
        held = torch.empty_strided(shape, layout.stride, dtype=dtype, device=self.device(layout.device))
        return held.copy_(flat.view(shape)).expand(layout.shape)


# -- The visits of a function in a capsule: names and values as JSON, tensors beside it --------------------------------


SCHEMA: Final = "whynan.visits/1"


def pack_visits(folder: str, visits: Visits) -> None:
    """Write visits into a new folder."""
    spelling = ValueEncoder()
    known: dict[int, Any] = {}
    told = tuple(
        Visited(
            line=visit.line,
            values={name: spelling.value(_copied(value, known)) for name, value in visit.values.items()},
            needs_grad=tuple(sorted(visit.needs_grad)),
        )
        for visit in visits.visits
    )
    document = VisitedFunction(
        path=visits.path,
        sha256=visits.sha256,
        function=visits.function,
        visits=told,
        left_out=visits.left_out,
        layouts=spelling.layouts,
    )
    os.mkdir(folder, 0o700)
    write_private(folder, VISITS_DOCUMENT, to_json(document).encode())
    write_private(folder, VISITS_TENSORS, serialize_tensors(spelling.tensors, spelling.layouts))


def open_visits(folder: CapsuleFolder) -> Visits:
    """The visits that a folder holds; raises ``UsageError`` where it holds none."""
    document = folder.read_document(VISITS_DOCUMENT, VisitedFunction, SCHEMA)
    try:
        tensors = deserialize_tensors(folder.needed(VISITS_TENSORS, MOST_TENSORS), document.layouts)
        reading = ValueDecoder(tensors, document.layouts)
        visits = tuple(
            Visit(v.line, {name: reading.value(value) for name, value in v.values.items()}, frozenset(v.needs_grad))
            for v in document.visits
        )
    except (ValueError, RuntimeError) as error:
        raise folder.refusal(VISITS_TENSORS, str(error)) from None
    return Visits(document.path, document.sha256, document.function, visits, document.left_out)


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """A value with its tensors by value, the same one for the same tensor."""
    import torch

    from whynan.capture.torch.kept_operations import copy_tensor

    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            known[id(value)] = copy_tensor(value)
        return known[id(value)]
    if not isinstance(value, list | tuple):
        return value
    copies = [_copied(each, known) for each in cast("list[Any]", value)]
    return copies if isinstance(value, list) else tuple(copies)
