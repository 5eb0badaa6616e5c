"""A function that is given an activation computes it itself, of logits that its callers give in place of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from whynan.expr.from_python import Reader
from whynan.fixes.python.activations.callers import asks_gradients, caller_edits, is_call_of, line_end, reached
from whynan.fixes.python.activations.producers import OF_ROWS, activation_of, free_name, indent_of, newline_of, part_of
from whynan.fixes.python.activations.uses import Uses, argument_of
from whynan.fixes.python.imports import visible
from whynan.ops.signatures import VIEWS
from whynan.source.calls import operator_of
from whynan.source.text import apply_edits, is_python, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whynan.fixes.python.activations.producers import Producer
    from whynan.fixes.python.candidates import Spot
    from whynan.fixes.python.formula import Edit
    from whynan.source.text import Place

_MANAGERS: Final = (ast.With, ast.AsyncWith)


@dataclass(frozen=True, slots=True)
class GivenActivation:
    """The files of a program that computes the same, with an activation in the function that it was given to.

    ``stages`` are the edits of each file, one after another; ``line`` is the statement that computes the activation.
    ``callee`` is the name of the function, or of its class.
    """

    title: str
    callee: str
    stages: Mapping[str, tuple[Sequence[Edit], ...]]
    line: str


class _Parameter(NamedTuple):
    """A parameter of a function, by the function's name and place, and its class if it is a method."""

    path: str
    function: str
    owner: str
    name: str

    @property
    def qualified(self) -> str:
        """Its function's name as a reader says it."""
        return f"{self.owner}.{self.function}" if self.owner else self.function

    def definition(self, texts: Mapping[str, str]) -> tuple[Place, ast.FunctionDef] | None:
        """The function in one of the program's files."""
        place = place_of(texts[self.path])
        for node in place.parents if place.tree is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == self.function:
                parent = place.parents.get(node)
                if (parent.name if isinstance(parent, ast.ClassDef) else "") == self.owner:
                    return place, node
        return None


_NOBODYS: Final = _Parameter("", "", "", "")
_Stage: TypeAlias = "Mapping[str, Sequence[Edit]]"
_DEPTH: Final = 3
"""Through so many functions is an activation followed that they hand on."""


def given_activations(
    texts: Mapping[str, str], path: str, spot: Spot, known: Sequence[Producer], defined: set[str]
) -> Iterator[GivenActivation]:
    """The ways to compute an activation, of which a birth has its operand as a parameter, in the birth's function.

    The callers compute it, have it of a function that gives its logits if asked, or are given it in their turn.
    """
    for parameter in _parameters(path, spot):
        for stages, title, line in _ways(texts, parameter, known, defined, _DEPTH):
            files = dict.fromkeys(file for stage in reversed(stages) for file in stage)
            edits = {file: tuple(stage.get(file, ()) for stage in stages) for file in files}
            yield GivenActivation(title, parameter.owner or parameter.function, edits, line)


def _ways(
    texts: Mapping[str, str], parameter: _Parameter, known: Sequence[Producer], defined: set[str], depth: int
) -> Iterator[tuple[tuple[_Stage, ...], str, str]]:
    """The edits of the files, one stage after another, with what gives the logits and the line of the activation."""
    calls = _calls(texts, parameter)
    if not calls:
        return
    asked: list[tuple[tuple[_Stage, ...], str]] = [((), f"that {parameter.qualified} is given")]
    for producer in known:
        edits = _producer_edits(calls, producer, defined)
        asked += [] if edits is None else [((edits,), f"that {producer.qualified} gives")]
    outer = _outer_parameter(calls) if depth > 1 else None
    if outer is not None:
        asked += [(stages, title) for stages, title, _ in _ways(texts, outer, known, defined, depth - 1)]
    for stages, title in asked:
        there = dict(texts)
        for stage in stages:
            there |= {file: apply_edits(there[file], edits) for file, edits in stage.items()}
        found = _computed_inside(there, parameter)
        if found is not None:
            yield (*stages, found[0]), title, found[1]


