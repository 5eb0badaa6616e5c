"""The callers of a function that gives its logits if asked: they compute the activation themselves."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Final

from whynan.fixes.python.activations.producers import (
    ASKED,
    Producer,
    free_name,
    indent_of,
    newline_of,
    sequence_of,
)
from whynan.fixes.python.edit import hoist_obstacle
from whynan.fixes.python.imports import visible
from whynan.ops.table import TORCH
from whynan.source.calls import operator_of
from whynan.source.text import Place, apply_edits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.expr.from_python import Reader
    from whynan.fixes.python.edit import Root
    from whynan.fixes.python.formula import Edit

_POLES: Final = TORCH.column("pole").keys()
_GRADIENTS: Final = frozenset({"grad", "retain_grad", "register_hook"})


def reached_calls(reader: Reader, start: Root) -> list[ast.Call]:
    """The calls that a birth, or another function with a pole in the same function, has its operands from."""
    nodes = (node for node in ast.walk(reader.reaching.function) if isinstance(node, ast.Call))
    starts = [start, *(node for node in nodes if operator_of(reader.place, node)[0] in _POLES)]
    found = (node for node in reached(reader, starts) if isinstance(node, ast.Call))
    calls = [node for node in found if operator_of(reader.place, node)[0] is None]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def reached(reader: Reader, starts: Sequence[ast.AST]) -> dict[ast.AST, None]:
    """What some expressions have their values from, in their function."""
    waiting = [*starts]
    seen: dict[ast.AST, None] = {}
    while waiting:
        for node in ast.walk(waiting.pop()):
            if node in seen:
                continue
            seen[node] = None
            made = (_value(reader, d.node) for d in reader.reaching.definitions_at(node) if not d.written)
            waiting += [value for value in made if value is not None]
    return seen


def _value(reader: Reader, target: ast.AST | None) -> ast.expr | None:
    """What is assigned to a name, or taken apart into several."""
    for above in reader.place.above(target) if isinstance(target, ast.Name) else ():
        match above:
            case ast.Assign(value=value) | ast.AnnAssign(value=value):
                return value
            case ast.stmt():
                return None
            case _:
                pass
    return None


def is_call_of(reader: Reader, call: ast.Call, producer: Producer, defined: set[str]) -> bool:
    """Whether a call may be one of a function, as it is written."""
    own = sequence_of(reader, call)
    if own is not None or not producer.edits:
        return own == producer
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            pass
        case _:
            return False
    if name == producer.name:
        return isinstance(call.func, ast.Attribute) or not producer.owner
    if not producer.owner or producer.name != "forward" or name in defined or name in dir(builtins):
        return False
    made = reader.construction(call.func)
    if not isinstance(made, ast.Call) and any(_accepts(rival, call) for rival in producer.rivals):
        return False
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in defined - {producer.owner}:
        return False
    callees = [call.func, made.func] if isinstance(made, ast.Call) else [call.func]
    return all((reader.place.meaning(callee) or [""])[0] != "torch" for callee in callees)


def _accepts(method: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether a method can be called with the arguments of a call."""
    given, names = method.args, {keyword.arg for keyword in call.keywords}
    if None in names or any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    plain = [argument.arg for argument in (*given.posonlyargs, *given.args)][1:]
    taken, rest = plain[: len(call.args)], plain[len(call.args) :]
    needed = set(rest[: len(rest) - len(given.defaults)] if len(rest) > len(given.defaults) else ())
    needed |= {a.arg for a, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None}
    known = {*rest, *(argument.arg for argument in given.kwonlyargs)}
    fits = len(taken) == len(call.args) or given.vararg is not None
    return fits and needed <= names and (names <= known or given.kwarg is not None)


def autocasts(place: Place, node: ast.AST) -> set[ast.AST]:
    """The context managers around a node that choose dtypes."""
    managers = (above for above in place.above(node) if isinstance(above, (ast.With, ast.AsyncWith)))
    return {m for m in managers if any("autocast" in place.code(item.context_expr) for item in m.items)}


def caller_edits(reader: Reader, producer: Producer, calls: Sequence[ast.Call]) -> tuple[list[Edit], list[str]] | None:
    """The edits that ask for the logits where a function is called; and the statements of the activation there."""
    place = reader.place
    found: list[Edit] = []
    lines: list[str] = []
    for number, call in enumerate(calls, 1):
        if visible(place, call).get("torch") != "torch":
            return None
        statement = place.statement(call)
        target = _target(statement, call, producer.index)
        asked = [*_asked(place, producer, call)]
        (start, end), head = place.span(call), place.span(statement)[0]
        name = free_name(reader, "logits" if number == 1 else f"logits_{number}")
        next_line = f"{newline_of(place)}{indent_of(place, statement)}"
        if target is not None and asks_gradients(reader, target):
            return None
        if target is not None and (behind := line_end(place, statement)) is not None:
            name = name if len(calls) == 1 else free_name(reader, f"{target.id}_logits")
            lines.append(f"{target.id} = {producer.activation.format(name)}")
            found += [(*place.span(target), name), *asked, (behind, behind, next_line + lines[-1])]
        elif producer.index is not None:
            return None
        elif hoist_obstacle(reader, call, [call]) is None:
            line = f"{name} = {apply_edits(place.text[:end], asked)[start:]}{next_line}"
            found += [(head, head, line), (start, end, producer.activation.format(name))]
        else:
            before, after = producer.activation.split("{}")
            found += [(start, start, before), *asked, (end, end, after)]
    return found, lines


def asks_gradients(reader: Reader, target: ast.Name) -> bool:
    """Whether the gradient of what a name stands for is asked for."""
    nodes = (n for n in ast.walk(reader.reaching.function) if isinstance(n, ast.Attribute) and n.attr in _GRADIENTS)
    return any(isinstance(node.value, ast.Name) and node.value.id == target.id for node in nodes)


def _asked(place: Place, producer: Producer, call: ast.Call) -> Iterator[Edit]:
    """The edits of a call that has the logits given."""
    if not producer.edits:
        end = place.span(call.func)[1]
        yield end, end, "[:-1]"
        return
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    end = max((place.span(value)[1] for value in given), default=place.span(call)[1] - 1)
    while given and place.text[end : end + 1] == ")" and end + 1 < place.span(call)[1]:
        end += 1
    yield end, end, f"{', ' if given else ''}{ASKED}=True"


def _target(statement: ast.stmt, call: ast.Call, index: int | None) -> ast.Name | None:
    """The name that the probabilities are given by a statement which does nothing but call for them."""
    match statement:
        case ast.Assign(targets=[ast.Name() as name], value=value) if value is call and index is None:
            return name
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=value) if value is call and index is not None:
            name = names[index] if index < len(names) else None
            is_plain = all(isinstance(each, ast.Name) for each in names)
            return name if is_plain and isinstance(name, ast.Name) else None
        case _:
            return None


def line_end(place: Place, statement: ast.stmt) -> int | None:
    """The end of the line that a statement ends, if it stands there alone."""
    end = place.span(statement)[1]
    rest, _, _ = place.text[end:].partition("\n")
    is_alone = not indent_of(place, statement).strip() and rest.strip()[:1] in ("", "#")
    return end + len(rest.rstrip("\r")) if is_alone else None
