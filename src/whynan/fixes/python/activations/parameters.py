"""A function that is given an activation computes it itself, of logits that its callers give in place of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from whynan.expr.from_python import Reader
from whynan.fixes.python.activations.callers import caller_edits, is_call_of, reached
from whynan.fixes.python.activations.producers import LEAVES_ALONE, activation_of, free_name, indent_of, newline_of
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

_OF_ROWS: Final = "torch.softmax"
"""The activation that is not one of each element."""
_MOVES_ALONG: Final = LEAVES_ALONE | {"cuda", "cpu"}


@dataclass(frozen=True, slots=True)
class GivenActivation:
    """The files of a program that computes the same, with an activation in the function that it was given to.

    ``stages`` are the edits of each file, one after another; ``line`` is the statement that computes the activation.
    """

    title: str
    stages: Mapping[str, tuple[Sequence[Edit], ...]]
    line: str


class _Parameter(NamedTuple):
    """A parameter of a function, by the function's name and place, and its class if it is a method."""

    path: str
    function: str
    owner: str
    name: str

    def definition(self, texts: Mapping[str, str]) -> tuple[Place, ast.FunctionDef] | None:
        """The function in one of the program's files."""
        place = place_of(texts[self.path])
        for node in place.parents if place.tree is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == self.function:
                parent = place.parents.get(node)
                if (parent.name if isinstance(parent, ast.ClassDef) else "") == self.owner:
                    return place, node
        return None


def given_activations(
    texts: Mapping[str, str], path: str, spot: Spot, known: Sequence[Producer], defined: set[str]
) -> Iterator[GivenActivation]:
    """The ways to compute an activation, of which a birth has its operand as a parameter, in the birth's function.

    The callers compute it, or have it of a function that gives its logits if asked.
    """
    for parameter in _parameters(path, spot):
        calls = _calls(texts, parameter)
        if not calls:
            continue
        ways: list[tuple[Mapping[str, Sequence[Edit]], str]] = [({}, f"that {parameter.function} is given")]
        arguments = [(file, reader, argument) for file, reader, _, argument in calls]
        ways += [
            (edits, f"that {producer.qualified} gives")
            for producer in known
            if (edits := _asked(arguments, producer, defined)) is not None
        ]
        for asked, title in ways:
            there = {file: apply_edits(text, asked[file]) if file in asked else text for file, text in texts.items()}
            found = _computed_inside(there, parameter)
            if found is not None:
                edits, line = found
                stages = {file: (asked.get(file, ()), edits.get(file, ())) for file in {*asked, *edits}}
                yield GivenActivation(title, stages, line)


def _parameters(path: str, spot: Spot) -> Iterator[_Parameter]:
    """The parameters that a birth has its operands from."""
    place, function = spot.place, spot.reader.reaching.function
    parent = place.parents.get(function)
    if not isinstance(function, ast.FunctionDef) or not isinstance(parent, (ast.Module, ast.ClassDef)):
        return
    given, owner = function.args, parent.name if isinstance(parent, ast.ClassDef) else ""
    if function.decorator_list or given.posonlyargs or given.vararg or given.kwarg:
        return
    plain = given.args[1 if owner else 0 : len(given.args) - len(given.defaults)]
    definitions = [
        definition
        for node in reached(spot.reader, [spot.start])
        for definition in spot.reader.reaching.definitions_at(node)
    ]
    for argument in plain:
        if any(definition.node is argument for definition in definitions):
            yield _Parameter(path, function.name, owner, argument.arg)


# -- All calls of a function, where it is only called ------------------------------------------------------------------


