"""Stand-ins for the classes that a checkpoint names: they take what a pickle gives them, and do nothing."""

# pyright: strict

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.models.pickles import Kind


class StandIn:
    """An object of a class that is not loaded: what it would have been made from, and its state."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def as_subclass(self, _: type) -> StandIn:
        """What torch asks of a tensor, where a function that is not loaded would have made one."""
        return self


ARGUMENTS: Final = "(arguments)"
"""Under this name a mapping keeps what it was made from, beside its items."""


class Wrapper(torch.Tensor):
    """A tensor of a class that is not loaded; it holds its elements in other tensors, its attributes."""

    # a parameter's is the one that leaves every function as it is
    __torch_function__ = cast("Any", torch.nn.Parameter).__torch_function__

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The engine asks for this; nothing is ever computed with one."""
        raise NotImplementedError(f"{function} of a class that is not loaded")


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without its attributes, which may hide its methods."""
    vars(tensor).clear()
    return tensor


class Cast:
    """The stand-ins for one file, and which of the classes had to be stood in for."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._used: dict[str, None] = {}

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the classes and functions whose objects the file holds."""
        return tuple(self._used)

    def globals(self) -> list[Any]:
        """What `torch.serialization.safe_globals` is to allow: each stand-in under the name that the file knows."""
        made = [(self._class(name, kind), name) for name, kind in self._kinds.items()]
        # the state of an object is set only if its own type is allowed too
        return [*made, (StandIn, "whynan.StandIn")]

    def _class(self, name: str, kind: Kind) -> type:
        if kind == "tensor":
            return torch.Tensor
        if kind == "wrapper":
            return Wrapper

        def make(_: type, *arguments: Any) -> Any:
            self._used[name] = None
            return _object(name, kind, arguments)

        return type("NotLoaded", (), {"__new__": make})


def _object(name: str, kind: Kind, arguments: tuple[Any, ...]) -> Any:
    # torch fills exactly these types, and no others
    if kind == "mapping":
        return OrderedDict({ARGUMENTS: arguments} if arguments else {})
    return [] if kind == "sequence" else StandIn(name, arguments)
