"""How an ONNX model was run, as its report tells it."""

# pyright: strict

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whynan.records.base import Record


class Fed(Record):
    """What one input of an ONNX model was given, and from where: a file, or what was generated."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    origin: str


class Inference(Record):
    """How an ONNX model was run: on which engine, which graph of it, and whether looking changed its outputs.

    ``bit_equal``: the outputs of the run that was looked at have the bits of those of a bare session; null where there
    was nothing to compare them with. ``placement`` counts the executed nodes of each execution provider.
    """

    model: str
    sha256: str | None = None
    engine: Literal["onnxruntime", "reference"] = "onnxruntime"
    graph: Literal["optimized", "original"] = "optimized"
    level: str | None = None
    opset: dict[str, int] = Field(default_factory=dict)
    providers: tuple[str, ...] = ()
    placement: dict[str, int] = Field(default_factory=dict)
    nodes: int = 0
    nodes_as_written: int = 0
    segments: int = 1
    bit_equal: bool | None = None
    inputs: tuple[Fed, ...] = ()
    case: int | None = None
    cases: int = 1