def _calls(texts: Mapping[str, str], parameter: _Parameter) -> list[tuple[str, Reader, ast.Call, ast.expr]]:
    """The calls of a parameter's function, with what each gives for it; none where something else is done with it."""
    found = parameter.definition(texts)
    if found is None:
        return []
    _, function = found
    names = {function.name}
    calls: list[tuple[str, ast.Call]] = []
    if parameter.owner and function.name in ("forward", "__call__"):
        made = _uses(texts, parameter.owner)
        held = None if made is None else [_held_by(texts[file], call) for file, call in made]
        if held is None or None in held:
            return []
        names = {name for name in held if name is not None}
    for name in sorted(names):
        more = _uses(texts, name)
        if more is None:
            return []
        calls += more
    offset = 1 if parameter.owner else 0
    index = [argument.arg for argument in function.args.args].index(parameter.name) - offset
    complete: list[tuple[str, Reader, ast.Call, ast.expr]] = []
    readers: dict[ast.AST, Reader] = {}
    for file, call in calls:
        given = _given(call, index, parameter.name)
        if given is None:
            return []
        place = place_of(texts[file])
        scope = place.function(call)
        if scope is function:
            return []
        complete.append((file, readers.setdefault(scope, Reader(place, scope)), call, given))
    return complete


def _given(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """What a call gives for a parameter."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    if index < len(call.args):
        return call.args[index]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _uses(texts: Mapping[str, str], name: str) -> list[tuple[str, ast.Call]] | None:
    """The calls of what has a name, which nothing else is done with; None where something is."""
    calls: list[tuple[str, ast.Call]] = []
    for file, text in texts.items():
        if name not in text:
            continue
        place = place_of(text)
        for node in place.parents:
            match node:
                case ast.Name(id=other) | ast.Attribute(attr=other) if other == name:
                    pass
                case _:
                    continue
            parent = place.parents.get(node)
            if not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if isinstance(parent, ast.Call) and parent.func is node:
                calls.append((file, parent))
            elif not _is_left_alone(place, parent) and not _is_handed_on(place, node, name, texts):
                return None
    return calls


def _is_left_alone(place: Place, parent: ast.AST | None) -> bool:
    """Whether what is asked of a module leaves it as it is, under no other name: ``criterion.to(device)``."""
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "super"
    if not isinstance(parent, ast.Attribute) or parent.attr not in _MOVES_ALONG:
        return False
    held = place.parents.get(place.parents[parent])
    return not isinstance(held, ast.Assign) or place.code(held.targets[0]) == place.code(parent.value)


def _is_handed_on(place: Place, node: ast.AST, name: str, texts: Mapping[str, str]) -> bool:
    """Whether it is given to a function of the program whose parameter has the same name."""
    call = place.parents.get(node)
    if isinstance(call, ast.keyword):
        return call.arg == name
    if not isinstance(call, ast.Call) or node not in call.args or any(isinstance(a, ast.Starred) for a in call.args):
        return False
    match call.func:
        case ast.Name(id=callee) | ast.Attribute(attr=callee):
            pass
        case _:
            return False
    defined = [
        function
        for text in texts.values()
        if callee in text
        for function in place_of(text).parents
        if isinstance(function, ast.FunctionDef) and function.name == callee
    ]
    if len(defined) != 1:
        return False
    plain = [argument.arg for argument in defined[0].args.args if argument.arg != "self"]
    index = call.args.index(node) if isinstance(node, ast.expr) else len(plain)
    return index < len(plain) and plain[index] == name


def _held_by(text: str, construction: ast.Call) -> str | None:
    """The name or attribute that a module is assigned to where it is made."""
    place = place_of(text)
    node: ast.AST = construction
    parent = place.parents.get(node)
    while isinstance(parent, ast.Attribute) and parent.attr in _MOVES_ALONG:
        node = place.parents[parent]
        parent = place.parents.get(node)
    match parent:
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value) if value is node:
            return name
        case _:
            return None


# -- The callers give the logits, and the function computes the activation ---------------------------------------------


def _asked(
    arguments: Sequence[tuple[str, Reader, ast.expr]], producer: Producer, defined: set[str]
) -> dict[str, list[Edit]] | None:
    """The edits that have each argument computed of the logits that another function gives."""
    edits: dict[str, list[Edit]] = {producer.path: [*producer.edits]} if producer.edits else {}
    done: dict[Reader, list[ast.Call]] = {}
    for file, reader, argument in arguments:
        calls = [n for n in reached(reader, [argument]) if isinstance(n, ast.Call) and n not in done.get(reader, ())]
        called = [call for call in calls if is_call_of(reader, call, producer, defined)]
        made = caller_edits(reader, producer, called) if called else None
        if made is None and not done.get(reader):
            return None
        edits.setdefault(file, []).extend(made[0] if made is not None else ())
        done.setdefault(reader, []).extend(called)
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
    names: dict[Reader, set[str]] = {}
    for file, reader, call, argument in _calls(texts, parameter):
        found = _logits_of(reader, call, argument, names.setdefault(reader, set()))
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
    given = next(one for one in function.args.args if one.arg == parameter.name)
    is_documented = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    if visible(place, function).get("torch") != "torch" or len(function.body) == is_documented:
        return None
    line = f"{parameter.name} = {activation.format(name)}"
    ahead = place.lines_ahead(function.body[int(is_documented)], line)
    if ahead is None:
        return None
    edits.setdefault(parameter.path, []).extend([_renamed(place, given, parameter.name, name), ahead])
    return edits, line


def _renamed(place: Place, node: ast.arg | ast.keyword, before: str, after: str) -> Edit:
    """The edit that gives a parameter another name, where it is defined or given by its name."""
    start = place.span(cast("ast.expr", node))[0]
    return start, start + len(before), after


def _logits_of(reader: Reader, call: ast.Call, argument: ast.expr, taken: set[str]) -> tuple[str, list[Edit]] | None:
    """The activation that an argument is, and the edits that give its logits in its place; ``taken`` are names."""
    place = reader.place
    inner = _inside(reader, argument)
    direct = activation_of(reader, inner)
    if direct is not None:
        activation, operand = direct
        text = operand if isinstance(operand, str) else place.code(operand)
        is_alike = inner is argument or not activation.startswith(_OF_ROWS)
        return (activation, [(*place.span(inner), text)]) if is_alike else None
    made = reader.reaching.single_definition(inner) if isinstance(inner, ast.Name) else None
    if made is None or made.written or not isinstance(made.value, ast.expr):
        return None
    computed = _inside(reader, made.value)
    found, statement = activation_of(reader, computed), place.parents.get(made.value)
    if found is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    activation, operand = found
    if activation.startswith(_OF_ROWS) and (inner is not argument or computed is not made.value):
        return None
    if _managers(place, statement) != _managers(place, call) or len(statement.targets) > 1:
        return None
    text = operand if isinstance(operand, str) else place.code(operand)
    (start, end), head = place.span(made.value), place.span(statement)[0]
    inside = place.span(computed)
    logits = f"{place.text[start : inside[0]]}{text}{place.text[inside[1] : end]}"
    readers = [node for node, known in reader.reaching.at.items() if made in known]
    is_kept = isinstance(operand, ast.Name) and computed is made.value and _is_same_there(reader, operand, call)
    name = operand.id if isinstance(operand, ast.Name) and is_kept else free_name(reader, "logits", taken)
    taken.add(name)
    given = (*place.span(inner), name)
    if readers == [inner] and is_kept and not indent_of(place, statement).strip():
        first, last = place.line_start(statement.lineno), place.line_start((statement.end_lineno or 0) + 1)
        return activation, [(first, last, ""), given]
    if readers == [inner]:
        return activation, [(*place.span(statement.targets[0]), name), (start, end, logits), given]
    if is_kept:
        return activation, [given]
    line = f"{name} = {logits}{newline_of(place)}{indent_of(place, statement)}"
    return activation, [(head, head, line), (start, end, activation.format(name)), given]


def _inside(reader: Reader, node: ast.expr) -> ast.expr:
    """What an expression is a view of, or a part: ``p`` of ``p.squeeze(1)[:, 0]``."""
    while True:
        match node:
            case ast.Subscript(value=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner)) if operator_of(reader.place, node)[0] in VIEWS:
                node = inner
            case _:
                return node


def _is_same_there(reader: Reader, name: ast.Name, call: ast.Call) -> bool:
    """Whether a name still stands for the same where a call is."""
    before = reader.reaching.definitions_before(reader.place.statement(call), name.id)
    return before == reader.reaching.definitions_at(name)


def _managers(place: Place, node: ast.AST) -> list[ast.AST]:
    return [above for above in place.above(node) if isinstance(above, (ast.With, ast.AsyncWith))]
