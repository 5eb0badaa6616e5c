"""Constructor calls: where the user's source makes an object of a class, and an argument given there."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Declined
from whynan.source.text import Place, apply_edits, is_python, parse_or_none, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from whynan.records.intents import ArgumentIntent

_BY_POSITION: Final = {"optimizer": 2, "module": 0, "config": 1}
"""So many arguments by position are never one of the rows: the parameters and the rate; what is loaded."""
_QUESTIONS: Final = frozenset({"isinstance", "issubclass"})
_CLOSED: Final = re.compile(r"(\s*\))*")
"""Parentheses around the last argument, which are no part of its node."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an object is assigned to: an attribute of a class's instances, or a name of a function or of the module."""

    name: str
    owner: str = ""
    function: str = ""


@dataclass(frozen=True, slots=True)
class ArgumentEdit:
    """An argument given where an object is constructed: the file, and its whole text afterwards."""

    title: str
    path: str
    before: str
    edited: str
    value: str
    given: str | None
    """What the call gave; None where it gave nothing."""
    named: tuple[tuple[str, str], ...] = ()
    """All that the call gives by name."""


@dataclass(frozen=True, slots=True)
class Construction:
    """A call that constructs an object of a class."""

    path: str
    call: ast.Call
    _place: Place

    @property
    def where(self) -> str:
        """Its file and line."""
        return f"{self.path}:{self.call.lineno}"

    @property
    def target(self) -> Target | None:
        """What the object is assigned to; None where that is no name and no attribute of ``self``."""
        match self._place.parents.get(self.call):
            case ast.Assign(targets=[node]) | ast.AnnAssign(target=node):
                pass
            case _:
                return None
        above = list(self._place.above(self.call))
        match node:
            case ast.Name(id=name):
                function = next((n.name for n in above if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))), "")
                return Target(name, function=function)
            case ast.Attribute(attr=name, value=ast.Name(id="self")):
                return Target(name, owner=next((n.name for n in above if isinstance(n, ast.ClassDef)), ""))
            case _:
                return None

    def given(self, intent: ArgumentIntent) -> ast.expr | None:
        """What the call gives as an argument, by its name or by its position."""
        named = next((k.value for k in self.call.keywords if k.arg == intent.name), None)
        at = intent.parameters.index(intent.name) if intent.name in intent.parameters else len(self.call.args)
        return self.call.args[at] if named is None and at < len(self.call.args) else named

    def code(self, node: ast.expr) -> str:
        """The text of a part of it."""
        return self._place.code(node)

    def edit(self, intent: ArgumentIntent, value: str, title: str) -> ArgumentEdit | Declined:
        """The text of the file in which the call gives the argument; or why that cannot be written."""
        given = self.given(intent)
        is_open = any(isinstance(a, ast.Starred) for a in self.call.args) or any(
            k.arg is None for k in self.call.keywords
        )
        if given is None and is_open:
            return Declined(title, f"what the call at {self.where} is given cannot be told (* or **)")
        if given is None and intent.name not in intent.parameters and len(self.call.args) > _BY_POSITION[intent.owner]:
            return Declined(title, f"what the call at {self.where} gives by position may be {intent.name}")
        was = None if given is None else self._place.code(given)
        if was == value:
            return Declined(title, "it is written so already")
        text = f"{intent.name}={value}"
        edit = _addition(self._place, self.call, text) if given is None else (*self._place.span(given), value)
        edited = apply_edits(self._place.text, [edit])
        if not is_python(edited):
            return Declined(title, "it cannot be written there")
        named = tuple((k.arg, self._place.code(k.value)) for k in self.call.keywords if k.arg is not None)
        return ArgumentEdit(title, self.path, self._place.text, edited, value, was, named)


def constructions(texts: Mapping[str, str], cls: str) -> list[Construction] | str:
    """The calls in some files, by their paths, that construct the objects of a class; or why there may be others.

    ``cls`` is its full public name.
    """
    calls: list[Construction] = []
    for path, text in texts.items():
        # most files do not name it
        if cls.rpartition(".")[2] not in text:
            continue
        place = place_of(text)
        if place.tree is None:
            return f"{path} does not parse"
        for node, parent in place.parents.items():
            if not isinstance(node, (ast.Name, ast.Attribute)) or not _means(place, node, cls):
                continue
            if isinstance(parent, ast.Call) and parent.func is node:
                calls.append(Construction(path, parent, place))
            elif not _only_asks(place, node):
                return f"{path}:{node.lineno} hands the class on, and it cannot be told what is made of it"
    return calls or f"no call in the program's own files makes the {cls.rpartition('.')[2]}"