def _outer_parameter(calls: Sequence[_Given]) -> _Parameter | None:
    """The parameter of the one function that hands on what it is given."""
    found: set[_Parameter] = set()
    for path, reader, _, argument in calls:
        inner, function = part_of(reader, argument), reader.reaching.function
        made = reader.reaching.single_definition(inner) if isinstance(inner, ast.Name) else None
        parent = reader.place.parents.get(function)
        is_plain = isinstance(function, ast.FunctionDef) and isinstance(parent, (ast.Module, ast.ClassDef))
        if made is None or made.written or not isinstance(function, ast.FunctionDef) or not is_plain:
            return None
        owner = parent.name if isinstance(parent, ast.ClassDef) else ""
        plain = [one for one in _own_parameters(function, owner) if one is made.node]
        found |= {_Parameter(path, function.name, owner, one.arg) for one in plain} or {_NOBODYS}
    return found.pop() if len(found) == 1 and _NOBODYS not in found else None


def _own_parameters(function: ast.FunctionDef, owner: str) -> list[ast.arg]:
    """The parameters that every call of a function gives something for; none of one that may be called otherwise."""
    given = function.args
    if function.decorator_list or given.posonlyargs or given.vararg or given.kwarg:
        return []
    return given.args[1 if owner else 0 : len(given.args) - len(given.defaults)]


def _parameters(path: str, spot: Spot) -> Iterator[_Parameter]:
    """The parameters that a birth has its operands from."""
    place, function = spot.place, spot.reader.reaching.function
    parent = place.parents.get(function)
    if not isinstance(function, ast.FunctionDef) or not isinstance(parent, (ast.Module, ast.ClassDef)):
        return
    owner = parent.name if isinstance(parent, ast.ClassDef) else ""
    definitions = [
        definition
        for node in reached(spot.reader, [spot.start])
        for definition in spot.reader.reaching.definitions_at(node)
    ]
    written = {definition.name for definition in spot.reader.reaching.definitions() if definition.written}
    for argument in _own_parameters(function, owner):
        if argument.arg not in written and any(definition.node is argument for definition in definitions):
            yield _Parameter(path, function.name, owner, argument.arg)


# -- All calls of a function, where it is only called ------------------------------------------------------------------


class _Given(NamedTuple):
    """A call of a parameter's function, the function that it is in, and what it gives for the parameter."""

    path: str
    reader: Reader
    call: ast.Call
    argument: ast.expr


def _calls(texts: Mapping[str, str], parameter: _Parameter) -> list[_Given]:
    """The calls of a parameter's function; none where they may not be all, or something else is done with it."""
    found, places = parameter.definition(texts), {path: place_of(text) for path, text in texts.items()}
    program = Uses(places)
    if found is None or program.is_looked_up:
        return []
    _, function = found
    if parameter.owner and function.name in ("forward", "__call__"):
        calls = program.calls_of_instances(parameter.owner)
    elif function.name.startswith("__"):
        return []
    else:
        is_free = not parameter.owner
        is_one = len(program.defined(function.name, is_free=is_free)) == 1
        calls = program.calls(function.name, is_free=is_free) if is_one else None
    offset = 1 if parameter.owner else 0
    index = [argument.arg for argument in function.args.args].index(parameter.name) - offset
    complete: list[_Given] = []
    readers: dict[ast.AST, Reader] = {}
    for path, call in calls or ():
        given, place = argument_of(call, index, parameter.name), places[path]
        scope = place.function(call)
        of_class = isinstance(call.func, ast.Attribute) and place.code(call.func.value) == parameter.owner
        if given is None or scope is function or of_class:
            return []
        complete.append(_Given(path, readers.setdefault(scope, Reader(place, scope)), call, given))
    return complete


# -- The callers give the logits, and the function computes the activation ---------------------------------------------


def _producer_edits(given: Sequence[_Given], producer: Producer, defined: set[str]) -> dict[str, list[Edit]] | None:
    """The edits that have each argument computed of the logits that another function gives."""
    edits: dict[str, list[Edit]] = {producer.path: [*producer.edits]} if producer.edits else {}
    callers: dict[Reader, tuple[str, list[ast.Call]]] = {}
    for path, reader, _, argument in given:
        calls = [node for node in reached(reader, [argument]) if isinstance(node, ast.Call)]
        called = [call for call in calls if is_call_of(reader, call, producer, defined)]
        if not called:
            return None
        known = callers.setdefault(reader, (path, []))[1]
        known += [call for call in called if call not in known]
    for reader, (path, called) in callers.items():
        made = caller_edits(reader, producer, sorted(called, key=lambda call: (call.lineno, call.col_offset)))
        if made is None:
            return None
        edits.setdefault(path, []).extend(made[0])
    return edits


