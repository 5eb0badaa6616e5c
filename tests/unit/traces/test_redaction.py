"""Redaction of facts: an allow-list that every field is on, and the same number for the same name."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel

import whynan.records
import whynan.traces.facts
from tests.unit.analysis.facts import INF, birth, sink, trace
from tests.unit.traces.filled import SECRET, Fill
from whynan.records import ChainLink, Element, Note, Operand, Range, Site
from whynan.records.base import Record
from whynan.records.report import Fed
from whynan.report.notes import sentence
from whynan.report.redaction import REPORT
from whynan.traces.facts import STILL_HELD, Event, Trace
from whynan.traces.redaction import FACTS, LEFT_OUT, Pseudonyms, Redaction, redacted_facts


def _is_fact(kind: object) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == whynan.traces.facts.__name__


RECORDS = [r for r in vars(whynan.records).values() if isinstance(r, type) and issubclass(r, Record)]
DATACLASSES = [r for r in vars(whynan.traces.facts).values() if _is_fact(r)]
DROPPED_WHOLE = {whynan.records.Source, whynan.records.Further, whynan.records.StandIn}
"""Records that only stand in fields that are dropped."""


def fields(kind: type) -> set[str]:
    return set(kind.model_fields) if issubclass(kind, BaseModel) else {f.name for f in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [*RECORDS, *DATACLASSES])
def test_every_field_of_every_record_has_been_thought_of(kind: type) -> None:
    if kind not in DROPPED_WHOLE:
        assert set(REPORT[kind]) == fields(kind)


def test_the_records_that_are_asked_about_are_all_there_are() -> None:
    assert len(RECORDS) >= 16
    assert {kind.__name__ for kind in DATACLASSES} >= {"Event", "Birth", "Sink", "Trace"}
    assert set(FACTS) < set(REPORT)


@dataclasses.dataclass(frozen=True)
class Later(Event):
    """An event to which somebody has added a field."""

    note: str = ""


class LaterSite(Site):
    """A site to which somebody has added a field."""

    author: str | None = None


def test_a_field_that_nobody_has_thought_of_is_dropped() -> None:
    tables = {**FACTS, Later: FACTS[Event], LaterSite: FACTS[Site]}
    made = Redaction(tables).redact(Later(1, None, "forward", None, note=SECRET))
    assert made == Later(1, None, "forward", None)
    assert Redaction(tables).redact(LaterSite(file="a.py", line=3, author=SECRET)) == LaterSite(file="file 1", line=3)


def test_a_record_that_nobody_has_thought_of_is_not_let_through() -> None:
    with pytest.raises(KeyError):
        Redaction(FACTS).redact(LaterSite(file="a.py", line=3))


@pytest.mark.parametrize("redact", [True, False])
def test_no_text_of_a_trace_is_let_through(redact: bool) -> None:
    fill = Fill()
    made: Trace = fill.record(Trace)
    assert len(fill.told) > 80
    text = repr(redacted_facts(made) if redact else made)
    assert (SECRET in text) is not redact
    assert ("0.4142" in text) is not redact


def test_a_redacted_input_says_whether_it_was_generated() -> None:
    fed = Fed(name="x", dtype="float32", shape=(2,), origin="generated.npy")
    assert Redaction(FACTS).redact(fed).origin == "given"
    made = Fed(name="x", dtype="float32", shape=(2,), origin="normal(0,1), seed 0", generated=True)
    assert Redaction(FACTS).redact(made).origin == "generated"


def test_one_name_has_one_number_wherever_it_stands() -> None:
    inside = Site(file="/home/ada/net.py", line=3, function="Net.forward", module="encoder.0")
    other = inside.model_copy(update={"file": "/home/ada/loss.py", "function": "loss", "module": None})
    link = ChainLink(role="cause", op="aten.log.default", site=other, summary="log of 0.3 is -1.2")
    made = birth(1, cause_links=(link,), modules={"encoder.0": None, "encoder.1": None})
    made.event = dataclasses.replace(made.event, site=inside, library_site=other)
    found = redacted_facts(trace([made], [sink(1, name="w"), sink(1, name="b"), sink(1, name="w")]))
    event = found.births[0].event
    assert event.site == inside.model_copy(update={"file": "file 1", "function": "function 1", "module": "module 1"})
    assert event.library_site == Site(file="file 2", line=3, function="function 2")
    assert found.births[0].cause_links[0].site == event.library_site
    assert list(found.births[0].modules) == ["module 1", "module 2"]
    assert [s.name for s in found.sinks] == ["tensor 1", "tensor 2", "tensor 1"]


def test_names_of_a_trace_and_of_its_report_are_numbered_together() -> None:
    names = Pseudonyms()
    first = Redaction(FACTS, names)
    second = Redaction(FACTS, names)
    assert first.redact(Site(file="b.py", line=1)).file == "file 1"
    assert second.redact(Site(file="a.py", line=1)).file == "file 2"
    assert second.redact(Site(file="b.py", line=1)).file == "file 1"


@pytest.mark.parametrize("name", ["output", "output[0][12]", "argument 3", "argument 3[0]", STILL_HELD, None])
def test_a_name_that_only_says_where_a_tensor_stood_stays(name: str | None) -> None:
    assert redacted_facts(trace([], [sink(1, name=name)])).sinks[0].name == name


@pytest.mark.parametrize(
    "name", ["w", "output.logits", "output['logits']", "output[0]\nx", "argument x", "tensor 9", ""]
)
def test_any_other_name_of_a_tensor_is_a_number(name: str) -> None:
    assert redacted_facts(trace([], [sink(1, name=name)])).sinks[0].name == "tensor 1"


@pytest.mark.parametrize(
    ("op", "left"),
    [
        ("aten.log.default", "aten.log.default"),
        ("aten._foreach_addcdiv_.ScalarList", "aten._foreach_addcdiv_.ScalarList"),
        ("prims.convert_element_type.default", "prims.convert_element_type.default"),
        ("mylib.secret_op.default", "a custom operator"),
        ("atenx.log.default", "a custom operator"),
        ("higher_order.mine", "a custom operator"),
        ("aten.log.default\n", "a custom operator"),
        (None, None),
    ],
)
def test_operators_of_the_program_are_not_named(op: str | None, left: str | None) -> None:
    event = Redaction(FACTS).redact(Event(1, op, "forward", None, forward_op=op))
    assert (event.op, event.forward_op) == (left, left)


@pytest.mark.parametrize(
    ("node", "left"),
    [
        ("LogBackward0", "LogBackward0"),
        ("NativeBatchNormBackward0", "NativeBatchNormBackward0"),
        ("AccumulateGrad", "AccumulateGrad"),
        ("MySqrtBackward", "a custom function"),
        ("torch::autograd::CppNode<Mine>", "a custom function"),
        ("GeneratedBackwardFor_mylib_secret_op_defaultBackward", "a custom function"),
    ],
)
def test_functions_of_the_program_are_not_named(node: str, left: str) -> None:
    assert Redaction(FACTS).redact(Event(1, None, "backward", None, grad_fn=node)).grad_fn == left


def test_of_values_only_that_they_are_bad_stays() -> None:
    operands = (
        Operand(name="self", expression="salary", value=1234.5, min=-1.5, max=2.5, dtype="float32", origin="live"),
        Operand(name="tensors[1]", value=INF, dtype="float32"),
        Operand(name="patient_age", value="mean"),
        Operand(name="exp_avg", value=True),
    )
    held = Element(index=(1,), tensor="w", shape=(4,), dtype="float32", value=INF, count=1, total=4, operands=operands)
    made = Redaction(FACTS).redact(held)
    assert (made.value, made.index, made.dtype, made.tensor) == (INF, (1,), "float32", "tensor 1")
    assert made.operands == (
        Operand(name="self", dtype="float32", origin="live"),
        Operand(name="tensors[1]", dtype="float32"),
        Operand(name="operand 1"),
        Operand(name="exp_avg"),
    )
    assert Redaction(FACTS).redact(held.model_copy(update={"value": 3.25})).value is None


def entered(sort: str | None, name: str, since: Note | None = None) -> Note:
    """The origin of a tensor that came in."""
    return Note.create("entered", sort=sort, tensor=name, literal=False, dtype=None, since=since)


@pytest.mark.parametrize(
    ("kind", "note", "left"),
    [
        ("literal", Note.create("written_by", operator="my_op"), "a constant that the program writes"),
        ("literal", entered("buffer", "running_secret"), "buffer tensor 1"),
        ("birth", entered("argument", "x['secret']"), "argument tensor 1"),
        ("birth", entered("argument", "x", Note.create("bad_before", step=3)), "argument tensor 1"),
        ("birth", Note.create("uninitialised"), "uninitialised memory"),
        ("birth", entered(None, "of Mrs Smith"), "data from outside"),
        ("birth", Note.create("model_value", sort="input", value_name="secret"), "data from outside"),
        ("birth", Note.create("written", sentence="data of Mrs Smith"), "data from outside"),
        ("birth", None, None),
    ],
)
def test_what_came_in_is_told_by_its_kind(kind: str, note: Note | None, left: str | None) -> None:
    made = birth(1, literal=kind == "literal", note=note)
    found = redacted_facts(trace([made], []))
    said = found.births[0].note
    assert (None if said is None else sentence(said)) == left
    assert redacted_facts(found).births[0].note == said


def test_ranges_keep_their_counts_and_lose_their_ends() -> None:
    counts = {"n": 8, "n_nan": 1, "n_posinf": 0, "n_neginf": 0, "n_zero": 2, "n_subnormal": 0}
    held = Range(
        event=3, op="mylib.f.default", phase="forward", output=0, dtype="float32", shape=(8,), finite_min=-1.5,
        finite_max=2.5, site=Site(file="a.py", line=1, code="x.log()"), **counts,
    )  # fmt: skip
    made = Redaction(FACTS).redact(held)
    assert made == held.model_copy(
        update={
            "op": "a custom operator", "finite_min": None, "finite_max": None, "site": Site(file="file 1", line=1),
        }
    )  # fmt: skip


def test_what_is_redacted_says_so() -> None:
    assert redacted_facts(trace([], [])).coverage.typed_notes == (LEFT_OUT,)


def test_redacting_again_changes_nothing() -> None:
    once = redacted_facts(Fill().record(Trace))
    assert redacted_facts(once) == once