def configurations(
    texts: Mapping[str, str], library: str, made: Collection[str], loaded: Collection[str]
) -> list[Construction]:
    """The calls in some files that make a library's configurations, or load them, or models, ``from_pretrained``.

    ``made`` and ``loaded`` are the names of the classes; one that chooses the class itself (``AutoModel``) loads too.
    """
    calls: list[Construction] = []
    for path, text in texts.items():
        place = place_of(text)
        for node in place.parents if library in text and place.tree is not None else ():
            match node:
                case ast.Call(func=ast.Attribute(value=named, attr="from_pretrained")):
                    names = loaded
                case ast.Call(func=named):
                    names = made
                case _:
                    continue
            meant = place.meaning(named) or [""]
            if meant[0] == library and (meant[-1] in names or (names is loaded and meant[-1].startswith("Auto"))):
                calls.append(Construction(path, node, place))
    return calls


def assignment(texts: Mapping[str, str], name: str) -> str | None:
    """Where an argument is given elsewhere than by the call: to an attribute of what is not ``self``, or by its key."""
    for path, text in texts.items():
        for node in ast.walk(parse_or_none(text) or ast.Module([], [])) if name in text else ():
            match node:
                case ast.Attribute(attr=attribute, value=owner, ctx=ast.Store()) if attribute == name:
                    if not (isinstance(owner, ast.Name) and owner.id == "self"):
                        return f"{path}:{node.lineno}"
                case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Store()) if key == name:
                    return f"{path}:{node.lineno}"
                case ast.Dict(keys=keys) if any(isinstance(k, ast.Constant) and k.value == name for k in keys):
                    return f"{path}:{node.lineno}"
                case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=key), *_]) if key == name:
                    return f"{path}:{node.lineno}"
                case ast.Call(func=ast.Attribute(attr="update"), keywords=given) if any(k.arg == name for k in given):
                    return f"{path}:{node.lineno}"
                case _:
                    pass
    return None


def edit_title(cls: str, intent: ArgumentIntent, value: str) -> str:
    """An argument of a class's constructor, as it is written."""
    return f"{cls.rpartition('.')[2]}({intent.name}={value})"


def argument_edits(path: str, text: str, intent: ArgumentIntent) -> Iterator[ArgumentEdit]:
    """Every edit of one file that an intent can come to, whichever object it is of."""
    for cls in intent.classes:
        names = place_of(text).names if intent.owner == "config" else ()
        found = configurations({path: text}, cls, names, names) if names else constructions({path: text}, cls)
        for call in () if isinstance(found, str) else found:
            for value in {value for _, value in intent.values}:
                title = edit_title(call.code(call.call.func) if names else cls, intent, value)
                made = call.edit(intent, value, title)
                if isinstance(made, ArgumentEdit):
                    yield made


def _means(place: Place, node: ast.Name | ast.Attribute, cls: str) -> bool:
    """Whether a name is the class's, in whichever of torch's modules it is looked up."""
    if not isinstance(node.ctx, ast.Load):
        return False
    names, wanted = place.meaning(node) or [""], cls.split(".")
    return names[-1] == wanted[-1] and names[: len(wanted) - 1] == wanted[:-1]


def _only_asks(place: Place, node: ast.AST) -> bool:
    """Whether a class is named where nothing is made of it: a question, an annotation, a base, a longer name."""
    child = node
    for above in place.above(node):
        match above:
            case ast.Attribute() if child is node:
                return True
            case ast.arg() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                return True
            case ast.Call(func=ast.Name(id=name)) if name in _QUESTIONS:
                return True
            case ast.AnnAssign(annotation=annotation, value=value):
                return child is annotation or value is None
            case ast.arguments() | ast.stmt():
                return False
            case _:
                child = above
    return False


def _addition(place: Place, call: ast.Call, text: str) -> tuple[int, int, str]:
    """A further argument, behind the last one."""
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    last = max((place.span(node)[1] for node in given), default=None)
    end = place.span(call)[1] - 1
    if last is None:
        return end, end, text
    closed = _CLOSED.match(place.text[last:end])
    last += closed.end() if closed is not None else 0
    return last, last, f", {text}"
