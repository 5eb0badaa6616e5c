"""Omissions: rows of a table, or samples of a dataset, that hold NaN or Inf are left out; no number stands for them."""

# pyright: basic

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.fixes.python.constructors import constructions
from whynan.fixes.python.imports import visible, with_imports
from whynan.source.dataflow import mutated_name, root_of
from whynan.source.text import Place, apply_edits, is_python, parse_or_none, place_of
from whynan.verify.in_place.visits import ARRAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from whynan.verify.in_place.loaded_samples import LoadedSamples
    from whynan.verify.in_place.visits import Visits

_MOST: Final = 16
"""So many samples are named at most."""
_LEFT_OUT: Final = re.compile(
    r"Subset\((.{1,200}?), \[i for i in range\(len\(\1\)\) if i "
    r"(?:!= ([0-9]{1,9})|not in \(([0-9]{1,9}(?:, [0-9]{1,9})+)\))\]\)"
)


@dataclass(frozen=True, slots=True)
class Omission:
    """An edit that leaves something out: the file and its text afterwards, and what is lost with it."""

    title: str
    path: str
    edited: str
    lost: str


def without_bad_rows(text: str, visits: Visits) -> Omission | None:
    """The table that has rows with NaN or Inf first, without them; None where no name has such a one.

    There is none where something else may be matched with it row by row, as labels are: it would belong to other rows.
    """
    place = place_of(text)
    for visit in visits.visits:
        for key, table in visit.values.items():
            name = key.removeprefix(ARRAY)
            bad = _bad_rows(table) if name.isidentifier() else []
            made = _made(place, name, visits.function) if bad else []
            ahead = (node for node in made if (node.end_lineno or node.lineno) < visit.line)
            last = max(ahead, key=lambda node: node.lineno, default=None)
            edited = None if last is None else _without_rows(place, last, name, of_numpy=key != name)
            if edited is None or last is None or _Rows(place, last, name, visits).may_be_paired(len(table)):
                continue
            holds = "hold NaN or Inf and are" if bad[1:] else "holds NaN or Inf and is"
            row = f"row {bad[0]} first" if bad[1:] else f"row {bad[0]}"
            which = f"{len(bad):,} of the {len(table):,} rows of {name} {holds} left out ({row})"
            title = f"no rows of {name} that hold NaN or Inf"
            return Omission(title, visits.path, edited, f"{which}; nothing stands for them")
    return None


