"""Names that a person knows: module paths, parameters and buffers, arguments, variables of the user's frames."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import torch

from whynan.capture.torch.shadow_memory import local

if TYPE_CHECKING:
    from torch import Tensor, nn


# -- Names that a person knows: module paths, parameters and buffers, arguments, variables of the user's frames --------


_PLAIN_KEYS: Final = (str, int, float, bool, bytes, type(None))
DEEPEST = 6
MOST_OBJECTS = 10_000
MOST_ITEMS = 256
# what holds no value of the user's, or is looked through elsewhere
_OPAQUE = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
    types.CodeType,
    types.GeneratorType,
    torch.nn.Module,
    torch.device,
    torch.dtype,
)


class Names:
    """Modules by number, and what the tensors of a run are called."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._modules: list[weakref.ref[nn.Module] | None] = [None]
        self.roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._paths: dict[int, str] = {}
        self._labels: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self.leaves: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.given: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def __len__(self) -> int:
        return len(self._modules)

    def number(self, module: nn.Module) -> int:
        """The number of a module, given at its first call."""
        found = self._numbers.get(module)
        if found is None:
            found = self._numbers[module] = len(self._modules)
            self._modules.append(weakref.ref(module))
        return found

    def give(self, tensor: Tensor, name: str) -> None:
        """Name a tensor that the caller handed in."""
        self.given[id(tensor)] = (weakref.ref(tensor), name)

    def module_path(self, number: int) -> str | None:
        """``encoder.layers.3.attn`` of a module called in this trace; the class name of an outermost one."""
        reference = self._modules[number] if number < len(self._modules) else None
        module = reference() if reference is not None else None
        if module is None:
            return None
        known = self._paths.get(number)
        if known is None:
            known = self._paths[number] = self._path_of(module)
        return known or None

    def paths(self) -> list[str | None]:
        """The paths of all modules by number, in one walk over the trees that they stand in."""
        trees: dict[int, str] = {}
        for root in list(self.roots) if len(self._paths) + 1 < len(self._modules) else ():
            for path, inner in root.named_modules():
                number = self._numbers.get(inner)
                if number is not None and (inner is root or number not in trees):
                    trees[number] = path or type(root).__name__
        for number, path in trees.items():
            self._paths.setdefault(number, path)
        return [self._paths.get(number) or self.module_path(number) for number in range(len(self._modules))]

    def _path_of(self, module: nn.Module) -> str:
        for root in list(self.roots):
            if root is module:
                return type(module).__name__
            for path, inner in root.named_modules():
                if inner is module:
                    return path
        return type(module).__name__

    def describe(self, tensor: Tensor) -> tuple[str | None, str | None]:
        """The name and kind (parameter, buffer, argument) of a tensor, by identity or by its storage."""
        name, kind, _ = self.describe_with_base(tensor)
        return name, kind

    def describe_with_base(self, tensor: Tensor) -> tuple[str | None, str | None, Tensor | None]:
        """The name and kind of a tensor, and the tensor of that name: itself, or one that it is a view of."""
        found = self.given.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1], "argument", tensor
        storage = _storage(tensor)
        if not storage:
            return None, None, None
        roots = list(self.roots)
        for root in roots:
            for kind, tensors in (("parameter", root.named_parameters()), ("buffer", root.named_buffers())):
                for name, inner in tensors:
                    if inner is tensor or _storage(inner) == storage:
                        return self._apart(root, name, inner, roots), kind, inner
        for reference, name in list(self.given.values()):
            inner = reference()
            if inner is not None and _storage(inner) == storage:
                return name, "argument", inner
        return None, None, None

    def _apart(self, root: nn.Module, name: str, tensor: Tensor, roots: list[nn.Module]) -> str:
        """The name of a tensor of one of the modules that the program calls; the module too, where another has one."""
        if not any(other is not root and _other_of_this_name(other, name, tensor) for other in roots):
            return name
        label = self._labels.get(root)
        if label is None:
            found = variable_name(root)
            label = self._labels[root] = found or f"{type(root).__name__} {self.number(root)}"
        return f"{label}.{name}"

    def forget(self, tensor: Tensor) -> None:
        """Keep no weak reference to a tensor."""
        self.given.pop(id(tensor), None)
        self.leaves.pop(id(tensor), None)

    def leaf_name(self, leaf: Tensor) -> str | None:
        """The name of a leaf: of a parameter, else of a variable in a frame of the user's that holds it."""
        known = self.leaves.get(id(leaf))
        if known is not None and known[0]() is leaf:
            return known[1]
        name = self.describe(leaf)[0] or variable_name(leaf)
        if name is not None:
            self.leaves[id(leaf)] = (weakref.ref(leaf), name)
        return name


def _storage(tensor: Any) -> int:
    try:
        here = local(tensor)
        return 0 if here is None else here.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        # ValueError: a lazy module's parameter before its first call
        return 0


