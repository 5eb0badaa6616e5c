"""Where an event stands: a walk over the frames to the user's innermost one, cheap enough for every event."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from whynan.source.definitions import argument_definition, argument_numbers
from whynan.source.expressions import first_argument, operand_expressions
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import CodeType, FrameType

    from whynan.records import Site
    from whynan.source.definitions import Definition, Numbers


_owners: dict[int, tuple[CodeType, int]] = {}


def _learn(code: CodeType) -> int:
    owner = int(owner_of(code.co_filename))
    # the code object is kept, so that its id stays its own
    _owners[id(code)] = (code, owner)
    return owner


def walk(frame: FrameType | None) -> tuple[int, int, int, int] | None:
    """The key of a site: ids of code and instruction of the user's innermost frame, and of the library's."""
    library = 0
    library_instruction = 0
    owners = _owners
    while frame is not None:
        code = frame.f_code
        known = owners.get(id(code))
        owner = known[1] if known is not None else _learn(code)
        if owner == Owner.USER:
            return id(code), frame.f_lasti, library, library_instruction
        if owner == Owner.LIBRARY and not library:
            library, library_instruction = id(code), frame.f_lasti
        frame = frame.f_back
    if library:
        return library, library_instruction, 0, 0
    return None


ENGINE: set[CodeType] = set()
"""The code of the doors through which the engine is called."""


def in_a_hook(frame: FrameType | None) -> bool:
    """Whether code of the user's stands between the engine and what it runs: a hook, a custom function's backward."""
    owners = _owners
    while frame is not None:
        code = frame.f_code
        if code in ENGINE:
            return False
        known = owners.get(id(code))
        if (known[1] if known is not None else _learn(code)) == Owner.USER:
            return True
        frame = frame.f_back
    return False


def is_own_step(optimizer: Any) -> bool:
    """Whether the step of an optimizer is code of the user's."""
    step: Any = inspect.unwrap(type(optimizer).step)
    code = getattr(step, "__code__", None)
    return code is not None and owner_of(code.co_filename) == Owner.USER


class Sites:
    """Sites by number; resolved to lines and columns only when a report asks."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, int, int] | None, int] = {None: 0}
        self._keys: list[tuple[int, int, int, int] | None] = [None]

    def __len__(self) -> int:
        return len(self._keys)

    def here(self, depth: int = 1) -> int:
        """The number of the site that the frame `depth` above the caller stands at."""
        key = walk(sys._getframe(depth))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return number

    def key(self, number: int) -> tuple[int, int, int, int] | None:
        """What makes a site one: code and instruction."""
        return self._keys[number]

    def expressions(self, number: int, operator: str, names: Sequence[str], numbers: Collection[str]) -> dict[str, str]:
        """The source text of an operator's arguments; empty where the operator stands in a library."""
        key = self._keys[number]
        if key is None or key[2]:
            return {}
        return operand_expressions(_owners[key[0]][0], key[1], operator, names, numbers=numbers)

    def first_argument(self, number: int) -> str | None:
        """The source text of the first argument of the call that a site is; None where it stands in a library."""
        key = self._keys[number]
        return None if key is None or key[2] else first_argument(_owners[key[0]][0], key[1])

    def argument_numbers(self, number: int) -> Numbers | None:
        """The numbers that the source writes as the first argument of the call at a site."""
        key = self._keys[number]
        return None if key is None or key[2] else argument_numbers(_owners[key[0]][0], key[1])

    def definition(self, number: int) -> tuple[Definition, CodeType] | None:
        """What the first argument of the call at a site surely stands for, and the code that it stands in."""
        key = self._keys[number]
        if key is None or key[2]:
            return None
        code = _owners[key[0]][0]
        found = argument_definition(code, key[1])
        return None if found is None else (found, code)

    def resolve(self, number: int, module: str | None) -> tuple[Site | None, Site | None]:
        """The user's site and, where the event stands in a library, the library's."""
        key = self._keys[number]
        if key is None:
            return None, None
        code, instruction, library, library_instruction = key
        site = resolve(_owners[code][0], instruction)
        if module is not None:
            site = site.model_copy(update={"module": module})
        if not library:
            return site, None
        return site, resolve(_owners[library][0], library_instruction)