def without_bad_samples(text: str, loaded: LoadedSamples, texts: Iterable[str] = ()) -> Omission | None:
    """A loader's dataset without those of its samples that hold NaN or Inf, which are named.

    A sample has all that belongs together. There is none where more than half are bad, nor where a text of the program
    may ask what only the whole dataset has, or may pair samples that keep their order with something by position.
    """
    site, bad = loaded.site, loaded.bad
    if any(_is_asked(each, counted=loaded.in_order) for each in (text, *texts)):
        return None
    call = next((call for call in _loader_calls(site.file, text) if call.lineno == site.line), None)
    few = len(bad) <= min(_MOST, loaded.total // 2)
    edited = _without_samples(text, call, bad) if call is not None and few else None
    if edited is None:
        return None
    which = f"the samples {', '.join(map(str, bad))}" if bad[1:] else f"sample {bad[0]}"
    are = "hold NaN or Inf and are" if bad[1:] else "holds NaN or Inf and is"
    them = "them" if bad[1:] else "it"
    lost = f"{which} of the {loaded.total:,} of the dataset {are} left out; nothing stands for {them}"
    lost += f"; what follows {them} moves up" * loaded.in_order
    return Omission("no samples that hold NaN or Inf", site.file, edited, lost)


def sample_texts(path: str, text: str, patch: str) -> list[str]:
    """All that leaving out samples makes of a file's text: at each call of ``DataLoader``.

    Which samples is taken of a report's patch, of the lines that it adds: whole numbers, and nothing else.
    """
    added = re.findall(r"^\+.*", patch, re.MULTILINE)
    named = {one[1:] for line in added for one in _LEFT_OUT.findall(line)}
    lists = [[int(number) for number in (one or several).split(", ")] for one, several in sorted(named)]
    calls = _loader_calls(path, text) if lists else []
    edited = [_without_samples(text, call, bad) for call in calls for bad in lists]
    return [one for one in edited if one is not None]


def _is_asked(text: str, *, counted: bool) -> bool:
    """Whether a text reads more of a loader's dataset than its length, or counts anything (``enumerate``, ``zip``)."""
    place = place_of(text)
    for node, parent in place.parents.items():
        match node:
            case ast.Attribute(attr="dataset", value=value, ctx=ast.Load()) if ast.unparse(value) != "self":
                length = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "len"
                if not length and not isinstance(parent, ast.Compare):
                    return True
            case ast.Name(id="enumerate" | "zip") if counted:
                return True
    return place.tree is None


def _loader_calls(path: str, text: str) -> list[ast.Call]:
    calls = constructions({path: text}, "torch.utils.data.DataLoader")
    return [] if isinstance(calls, str) else [call.call for call in calls]


def _without_samples(text: str, call: ast.Call, bad: Sequence[int]) -> str | None:
    """A file's text in which a call of ``DataLoader`` is given a dataset without some samples."""
    given = next((k.value for k in call.keywords if k.arg == "dataset"), None) or next(iter(call.args), None)
    place = place_of(text)
    call = next(n for n in place.parents if isinstance(n, ast.Call) and place.span(n) == place.span(call))
    above = list(place.above(call))
    statement = next((node for node in above if isinstance(node, ast.stmt)), None)
    # the fourth is a sampler
    is_open = any(isinstance(one, ast.Starred) for one in call.args) or len(call.args) > 3
    if is_open or any(keyword.arg in (None, "sampler", "batch_sampler") for keyword in call.keywords):
        return None
    if given is None or statement is None:
        return None
    start = place.line_start(statement.lineno)
    indent = text[start : place.span(statement)[0]]
    code, edits = place.code(given), list[tuple[int, int, str]]()
    if not isinstance(given, ast.Name | ast.Attribute):
        # it is made once
        within = above[: above.index(statement)]
        if indent.strip() or any(isinstance(node, ast.Lambda | ast.comprehension | ast.IfExp) for node in within):
            return None
        name = next((name for name in ("dataset", "samples", "all_samples") if name not in place.names), None)
        if name is None:
            return None
        newline = "\r\n" if "\r\n" in text else "\n"
        edits.append((start, start, f"{indent}{name} = {code}{newline}"))
        code = name
    known = f"i != {bad[0]}" if len(bad) == 1 else f"i not in {tuple(bad)}"
    kept = f"torch.utils.data.Subset({code}, [i for i in range(len({code})) if {known}])"
    edited = apply_edits(text, [*edits, (*place.span(given), kept)])
    if visible(place, call).get("torch") != "torch":
        edited = with_imports(edited, ["torch"])
    return edited if is_python(edited) else None


class _Rows:
    """What a function computes from a table behind the line that is to leave out rows of it."""

    def __init__(self, place: Place, made: ast.stmt, table: str, visits: Visits) -> None:
        self._visits = visits
        scopes = {node: place.qualified_name(place.function(node)) for node in place.parents}
        self._own = [node for node, scope in scopes.items() if scope == visits.function]
        # in a loop what stands ahead is read again
        start = 0 if any(isinstance(n, ast.For | ast.AsyncFor | ast.While) for n in place.above(made)) else made.lineno
        self._later = {ast.unparse(n) for n in self._own if isinstance(n, ast.expr) and n.lineno > start}
        inner = self._own if visits.function else scopes
        self._inner = [node for node in inner if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
        self._computed = {table}
        stored = [node for node in self._own if isinstance(node, ast.Assign | ast.For | ast.AugAssign)]
        earlier = {name for node in stored if node.lineno < made.lineno for name in _names(node, ast.Store)}
        grown = True
        while grown:
            reading = [n for n in stored if n.lineno > made.lineno and _names(_source(n), ast.Load) & self._computed]
            kept = {name for n in stored if n not in reading and n is not made for name in _names(n, ast.Store)}
            found = {name for node in reading for name in _names(_targets(node), ast.Store)} - kept - earlier
            grown = not found <= self._computed
            self._computed |= found

    def may_be_paired(self, rows: int) -> bool:
        """Whether anything that does not follow the table has as many elements, or leaves the function, or may."""
        values = [
            (key.removeprefix(ARRAY), value) for visit in self._visits.visits for key, value in visit.values.items()
        ]
        if any(_length(value) == rows and text in self._later and not self._follows(text) for text, value in values):
            return True
        known = {text for text, _ in values}
        counted = {text for text, value in values if _length(value) == rows}
        left = {
            name for node in self._own if isinstance(node, ast.Return | ast.Yield) for name in _names(node, ast.Load)
        }
        if any(name in counted or name not in known for name in left & self._computed):
            return True
        # what is too long to be kept, or no array
        elements = {ast.unparse(part) for node in self._own for part in _in_elements(node)}
        if any(text not in known and text not in vars(builtins) and not self._follows(text) for text in elements):
            return True
        return any(_names(inner, ast.Load) & self._computed - _bound(inner) for inner in self._inner)

    def _follows(self, text: str) -> bool:
        tree = parse_or_none(text)
        return tree is not None and bool(_names(tree, ast.Load) & self._computed)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _source(node: ast.Assign | ast.For | ast.AugAssign) -> ast.expr:
    return node.iter if isinstance(node, ast.For) else node.value


def _targets(node: ast.Assign | ast.For | ast.AugAssign) -> ast.AST:
    return ast.Tuple(node.targets) if isinstance(node, ast.Assign) else node.target


def _bound(function: ast.AST) -> set[str]:
    return _names(function, ast.Store) | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def _in_elements(node: ast.AST) -> list[ast.expr]:
    """What a node takes the elements of."""
    match node:
        case ast.Subscript(value=value, ctx=ast.Load()) | ast.For(iter=value) | ast.comprehension(iter=value):
            found = [value]
        case ast.Call(func=ast.Name(id="zip" | "enumerate" | "iter"), args=found):
            pass
        case _:
            return []
    return [one for one in found if isinstance(one, ast.Name | ast.Attribute)]


def _length(value: Any) -> int | None:
    if isinstance(value, list | tuple):
        return len(value)
    return len(value) if getattr(value, "ndim", 0) else None


def row_texts(text: str) -> list[str]:
    """All that leaving out rows makes of a file's text: below each assignment of a name and what is written into it."""
    place = place_of(text)
    names = {node.id for node in place.parents if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made = [(name, node) for name in sorted(names) for node in _made(place, name)]
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
    return edited if is_python(edited) else None


def _bad_rows(table: Any) -> list[int]:
    """The rows of a table that are not finite, where others are."""
    import torch

    if not isinstance(table, torch.Tensor) or table.dim() != 2 or not table.is_floating_point():
        return []
    bad = (~torch.isfinite(table)).any(dim=1).nonzero().flatten().tolist()
    return bad if len(bad) < len(table) else []


def _made(place: Place, name: str, function: str | None = "") -> list[ast.stmt]:
    """Where a name gets its value, in a function, or in all where the name of that is empty.

    These are the assignments of the name alone, and what is written into the value further down in the same block.
    """
    found: list[ast.stmt] = []
    for node in place.parents:
        if not isinstance(node, ast.Assign) or [ast.unparse(target) for target in node.targets] != [name]:
            continue
        if function == "" or place.qualified_name(place.function(node)) == function:
            blocks = (value for _, value in ast.iter_fields(place.parents[node]) if isinstance(value, list))
            block = next(block for block in blocks if node in block)
            later = block[block.index(node) + 1 :]
            found += [node, *(each for each in later if _writes_into(each, name))]
    return found


def _writes_into(statement: ast.stmt, name: str) -> bool:
    """Whether a statement, or a part of it, changes elements of what a name stands for."""
    for node in ast.walk(statement):
        match node:
            case ast.Subscript(ctx=ast.Store()) | ast.AugAssign(target=ast.Name()):
                written = root_of(node.target if isinstance(node, ast.AugAssign) else node)
            case ast.Call():
                written = mutated_name(node)
            case _:
                continue
        if isinstance(written, ast.Name) and written.id == name:
            return True
    return False
