"""The operator tables: one row an operator, from ``torch_operators.txt`` and ``onnx_operators.txt``.

Only names: this room knows no framework. The head of each file says what its flags and columns mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

_QUOTED: Final = re.compile(r'"([^"]*)"')
_BLANK: Final = "\0"
"""What a blank within quotes is while a line is split."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: its name, what is true of it, and what is known besides."""

    name: str
    flags: frozenset[str]
    columns: Mapping[str, str]


class Table:
    """The rows of a file, read when they are first asked for."""

    def __init__(self, file: str) -> None:
        self.path: Final = Path(__file__).with_name(file)
        self._lists: dict[str, Mapping[str, tuple[str, ...]]] = {}

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """The rows by the operators' names."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return {row.name: row for row in map(_row, lines) if row is not None}

    @cached_property
    def _flagged(self) -> dict[tuple[str, ...], frozenset[str]]:
        found: dict[str, set[str]] = {}
        for row in self.rows.values():
            for flag in row.flags:
                found.setdefault(flag, set()).add(row.name)
        return {(flag,): frozenset(names) for flag, names in found.items()}

    def having(self, *flags: str) -> frozenset[str]:
        """The operators with one of these flags; a flag that no row has is an error.

        >>> "isnan" in TORCH.having("predicate")
        True
        """
        known = self._flagged.get(flags)
        if known is None:
            known = self._flagged[flags] = frozenset[str]().union(*(self._flagged[flag,] for flag in flags))
        return known

    @cached_property
    def _columns(self) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for row in self.rows.values():
            for column, value in row.columns.items():
                found.setdefault(column, {})[row.name] = value
        return found

    def column(self, name: str) -> Mapping[str, str]:
        """What stands in a column, by operator.

        >>> TORCH.column("alias")["cat"]
        'concat,concatenate'
        """
        return self._columns[name]

    def lists(self, column: str) -> Mapping[str, tuple[str, ...]]:
        """A column whose values are lists, by operator."""
        if column not in self._lists:
            self._lists[column] = {name: tuple(value.split(",")) for name, value in self.column(column).items()}
        return self._lists[column]

    def numbers(self, column: str) -> Mapping[str, tuple[int, ...]]:
        """A column whose values are lists of whole numbers, by operator."""
        return {name: tuple(map(int, values)) for name, values in self.lists(column).items()}

    def names(self, column: str) -> Mapping[str, str]:
        """The operators by the names that a column gives them."""
        return {other: name for name, others in self.lists(column).items() for other in others}

    @cached_property
    def poles(self) -> Mapping[str, tuple[str, tuple[float, ...]]]:
        """Exact singularities: the operand, and the values at which the result is infinite."""
        parts = {name: value.partition(":") for name, value in self.column("pole").items()}
        return {name: (operand, tuple(map(float, values.split(",")))) for name, (operand, _, values) in parts.items()}

    @cached_property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """What the operands are in the sentence of a birth: the role, and the operands that decide it."""
        parts = {name: value.partition(":") for name, value in self.column("role").items()}
        return {name: (role, *operands.split(",")) for name, (role, _, operands) in parts.items()}


def _row(line: str) -> Row | None:
    """A line's row; None for a comment and an empty line."""
    if not line or line.startswith("#"):
        return None
    if '"' in line:
        line = _QUOTED.sub(lambda found: found[1].replace(" ", _BLANK), line)
    name, *words = line.split()
    pairs = (word.replace(_BLANK, " ").split("=", 1) for word in words if "=" in word)
    return Row(name, frozenset(word for word in words if "=" not in word), dict(pairs))


TORCH: Final = Table("torch_operators.txt")
ONNX: Final = Table("onnx_operators.txt")
