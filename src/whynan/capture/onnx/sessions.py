"""Sessions of ONNX Runtime, and what its profile of a run says of each node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from whynan.capture.onnx.arrays import engine_message, ort
from whynan.capture.onnx.execution import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whynan.capture.onnx.execution import Node
    from whynan.capture.onnx.graph.executed import Executable


# -- Sessions of ONNX Runtime: with the user's options, or as the same graph is run once it has been optimised ---------


Level = Literal["disabled", "basic", "extended", "layout", "all"]

_LEVELS: Final = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
CPU: Final = "CPUExecutionProvider"
_SILENT: Final = 4
_SEED: Final = 0
_AS_ASKED: Final = 1
"""The arena grows by what it is asked for, not by ever larger steps."""
SPINNING: Final = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
"""Threads that wait for work by spinning take it from the sessions beside them."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is to be run; ``memory`` is the number of bytes that the process may come to, None for no bound.

    ``providers`` are in the order of their precedence, a name or a name with options.
    """

    path: str
    graph: Literal["optimized", "original"] = "optimized"
    level: Level | None = "all"
    providers: tuple[str | tuple[str, dict[str, str]], ...] = (CPU,)
    session_config: dict[str, str] = field(default_factory=lambda: {})
    intra_threads: int | None = None
    inter_threads: int | None = None
    custom_ops: tuple[str, ...] = ()
    memory: int | None = None
    engine: Literal["onnxruntime", "reference"] = "onnxruntime"
    disabled_optimizers: tuple[str, ...] = ()
    free_dimensions: dict[str, int] = field(default_factory=lambda: {})
    repeated: bool = False
    """Whether it is to be run on several inputs."""

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The providers without their options."""
        return tuple(p if isinstance(p, str) else p[0] for p in self.providers)


def available_providers() -> tuple[str, ...]:
    """The execution providers of the installed ONNX Runtime."""
    return tuple(str(name) for name in ort.get_available_providers())


def open_user_session(settings: EngineSettings, written: Path | None, profile: Path | None) -> Any:
    """A session as production makes it; raises ``RunError``.

    It may write the graph that it executes, with the weights beside it, and a profile of what it runs.
    """
    config = {**SPINNING, **settings.session_config}
    if written is not None:
        config["session.optimized_model_external_initializers_file_name"] = f"{written.stem}.bin"
    options = _options(settings, config)
    level = "disabled" if settings.graph == "original" else settings.level or "all"
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[level])
    if written is not None:
        options.optimized_model_filepath = str(written)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    for name, size in settings.free_dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    return _opened(settings, settings.path, options, settings.disabled_optimizers)


def open_exact_session(settings: EngineSettings, model: str | bytes, *, apart: bool = False) -> Any:
    """A session that runs a graph exactly as it is written.

    All take their memory from one arena, so that what the values of one segment leave serves those of the next; one
    that is ``apart`` gives it back after each run.
    """
    config = {**SPINNING, **settings.session_config}
    shared = not apart and _has_arena()
    if shared:
        config["session.use_env_allocators"] = "1"
    options = _options(settings, config)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # a plan of the memory of all values, made at the first run, would hold twice of it from the second on
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = shared
    return _opened(settings, model, options)


@cache
def _has_arena() -> bool:
    """Make the arena that sessions can share; whether there is one."""
    try:
        kind = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        ort.create_and_register_allocator(kind, ort.OrtArenaCfg({"arena_extend_strategy": _AS_ASKED}))
    except Exception:
        # one that the process has registered by itself may be no arena
        return False
    return True


