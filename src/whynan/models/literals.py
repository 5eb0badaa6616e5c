"""Which infinities of a checkpoint are meant: masks, start values of a search for an extreme, settings."""

# pyright: strict

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LAST: Final = re.compile(r"([^.\[\]]*)(\[[^\]]*\])*$")
_BOOKKEEPING: Final = re.compile(r"(callbacks|loops|hyper_parameters|hparams|config|args)\b")
"""Where a trainer keeps what is no weight, at the root of its document."""

_MINIMUM: Final = frozenset("min mins minimum minval minvals".split())
_MAXIMUM: Final = frozenset("max maxs maximum maxval maxvals".split())


class Allowances:
    """Names, or patterns of names, of tensors whose bad numbers are meant."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._used = dict.fromkeys(patterns, False)

    def find(self, name: str) -> str | None:
        """The pattern that a name fits."""
        found = next((p for p in self._used if name == p or fnmatchcase(name, p)), None)
        if found is not None:
            self._used[found] = True
        return found

    @property
    def unused(self) -> tuple[str, ...]:
        """The patterns that excused nothing."""
        return tuple(pattern for pattern, used in self._used.items() if not used)


def literal(
    name: str, counts: Mapping[str, int], ends: tuple[float | None, float | None], shape: Sequence[int] | None
) -> str | None:
    """Why the infinities of a tensor are meant; None where they are not, or a NaN is among them."""
    n, up, down = counts["n"], counts["n_posinf"], counts["n_neginf"]
    if counts["n_nan"] or not up + down:
        return None
    last = _last(name)
    words = set(re.split(r"[^a-z]+", last))
    if up == n and words & _MINIMUM:
        return "the start of a minimum"
    if down == n and words & _MAXIMUM:
        return "the start of a maximum"
    if n == 1 and ("best" in words or _BOOKKEEPING.match(name)):
        return "a start value"
    if down and not up and ends == (0, 0) and ("mask" in last or _is_square(shape)):
        return "a mask of 0 and -Inf"
    return None


def literal_number(counts: Mapping[str, int]) -> str | None:
    """What infinite bare numbers are taken for; a NaN never is."""
    return None if counts["n_nan"] else "taken for a setting or a start value"


def _last(name: str) -> str:
    found = _LAST.search(name)
    return found[1].lower() if found else ""


def _is_square(shape: Sequence[int] | None) -> bool:
    return shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] > 1
