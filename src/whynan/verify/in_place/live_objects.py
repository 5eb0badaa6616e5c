"""Live objects: the modules that a program calls and the optimizers that it steps, with another argument meanwhile."""

# pyright: basic

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from contextlib import AbstractContextManager
    from types import FrameType


_PASSING: Final = torch.nn.modules.module.__file__, torch.nn.modules.container.__file__
"""What calls a module in the program's stead."""


def class_named(name: str) -> type | None:
    """The class of PyTorch's with a full public name; None where this version has none."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def instances(objects: Iterable[Any], cls: str) -> tuple[Any, ...]:
    """Those of some objects that are of a class of PyTorch's."""
    known = class_named(cls)
    return () if known is None else tuple(one for one in objects if isinstance(one, known))


def names_of(live: Any) -> list[dict[str, Any]]:
    """Where an object has the arguments of its constructor: an optimizer's groups and defaults, else its attributes."""
    return [*live.param_groups, live.defaults] if isinstance(live, torch.optim.Optimizer) else [vars(live)]


class Meanwhile(Protocol):
    """What holds while a program runs again."""

    def apply(self) -> AbstractContextManager[None]:
        """Have it hold while the block runs."""
        ...


@dataclass(frozen=True, slots=True)
class LiveArgument:
    """What objects of the program's have as they would with another argument of their constructor."""

    objects: tuple[Any, ...]
    name: str
    value: Any

    @contextmanager
    def apply(self) -> Generator[None]:
        """The objects have it while the block runs; afterwards they have what they had."""
        held = [(names, names[self.name]) for live in self.objects for names in names_of(live)]
        try:
            for names, _ in held:
                names[self.name] = self.value
            yield
        finally:
            for names, value in held:
                names[self.name] = value


def calls_of_program(frame: FrameType | None) -> bool:
    """Whether a call is made by the program's own code, and not by a library's that has a module of its own."""
    while frame is not None:
        file = frame.f_code.co_filename
        owner = owner_of(file)
        if owner is not Owner.WHYNAN and file not in _PASSING:
            return owner is Owner.USER
        frame = frame.f_back
    return False


def state_of(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A module's own parameters and buffers by name."""
    return vars(module)["_parameters"], vars(module)["_buffers"]


def compute_module(module: Any, forward: Callable[..., Any], values: dict[str, Any], changed: dict[str, Any]) -> Any:
    """What a module's forward gives for some parameters, buffers and arguments by name, and some attributes."""
    bare = object.__new__(type(module))
    state = [{name: values.pop(f"self.{name}", None) for name in part} for part in state_of(module)]
    vars(bare).update(vars(module), _parameters=state[0], _buffers=state[1], **changed)
    return forward(bare, **values)


@contextmanager
def unseen() -> Generator[None]:
    """What is done in the block is none of the program's operations."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


def copied(value: Any) -> Any:
    """A tensor's copy, which needs a gradient where it does; anything else as it is."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
