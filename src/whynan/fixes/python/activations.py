"""A softmax or sigmoid that a function returns, computed by its caller, of logits that the function gives if asked."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from whynan.expr.from_python import Reader
from whynan.fixes.python.candidates import related_spots
from whynan.fixes.python.edit import hoist_obstacle
from whynan.fixes.python.imports import visible
from whynan.ops.signatures import SIGNATURES
from whynan.ops.table import TORCH
from whynan.source.calls import operator_of
from whynan.source.text import Place, apply_edits, is_python, parse_or_none, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from whynan.fixes.python.candidates import Spot
    from whynan.fixes.python.edit import Root
    from whynan.fixes.python.formula import Edit
    from whynan.records import Finding

_ACTIVATIONS: Final = TORCH.having("saturating") & TORCH.column("logarithm").keys()
_POLES: Final = TORCH.column("pole").keys()
_ASKED: Final = "return_logits"
_LOOKS_INSIDE: Final = r"\.register_\w*hook|\.forward\s*=[^=]|\bsymbolic_trace\b|\bjit\.script"
"""A program that hears what its modules give, or has their code read, may see the logits."""
_LEAVES_ALONE: Final = frozenset(
    {"parameters", "named_parameters", "state_dict", "load_state_dict", "train", "eval", "to", "zero_grad"}
)
"""What may be asked of a sequence of modules that is taken apart."""
_GRADIENTS: Final = frozenset({"grad", "retain_grad", "register_hook"})
_LOGITS_OF: Final = {
    "softmax": {"Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough", "RelaxedOneHotCategorical"},
    "sigmoid": {"Bernoulli", "RelaxedBernoulli", "ContinuousBernoulli", "Geometric", "Binomial", "NegativeBinomial"},
}
"""The distributions whose probabilities are an activation of their logits."""
_MOST: Final = 3
"""So many ways of moving an activation are tried."""


@dataclass(frozen=True, slots=True)
class MovedActivation:
    """The files of a program that computes the same, with an activation in the function that a birth is in.

    ``text`` is that of the birth's file; ``others`` are the path, the text and the edited text of the other file.
    ``lines`` are the statements that compute the activation where it is used.
    """

    title: str
    before: str
    text: str
    others: tuple[tuple[str, str, str], ...]
    edits: tuple[Edit, ...]
    lines: tuple[str, ...]

    def without_unread(self, edited: str) -> str:
        """An edited text without the activations that nothing reads there any more."""
        place = place_of(edited)
        unread = [node for node in place.parents if isinstance(node, ast.Assign) and self._is_unread(place, node)]
        lines = ((place.line_start(n.lineno), place.line_start((n.end_lineno or n.lineno) + 1), "") for n in unread)
        return apply_edits(edited, lines)

    def _is_unread(self, place: Place, node: ast.Assign) -> bool:
        if place.code(node) not in self.lines or not isinstance(node.targets[0], ast.Name):
            return False
        names = (n for n in ast.walk(place.function(node)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return all(name.id != node.targets[0].id for name in names)

    def relocated(self, finding: Finding) -> Finding:
        """A finding of the file as it is at the same expression of the edited one."""
        site, place, moved = finding.site, place_of(self.before), place_of(self.text)
        node = None if site is None else place.node_of(site)
        if site is None or node is None:
            return finding
        start, end = place.span(node)
        start += sum(len(new) - (b - a) for a, b, new in self.edits if b <= start)
        end += sum(len(new) - (b - a) for a, b, new in self.edits if a < end)
        (line, column), (end_line, end_column) = moved.position(start), moved.position(end)
        there = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return finding.model_copy(update={"site": site.model_copy(update=there)})


@dataclass(frozen=True, slots=True)
class _Producer:
    """A function that returns an activation, or a call of a sequence of modules that ends in one.

    ``index``: of which element, where it returns several. ``activation`` is a call with ``{}`` for the logits.
    """

    path: str
    name: str
    owner: str
    index: int | None
    activation: str
    edits: tuple[Edit, ...]
    is_alone: bool = False
    """Whether no other module of the program's own can stand where one of its owner does."""

    @property
    def qualified(self) -> str:
        """Its name as a reader says it."""
        return f"{self.owner}.{self.name}" if self.owner else self.name


