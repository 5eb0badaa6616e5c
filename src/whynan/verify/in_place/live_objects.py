"""Live objects: the modules that a program calls and the optimizers that it steps, with another argument meanwhile."""

# pyright: basic

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from whynan.capture.torch.sinks.gradients import is_finite
from whynan.source.ownership import Owner, owner_of
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from contextlib import AbstractContextManager
    from types import FrameType

    from whynan.records import FixVerdict
    from whynan.records.intents import FixKind

_MOST_CALLS: Final = 4
"""So many calls of one class are kept that give something bad, and as many others."""
_MOST_ELEMENTS: Final = 1 << 22
"""A call with more elements is not kept."""
_WHICH: Final = "module number"
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


class ModuleCalls:
    """Calls of the modules of some classes by the program's own code: a few that give NaN or Inf, and a few others."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._classes = tuple(cls for cls in map(class_named, classes) if cls is not None)
        self._called: dict[int, Any] = {}
        self._kept: list[tuple[Any, bool, Callable[..., Any], dict[str, Any]]] = []
        self._counts: Counter[tuple[type, bool]] = Counter()

    @contextmanager
    def heard(self) -> Generator[None]:
        """Hear every call while the block runs."""
        owners = {next(c for c in cls.__mro__ if "forward" in vars(c)) for cls in self._classes}
        with ExitStack() as stack:
            for owner in owners:
                stack.callback(setattr, owner, "forward", owner.forward)
                owner.forward = self._hearing(owner.forward)
            yield

    def of(self, cls: str) -> tuple[Any, ...]:
        """The modules of a class that were called."""
        return instances(self._called.values(), cls)

    def failing(self, cls: str) -> tuple[Any, ...]:
        """Those that gave something bad."""
        return instances({id(module): module for module, is_bad, _, _ in self._kept if is_bad}.values(), cls)

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument by what its modules compute with it: in the calls heard, and in fresh ones."""
        kept = [one for one in self._kept if any(one[0] is module for module in live.objects)]

        def computing(changed: dict[str, Any]) -> Callable[..., Any]:
            def compute(**values: Any) -> Any:
                module, _, forward, _ = kept[values.pop(_WHICH)]
                return compute_module(module, forward, values, changed)

            return compute

        calls = [{**values, _WHICH: number} for number, (*_, values) in enumerate(kept)]
        # a loss of one element hides in a mean which of its terms are healthy
        each = {"reduction": "none"} if any(hasattr(one[0], "reduction") for one in kept) else {}
        return judge(computing(each), computing({**each, live.name: live.value}), calls, kind=kind)

    def _hearing(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(forward)

        @functools.wraps(forward)
        def hearing(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(module, self._classes) or not calls_of_program(sys._getframe(1)):
                return forward(module, *args, **kwargs)
            # its forward's own name for the module comes first
            given = dict(list(signature.bind(module, *args, **kwargs).arguments.items())[1:])
            state = {f"self.{name}": v for part in _state(module) for name, v in part.items() if v is not None}
            with unseen():
                values = given | state
                kept = {name: copied(v) for name, v in values.items()} if self._keeps(module, values) else {}
            output = forward(module, *args, **kwargs)
            self._called[id(module)] = module
            with unseen():
                key = type(module), isinstance(output, torch.Tensor) and not is_finite(output.detach())
            if kept and self._counts[key] < _MOST_CALLS:
                self._counts[key] += 1
                self._kept.append((module, key[1], forward, kept))
            return output

        return hearing

    def _keeps(self, module: Any, values: dict[str, Any]) -> bool:
        """Whether a call is kept: there are not enough, it is not large, and nothing bad came in."""
        tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
        small = self._counts[type(module), True] < _MOST_CALLS and sum(t.numel() for t in tensors) <= _MOST_ELEMENTS
        return small and all(map(is_finite, tensors))


def calls_of_program(frame: FrameType | None) -> bool:
    """Whether a call is made by the program's own code, and not by a library's that has a module of its own."""
    while frame is not None:
        file = frame.f_code.co_filename
        owner = owner_of(file)
        if owner is not Owner.WHYNAN and file not in _PASSING:
            return owner is Owner.USER
        frame = frame.f_back
    return False


def _state(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return vars(module)["_parameters"], vars(module)["_buffers"]


def compute_module(module: Any, forward: Callable[..., Any], values: dict[str, Any], changed: dict[str, Any]) -> Any:
    """What a module's forward gives for some parameters, buffers and arguments by name, and some attributes."""
    bare = object.__new__(type(module))
    state = [{name: values.pop(f"self.{name}", None) for name in part} for part in _state(module)]
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
