"""Small models, and what is found in a run of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import model_of, run
from whynan.analysis import judge_births
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.rules.catalogue import explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.analysis import Findings
    from whynan.records import Finding
    from whynan.traces import Trace

N = helper.make_node


def f32(*values: float) -> Any:
    """A row of float32."""
    return np.array(values, np.float32)


@dataclass
class Looked:
    """A run that was looked at."""

    births: BirthObserver
    trace: Trace
    outputs: dict[str, Any]

    @property
    def findings(self) -> Findings:
        return judge_births(self.trace)

    @property
    def verdict(self) -> str:
        return self.findings.verdict

    @property
    def first(self) -> Finding:
        """The first finding, whatever its fate, with its rule."""
        found = self.findings
        return explain((*found.escaped, *found.damaging, *found.absorbed)[0])

    @property
    def chain(self) -> list[tuple[str, str]]:
        """The path of the first finding in words."""
        return [(link.role, link.summary) for link in self.first.chain]


def look(
    nodes: Sequence[Any],
    feeds: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
) -> Looked:
    """Run a model of these nodes and look at it."""
    births = BirthObserver(Recorder(), NoSites(), ranges=True, count=counters_of)
    found = run(model_of(nodes, feeds, outputs, constants, opset), feeds, births)
    return Looked(births, births.end(), found)
