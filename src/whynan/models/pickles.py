"""What a pickle would make if it were opened, told from its instructions without following one of them."""

# pyright: strict

from __future__ import annotations

import pickletools

# what Python 3 calls the modules that a pickle of protocol 2 names as Python 2 did
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Final, Literal, TypeAlias, cast

Kind: TypeAlias = Literal["object", "mapping", "sequence", "tensor", "wrapper"]
"""What the objects of a class are used as; a ``wrapper`` is a tensor that holds its elements in other tensors."""

_TYPED: Final = "torch._tensor._rebuild_from_type_v2"
_WRAPPED: Final = "torch._utils._rebuild_wrapper_subclass"


@dataclass(frozen=True)
class _Named:
    """A class or function of a name."""

    name: str


@dataclass(frozen=True)
class _Made:
    """What a class or function of a name gave."""

    name: str


def kinds(file: IO[bytes]) -> dict[str, Kind]:
    """What each class or function that one pickle names is used for; the file is left behind the pickle.

    A pickle that is broken gives what was seen before its fault.
    """
    reader = _Reader()
    try:
        for instruction, argument, _ in pickletools.genops(file):
            reader.follow(instruction, argument)
    except (ValueError, IndexError, KeyError, EOFError):
        pass
    return reader.kinds


class _Reader:
    """A stack as the instructions would leave it, of which only names, tuples and what was made are known."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._known: dict[str, Callable[[Any], None]] = {
            "GLOBAL": self._global,
            "REDUCE": self._call,
            "NEWOBJ": self._call,
            "BUILD": lambda _: self._drop(1),
            "TUPLE": lambda _: self._push(tuple(self._marked())),
            "TUPLE1": lambda _: self._tuple(1),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "EMPTY_TUPLE": lambda _: self._push(()),
            "APPEND": lambda _: self._filled(1, "sequence"),
            "APPENDS": lambda _: self._filled(None, "sequence"),
            "SETITEM": lambda _: self._filled(2, "mapping"),
            "SETITEMS": lambda _: self._filled(None, "mapping"),
            "MEMOIZE": lambda _: self._remember(len(self._memo)),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._remember),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), self._recall),
            "MARK": lambda _: self._mark(),
        }

    def follow(self, instruction: pickletools.OpcodeInfo, argument: Any) -> None:
        """One instruction; of those that are not known here, only what they do to the height of the stack."""
        known = self._known.get(instruction.name)
        if known is not None:
            known(argument)
            return
        before = [item.name for item in instruction.stack_before]
        if "mark" in before:
            self._marked()
            before = before[: before.index("mark")]
        self._drop(len(before))
        self._stack += [None] * len(instruction.stack_after)

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        # torch knows some of the old names only
        self.kinds.setdefault(f"{module}.{name}", "object")
        if (module, name) in NAME_MAPPING:
            module, name = NAME_MAPPING[module, name]
        elif module in IMPORT_MAPPING:
            module = IMPORT_MAPPING[module]
        full = f"{module}.{name}"
        self.kinds.setdefault(full, "object")
        self._stack.append(_Named(full))

    def _call(self, _: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._stack.append(_Made(function.name) if isinstance(function, _Named) else None)
        if not isinstance(function, _Named) or not isinstance(arguments, tuple):
            return
        held = cast("tuple[Any, ...]", arguments)
        if function.name == _WRAPPED and held and isinstance(held[0], _Named):
            self.kinds[held[0].name] = "wrapper"
        elif function.name == _TYPED and len(held) > 1 and isinstance(held[1], _Named):
            self.kinds[held[1].name] = "wrapper" if held[0] == _Named(_WRAPPED) else "tensor"

    def _filled(self, count: int | None, kind: Kind) -> None:
        """Items are put into the object on top of the stack, behind them."""
        if count is None:
            self._marked()
        else:
            self._drop(count)
        target = self._stack[-1]
        if isinstance(target, _Made) and self.kinds.get(target.name) == "object":
            self.kinds[target.name] = kind

    def _tuple(self, count: int) -> None:
        held = tuple(self._stack[-count:])
        self._drop(count)
        self._stack.append(held)

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _marked(self) -> list[Any]:
        """Everything above the last mark, taken off."""
        held, self._stack = self._stack, self._marks.pop()
        return held

    def _push(self, held: Any) -> None:
        self._stack.append(held)

    def _drop(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError
        if count:
            del self._stack[-count:]

    def _remember(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _recall(self, place: int) -> None:
        self._stack.append(self._memo[place])
