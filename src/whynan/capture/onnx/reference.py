"""onnx's own reference, node by node."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from whynan.capture.onnx.execution import Observer, Value
    from whynan.capture.onnx.outcomes import Outcome
    from whynan.capture.onnx.sessions import EngineSettings


class Reference:
    """A model opened on onnx's ReferenceEvaluator."""

    def __init__(self, settings: EngineSettings) -> None:
        raise NotImplementedError

    @property
    def executed(self) -> onnx.ModelProto:
        """The graph that runs."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is kept open."""

    def run(self, feeds: Mapping[str, Value], observer: Observer, *, compare: bool = True) -> Outcome:
        """Run it."""
        raise NotImplementedError
