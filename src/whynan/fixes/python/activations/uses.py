"""What the files of a program do with a name: all calls of a function or a module, where it is only called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from whynan.fixes.python.activations.producers import LEAVES_ALONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.source.text import Place

_MOVES_ALONG: Final = frozenset({"to", "cuda", "cpu", "train", "eval"})
"""What gives a module back."""
_LOOKS_UP: Final = frozenset({"eval", "exec", "globals", "locals", "vars"})


class Uses:
    """What the files of a program do with a name, whatever it is of: a function, an attribute, a parameter."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places

    @property
    def is_looked_up(self) -> bool:
        """Whether the program asks for what has a name that is computed: ``getattr(losses, name)``."""
        calls = (node for place in self._places.values() for node in place.parents if isinstance(node, ast.Call))
        return any(
            (
                isinstance(call.func, ast.Name)
                and (call.func.id in _LOOKS_UP or (call.func.id == "getattr" and _is_open(call)))
            )
            or (isinstance(call.func, ast.Attribute) and call.func.attr == "children")
            for call in calls
        )

    def defined(self, name: str, *, is_free: bool) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions of a name: methods, or those that are ``free`` of a class."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [(place, node) for place in self._places.values() for node in place.parents]
        named = [(place, node) for place, node in nodes if isinstance(node, kinds) and node.name == name]
        return [node for place, node in named if isinstance(place.parents.get(node), ast.ClassDef) is not is_free]

    def calls(self, name: str, *, is_free: bool = False) -> list[tuple[str, ast.Call]] | None:
        """The calls of what has a name, if nothing else is done with it but to hand it on under the same name.

        ``is_free``: it is a function or a class of a module, and no attribute of an object.
        """
        found: list[tuple[str, ast.Call]] = []
        for path, place in self._places.items():
            if name not in place.text:
                continue
            for node in place.parents:
                match node:
                    case ast.alias(name=full, asname=str(other)) if full.rpartition(".")[2] == name != other:
                        return None
                    case ast.arg(arg=other) if is_free and other == name:
                        return None
                    case ast.Constant(value=str(text)) if text == name and _is_asked_by_text(place, node):
                        return None
                    case ast.Attribute(attr=other) if is_free and other == name and not place.meaning(node):
                        # of an object: `net.train()`
                        continue
                    case ast.Name(id=other) | ast.Attribute(attr=other) if other == name:
                        pass
                    case _:
                        continue
                parent = place.parents.get(node)
                if not isinstance(getattr(node, "ctx", None), ast.Load):
                    if is_free:
                        return None
                    continue
                if isinstance(parent, ast.Call) and parent.func is node:
                    found.append((path, parent))
                elif not _is_left_alone(place, node) and (is_free or not self._is_handed_on(place, node, name)):
                    return None
        return found

    def calls_of_instances(self, owner: str) -> list[tuple[str, ast.Call]] | None:
        """The calls of a class's instances, which have names that nothing else has."""
        made, classes = self.calls(owner, is_free=True), self._classes(owner)
        if made is None or len(classes) != 1 or classes[0].decorator_list:
            return None
        held = dict.fromkeys(_held_by(self._places[path], call) for path, call in made)
        found: list[tuple[str, ast.Call]] = []
        for name in held:
            calls = None if name is None or not self._is_only(name, [call for _, call in made]) else self.calls(name)
            if calls is None:
                return None
            found += calls
        return found

    def _classes(self, name: str) -> list[ast.ClassDef]:
        nodes = (node for place in self._places.values() for node in place.parents)
        return [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]

    def _is_only(self, name: str, made: Sequence[ast.Call]) -> bool:
        """Whether a name is given to nothing but some objects that are made, wherever it is set or a parameter."""
        for place in self._places.values():
            for node in place.parents if name in place.text else ():
                match node:
                    case ast.Name(id=other, ctx=ast.Store()) | ast.Attribute(attr=other, ctx=ast.Store()):
                        is_right = other != name or _is_set_to(place, node, name, made)
                    case ast.arg(arg=other):
                        is_right = other != name or self._is_given_it(place, node, name)
                    case ast.FunctionDef(name=other) | ast.ClassDef(name=other):
                        is_right = other != name
                    case _:
                        continue
                if not is_right:
                    return False
        return True

    def _is_given_it(self, place: Place, argument: ast.arg, name: str) -> bool:
        """Whether every call of the function that has a parameter gives it what has its name."""
        function = next((above for above in place.above(argument) if isinstance(above, ast.FunctionDef)), None)
        if function is None or argument not in function.args.args:
            return False
        parent = place.parents.get(function)
        owner = parent.name if isinstance(parent, ast.ClassDef) else ""
        called, is_free = (owner, True) if function.name == "__init__" else (function.name, not owner)
        calls = self.calls(called, is_free=is_free) if called else None
        unique = len(self._classes(called)) + len(self.defined(called, is_free=is_free)) == 1
        index = function.args.args.index(argument) - (1 if owner else 0)
        given = [argument_of(call, index, name) for _, call in calls or ()]
        return bool(given) and unique and all(_is_named(one, name) for one in given)

    def _is_handed_on(self, place: Place, node: ast.AST, name: str) -> bool:
        """Whether it is given to a function of the program, or to an attribute, that has the same name for it."""
        parent = place.parents.get(node)
        if isinstance(parent, ast.Assign):
            return len(parent.targets) == 1 and _is_named(parent.targets[0], name)
        keyword = parent if isinstance(parent, ast.keyword) else None
        call = place.parents.get(keyword) if keyword is not None else parent
        match call:
            case ast.Call(func=ast.Name(id=callee) | ast.Attribute(attr=callee)):
                pass
            case _:
                return False
        classes = self._classes(callee)
        inner = [each for kind in classes for each in kind.body if isinstance(each, ast.FunctionDef)]
        free = [*self.defined(callee, is_free=True), *self.defined(callee, is_free=False)]
        defined = [each for each in inner if each.name == "__init__"] or free
        if len(defined) != 1 or any(isinstance(argument, ast.Starred) for argument in call.args):
            return False
        plain = [argument.arg for argument in defined[0].args.args if argument.arg != "self"]
        if keyword is not None:
            return keyword.arg == name and name in plain
        index = next((number for number, argument in enumerate(call.args) if argument is node), len(plain))
        return index < len(plain) and plain[index] == name


