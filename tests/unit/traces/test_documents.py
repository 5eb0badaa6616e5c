"""The facts as a document: everything that there is to know survives it."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.selection import examples
from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.traces.folders import RUN
from tests.unit.traces.strategies import SCOPES, same, traces
from whynan.records import Damage, ScaleFall
from whynan.traces import Silent, Trace
from whynan.traces import format as layout
from whynan.traces.format import FactsDocument, Meant, json_of
from whynan.traces.reader import read_trace
from whynan.traces.writer import TraceWriter


@pytest.mark.breadth
@given(traces())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_facts_come_back_from_the_disk_as_they_were(made: Trace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = TraceWriter(Path(directory) / "t")
        writer.meant = lambda: tuple(Meant(pattern=f"WN{n}", reason="known") for n in range(SCOPES))
        writer.begin(RUN, {})
        writer.append(layout.RANGES, [json_of(found) for found in made.ranges])
        assert writer.facts(made, {}, len(made.ranges))
        writer.end(RUN)
        assert same(read_trace(Path(directory) / "t").trace) == same(made)


def test_numbers_that_json_has_none_for_come_back(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    damage = Damage(kind="steep", concerned=1, total=4, numbers={"norm": nan, "bound": inf, "largest": -inf})
    silent = Silent(event=birth(1).event, element=birth(1).element, damage=damage)
    fall = ScaleFall(skipped=3, on_end=True, first=inf, last=nan)
    made = trace([birth(1)], [sink(1, scale_fall=fall)], silent=[silent])
    writer = TraceWriter(tmp_path / "t")
    writer.begin(RUN, {})
    assert writer.facts(made, {}, 0)
    writer.end(RUN)
    found = read_trace(tmp_path / "t").trace
    assert same(found.silent) == same(made.silent)
    assert same(found.sinks[0].scale_fall) == same(fall)


def test_two_facts_that_differ_are_told_apart() -> None:
    assert same(trace([birth(1)], [sink(1)])) != same(trace([birth(1, named=True)], [sink(1)]))


def test_every_field_of_a_trace_has_its_place_in_the_document() -> None:
    beside = {"schema_", "allowances", "sources"}
    assert {field.name for field in dataclasses.fields(Trace)} == set(FactsDocument.model_fields) - beside


def test_nan_and_the_infinities_are_words() -> None:
    values = [float("nan"), float("inf"), float("-inf")]
    document = FactsDocument.of(trace([birth(n, value=v) for n, v in enumerate(values, 1)], []), (), {}, 0)
    held = json.loads(json_of(document), parse_constant=lambda name: pytest.fail(name))
    assert [b["element"]["value"] for b in held["births"]] == ["NaN", "Infinity", "-Infinity"]


def test_a_name_that_is_no_unicode_is_written_as_its_escape(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t")
    writer.begin(RUN.model_copy(update={"command": "tr\udc80in.py"}), {})
    writer.facts(trace([], [sink(kind="parameter", name="w\udc80")]), {}, 0)
    read = read_trace(tmp_path / "t")
    assert (read.run.command, read.trace.sinks[0].name) == ("tr\\udc80in.py", "w\\udc80")
