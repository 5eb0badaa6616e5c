"""The values of a run that are alive: of the main graph, and within it of the iteration of a body."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whynan.capture.onnx.values import give_tensor, kind_of, read, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TypeProto

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node, Observer, Value


class Scope:
    """The values of one graph by name, as the engine has them and as they are looked at; and those around it."""

    def __init__(self, graph: Executable, outer: Scope | None = None) -> None:
        self.graph = graph
        self.outer = outer
        self._held: dict[str, Any] = {}
        self._seen: dict[str, Value] = {}
        self._kinds: dict[str, TypeProto] = {}
        self.unreadable: dict[str, str] = {}
        """Why a value could not be looked at."""

    def hold(self, name: str, value: Any, kind: TypeProto | None = None) -> None:
        """Keep a value of the engine's."""
        self._held[name] = value
        if kind is not None:
            self._kinds[name] = kind

    def show(self, name: str, value: Value) -> None:
        """Have a value be looked at in another form than the engine has it."""
        self._seen[name] = value

    def drop(self, name: str) -> None:
        """Let a value go."""
        self._held.pop(name, None)
        self._seen.pop(name, None)

    def held(self, name: str) -> Any:
        """The engine's value of a name, here or around; an initialiser is made one."""
        if name in self._held:
            return self._held[name]
        if self.graph.is_constant(name):
            # not kept: as long as it is not, it is known to be an initialiser
            return give_tensor(self.graph.array(name))
        if self.outer is None:
            raise KeyError(name)
        return self.outer.held(name)

    def has(self, name: str) -> bool:
        """Whether a value of this name is alive, here or around."""
        return name in self._held or (self.outer is not None and self.outer.has(name))

    def kind(self, name: str) -> TypeProto:
        """The type of a value, without a shape."""
        if name in self._kinds:
            return self._kinds[name]
        if name not in self._held:
            if self.graph.is_constant(name):
                return kind_of(self.graph.array(name))
            if self.outer is not None:
                return self.outer.kind(name)
        return type_of(str(self._held[name].data_type()))

    def seen(self, name: str) -> Value:
        """A value as it is looked at: a view, for as long as the value is held."""
        if not name:
            return None
        if name in self._seen:
            return self._seen[name]
        if name in self._held:
            value = self._seen[name] = self._read(name)
            return value
        if self.graph.is_constant(name):
            return self.graph.array(name)
        return None if self.outer is None else self.outer.seen(name)

    def _read(self, name: str) -> Value:
        try:
            return read(self._held[name])
        except RuntimeError as error:
            self.unreadable[name] = str(error)
            return None


@dataclass(slots=True)
class Run:
    """One run of a graph: its values, and who is told of it.

    ``shown`` are the nodes as an observer sees them, ``told`` the initialisers that it has been told of, and ``path``
    is the way to a body.
    """

    scope: Scope
    observer: Observer
    shown: Sequence[Node]
    told: set[str]
    path: tuple[tuple[str, str, int], ...] = ()