def moved_activations(
    texts: Mapping[str, str], path: str, finding: Finding, others: Sequence[Finding] = ()
) -> Iterator[MovedActivation]:
    """The ways to have the activation whose logarithm a finding is of in the function that takes the logarithm.

    ``texts`` are the program's files by their paths, ``path`` that of the finding's site. It is moved to the functions
    of the ``others`` of the same file too, which call it for a logarithm of their own.
    """
    spots = related_spots(texts[path], finding)
    if isinstance(spots, str) or any(re.search(_LOOKS_INSIDE, text) for text in texts.values()):
        return
    defined = [function for text in texts.values() for function in _defined(text)]
    # what hands any keyword on may make something else of the logits
    handing = {node.name for node in defined if not isinstance(node, ast.ClassDef) and node.args.kwarg is not None}
    known = [producer for file, text in texts.items() for producer in _producers(file, text)]
    models, times = _models(texts.values()), Counter(node.name for node in defined)
    known = [
        replace(producer, is_alone=models <= {producer.owner})
        for producer in known
        if not handing & {producer.name, "__call__"} and (producer.name == "forward" or times[producer.name] == 1)
    ]
    site = finding.site
    there = [other for other in others if site is not None and other.site is not None and other.site.file == site.file]
    further = [found[0] for other in there if not isinstance(found := related_spots(texts[path], other), str)]
    names = {node.name for node in defined}
    made = (_moved(texts, path, [spot, *further], known, names) for spot in spots)
    drawn = _of_distributions(texts[path], [*spots, *further])
    yield from itertools.islice(itertools.chain(itertools.chain.from_iterable(made), drawn), _MOST)


def _of_distributions(text: str, spots: Sequence[Spot]) -> Iterator[MovedActivation]:
    """The probabilities of distributions as what these compute them by, of their logits."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for spot in spots:
        place = spot.reader.place
        for node in _reached(spot.reader, [spot.start]):
            if isinstance(node, ast.Attribute) and node.attr == "probs":
                torch = next((name for name, meaning in visible(place, node).items() if meaning == "torch"), None)
                if torch is not None:
                    found[place.span(node)] = torch, place.code(node.value)
    owners = ", ".join(dict.fromkeys(owner for _, (_, owner) in sorted(found.items())))
    given = _given_probabilities(place_of(text)) if found else {}
    for name, call in (("softmax", "{}.softmax({}.logits, dim=-1)"), ("sigmoid", "{}.sigmoid({}.logits)")):
        edits = *given.get(name, ()), *((*span, call.format(*parts)) for span, parts in found.items())
        if found and is_python(edited := apply_edits(text, edits)):
            yield MovedActivation(owners, text, edited, (), edits, ())


def _given_probabilities(place: Place) -> dict[str, list[Edit]]:
    """The edits that give distributions the logits of which they are given an activation, by its name.

    One is of its last dimension; what another dimension is of a tensor, a run tells where it is the only one.
    """
    edits: dict[str, list[tuple[bool, Edit]]] = {}
    for node in place.parents:
        call = place.parents.get(node)
        if not isinstance(node, ast.keyword) or node.arg != "probs" or not isinstance(call, ast.Call):
            continue
        names = place.meaning(call.func) or [""]
        found = _activation(Reader(place, place.function(node)), node.value)
        activation = "" if found is None else found[0].removeprefix("torch.").partition("(")[0]
        if found is None or names[:2] != ["torch", "distributions"] or names[-1] not in _LOGITS_OF.get(activation, ()):
            continue
        operand = found[1] if isinstance(found[1], str) else place.code(found[1])
        is_last = activation == "sigmoid" or "dim=-1" in found[0]
        edit = *place.span(cast("ast.expr", node)), f"logits={operand}"
        edits.setdefault(activation, []).append((is_last, edit))
    return {name: [edit for is_last, edit in made if is_last or len(made) == 1] for name, made in edits.items()}


def _moved(
    texts: Mapping[str, str], path: str, spots: Sequence[Spot], known: Sequence[_Producer], defined: set[str]
) -> Iterator[MovedActivation]:
    found: dict[_Producer, dict[str | None, tuple[Reader, list[ast.Call]]]] = {}
    for spot in spots:
        reader, calls = spot.reader, _reached_calls(spot.reader, spot.start)
        function, around = reader.place.qualified_name(reader.reaching.function), _autocasts(reader.place, spot.start)
        own = [one for call in calls if (one := _sequence_of(reader, call)) is not None]
        for producer in [*known, *(one for one in own if _is_only_called(texts.values(), one.name))]:
            called = [call for call in calls if _is_call_of(reader, call, producer, defined)]
            called = [call for call in called if _autocasts(reader.place, call) <= around]
            if called and (spot is spots[0] or producer in found):
                found.setdefault(producer, {}).setdefault(function, (reader, called))
    for producer, functions in found.items():
        made = [_caller_edits(reader, producer, called) for reader, called in functions.values()]
        kept = [one for one in made if one is not None]
        if made[0] is None:
            continue
        here = producer.path == path
        edits = [*(edit for one, _ in kept for edit in one), *(producer.edits if here else ())]
        text = apply_edits(texts[path], edits)
        others = () if here or not producer.edits else ((producer.path, texts[producer.path]),)
        both = tuple((file, before, apply_edits(before, producer.edits)) for file, before in others)
        if is_python(text) and all(is_python(after) for _, _, after in both):
            lines = tuple(line for _, added in kept for line in added)
            yield MovedActivation(producer.qualified, texts[path], text, both, tuple(edits), lines)


def _defined(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes of a file."""
    tree = parse_or_none(text)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)] if tree is not None else []