def _is_open(call: ast.Call) -> bool:
    """Whether the source does not say of which name an attribute is asked for."""
    return len(call.args) < 2 or not isinstance(call.args[1], ast.Constant)


def _is_asked_by_text(place: Place, node: ast.AST) -> bool:
    call = place.parents.get(node)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("getattr", "setattr")


def _is_named(node: ast.expr | None, name: str) -> bool:
    match node:
        case ast.Name(id=other) | ast.Attribute(attr=other):
            return other == name
        case _:
            return False


def _is_set_to(place: Place, node: ast.AST, name: str, made: Sequence[ast.Call]) -> bool:
    """Whether an assignment gives a name one of the objects that are made, None, or what has the name already."""
    statement = place.parents.get(node)
    if not isinstance(statement, ast.Assign) or statement.targets != [node]:
        return False
    value: ast.expr = statement.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES_ALONG:
        value = value.func.value
    return value in made or _is_named(value, name) or (isinstance(value, ast.Constant) and value.value is None)


def _is_left_alone(place: Place, node: ast.AST) -> bool:
    """Whether what is asked of a module leaves it as it is, under no other name: ``criterion.to(device)``."""
    parent = place.parents.get(node)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "super"
    if not isinstance(parent, ast.Attribute) or parent.attr not in LEAVES_ALONE | _MOVES_ALONG:
        return False
    held = place.parents.get(place.parents[parent])
    is_again = isinstance(held, ast.Assign) and place.code(held.targets[0]) == place.code(parent.value)
    return parent.attr not in _MOVES_ALONG or isinstance(held, ast.Expr) or is_again


def _held_by(place: Place, construction: ast.Call) -> str | None:
    """The name or attribute that a module is assigned to where it is made."""
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


def argument_of(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """What a call gives for a parameter."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    if index < len(call.args):
        return call.args[index]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
