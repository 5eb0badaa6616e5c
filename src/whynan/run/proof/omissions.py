"""Omissions: the rows of a table that hold NaN or Inf are left out, and no number stands for them."""

# pyright: basic

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whynan.source.text import Place, parse_or_none
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
            made = _assignments(place, name, visits.function) if bad else []
            last = max((node for node in made if node.lineno < visit.line), key=lambda node: node.lineno, default=None)
            edited = None if last is None else _without_rows(place, last, name, of_numpy=key != name)
            if edited is None:
                continue
            verb = "holds NaN or Inf and is" if len(bad) == 1 else "hold NaN or Inf and are"
            which = f"{len(bad):,} of the {len(table):,} rows of {name} {verb} left out (row {bad[0]} first)"
            title = f"no rows of {name} that hold NaN or Inf"
            return Omission(title, visits.path, edited, f"{which}; nothing stands for them")
    return None


def row_texts(text: str) -> list[str]:
    """All that leaving out rows makes of a file's text: below each assignment of a name."""
    place = Place(text)
    names = {node.id for node in place.parents if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made = [(name, node) for name in sorted(names) for node in _assignments(place, name)]
    texts = (_without_rows(place, node, name, of_numpy=kind) for name, node in made for kind in (False, True))
    return [edited for edited in texts if edited is not None]


def _without_rows(place: Place, made: ast.stmt, name: str, *, of_numpy: bool) -> str | None:
    """A file's text in which a name, once it is assigned, keeps its finite rows alone; None where it cannot be said."""
    module = next((n for n, meaning in place.imports.items() if meaning == "numpy"), None)
    if of_numpy and module is None:
        return None
    kept = f"{module}.isfinite({name}).all(axis=1)" if of_numpy else f"{name}.isfinite().all(dim=1)"
    start, end = place.span(made)
    newline = "\r\n" if "\r\n" in place.text else "\n"
    line = f"{newline}{place.text[place.line_start(made.lineno) : start]}{name} = {name}[{kept}]"
    edited = place.text[:end] + line + place.text[end:]
    return edited if parse_or_none(edited) is not None else None


def _bad_rows(table: Any) -> list[int]:
    """The rows of a table that are not finite, where others are."""
    import torch

    if not isinstance(table, torch.Tensor) or table.dim() != 2 or not table.is_floating_point():
        return []
    bad = (~torch.isfinite(table)).any(dim=1).nonzero().flatten().tolist()
    return bad if len(bad) < len(table) else []


def _assignments(place: Place, name: str, function: str | None = "") -> list[ast.Assign]:
    """The assignments of a name alone, in a function; in all where the name of that is empty."""
    return [
        node
        for node in place.parents
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == [name]
        and (function == "" or place.qualified_name(place.function(node)) == function)
    ]
