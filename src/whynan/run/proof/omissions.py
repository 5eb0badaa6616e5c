"""Omissions: what cannot be computed with is left out, rows of a table and whole batches; no number stands for it."""

# pyright: basic

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.source.text import Place
from whynan.verify.in_place.visits import ARRAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from whynan.verify.in_place.visits import Visits

EMPTY: Final = frozenset({"WN601", "WN602"})
"""The rules of means of nothing, whose batch has nothing to learn from."""


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
            rows = f"{len(bad):,} of the {len(table):,} rows of {name}, the first of them row {bad[0]},"
            lost = f"{rows} are left out, which hold NaN or Inf, and nothing stands for them"
            return Omission(f"{name} without its rows that hold NaN or Inf", visits.path, edited, lost)
    return None


def without_empty_batch(texts: Mapping[str, str]) -> Omission | None:
    """The loop that goes on to its next batch where the loss is not finite; None where there is not just one."""
    found: list[tuple[str, Place, ast.stmt, str]] = []
    for path, text in texts.items():
        place = Place(text)
        for node in place.parents:
            if isinstance(node, ast.Expr) and (loss := _differentiated(node.value)) is not None:
                found.append((path, place, node, loss))
    if len(found) != 1:
        return None
    path, place, statement, loss = found[0]
    loop = next((n for n in place.above(statement) if isinstance(n, (ast.For, ast.While, ast.FunctionDef))), None)
    if not isinstance(loop, ast.For):
        return None
    start = place.span(statement)[0]
    indent = place.text[place.line_start(statement.lineno) : start]
    if indent.strip():
        return None
    step = "\t" if "\t" in indent else "    "
    check = f"if not {loss}.isfinite():\n{indent}{step}continue\n{indent}"
    lost = f"a batch whose {loss} is the mean of nothing is left out, and no step is made for it"
    edited = place.text[:start] + check + place.text[start:]
    return Omission(f"the next batch where {loss} is not finite", path, edited, lost)


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


def _differentiated(node: ast.expr) -> str | None:
    """The name of the loss that an expression calls ``backward`` of, through a scaler or not."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=loss), attr="backward"), args=[]):
            return loss
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="scale"), args=[ast.Name(id=loss)]), attr="backward")
        ):
            return loss
        case _:
            return None
