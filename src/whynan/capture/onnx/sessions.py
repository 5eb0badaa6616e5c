"""Sessions of ONNX Runtime: with the user's options, or as the same graph is run once it has been optimised."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.values import ort, said

if TYPE_CHECKING:
    from pathlib import Path

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

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The providers without their options."""
        return tuple(p if isinstance(p, str) else p[0] for p in self.providers)


def available() -> tuple[str, ...]:
    """The execution providers of the installed ONNX Runtime."""
    return tuple(str(name) for name in ort.get_available_providers())


def as_user(settings: EngineSettings, written: Path | None, profile: Path | None) -> Any:
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


def as_executed(settings: EngineSettings, model: str | bytes, *, apart: bool = False) -> Any:
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
            raise RunError(said(error), 0) from None
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
        raise RunError(said(error), 0) from None