def _other_of_this_name(module: nn.Module, name: str, tensor: Tensor) -> bool:
    """Whether a module has another tensor under a name."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, torch.Tensor) and found is not tensor


def variable_name(value: Any) -> str | None:
    """How a frame of the user's on this stack holds a tensor or module: by a variable, or inside one.

    ``w``, ``points[1]``, ``nets['actor']``, ``self.critic``, ``flow.2``.
    """
    import sys

    from whynan.source.ownership import Owner, owner_of

    frame = sys._getframe(1)
    frames: list[types.FrameType] = []
    while frame is not None:
        if owner_of(frame.f_code.co_filename) == Owner.USER:
            frames.append(frame)
        frame = frame.f_back
    held = [(name, held) for f in frames for name, held in list(f.f_locals.items()) if name.isidentifier()]
    direct = next((name for name, found in held if found is value), None)
    known = {id(found) for _, found in held}
    for name, holder in held:
        entries = _entries(holder)
        inside = next((part for part, entry in entries if entry is value), None)
        # a loop's variable names one entry at a time: the list names them all
        if inside is not None and (direct is None or any(id(e) not in known for _, e in entries)):
            return name + inside
    if direct is not None:
        return direct
    return next((name + way for name, holder in held if (way := _inside(holder, value, 1)) is not None), None)


def _entries(holder: Any) -> list[tuple[str, Any]]:
    """The entries of a list, a dict or a container of modules, each with how it is written."""
    if isinstance(holder, (list, tuple)):
        return [(f"[{i}]", entry) for i, entry in enumerate(holder[:MOST_ITEMS])]
    if isinstance(holder, dict):
        items = list(holder.items())[:MOST_ITEMS]
        return [(f"[{_key(key, number)}]", entry) for number, (key, entry) in enumerate(items)]
    if isinstance(holder, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)):
        return [(f".{name}", entry) for name, entry in holder.named_children()]
    return []


def _key(key: Any, number: int) -> str:
    """How a key of a dict is written; one that is no plain value, as a parameter, by its kind and which key it is."""
    parts = key if type(key) is tuple else (key,)
    return repr(key) if all(type(part) in _PLAIN_KEYS for part in parts) else f"{type(key).__name__} {number}"


def _inside(holder: Any, value: Any, depth: int) -> str | None:
    """The way from a container, module or plain object to what it holds; None if it does not."""
    if isinstance(holder, torch.nn.Module) and isinstance(value, torch.nn.Module):
        return next((f".{path}" for path, inner in holder.named_modules() if inner is value and path), None)
    parts = _entries(holder)
    if not parts:
        if isinstance(holder, (*_OPAQUE, torch.Tensor, list, tuple, dict)) or not hasattr(holder, "__dict__"):
            return None
        parts = [(f".{name}", inner) for name, inner in list(vars(holder).items())[:MOST_ITEMS]]
    for name, inner in parts:
        if inner is value:
            return name
        if depth and (deeper := _inside(inner, value, depth - 1)) is not None:
            return name + deeper
    return None


def tensors_of(value: Any, prefix: str) -> list[tuple[str, Tensor]]:
    """Every tensor in a value, with a path: through lists, dicts, dataclasses and plain objects, each seen once."""
    found: list[tuple[str, Tensor]] = []
    _collect(value, prefix, 0, set(), found)
    return found


def _collect(value: Any, prefix: str, depth: int, seen: set[int], found: list[tuple[str, Tensor]]) -> None:
    if isinstance(value, torch.Tensor):
        found.append((prefix, value))
        return
    if depth > DEEPEST or len(seen) > MOST_OBJECTS or isinstance(value, _OPAQUE) or id(value) in seen:
        return
    seen.add(id(value))
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for number, (key, inner) in enumerate(list(value.items())):
            attribute = isinstance(key, str) and key.isidentifier()
            parts.append((f"{prefix}.{key}" if attribute else f"{prefix}[{_key(key, number)}]", inner))
    elif isinstance(value, (list, tuple, set, frozenset)):
        fields = getattr(value, "_fields", None)
        parts = [(f"{prefix}.{fields[i]}" if fields else f"{prefix}[{i}]", inner) for i, inner in enumerate(value)]
    elif hasattr(value, "__dict__"):
        parts = [(f"{prefix}.{name}", inner) for name, inner in list(vars(value).items())]
    for name, inner in parts:
        _collect(inner, name, depth + 1, seen, found)


# -- What is known of objects by identity, for as long as they live: they need be neither hashable nor comparable ------


Value = TypeVar("Value")
FEW: Final = 64
"""So many entries may be of objects that are gone, or as many as there are of those that live."""


class Identities(Generic[Value]):
    """A map from objects to values that keeps none of them alive; what cannot be referred to weakly is not kept."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Value]] = {}
        self._most = FEW

    def get(self, key: Any) -> Value | None:
        """What is known of an object."""
        known = self._held.get(id(key))
        return known[1] if known is not None and known[0]() is key else None

    def set(self, key: Any, value: Value) -> bool:
        """Know something of an object until it is gone; False where that cannot be."""
        try:
            reference = weakref.ref(key)
        except TypeError:
            # a list, a range
            return False
        self._held[id(key)] = reference, value
        if len(self._held) > self._most:
            # not by a callback, which would run wherever the object goes
            self._held = {number: known for number, known in self._held.items() if known[0]() is not None}
            self._most = FEW + 2 * len(self._held)
        return True

    def values(self) -> list[Value]:
        """What is known of all objects that are alive, the latest last."""
        return [value for reference, value in list(self._held.values()) if reference() is not None]

    def keys(self) -> list[Any]:
        """All objects that are alive, the latest last."""
        return [key for reference, _ in list(self._held.values()) if (key := reference()) is not None]
