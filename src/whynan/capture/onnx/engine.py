"""Running a model on an engine, with every value looked at."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from whynan.capture.onnx.execution import Outcome as Outcome
from whynan.capture.onnx.optimised import OnnxRuntime, bare_outputs
from whynan.capture.onnx.sessions import EngineSettings as EngineSettings
from whynan.capture.onnx.sessions import available_providers as available_providers

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import onnx

    from whynan.capture.onnx.execution import Observer, Value


class Engine(Protocol):
    """A model that has been opened to be run, as often as wanted."""

    @property
    def executed_model(self) -> onnx.ModelProto:
        """The graph that runs, with its large weights in files."""
        ...

    def run(self, feeds: Mapping[str, Value], observer: Observer, *, compare: bool = True) -> Outcome:
        """Run it and tell the observer of all that it comes to; raises ``RunError`` where the engine refuses.

        Without ``compare`` the outputs are not compared with those of a bare session.
        """
        ...

    def close(self) -> None:
        """Let go of its sessions, and of the files that it wrote."""
        ...


@contextmanager
def open_engine(settings: EngineSettings) -> Generator[Engine]:
    """A model, opened to be run; raises ``RunError`` where the engine refuses it."""
    engine: Engine = _reference(settings) if settings.engine == "reference" else OnnxRuntime(settings)
    try:
        yield engine
    finally:
        engine.close()


def _reference(settings: EngineSettings) -> Engine:
    # onnx's own implementation of every operator is loaded for who asks for it
    from whynan.capture.onnx.reference import Reference

    return Reference(settings)


def run(settings: EngineSettings, feeds: Mapping[str, Value], observer: Observer) -> Outcome:
    """Run a model once and tell the observer of all that it comes to.

    Raises ``RunError`` where the engine refuses; before that, the observer has been told of whatever ran.
    """
    with open_engine(settings) as engine:
        return engine.run(feeds, observer)


def run_unobserved(settings: EngineSettings, feeds: Mapping[str, Value]) -> dict[str, Value]:
    """The outputs of a model that nobody looks at; raises ``RunError`` where the engine refuses."""
    return bare_outputs(settings, feeds)