def _computed_inside(texts: Mapping[str, str], parameter: _Parameter) -> tuple[dict[str, list[Edit]], str] | None:
    """The edits of each file by which a function computes the activation that is its parameter, and that statement."""
    if not all(is_python(text) for text in texts.values()):
        return None
    defined = parameter.definition(texts)
    if defined is None:
        return None
    place, function = defined
    name = free_name(Reader(place, function), "logits")
    edits: dict[str, list[Edit]] = {}
    activations: set[str] = set()
    names: dict[Reader, dict[ast.stmt, str]] = {}
    for given in _calls(texts, parameter):
        file, reader, call, argument = given
        found = _logits_of(given, names.setdefault(reader, {}))
        if found is None:
            return None
        activation, made = found
        activations.add(activation)
        keyword = next((k for k in call.keywords if k.value is argument), None)
        made += [] if keyword is None else [_renamed(reader.place, keyword, parameter.name, name)]
        edits.setdefault(file, []).extend(edit for edit in made if edit not in edits.get(file, ()))
    if len(activations) != 1:
        return None
    (activation,) = activations
    own = next(one for one in function.args.args if one.arg == parameter.name)
    is_documented = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    if visible(place, function).get("torch") != "torch" or len(function.body) == is_documented:
        return None
    line = f"{parameter.name} = {activation.format(name)}"
    ahead = place.lines_ahead(function.body[int(is_documented)], line)
    if ahead is None:
        return None
    edits.setdefault(parameter.path, []).extend([_renamed(place, own, parameter.name, name), ahead])
    return edits, line


def _renamed(place: Place, node: ast.arg | ast.keyword, before: str, after: str) -> Edit:
    """The edit that gives a parameter another name, where it is defined or given by its name."""
    start = place.span(cast("ast.expr", node))[0]
    return start, start + len(before), after


def _logits_of(given: _Given, taken: dict[ast.stmt, str]) -> tuple[str, list[Edit]] | None:
    """The activation that an argument is, and the edits that give its logits in its place.

    ``taken``: the names of logits so far, by the statements that compute their activations.
    """
    reader, argument = given.reader, given.argument
    place = reader.place
    inner = part_of(reader, argument)
    direct = activation_of(reader, inner)
    if direct is not None:
        activation, operand = direct
        is_alike = inner is argument or not activation.startswith(OF_ROWS)
        if not is_alike or (not _is_fresh(reader, operand) and _writes(given.call)):
            return None
        return activation, [(*place.span(inner), _text(place, operand, is_whole=inner is argument))]
    made = reader.reaching.single_definition(inner) if isinstance(inner, ast.Name) else None
    if made is None or made.written or not isinstance(made.value, ast.expr) or not isinstance(inner, ast.Name):
        return None
    computed = part_of(reader, made.value)
    found, statement = activation_of(reader, computed), place.parents.get(made.value)
    if found is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    activation, operand = found
    is_alike = inner is argument and computed is made.value
    if (activation.startswith(OF_ROWS) and not is_alike) or len(statement.targets) > 1:
        return None
    if not _is_same_later(given, statement, operand) or line_end(place, statement) is None:
        return None
    (start, end), head = place.span(made.value), place.span(statement)[0]
    inside = place.span(computed)
    text = _text(place, operand, is_whole=computed is made.value)
    logits = f"{place.text[start : inside[0]]}{text}{place.text[inside[1] : end]}"
    is_named = isinstance(operand, ast.Name) and computed is made.value
    known = taken.get(statement)
    name = operand.id if isinstance(operand, ast.Name) and is_named else known
    name = name or free_name(reader, "logits", taken.values())
    taken[statement] = name
    edit = (*place.span(inner), name)
    readers = [node for node, definitions in reader.reaching.at.items() if made in definitions]
    if known is not None:
        return activation, [edit]
    if readers != [inner] or isinstance(reader.reaching.function, ast.Module):
        line = f"{name} = {logits}{newline_of(place)}{indent_of(place, statement)}"
        more = [] if is_named else [(head, head, line), (start, end, activation.format(name))]
        return activation, [*more, edit]
    if is_named:
        first, last = place.line_start(statement.lineno), place.line_start((statement.end_lineno or 0) + 1)
        return activation, [(first, last, ""), edit]
    return activation, [(*place.span(statement.targets[0]), name), (start, end, logits), edit]


