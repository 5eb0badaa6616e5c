"""Omissions: the rows of a table that hold NaN or Inf are left out, and no number stands for them."""

# pyright: basic

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whynan.source.text import Place
from whynan.verify.in_place.visits import ARRAY

if TYPE_CHECKING:
    from typing import Any

    from whynan.verify.in_place.visits import Visits


@dataclass(frozen=True, slots=True)
class Omission:
    """An edit that leaves something out: the file and its text afterwards, and what is lost with it."""

    title: str
    path: str
    edited: str
    lost: str


def without_bad_rows(text: str, visits: Visits) -> Omission | None:
    """The table that has rows with NaN or Inf first, without them; None where no name has such a one."""
    place = Place(text)
    for visit in visits.visits:
        for key, table in visit.values.items():
            name = key.removeprefix(ARRAY)
            bad = _bad_rows(table) if name.isidentifier() else []
            made = _assignment(place, name, visit.line, visits.function) if bad else None
            if made is None:
                continue
            whole = f"isfinite({name}).all(axis=1)"
            module = next((n for n, m in place.imports.items() if m == "numpy"), None) if key != name else None
            kept = f"{module}.{whole}" if module else f"{name}.isfinite().all(dim=1)"
            if key != name and module is None:
                continue
            end, indent = place.span(made)[1], " " * made.col_offset
            edited = f"{text[:end]}\n{indent}{name} = {name}[{kept}]{text[end:]}"
            verb = "holds NaN or Inf and is" if len(bad) == 1 else "hold NaN or Inf and are"
            which = f"{len(bad):,} of the {len(table):,} rows of {name} {verb} left out (row {bad[0]} first)"
            title = f"no rows of {name} that hold NaN or Inf"
            return Omission(title, visits.path, edited, f"{which}; nothing stands for them")
    return None


def _bad_rows(table: Any) -> list[int]:
    """The rows of a table that are not finite, where others are."""
    import torch

    if not isinstance(table, torch.Tensor) or table.dim() != 2 or not table.is_floating_point():
        return []
    bad = (~torch.isfinite(table)).any(dim=1).nonzero().flatten().tolist()
    return bad if len(bad) < len(table) else []


def _assignment(place: Place, name: str, line: int, function: str | None) -> ast.stmt | None:
    """The last assignment of a name above a line of a function."""
    made = [
        node
        for node in place.parents
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == [name]
        and node.lineno < line
        and place.qualified_name(place.function(node)) == function
    ]
    return max(made, key=lambda node: node.lineno, default=None)
