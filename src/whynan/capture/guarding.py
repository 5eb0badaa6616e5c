"""When a guard against a small number has written over values that were none; for each framework alike."""

# pyright: strict

from __future__ import annotations

from typing import Final, TypeGuard

LARGEST: Final = 1e-2
"""No guard against a small number has a greater one."""
FAR: Final = 100.0
"""So many times the constant is far from it."""
LEAST_SHARE: Final = 0.01
SEVERAL: Final = 3
"""A guard that writes over fewer healthy elements is not told."""


def is_guard(constant: object) -> TypeGuard[float]:
    """Whether a constant is so small that it is written against a division by 0, and no other value."""
    return type(constant) is float and 0 < constant <= LARGEST


def is_told(count: int, total: int) -> bool:
    """Whether so many healthy elements of so many are worth a word."""
    return count >= SEVERAL and count >= LEAST_SHARE * total