def _models(texts: Iterable[str]) -> set[str]:
    """The classes with a ``forward`` that are made elsewhere than as a part of another one."""
    places = [place_of(text) for text in texts]
    classes = {
        node.name
        for place in places
        for node in place.parents
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == "forward" for each in node.body)
    }
    calls = ((place, node) for place in places for node in place.parents if isinstance(node, ast.Call))
    return {
        node.func.id
        for place, node in calls
        if isinstance(node.func, ast.Name)
        and node.func.id in classes
        and not any(isinstance(above, ast.ClassDef) for above in place.above(node))
    }


def _reached_calls(reader: Reader, start: Root) -> list[ast.Call]:
    """The calls that a birth, or another function with a pole in the same function, has its operands from."""
    nodes = (node for node in ast.walk(reader.reaching.function) if isinstance(node, ast.Call))
    starts = [start, *(node for node in nodes if operator_of(reader.place, node)[0] in _POLES)]
    reached = (node for node in _reached(reader, starts) if isinstance(node, ast.Call))
    calls = [node for node in reached if operator_of(reader.place, node)[0] is None]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _reached(reader: Reader, starts: Sequence[ast.AST]) -> dict[ast.AST, None]:
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


# -- The function that returns an activation ---------------------------------------------------------------------------


def _producers(path: str, text: str) -> Iterator[_Producer]:
    """The functions of a file that return an activation and compute it nowhere else."""
    if not any(name in text.lower() for name in _ACTIVATIONS):
        return
    place = place_of(text)
    for function in place.parents if place.tree is not None else ():
        parent = place.parents.get(function)
        if isinstance(function, ast.FunctionDef) and isinstance(parent, (ast.Module, ast.ClassDef)):
            owner = parent.name if isinstance(parent, ast.ClassDef) else ""
            yield from _producers_in(path, Reader(place, function), function, owner)


def _producers_in(path: str, reader: Reader, function: ast.FunctionDef, owner: str) -> Iterator[_Producer]:
    place = reader.place
    inner = [node for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))]
    parameter = _parameter(place, function)
    if len(inner) != 1 or parameter is None or function.decorator_list or _ASKED in place.names:
        return
    value = getattr(inner[0], "value", None)
    elements: list[ast.expr] = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
    for number, element in enumerate(elements):
        node = _returned(reader, element)
        found = None if node is None else _activation(reader, node)
        if node is None or found is None or any(isinstance(a, (ast.With, ast.AsyncWith)) for a in place.above(node)):
            continue
        edits = _logits_edits(reader, node, found[1])
        if edits is not None:
            index = number if isinstance(value, ast.Tuple) else None
            yield _Producer(path, function.name, owner, index, found[0], (parameter, *edits))


