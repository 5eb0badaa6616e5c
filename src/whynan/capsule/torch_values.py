"""Between PyTorch's values and a capsule's: arguments of an operation, visited names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.capsule import documents
from whynan.capsule.documents import Layout
from whynan.capsule.stored import Stored, stored_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.torch.by_value import Copied

_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_MEMORY: Final = 1 << 34
"""Bytes that a tensor of a capsule may lie in, with what is between its elements."""
_NAMED: Final = ("dtype", "layout", "memory_format")


class Spelling:
    """Spells values out, and gathers the tensors among them under names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Stored] = {}
        self.layouts: dict[str, Layout] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []

    def value(self, value: Any) -> Any:
        """The spelling of a value; a tensor is to be a ``Copied``. Raises ``TypeError`` for what has none."""
        import torch

        from whynan.capture.torch.by_value import Copied

        if isinstance(value, Copied):
            return documents.Tensor(name=self.tensor(value))
        if value is None:
            return documents.Nothing()
        if isinstance(value, bool):
            return documents.Truth(value=value)
        if isinstance(value, int):
            return documents.Whole(value=int(value))
        if isinstance(value, float):
            return documents.Real(value=float(value))
        if isinstance(value, complex):
            return documents.Complex(real=value.real, imag=value.imag)
        if isinstance(value, str):
            return documents.Text(kind="str", value=value)
        if isinstance(value, torch.device):
            return documents.Text(kind="device", value=str(value))
        if isinstance(value, torch.Generator):
            return documents.Generator(device=str(value.device))
        for kind in _NAMED:
            if isinstance(value, getattr(torch, kind)):
                return documents.Text.model_validate({"kind": kind, "value": str(value).removeprefix("torch.")})
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            values = tuple(map(self.value, cast("list[Any]", value)))
            return documents.Several.model_validate({"kind": kind, "values": values})
        raise TypeError(f"a {type(value).__name__} has no place in a capsule")

    def tensor(self, tensor: Copied, name: str | None = None) -> str:
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


class Reading:
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
            case documents.Tensor():
                return self.tensor(value.name)
            case documents.Nothing():
                return None
            case documents.Real():
                return _WORDS[value.value] if isinstance(value.value, str) else value.value
            case documents.Complex():
                parts = (_WORDS[p] if isinstance(p, str) else p for p in (value.real, value.imag))
                return complex(*parts)
            case documents.Whole() | documents.Truth():
                return value.value
            case documents.Generator():
                return self.generator
            case documents.Several():
                values = [self.value(each) for each in value.values]
                return tuple(values) if value.kind == "tuple" else values
            case documents.Text(kind="str"):
                return value.value
            case documents.Text(kind="device"):
                return torch.device(self.device(value.value))
            case documents.Text():
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
        flat = torch.frombuffer(bytearray(stored.data), dtype=dtype) if stored.data else torch.empty(0, dtype=dtype)
        held = torch.empty_strided(shape, layout.stride, dtype=dtype, device=self.device(layout.device))
        return held.copy_(flat.view(shape)).expand(layout.shape)