def _options(settings: EngineSettings, config: dict[str, str]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    if settings.intra_threads is not None:
        options.intra_op_num_threads = settings.intra_threads
    if settings.inter_threads is not None:
        options.inter_op_num_threads = settings.inter_threads
    for key, entry in config.items():
        options.add_session_config_entry(key, entry)
    for library in settings.custom_ops:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise RunError(engine_message(error), 0) from None
    return options


def _opened(settings: EngineSettings, model: str | bytes, options: Any, disabled: tuple[str, ...] = ()) -> Any:
    # so that what is random is the same in every session of one graph
    ort.set_seed(_SEED)
    more: dict[str, Any] = {"disabled_optimizers": list(disabled)} if disabled else {}
    try:
        # its own fallback prints, and tries the providers that nobody asked for
        providers = [p if isinstance(p, str) else tuple(p) for p in settings.providers]
        return ort.InferenceSession(model, options, providers=providers, enable_fallback=0, **more)
    except Exception as error:
        raise RunError(engine_message(error), 0) from None


# -- What ONNX Runtime's profile of a run says: which provider ran each node, and how large its outputs were -----------


_SUFFIX: Final = "_kernel_time"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One execution of a node: its name as ONNX Runtime has it, made up where the node has none."""

    name: str
    op: str
    provider: str
    bytes: int
    """The bytes of its outputs."""
    began: float
    ended: float
    floats: tuple[int, ...] | None = None
    """The shape of its output, where it has one and that is of float32."""


@dataclass(frozen=True, slots=True)
class Profile:
    """``kernels`` of the nodes of the main graph by their index, as far as they could be told apart.

    ``placement`` counts the nodes of each provider, those of bodies included, once each.
    """

    kernels: dict[int, Kernel] = field(default_factory=lambda: {})
    inner: dict[str, Kernel] = field(default_factory=lambda: {})
    foreign: tuple[str, ...] = ()
    """Names of what was executed that no node of the graph is."""

    @property
    def placement(self) -> dict[str, int]:
        """How many nodes each provider ran."""
        counts: dict[str, int] = {}
        for kernel in (*self.kernels.values(), *self.inner.values()):
            counts[kernel.provider] = counts.get(kernel.provider, 0) + 1
        return counts


def read_profile(path: Path, graph: Executable | None) -> Profile:
    """The profile that a session wrote; an empty one where it cannot be read."""
    try:
        events: Any = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return Profile()
    kernels = sorted(_kernels(events), key=lambda kernel: (kernel.began, -kernel.ended))
    main: list[Kernel] = []
    inner: dict[str, Kernel] = {}
    until = -1.0
    for kernel in kernels:
        # what runs within the time of a node is of its body
        if kernel.began < until:
            inner.setdefault(kernel.name, kernel)
        else:
            main.append(kernel)
            until = kernel.ended
    if graph is None:
        return Profile({}, inner, tuple(k.name for k in main))
    matched = _in_order(main, graph) or _by_name(kernels, graph)
    ours = {id(kernel) for kernel in matched.values()}
    foreign = tuple(kernel.name for kernel in main if id(kernel) not in ours)
    return Profile(matched, inner, foreign)


def _kernels(events: Any) -> Iterator[Kernel]:
    for event in cast("list[dict[str, Any]]", events):
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith(_SUFFIX):
            continue
        said: dict[str, Any] = event.get("args", {})
        began = float(event.get("ts", 0))
        yield Kernel(
            name.removesuffix(_SUFFIX),
            str(said.get("op_name", "")),
            str(said.get("provider", "")),
            int(said.get("output_size", 0) or 0),
            began,
            began + float(event.get("dur", 0)),
            _floats(said.get("output_type_shape", [])),
        )


def _floats(said: Any) -> tuple[int, ...] | None:
    written = cast("list[dict[str, list[int]]]", said)
    shape = written[0].get("float") if len(written) == 1 else None
    return None if shape is None else tuple(shape)


def _in_order(kernels: list[Kernel], graph: Executable) -> dict[int, Kernel]:
    if len(kernels) != len(graph.nodes):
        return {}
    pairs = list(zip(graph.nodes, kernels, strict=True))
    same = all(_runs(kernel, node) for node, kernel in pairs)
    return {node.index: kernel for node, kernel in pairs} if same else {}


def _runs(kernel: Kernel, node: Node) -> bool:
    return node.op == kernel.op and node.name in ("", kernel.name)


def _by_name(kernels: list[Kernel], graph: Executable) -> dict[int, Kernel]:
    """By names that are the node's alone: nodes that run beside each other are in no order."""
    named: dict[str, list[int]] = {}
    for node in graph.nodes:
        named.setdefault(node.name, []).append(node.index)
    found: dict[int, Kernel] = {}
    for kernel in kernels:
        indices = named.get(kernel.name, [])
        if len(indices) == 1 and graph.nodes[indices[0]].op == kernel.op:
            found.setdefault(indices[0], kernel)
    return found
