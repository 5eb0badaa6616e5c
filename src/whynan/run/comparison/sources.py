"""What the user names as A or B: a model file, an exported program, or a module or function of a package."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.errors import UsageError
from whynan.models.extras import need
from whynan.traces.format import RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.compare.sides.operations import Array, Side
    from whynan.run.comparison.settings import Settings

HOW: Final = "give model.onnx, program.pt2, or package.module:name of a torch module or of a function that returns one"


class Source(Protocol):
    """A program that was named, and can be made a side once its inputs are known."""

    label: str
    settings: Settings
    notes: list[str]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs."""
        ...

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]] | None:
        """Dtype and shape of each input, as far as they are fixed; None where they are not known."""
        ...

    def side(self, feeds: Mapping[str, Array]) -> Side:
        """The side, for these inputs."""
        ...


class OnnxSource:
    """An ONNX model by its file."""

    def __init__(self, path: str, settings: Settings) -> None:
        need("onnx")
        need("ort")
        from whynan.models.onnx.opening import open_model

        self.label = path
        self.settings = settings
        self.notes: list[str] = []
        # its signature is kept, and not its weights
        self._signatures = open_model(path, digest=False).inputs
        for option, given in (("--b-compile", settings.compiled), ("--b-device", settings.device)):
            if given:
                raise UsageError(f"{option} is for torch programs, and {path} is an ONNX model", "give --b-provider")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those that have to be given."""
        return tuple(signature.name for signature in self._signatures)

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]] | None:
        """Those of the model, a dimension that is left open as 1."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for signature in self._signatures:
            if signature.dtype is None or signature.dims is None:
                return None
            found[signature.name] = (
                signature.dtype,
                tuple(dim if isinstance(dim, int) else 1 for dim in signature.dims),
            )
        return found

    def side(self, feeds: Mapping[str, Array]) -> Side:
        """The model on its engine."""
        del feeds
        from whynan.run.comparison.onnx_sides import open_side

        return open_side(self.label, self.settings)


class TorchSource:
    """An exported program, or a module that is exported for the inputs that are given."""

    def __init__(self, label: str, held: Any, settings: Settings) -> None:
        self.label = label
        self.settings = settings
        self.notes: list[str] = []
        self._held = held
        self._starred = 0
        for option, given in (
            ("--b-opt-level", settings.level),
            ("--b-engine", settings.engine != "onnxruntime"),
            ("--b-provider", settings.provider),
        ):
            if given:
                raise UsageError(f"{option} is for ONNX models, and {label} is a torch program", "leave it out")

    @property
    def is_exported(self) -> bool:
        """Whether it is an exported program."""
        return hasattr(self._held, "graph_signature")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The parameters of ``forward`` that have no default; of an exported program its inputs."""
        if self.is_exported:
            return tuple(str(name) for name in self._held.graph_signature.user_inputs if isinstance(name, str))
        found: list[str] = []
        for name, parameter in inspect.signature(self._held.forward).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                found += [f"{name}_{number}" for number in range(self._starred)]
            elif parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty:
                found.append(name)
        return tuple(found)

    @property
    def positional(self) -> int:
        """How many of the inputs ``forward`` takes by their place alone, the first ones."""
        if self.is_exported:
            return 0
        if self._starred:
            return self._kinds.index(inspect.Parameter.VAR_POSITIONAL) + self._starred
        return self._kinds.count(inspect.Parameter.POSITIONAL_ONLY)

    def take(self, count: int) -> None:
        """Let ``*args`` of ``forward`` take what is left of so many inputs in order."""
        if not self.is_exported and inspect.Parameter.VAR_POSITIONAL in self._kinds:
            self._starred = max(count - self._kinds.index(inspect.Parameter.VAR_POSITIONAL), 0)

    @property
    def optional(self) -> tuple[str, ...]:
        """The parameters of ``forward`` that have a default."""
        if self.is_exported:
            return ()
        starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = inspect.signature(self._held.forward).parameters
        return tuple(n for n, one in parameters.items() if n not in self.inputs and one.kind not in starred)

    @property
    def _kinds(self) -> list[Any]:
        return [parameter.kind for parameter in inspect.signature(self._held.forward).parameters.values()]

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]] | None:
        """Those of an exported program."""
        if not self.is_exported:
            return None
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for node in self._held.graph_module.graph.nodes:
            if node.op == "placeholder" and node.name in self.inputs:
                meta = node.meta["val"]
                sizes = tuple(int(size) if isinstance(size, int) else 2 for size in meta.shape)
                found[str(node.name)] = str(meta.dtype).removeprefix("torch."), sizes
        return found

    def side(self, feeds: Mapping[str, Array]) -> Side:
        """The program as a graph."""
        from whynan.run.comparison.torch_sides import Program, exported_side

        ordered = {name: feeds[name] for name in names_of(self) if name in feeds}
        return exported_side(Program(self.label, self._held, self.settings, self.notes, self.positional), ordered)


def open_source(named: Any, settings: Settings) -> Source:
    """What the user names, opened; raises ``UsageError``."""
    if isinstance(named, str | os.PathLike):
        return _by_name(os.fspath(named), settings)
    if hasattr(named, "graph_signature"):
        return TorchSource("the exported program", named, settings)
    if hasattr(named, "forward") and hasattr(named, "named_parameters"):
        return TorchSource(type(named).__name__, named, settings)
    raise UsageError(f"diff() was given {type(named).__name__}, which is neither a model nor a torch module", HOW)


def _by_name(name: str, settings: Settings) -> Source:
    if name.endswith(".onnx"):
        return OnnxSource(name, settings)
    if name.endswith(".pt2"):
        return TorchSource(name, _program(name), settings)
    package, colon, attribute = name.partition(":")
    if not colon or not package or not attribute:
        if os.path.exists(os.path.join(name, RUN)):
            what = "is the trace of a run, which holds counts and ranges and not the values that are compared"
            raise UsageError(f"{name} {what}", "give what was run, and its inputs: -i inputs.npz")
        what = "is none that diff reads" if os.path.exists(name) else "does not exist"
        raise UsageError(f"{name} {what}", HOW)
    return TorchSource(name, _imported(name, package, attribute), settings)


def _program(path: str) -> Any:
    torch = _torch()
    if not Path(path).is_file():
        raise UsageError(f"{path} does not exist", HOW)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(path)
    except Exception as error:
        raise UsageError(f"{path} cannot be read ({_line(error)})", "save it with torch.export.save") from None


def _imported(name: str, package: str, attribute: str) -> Any:
    """A module, or what a function without arguments returns, found from the current directory."""
    _torch()
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(package)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{name} is not found from the current directory ({_line(error)})", HOW) from None
    if isinstance(found, type) or not hasattr(found, "named_parameters"):
        if not callable(found):
            raise UsageError(f"{name} is {type(found).__name__}", HOW)
        try:
            found = found()
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {_line(error)}"
            raise UsageError(f"{name}() failed: {said}", "give a function without arguments that works") from None
    if not (hasattr(found, "forward") or hasattr(found, "graph_signature")):
        raise UsageError(f"{name} gives {type(found).__name__}, which is no torch module", HOW)
    return found


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        from whynan.errors import MissingExtraError

        raise MissingExtraError("torch") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def names_of(source: Source) -> Sequence[str]:
    """All inputs that may be given."""
    return (*source.inputs, *(source.optional if isinstance(source, TorchSource) else ()))