def _text(place: Place, operand: ast.expr | str, *, is_whole: bool) -> str:
    """An operand as it is written where an activation of it was, and where only part of an expression was that."""
    if isinstance(operand, str):
        return operand
    text, atoms = place.code(operand), (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
    is_plain = isinstance(operand, atoms) or (is_whole and not isinstance(operand, ast.NamedExpr))
    return text if is_plain and ("\n" not in text or isinstance(operand, ast.Call)) else f"({text})"


def _is_fresh(reader: Reader, operand: ast.expr | str) -> bool:
    """Whether an operand is computed anew, and shares its memory with nothing that may be written into."""
    if isinstance(operand, ast.Call):
        return operator_of(reader.place, operand)[0] not in VIEWS
    return isinstance(operand, (str, ast.BinOp))


def _writes(node: ast.AST) -> bool:
    """Whether something in an expression may write into a tensor, or give a name another value."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    names = (call.func.attr for call in calls if isinstance(call.func, ast.Attribute))
    return any(name.endswith("_") for name in names) or any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def _is_same_later(given: _Given, statement: ast.Assign, operand: ast.expr | str) -> bool:
    """Whether an operand is at a call what it was where the activation of it is computed, and is all that counts there.

    That is so of one that is computed anew, and of one that the next statement gives. Whoever asks for the gradient of
    the activation, or writes into it, asks of the activation that the function is given.
    """
    reader, place, target = given.reader, given.reader.place, statement.targets[0]
    if not isinstance(target, ast.Name) or asks_gradients(reader, target):
        return False
    above = list(place.above(given.call))
    inner = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    until = next((number for number, one in enumerate(above) if isinstance(one, ast.stmt)), 0)
    if any(isinstance(one, inner) for one in above[:until]) or _writes(given.call):
        return False
    if [one for one in above if isinstance(one, _MANAGERS)] != [
        m for m in place.above(statement) if isinstance(m, _MANAGERS)
    ]:
        return False
    for node in ast.walk(reader.reaching.function):
        match node:
            case ast.Name(id=name, ctx=ast.Del()) if name == target.id:
                return False
            case ast.Call(func=ast.Attribute(attr="grad" | "backward"), args=args, keywords=keywords):
                asked = [*args, *(keyword.value for keyword in keywords)]
                asked += [part for one in asked if isinstance(one, (ast.List, ast.Tuple)) for part in one.elts]
                if any(isinstance(one, ast.Name) and one.id == target.id for one in asked):
                    return False
            case _:
                pass
    return _is_fresh(reader, operand) or all(_only_computes(place, one, operand) for one in _between(given, statement))


def _between(given: _Given, statement: ast.stmt) -> Iterator[ast.stmt | None]:
    """The statements after one of a block up to that of a call; None at the end where it is in another block."""
    place = given.reader.place
    last = place.statement(given.call)
    found = False
    for one in ast.iter_child_nodes(place.parents[statement]):
        if one is last and found:
            return
        if found and isinstance(one, ast.stmt):
            yield one
        found = found or one is statement
    yield None


def _only_computes(place: Place, statement: ast.stmt | None, operand: ast.expr | str) -> bool:
    """Whether a statement gives a name what operators of PyTorch's make of others, and writes into none.

    A name that is not in it may be the operand of an activation beside other calls too.
    """
    match statement:
        case ast.Assign(targets=[ast.Name()]) if not _writes(statement):
            nodes = list(ast.walk(statement))
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            is_apart = isinstance(operand, ast.Name) and operand.id not in names
            return is_apart or all(operator_of(place, n)[0] is not None for n in nodes if isinstance(n, ast.Call))
        case _:
            return False
