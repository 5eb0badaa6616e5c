"""Products with a mask, which leave a NaN as it is: the mask chooses instead, ahead of what first reads the NaN."""

# pyright: basic

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from whynan.fixes.python.imports import visible, with_imports
from whynan.ops.signatures import CASTS, VIEWS
from whynan.run.proof.omissions import Omission
from whynan.source.text import Place, apply_edits, is_python, place_of
from whynan.verify.torch_program import isolated_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.records import Site
    from whynan.verify.in_place.visits import Visit, Visits

_CHOSEN: Final = re.compile(r"\+\s*(\w{1,80}) = torch\.where\((.{1,200}) != 0, \1, 0\)\s*")
"""The line that a change adds ahead of what first reads a name."""
_NEW_DIMENSIONS: Final = ("", "[..., None]", "[..., None, None]", "[..., None, None, None]")
"""How a mask is read that has so many dimensions less, the last ones."""
_LOOKS: Final = CASTS | VIEWS | {"bool"}
"""The methods that give the same elements again."""
_AS_NAMES: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)


def chosen_by_mask(text: str, site: Site, visits: Visits) -> Iterator[Omission]:
    """The changes with which a mask of 0 and 1 that is multiplied with NaN at a site chooses, the simplest first.

    It chooses in the product itself, or, so that no gradient is NaN either, where what held the NaN is first read; a
    tensor is left out there only if each NaN in it is where the mask is 0. The number that stands there has no effect,
    for the product multiplies it by 0.
    """
    import torch

    place = place_of(text)
    product = place.node_of(site)
    for factor, mask in _factors(product):
        of, by = place.code(factor), place.code(mask)
        known = [_value_of(by, visit) for visit in visits.visits if visit.line == site.line]
        masks = [value for value in known if isinstance(value, torch.Tensor)]
        if not masks or not all(bool(((value == 0) | (value == 1)).all()) for value in masks):
            continue
        lost = "where {} is 0, 0 stands in place of {}: the product multiplies it by 0, whatever it is"
        edited = _in_product(place, product, factor, mask)
        if edited is not None:
            yield Omission("torch.where ahead of the product with the mask", visits.path, edited, lost.format(by, of))
        tried: set[str] = set()
        for name, anchor in _reads(place, product, mask):
            held = None if name in tried else _bad_value(visits, name, anchor)
            if held is None:
                continue
            tried.add(name)
            wide = _widened(_atom(mask, by), masks[0], held)
            edited = None if wide is None else _ahead(place, anchor, name, wide)
            if edited is not None:
                title = f"torch.where ahead of what reads {name}"
                yield Omission(title, visits.path, edited, lost.format(by, name))


def masked_texts(text: str, patch: str) -> list[str]:
    """All that the choices of masks make of a file's text; ahead of a reader they are those that a patch names."""
    named = {found.groups() for line in patch.splitlines() if (found := _CHOSEN.fullmatch(line)) is not None}
    place, made = place_of(text), list[str | None]()
    for node in place.parents:
        for factor, mask in _factors(node):
            made.append(_in_product(place, node, factor, mask))
            by = place.code(mask)
            wide = {(name, f"{_atom(mask, by)}{new}") for name, _ in named for new in _NEW_DIMENSIONS} & named
            reads = _reads(place, node, mask) if wide else ()
            made += [_ahead(place, anchor, name, mask_) for name, anchor in reads for n, mask_ in wide if n == name]
    return [each for each in made if each is not None]


def _factors(node: ast.AST | None) -> list[tuple[ast.expr, ast.expr]]:
    """The factors of a product, in both orders: what a mask is multiplied with, and the mask."""
    match node:
        case ast.BinOp(left=one, op=ast.Mult(), right=other):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="mul"), args=[one, other], keywords=[]):
            pass
        case ast.Call(func=ast.Attribute(value=one, attr="mul"), args=[other], keywords=[]):
            pass
        case ast.AugAssign(target=ast.Name() as one, op=ast.Mult(), value=other):
            pass
        case _:
            return []
    return [(a, m) for a, m in ((one, other), (other, one)) if _is_repeatable(m)]


def _is_repeatable(mask: ast.expr) -> bool:
    """Whether an expression is a name or an attribute, or what such a one looks like in another shape or dtype."""
    match mask:
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return True
        case ast.UnaryOp(op=ast.Invert(), operand=inner) | ast.Subscript(value=inner):
            return _is_repeatable(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), keywords=[]):
            return name in _LOOKS and _is_repeatable(inner)
        case _:
            return False


def _in_product(place: Place, product: ast.AST | None, factor: ast.expr, mask: ast.expr) -> str | None:
    """The text in which a factor of a product is chosen by the other."""
    if isinstance(product, ast.AugAssign):
        # others may hold what is written into
        return None
    chosen = f"torch.where({_atom(mask, place.code(mask))} != 0, {place.code(factor)}, 0)"
    return _made(place, factor, [(*_with_parentheses(place, factor), chosen)])


