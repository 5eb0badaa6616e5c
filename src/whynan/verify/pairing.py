"""The code objects of two texts of one file, paired by what they are the code of."""

# pyright: strict

from __future__ import annotations

import difflib
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Pair(NamedTuple):
    """A code object of the old text, and its partner in the new one; None where there is none for certain."""

    old: CodeType
    new: CodeType | None

    @property
    def is_changed(self) -> bool:
        """Whether the two do anything else, beside standing on other lines."""
        return self.new is None or content(self.old) != content(self.new)


def pairs(old: CodeType, new: CodeType) -> Iterator[Pair]:
    """Every code object in `old` with its partner in `new`, the outer before the inner, themselves first.

    Those of one name that stand in the same code are paired in order, if there are as many of them as before; else
    those that do the same, and those between them where it is one on either side.
    """
    yield Pair(old, new)
    before, after = _by_name(old), _by_name(new)
    for name, olds in before.items():
        for one, other in _paired(olds, after.get(name, [])):
            if other is None:
                yield from (Pair(inner, None) for inner in _all(one))
            else:
                yield from pairs(one, other)


def content(code: CodeType) -> tuple[object, ...]:
    """What a code object does, wherever it stands."""
    constants = tuple(content(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts)
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_qualname, code.co_code, constants, names, counts


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_name, []).append(constant)
    return found


def _paired(olds: Sequence[CodeType], news: Sequence[CodeType]) -> Iterator[tuple[CodeType, CodeType | None]]:
    if len(olds) == len(news):
        yield from zip(olds, news, strict=True)
        return
    matcher = difflib.SequenceMatcher(None, [content(c) for c in olds], [content(c) for c in news], autojunk=False)
    for _, begin, end, begin_new, end_new in matcher.get_opcodes():
        matched = end - begin == end_new - begin_new
        for offset in range(end - begin):
            yield olds[begin + offset], news[begin_new + offset] if matched else None


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)
