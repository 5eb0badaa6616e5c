"""Where the program stands that has read a number, and what it decides on it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from whynan.source.decisions.statements import Decision, Flow, FlowAnalysis, names_in
from whynan.source.decisions.values import (
    SETTLED,
    TESTS,
    UNKNOWN,
    Comprehension,
    Flags,
    Value,
    container_value,
    finiteness_test_operand,
    fold_builtin,
)
from whynan.source.definitions import sole_reaching_value
from whynan.source.exported_expressions import callee_name
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import locate

if TYPE_CHECKING:
    from types import FrameType

    from whynan.source.syntax import Syntax

_MOST_FRAMES: Final = 4
"""Through so many functions is what was read handed back."""
_MOST_DEFINITIONS: Final = 8
_COMPREHENSIONS: Final = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


def decision(frame: FrameType | None, value: float | bool) -> Decision | None:
    """What the program decides on a number that it has read at a frame; None where it goes on, or is not known to.

    `value`: the number, NaN or Inf; or, of a tensor whose truth was asked, the answer.
    """
    frame = _skip_internal_frames(frame)
    located = None if frame is None else locate(frame.f_code, frame.f_lasti)
    if frame is None or located is None or not isinstance(located.node, ast.expr):
        return None
    for read in _reads(located.node, value):
        made = _decision_of_read(frame, located.syntax, read, Value(known=True, value=value, led=True))
        found = None if made is None else _propagate_exception(*made)
        if found is not None:
            asked = _with_definitions(located.syntax, read)
            calls = {callee_name(node) for part in asked for node in ast.walk(part) if isinstance(node, ast.Call)}
            names = frozenset(name for part in asked for name in names_in(part))
            return found._replace(names=names, tests=not calls.isdisjoint(TESTS))
    return None


def _with_definitions(syntax: Syntax, read: ast.expr) -> list[ast.expr]:
    """What was read, and what its names surely stand for: ``bad = torch.isnan(loss)`` of ``if bad:``."""
    found = [read]
    for part in found:
        if len(found) > _MOST_DEFINITIONS:
            break
        uses = (node for node in ast.walk(part) if isinstance(node, ast.Name))
        found += [
            value for node in uses if (value := sole_reaching_value(syntax, node)) is not None and value not in found
        ]
    return found


def _propagate_exception(made: Decision, frame: FrameType) -> Decision | None:
    """What the functions of the program's that have called one make of what it has decided to raise."""
    at = frame.f_back if made.does == "ends" else None
    while at is not None:
        located = locate(at.f_code, at.f_lasti) if owner_of(at.f_code.co_filename) is Owner.USER else None
        if located is not None and isinstance(located.node, ast.expr):
            found = FlowAnalysis.from_frame(at, located.syntax, located.node, UNKNOWN).follow_exception(
                located.node, made
            )
            if isinstance(found, Flow):
                # it goes on there
                return None
            if found.does != "ends":
                return found
            made = found
        at = at.f_back
    return made


def _skip_internal_frames(frame: FrameType | None) -> FrameType | None:
    while frame is not None and owner_of(frame.f_code.co_filename) not in (Owner.USER, Owner.LIBRARY):
        frame = frame.f_back
    return frame


def _reads(node: ast.expr, value: float | bool) -> list[ast.expr]:
    """The expressions that may have been read where an instruction stands."""
    if type(value) is bool:
        # an instruction that asks for the truth of one part has the position of the whole test
        return [part for part in _parts(node) if _has_truth(part, value)]
    argument = finiteness_test_operand(node) if isinstance(node, ast.Call) and callee_name(node) in TESTS else node
    # `math.isnan(loss)` takes the number out of the tensor itself
    return [] if argument is None else [argument]


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BoolOp(values=values):
            return [part for each in values for part in _parts(each)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _parts(operand)
        case _:
            return [node]


def _has_truth(part: ast.expr, value: bool) -> bool:
    """Whether an expression has the truth that was asked of a tensor; ``any`` and ``all`` ask it of several."""
    match part:
        case ast.Call(func=ast.Name(id="any")):
            return value
        case ast.Call(func=ast.Name(id="all")):
            return not value
        case _:
            return True


def _decision_of_read(
    frame: FrameType, syntax: Syntax, read: ast.expr, value: Value
) -> tuple[Decision, FrameType] | None:
    """The decision that a read leads to, in its function or in those that have called it, and the frame of that one."""
    at, flags = frame, Flags()
    for _ in range(_MOST_FRAMES):
        while at.f_code.co_name in _COMPREHENSIONS:
            outer = _comprehension_call(at, syntax, read, value)
            if outer is None or at.f_back is None:
                return None
            (read, value), at = outer, at.f_back
        flow = _lambda_flow(at, syntax, read, value) or FlowAnalysis.from_frame(
            at, syntax, read, value, flags
        ).follow_read(read)
        if isinstance(flow, Decision):
            return flow, at
        tells = (flow.kind == "return" and flow.value.led) or (
            flow.kind in ("return", "falls") and any(flag.led for flag in flags.values())
        )
        back = _skip_internal_frames(at.f_back) if tells else None
        located = None if back is None else locate(back.f_code, back.f_lasti)
        if back is None or located is None or not isinstance(located.node, ast.expr):
            return None
        at, syntax, read, value = back, located.syntax, located.node, flow.value
    return None


def _lambda_flow(frame: FrameType, syntax: Syntax, read: ast.expr, value: Value) -> Flow | None:
    """What a lambda gives; None where the frame is of none."""
    above = syntax.above(read) if frame.f_code.co_name == "<lambda>" else ()
    node = next((each for each in above if isinstance(each, ast.Lambda)), None)
    return (
        None
        if node is None
        else Flow("return", value=FlowAnalysis.from_frame(frame, syntax, read, value).values.evaluate(node.body))
    )


def _comprehension_call(
    frame: FrameType, syntax: Syntax, read: ast.expr, value: Value
) -> tuple[ast.expr, Value] | None:
    """What a comprehension that holds a read is to the call that takes it: ``any(isnan(x) for x in losses)``."""
    node = next((each for each in (read, *syntax.above(read)) if isinstance(each, Comprehension)), None)
    if node is None:
        return None
    outer = syntax.parents.get(node)
    found = FlowAnalysis.from_frame(frame, syntax, read, value).values.evaluate(
        node.value if isinstance(node, ast.DictComp) else node.elt
    )
    if not found.known or not found.led:
        return None
    if not isinstance(outer, ast.Call) or callee_name(outer) not in SETTLED:
        return node, container_value(found)
    settled = fold_builtin(callee_name(outer), found)
    return (outer, settled) if settled.known else None