def _ahead(place: Place, anchor: ast.stmt, name: str, mask: str) -> str | None:
    """The text in which a name is chosen by a mask ahead of a statement that reads it."""
    edit = place.lines_ahead(anchor, f"{name} = torch.where({mask} != 0, {name}, 0)")
    return None if edit is None else _made(place, anchor, [edit])


def _made(place: Place, at: ast.AST, edits: list[tuple[int, int, str]]) -> str | None:
    edited = apply_edits(place.text, edits)
    if visible(place, at).get("torch") != "torch":
        edited = with_imports(edited, ["torch"])
    return edited if is_python(edited) else None


def _reads(place: Place, product: ast.AST | None, mask: ast.expr) -> Iterator[tuple[str, ast.stmt]]:
    """The names that are read ahead of a product where its mask is known, each with a statement that reads it."""
    if product is None:
        return
    scope = place.scope(product)
    statement = place.statement(product)
    own = [node for node in place.parents if isinstance(node, ast.Name) and place.scope(node) is scope]
    needed = {node.id for node in ast.walk(mask) if isinstance(node, ast.Name)}
    factors = [factor for factor, _ in _factors(product)]
    for node in sorted(own, key=lambda node: (node.lineno, node.col_offset)):
        anchor = place.statement(node)
        if not isinstance(node.ctx, ast.Load) or node.lineno > statement.lineno or node in factors or anchor is scope:
            continue
        others = [n for n in own if n.id in needed - {node.id} and isinstance(n.ctx, ast.Store)]
        known = {n.id: min(o.lineno for o in others if o.id == n.id) for n in others}
        # the mask is the same there, and nothing else reads the name from there on
        is_same = all(line < anchor.lineno for line in known.values())
        is_same &= not any(anchor.lineno <= n.lineno <= statement.lineno for n in others)
        reads = [n for n in own if n.id == node.id and isinstance(n.ctx, ast.Load) and n.lineno >= anchor.lineno]
        is_alone = all(place.statement(n) is anchor for n in reads)
        if is_same and is_alone and _is_made_anew(place, node, own) and not _is_within_another(place, node):
            yield node.id, anchor


def _is_made_anew(place: Place, node: ast.Name, own: list[ast.Name]) -> bool:
    """Whether each turn of the loops around a reader gives the name another value ahead of it."""
    loops = [up for up in place.above(node) if isinstance(up, ast.For | ast.AsyncFor | ast.While)]
    loops = [loop for loop in loops if place.scope(loop) is place.scope(node)]
    if not loops:
        return True
    stored = [n for n in own if n.id == node.id and isinstance(n.ctx, ast.Store) and n.lineno <= node.lineno]
    return any(loops[0].lineno <= n.lineno for n in stored)


def _is_within_another(place: Place, node: ast.Name) -> bool:
    """Whether a name is read within a comprehension or a lambda, which has names of its own."""
    inner = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    statement = place.statement(node)
    for up in place.above(node):
        if up is statement:
            return False
        if isinstance(up, inner):
            return True
    return False


def _bad_value(visits: Visits, name: str, anchor: ast.stmt) -> Any:
    """The tensor with NaN that a name was when a statement read it; None where it was none."""
    known = (visit.values.get(name) for visit in visits.visits if visit.line == anchor.lineno)
    return next((held for held in known if _has_nan(held)), None)


def _value_of(by: str, visit: Visit) -> Any:
    """What an expression came to, of names whose values are known and of PyTorch's functions; None where it cannot."""
    import torch

    if by in visit.values:
        return visit.values[by]
    values = {name: held for name, held in visit.values.items() if name.isidentifier()}
    try:
        with isolated_random_state(), torch.no_grad():
            return eval(by, {"__builtins__": {}, "torch": torch}, values)
    except Exception:
        # of what is not known nothing is said
        return None


def _has_nan(held: Any) -> bool:
    import torch

    return isinstance(held, torch.Tensor) and held.is_floating_point() and bool(torch.isnan(held).any())


def _widened(by: str, mask: Any, held: Any) -> str | None:
    """A mask as it is read beside a tensor, which it has to be 0 at each NaN of; None where it cannot be."""
    import torch

    fits: list[tuple[str, Any]] = []
    for new in _NEW_DIMENSIONS:
        wide = mask[(..., *(None for _ in range(new.count("None"))))]
        try:
            chosen = torch.where(wide != 0, held, 0)
        except RuntimeError:
            continue
        if chosen.shape == held.shape and (not new or mask.shape == held.shape[: mask.dim()]):
            fits.append((new, chosen))
    # of two it is not known which is meant
    return None if len(fits) != 1 or _has_nan(fits[0][1]) else f"{by}{fits[0][0]}"


def _atom(node: ast.expr, code: str) -> str:
    return code if isinstance(node, _AS_NAMES) else f"({code})"


def _with_parentheses(place: Place, node: ast.expr) -> tuple[int, int]:
    """The span of an expression with the parentheses right around it, which are no call's."""
    start, end = place.span(node)
    is_own = place.text[start - 1 : start] == "(" and place.text[end : end + 1] == ")"
    return (start - 1, end + 1) if is_own and not re.search(r"[\w)\]]$", place.text[: start - 1]) else (start, end)