def _returned(reader: Reader, element: ast.expr) -> ast.expr | None:
    """The expression of what is returned, where nothing else reads it."""
    if not isinstance(element, ast.Name):
        return element
    made = reader.reaching.single_definition(element)
    if made is None or made.written or not isinstance(made.value, ast.expr):
        return None
    readers = [node for node, found in reader.reaching.at.items() if made in found]
    match reader.place.parents.get(made.value):
        case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign():
            return made.value if readers == [element] else None
        case _:
            return None


def _parameter(place: Place, function: ast.FunctionDef) -> Edit | None:
    """The edit that gives a function the parameter by which it is asked for the logits."""
    given = function.args
    nodes: list[ast.AST] = [*given.args, *given.defaults, *given.kwonlyargs, *(d for d in given.kw_defaults if d)]
    if not given.args or given.posonlyargs or given.vararg or given.kwarg:
        return None
    end = max(place.span(cast("ast.expr", node))[1] for node in nodes)
    star = "" if given.kwonlyargs else "*, "
    return end, end, f", {star}{_ASKED}=False"


def _activation(reader: Reader, node: ast.expr) -> tuple[str, ast.expr | str] | None:
    """The call of an activation with ``{}`` for its operand, and the operand: as it is, or as it would be written."""
    if not isinstance(node, ast.Call):
        return None
    last = _last_of_sequence(reader, node)
    term = reader.read(node)
    if last is not None:
        term = reader.read(ast.copy_location(ast.Call(last, [ast.Name("x", ast.Load())], []), node))
    if term.name not in _ACTIVATIONS or len(term.children) != len(SIGNATURES.get(term.name, ("input",))):
        return None
    settings = [(name, child) for name, child in term.children if name != "input"]
    texts = [f", {name}={ast.unparse(child.node)}" for name, child in settings if _is_literal(child.node)]
    operand = term.child("input")
    if len(texts) != len(settings) or operand is None or not isinstance(operand.node, ast.expr):
        return None
    call = f"torch.{term.name}({{}}{''.join(texts)})"
    if last is not None:
        given = ", ".join(reader.place.code(value) for value in node.args)
        return call, f"{reader.place.code(node.func)}[:-1]({given})"
    return call, operand.node


def _is_literal(node: object) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case _:
            return False


def _last_of_sequence(reader: Reader, call: ast.Call) -> ast.Call | None:
    """The construction of the last module of a sequence that is called."""
    made = reader.construction(call.func)
    if not isinstance(made, ast.Call) or made is call.func or len(made.args) < 2 or made.keywords or call.keywords:
        return None
    names, last = reader.place.meaning(made.func), made.args[-1]
    is_sequence = names is not None and names[:2] == ["torch", "nn"] and names[-1] == "Sequential"
    return last if is_sequence and isinstance(last, ast.Call) else None


def _sequence_of(reader: Reader, call: ast.Call) -> _Producer | None:
    """What a call of a sequence of modules is, whose last one is an activation."""
    if _last_of_sequence(reader, call) is None or (found := _activation(reader, call)) is None:
        return None
    return _Producer("", reader.place.code(call.func), "", None, found[0], ())


def _is_only_called(texts: Iterable[str], name: str) -> bool:
    """Whether nothing but calls, and what leaves its modules alone, is made of a sequence of modules of a name."""
    last = name.rpartition(".")[2]
    for text in texts:
        place = place_of(text)
        for node in place.parents:
            named = (isinstance(node, ast.Attribute) and node.attr == last) or (
                isinstance(node, ast.Name) and node.id == last
            )
            parent = place.parents.get(node)
            if not named or isinstance(getattr(node, "ctx", None), ast.Store):
                continue
            is_called = isinstance(parent, ast.Call) and parent.func is node
            is_called |= isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load)
            if not is_called and not (isinstance(parent, ast.Attribute) and parent.attr in _LEAVES_ALONE):
                return False
    return True


