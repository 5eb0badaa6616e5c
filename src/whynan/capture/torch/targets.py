"""The target of `explain`: its inputs by name, and a second run from the same state."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.names import tensors_of
from whynan.errors import MetaTensorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.capture import Capture

COPY_BYTES = 4 << 30


class Target:
    """A callable with its inputs, checked at the door and remembered as they were."""

    def __init__(self, target: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target = target
        self.inputs = inputs
        self.kwargs = kwargs
        self.named = self._named()
        self._refuse_meta()

    def _named(self) -> list[tuple[str, Tensor]]:
        found: list[tuple[str, Tensor]] = []
        for i, value in enumerate(self.inputs):
            found += tensors_of(value, self._argument_name(i))
        for name, value in self.kwargs.items():
            found += tensors_of(value, name)
        return found

    def _argument_name(self, position: int) -> str:
        import inspect

        shown = self.target.forward if isinstance(self.target, torch.nn.Module) else self.target
        try:
            names = list(inspect.signature(shown).parameters.values())
        except (TypeError, ValueError):
            return f"argument {position}"
        if position < len(names) and names[position].kind is not inspect.Parameter.VAR_POSITIONAL:
            return names[position].name
        return f"argument {position}"

    def _refuse_meta(self) -> None:
        for name, tensor in self.named:
            if tensor.is_meta:
                raise MetaTensorError(name)
        if isinstance(self.target, torch.nn.Module):
            for name, p in (*self.target.named_parameters(), *self.target.named_buffers()):
                if p.is_meta:
                    raise MetaTensorError(name)

    def introduce(self, capture: Capture) -> None:
        """Tell a capture what the inputs are called and which module is the target."""
        tracer = capture.tracer
        for name, tensor in self.named:
            tracer.names.give(tensor, name)
        if isinstance(self.target, torch.nn.Module):
            tracer.names.roots.add(self.target)
            tracer.target = self.target
