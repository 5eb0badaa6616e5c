"""Live calls: of modules and distributions by the program's own code, judged with another argument or operand."""

# pyright: basic

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.verify.arrays import tensors_in
from whynan.verify.in_place.live_objects import (
    calls_of_program,
    class_named,
    compute_module,
    copied,
    instances,
    state_of,
    unseen,
)
from whynan.verify.torch_program import bad_kinds
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from whynan.records import FixVerdict
    from whynan.records.intents import FixKind, OperandIntent
    from whynan.verify.in_place.live_objects import LiveArgument

_MOST_CALLS: Final = 4
"""So many calls of one class are kept that give something bad, and as many others."""
_MOST_ELEMENTS: Final = 1 << 22
"""A call with more elements is not kept."""
_WHICH: Final = "call number"


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: the object, its method as it was, what it was given, and whether it gave NaN or Inf.

    A module's parameters and buffers are of what it was given; a distribution is a copy of the program's.
    """

    live: Any
    method: Callable[..., Any]
    values: dict[str, Any]
    is_bad: bool = False

    def compute(self, values: dict[str, Any], changed: dict[str, Any] | None = None) -> Any:
        """What the method gives for other tensors, and with some attributes of a module changed."""
        if isinstance(self.live, torch.nn.Module):
            return compute_module(self.live, self.method, dict(values), changed or {})
        return self.method(self.live, **values)


class _LiveCalls:
    """Calls of some classes' methods by the program's own code: a few that give NaN or Inf, and a few others.

    ``refused``: of which kinds nothing may come into a call that is kept.
    """

    def __init__(self, methods: Iterable[tuple[type | None, str]], refused: frozenset[str]) -> None:
        self._methods = {(cls, name): None for cls, name in methods if cls is not None}
        self._refused = refused
        self._kept: list[_Call] = []
        self._counts: Counter[tuple[type, bool]] = Counter()

    @contextmanager
    def heard(self) -> Generator[None]:
        """Hear every call while the block runs."""
        owners = {(next(c for c in cls.__mro__ if name in vars(c)), name): None for cls, name in self._methods}
        with ExitStack() as stack:
            for owner, name in owners:
                method = vars(owner)[name]
                stack.callback(setattr, owner, name, method)
                setattr(owner, name, self._hearing(method, name))
            yield

    def _hears(self, live: Any, name: str) -> bool:
        return (type(live), name) in self._methods

    def _hearing(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def hearing(live: Any, *args: Any, **kwargs: Any) -> Any:
            if not (calls_of_program(sys._getframe(1)) and self._hears(live, name)):
                return method(live, *args, **kwargs)
            with unseen():
                call = self._call(live, method, signature, args, kwargs)
            output = method(live, *args, **kwargs)
            with unseen():
                key = type(live), _is_bad(output)
            if call is not None and self._counts[key] < _MOST_CALLS:
                self._counts[key] += 1
                self._kept.append(replace(call, is_bad=key[1]))
            return output

        return hearing

    def _call(
        self, live: Any, method: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any
    ) -> _Call | None:
        """A call that is about to be made, as it is kept; None where it is not, or cannot be."""
        try:
            # its own name for the object comes first
            values = dict(list(signature.bind(live, *args, **kwargs).arguments.items())[1:])
            is_module = isinstance(live, torch.nn.Module)
            if is_module:
                state = {name: v for part in state_of(live) for name, v in part.items() if v is not None}
                values |= {f"self.{name}": value for name, value in state.items()}
            if not self._keeps(live, values):
                return None
            own = live if is_module else _copy_of(live)
            return _Call(own, method, {name: copied(value) for name, value in values.items()})
        except Exception:
            # the program's own call says what is wrong with it
            return None

    def _keeps(self, live: Any, values: dict[str, Any]) -> bool:
        """Whether a call is kept: there are not enough, it is not large, and nothing bad came in."""
        tensors = tensors_in(values).values()
        few = self._counts[type(live), True] < _MOST_CALLS
        small = sum(t.numel() for t in tensors) <= _MOST_ELEMENTS
        return few and small and self._refused.isdisjoint(bad_kinds(tensors))


class ModuleCalls(_LiveCalls):
    """Calls of the modules of some classes."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._classes = tuple(cls for cls in map(class_named, classes) if cls is not None)
        self._called: dict[int, Any] = {}
        super().__init__([(cls, "forward") for cls in self._classes], frozenset({"NaN", "Inf", "-Inf"}))

    def of(self, cls: str) -> tuple[Any, ...]:
        """The modules of a class that were called."""
        return instances(self._called.values(), cls)

    def failing(self, cls: str) -> tuple[Any, ...]:
        """Those that gave something bad."""
        return instances({id(call.live): call.live for call in self._kept if call.is_bad}.values(), cls)

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument by what its modules compute with it: in the calls heard, and in fresh ones."""
        kept = [call for call in self._kept if any(call.live is module for module in live.objects)]

        def computing(changed: dict[str, Any]) -> Callable[..., Any]:
            return lambda **values: kept[values.pop(_WHICH)].compute(values, changed)

        # a loss of one element hides in a mean which of its terms are healthy
        each = {"reduction": "none"} if any(hasattr(call.live, "reduction") for call in kept) else {}
        return judge(computing(each), computing({**each, live.name: live.value}), _numbered(kept), kind=kind)

    def _hears(self, live: Any, name: str) -> bool:
        del name
        if isinstance(live, self._classes):
            self._called[id(live)] = live
            return True
        return False


class OperandCalls(_LiveCalls):
    """Calls of the methods that some rows are about."""

    def __init__(self, rows: Iterable[OperandIntent]) -> None:
        super().__init__(
            [(cls, row.method) for row in rows for cls in map(class_named, row.classes)], frozenset({"NaN"})
        )

    def verdict(self, intent: OperandIntent) -> FixVerdict | None:
        """The verdict on another operand in the calls heard, and in fresh ones; None where no call of it fails."""
        kept = [call for call in self._kept if self._is_of(call, intent)]
        if not any(call.is_bad for call in kept):
            return None
        replaced = compile(intent.replacement, "<operand>", "eval")
        # what a replacement is written with
        called = {name: getattr(torch, name) for name in replaced.co_names if hasattr(torch, name)}
        terms = {**called, "finfo": lambda x: torch.finfo(x.dtype)}

        def computing(*, is_repaired: bool) -> Callable[..., Any]:
            def compute(**values: Any) -> Any:
                call = kept[values.pop(_WHICH)]
                if is_repaired:
                    values[intent.operand] = eval(replaced, dict(terms), {"x": values[intent.operand]})
                return call.compute(values)

            return compute

        return judge(computing(is_repaired=False), computing(is_repaired=True), _numbered(kept), kind="guard")

    def _is_of(self, call: _Call, intent: OperandIntent) -> bool:
        operand = call.values.get(intent.operand)
        if type(call.live) not in map(class_named, intent.classes) or not isinstance(operand, torch.Tensor):
            return False
        return operand.is_floating_point() if intent.dtype == "float" else operand.dtype is torch.bool


def _numbered(kept: list[_Call]) -> list[dict[str, Any]]:
    return [{**call.values, _WHICH: number} for number, call in enumerate(kept)]


def _is_bad(output: Any) -> bool:
    outputs = output if isinstance(output, tuple) else (output,)
    return bool(bad_kinds(tensors_in({str(number): one for number, one in enumerate(outputs)}).values()))


def _copy_of(live: Any) -> Any:
    """A distribution with copies of its parameters, whose transforms remember nothing of what they were asked for."""
    if type(live) is torch.distributions.TransformedDistribution:
        transforms = [transform.with_cache(0) for transform in live.transforms]
        return type(live)(_copy_of(live.base_dist), transforms, validate_args=False)
    if isinstance(live, torch.distributions.Independent):
        return type(live)(_copy_of(live.base_dist), live.reinterpreted_batch_ndims, validate_args=False)
    names = [*live.arg_constraints]
    if {"probs", "logits"} <= {*names}:
        names = [name for name in names if name in vars(live)]
    return type(live)(**{name: copied(getattr(live, name)) for name in names}, validate_args=False)