def _logits_edits(reader: Reader, node: ast.expr, operand: ast.expr | str) -> tuple[Edit, ...] | None:
    """The edits that have an activation's operand in its place where that is asked for."""
    place = reader.place
    start = place.span(node)[0]
    if isinstance(operand, (str, ast.Name)):
        logits = operand if isinstance(operand, str) else operand.id
        return ((start, start, f"{logits} if {_ASKED} else "),)
    if hoist_obstacle(reader, node, [node]) is not None:
        return None
    statement, name = place.statement(node), _free(reader, "logits")
    head = place.span(statement)[0]
    line = f"{name} = {place.code(operand)}{_newline(place)}{_indent(place, statement)}"
    return (head, head, line), (start, start, f"{name} if {_ASKED} else "), (*place.span(operand), name)


def _indent(place: Place, statement: ast.stmt) -> str:
    return place.text[place.line_start(statement.lineno) : place.span(statement)[0]]


def _newline(place: Place) -> str:
    return "\r\n" if "\r\n" in place.text else "\n"


def _free(reader: Reader, wanted: str) -> str:
    """A name that nothing in the file has."""
    names = (wanted, *(f"{wanted}_{number}" for number in range(2, 100)))
    return next(name for name in names if name not in reader.place.names)


# -- The function that calls it ----------------------------------------------------------------------------------------


def _is_call_of(reader: Reader, call: ast.Call, producer: _Producer, defined: set[str]) -> bool:
    """Whether a call may be one of a function, as it is written."""
    own = _sequence_of(reader, call)
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
    if not isinstance(made, ast.Call) and not producer.is_alone:
        return False
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in defined - {producer.owner}:
        return False
    callees = [call.func, made.func] if isinstance(made, ast.Call) else [call.func]
    return all((reader.place.meaning(callee) or [""])[0] != "torch" for callee in callees)


def _autocasts(place: Place, node: ast.AST) -> set[ast.AST]:
    """The context managers around a node that choose dtypes."""
    managers = (above for above in place.above(node) if isinstance(above, (ast.With, ast.AsyncWith)))
    return {m for m in managers if any("autocast" in place.code(item.context_expr) for item in m.items)}


def _caller_edits(
    reader: Reader, producer: _Producer, calls: Sequence[ast.Call]
) -> tuple[list[Edit], list[str]] | None:
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
        name = _free(reader, "logits" if number == 1 else f"logits_{number}")
        next_line = f"{_newline(place)}{_indent(place, statement)}"
        if target is not None and _asks_gradients(reader, target):
            return None
        if target is not None and (behind := _line_end(place, statement)) is not None:
            name = name if len(calls) == 1 else _free(reader, f"{target.id}_logits")
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


def _asks_gradients(reader: Reader, target: ast.Name) -> bool:
    """Whether the gradient of what a name stands for is asked for."""
    nodes = (n for n in ast.walk(reader.reaching.function) if isinstance(n, ast.Attribute) and n.attr in _GRADIENTS)
    return any(isinstance(node.value, ast.Name) and node.value.id == target.id for node in nodes)


def _asked(place: Place, producer: _Producer, call: ast.Call) -> Iterator[Edit]:
    """The edits of a call that has the logits given."""
    if not producer.edits:
        end = place.span(call.func)[1]
        yield end, end, "[:-1]"
        return
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    end = max((place.span(value)[1] for value in given), default=place.span(call)[1] - 1)
    while given and place.text[end : end + 1] == ")" and end + 1 < place.span(call)[1]:
        end += 1
    yield end, end, f"{', ' if given else ''}{_ASKED}=True"


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


def _line_end(place: Place, statement: ast.stmt) -> int | None:
    """The end of the line that a statement ends, if it stands there alone."""
    end = place.span(statement)[1]
    rest, _, _ = place.text[end:].partition("\n")
    is_alone = not _indent(place, statement).strip() and rest.strip()[:1] in ("", "#")
    return end + len(rest.rstrip("\r")) if is_alone else None
