"""The target of `explain`: its inputs by name, and a second run from the same state."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.names import tensors_of
from whynan.errors import MetaTensorError
from whynan.replay.class_lookup import Iterators
from whynan.replay.mutable_state import ObjectSnapshot
from whynan.replay.snapshot import Snapshot, reachable, same_bits

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.capture import Capture


class State:
    """What a call can see, at one moment: tensors and generators, and what is held by everything else."""

    def __init__(self, target: Any, values: tuple[Any, ...]) -> None:
        roots = reachable(target, values)
        self._contents = ObjectSnapshot([target, *roots])
        self._iterators = Iterators(self._contents.iterators)
        # its gradients come after those that were there: a snapshot knows their elements
        self._snapshot = Snapshot(roots)

    def restore(self) -> None:
        """Put everything back."""
        self._contents.restore()
        self._iterators.restore()
        self._snapshot.restore()
        if self._contents.failed:
            raise self._contents.failed.pop()

    @property
    def advanced(self) -> str | None:
        """What has gone on since and cannot be put back."""
        return self._iterators.advanced


class Target:
    """A callable with its inputs, checked at the door and remembered as they were."""

    def __init__(self, target: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target = target
        self.inputs = inputs
        self.kwargs = kwargs
        self.named = self._named()
        self._refuse_meta()
        self._start: State | None = None
        self._end: State | None = None
        self._results: list[list[Tensor]] = []

    def _named(self) -> list[tuple[str, Tensor]]:
        found: list[tuple[str, Tensor]] = []
        for i, value in enumerate(self.inputs):
            found += tensors_of(value, self._argument_name(i))
        for name, value in self.kwargs.items():
            found += tensors_of(value, name)
        return found

    def _argument_name(self, position: int) -> str:
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

    def remember(self) -> None:
        """Take the state that the call can see, for a second run."""
        self._start = self._state()

    def keep(self, result: Any) -> None:
        """Keep what a call returned, where there is to be a second one."""
        if self._start is not None:
            self._results.append([t.detach().clone() for _, t in tensors_of(result, "output")])

    def rewind(self) -> None:
        """Put the state before the first call back, and take the one after it."""
        assert self._start is not None
        self._end = self._state()
        self._start.restore()

    def restore(self) -> None:
        """Put the state after the first call back, if it was ever left."""
        if self._end is not None:
            self._end.restore()

    def _state(self) -> State:
        return State(self.target, (*self.inputs, *self.kwargs.values()))

    @property
    def advanced(self) -> str | None:
        """What the calls have taken from that cannot be put back: an iterator, which goes on from where it is."""
        return None if self._start is None else self._start.advanced

    @property
    def identical(self) -> bool:
        """Whether both runs returned the same bits."""
        return len(self._results) == 2 and same_bits(*self._results)

    def introduce(self, capture: Capture) -> None:
        """Tell a capture what the inputs are called and which module is the target."""
        context = capture.context
        for name, tensor in self.named:
            context.names.give(tensor, name)
        if isinstance(self.target, torch.nn.Module):
            context.names.roots.add(self.target)
            context.target = self.target
