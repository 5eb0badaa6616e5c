"""What is found in small ONNX models, node by node as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import model_of, run
from whynan.analysis import judge_births
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.analysis import Findings


def findings(nodes: Sequence[Any], feeds: Mapping[str, Any], opset: int = 18) -> Findings:
    """The findings in a model of these nodes, fed with these values, whose output is ``y``."""
    births = BirthObserver(Recorder(), NoSites(), ranges=False, count=counters_of)
    run(model_of(nodes, feeds, ["y"], opset=opset), feeds, births)
    return judge_births(births.end())
