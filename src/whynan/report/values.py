"""Values, types, indices and counts as the terminal report writes them."""

# pyright: strict

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from whynan.floats import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPE: Final = re.compile(r"(?:torch\.)?(bfloat|float|complex|uint|int)(\d.*)")
_SHORT: Final = {"bfloat": "bf", "float": "f", "complex": "c", "uint": "u", "int": "i"}
_WORDS: Final = {"NaN": "NaN", "Infinity": "Inf", "-Infinity": "-Inf"}
"""A value that is text may be a number's name in JSON."""


def array_of(dtype: str, shape: Sequence[int]) -> str:
    """The type of an array: ``f32[8, 4, 340]``, ``bf16[2]``, ``i64[]``."""
    known = _DTYPE.fullmatch(dtype)
    short = dtype.removeprefix("torch.") if known is None else _SHORT[known[1]] + known[2]
    return short + index_text(shape)


def index_text(index: Sequence[int]) -> str:
    """An index or a shape: ``[0, 3, 117]``."""
    return f"[{', '.join(str(i) for i in index)}]"


def value_text(value: object) -> str:
    """A value, text in quotation marks: ``1e-20``, ``NaN``, ``True``, ``'mean'``."""
    if isinstance(value, str):
        try:
            return _WORDS.get(value) or format_value(complex(value))
        except ValueError:
            return f"'{value}'"
    return format_value(value)


def bad_word(value: float | None) -> str:
    """``NaN``, ``Inf`` or ``-Inf``; a complex number that is bad is known as no value, and is called NaN."""
    return "NaN" if value is None or value != value else ("Inf" if value > 0 else "-Inf")


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: ``1 element``, ``10,880 elements``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def percent_text(part: int, total: int) -> str:
    """How large a part is, in percent: ``50.6%``, ``0.02%``; ``100%`` for the whole."""
    return "100%" if part >= total else f"{100 * part / total:.3g}%"


def share_text(bad: int, total: int) -> str:
    """How many elements of how many: ``3 of 12 elements``, ``all 12 elements``; nothing for the one of one."""
    if total <= 1:
        return ""
    return f"all {total:,} elements" if bad >= total else f"{bad:,} of {total:,} elements"
