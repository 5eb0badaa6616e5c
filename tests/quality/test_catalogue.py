"""No branch, rule or redaction reads a sentence: with each of the catalogue replaced all answers are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

import whynan
from whynan.api import Trace
from whynan.records import Coverage, Note, Report
from whynan.report import notes
from whynan.report.json import parse_report, to_json
from whynan.report.notes import SENTENCES, sentence
from whynan.report.redaction import redacted
from whynan.report.terminal import render
from whynan.rules.wn1 import wn108_nan_of_the_forward
from whynan.run.output.run_trace import report_of_directory
from whynan.traces.redaction import FACTS
from whynan.traces.writer import TraceWriter

Program = Callable[[Path], Report]

HOLE = torch.tensor([1.0, float("nan"), 3.0])

WORDS = ("notes", "why", "summary", "message")
"""What a report says in words of the catalogue, or around them."""


def entropy_of_certainty() -> torch.Tensor:
    p = torch.softmax(torch.tensor([0.0, float("-inf")], requires_grad=True), 0)
    return -(p * p.log()).sum()


def masked_logarithm() -> torch.Tensor:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    loss = torch.where(x > 0, x * x.log(), 0.0).sum()
    loss.backward()
    return loss


def masked_quotient() -> torch.Tensor:
    x = torch.zeros(2, requires_grad=True)
    bad = (x / x).exp()
    loss = torch.where(x > 1, bad, 0.0).sum()
    loss.backward()
    return loss


def cosine_of_small_vectors() -> torch.Tensor:
    x = torch.full((4,), 1e-4).half()
    return (x * x).sum() / (x * x).sum()


def mean_with_a_hole() -> torch.Tensor:
    return HOLE.mean()


def labels_left_out() -> torch.Tensor:
    guess = torch.zeros(2, requires_grad=True)
    loss = ((guess - torch.tensor([1.0, float("nan")])) ** 2).nansum()
    loss.backward()
    return loss


def outside_of_the_support() -> torch.Tensor:
    return torch.distributions.Uniform(0.0, 1.0, validate_args=False).log_prob(torch.tensor([0.5, 2.0])).sum()


def literal_in_a_mean() -> torch.Tensor:
    weight = torch.ones(2, requires_grad=True)
    loss = (weight + torch.tensor([0.0, float("inf")])).mean()
    loss.backward()
    return loss


def place_of_a_nan() -> torch.Tensor:
    return (torch.zeros(3) / 0).argmax() * 1.0


def allowed() -> torch.Tensor:
    with whynan.allow("WN1", reason="empty rows are meant"):
        return torch.zeros(2) / 0


def nested() -> torch.Tensor:
    return (torch.ones(3).cumsum(0) * 1e38).sum() * 10


HAZARDS = (
    entropy_of_certainty,
    masked_logarithm,
    masked_quotient,
    cosine_of_small_vectors,
    mean_with_a_hole,
    labels_left_out,
    outside_of_the_support,
    literal_in_a_mean,
    place_of_a_nan,
    allowed,
    nested,
)


def watched(_: Path) -> Report:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([weight], eps=0.0)
    with whynan.watch(optimizer, quiet=True) as w:
        for _step in range(2):
            optimizer.zero_grad()
            (weight * torch.tensor([0.0, 1.0])).sum().backward()
            optimizer.step()
    return w.report


def watched_to_its_bad_step(_: Path) -> Report:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with whynan.watch(optimizer, quiet=True) as w:
        for step in range(4):
            optimizer.zero_grad()
            (weight * (3 - step)).sum().log().backward()
            optimizer.step()
    return w.report


def redacted_trace(place: Path) -> Report:
    with Trace(recording=TraceWriter(place / "trace", redact=True), quiet=True):
        masked_logarithm()
        mean_with_a_hole()
    return report_of_directory(place / "trace")


def unfinished_trace(place: Path) -> Report:
    writer = TraceWriter(place / "trace")
    with Trace(recording=writer, quiet=True):
        masked_logarithm()
    run = json.loads((place / "trace" / "run.json").read_text(encoding="utf-8"))
    (place / "trace" / "run.json").write_text(json.dumps({**run, "ended": None}), encoding="utf-8")
    return report_of_directory(place / "trace")


def model(place: Path) -> Report:
    node = helper.make_node
    value = helper.make_tensor_value_info
    nodes = [
        node("Mul", ["x", "x"], ["square"]),
        node("Log", ["square"], ["log"]),
        node("Mul", ["square", "log"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "graph", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, place / "model.onnx")
    return whynan.explain(place / "model.onnx", {"x": torch.tensor([0.0, 1e-30]).numpy()})


def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every sentence by one of another language."""

    def said(number: int) -> Callable[[notes.Values], str]:
        return lambda values: f"Satz {number}: {', '.join(map(str, values.values()))}"

    for number, kind in enumerate(SENTENCES):
        monkeypatch.setitem(SENTENCES, kind, said(number))


def answers(report: Report) -> Any:
    """All of a report but the words of the catalogue, as others see it too."""
    return _without(json.loads(to_json(report))), _without(json.loads(to_json(redacted(report))))


def _without(document: Any) -> Any:
    if isinstance(document, list):
        return [_without(held) for held in document]
    if not isinstance(document, dict):
        return document
    return {name: _without(held) for name, held in document.items() if name not in WORDS}


def both(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Report, Report]:
    """The reports of a program, in English and in the other language."""
    made: list[Report] = []
    for name in ("english", "foreign"):
        place = tmp_path / "here"
        place.mkdir()
        if name == "foreign":
            foreign(monkeypatch)
        made.append(program(place))
        place.rename(tmp_path / name)
    return made[0], made[1]


def explained(target: Callable[[], object]) -> Program:
    return lambda _: whynan.explain(target)


def proved(target: Callable[[], object]) -> Program:
    return lambda _: whynan.explain(target, rerun=True)


PROGRAMS = [
    *(
        pytest.param(explained(t), id=t.__name__, marks=pytest.mark.full if n % 3 else [])
        for n, t in enumerate(HAZARDS)
    ),
    pytest.param(proved(masked_logarithm), id="fixes", marks=pytest.mark.proof),
    pytest.param(watched, id="spoilt weights", marks=pytest.mark.proof),
    pytest.param(watched_to_its_bad_step, id="bad step", marks=pytest.mark.proof),
    pytest.param(redacted_trace, id="redacted trace"),
    pytest.param(unfinished_trace, id="unfinished trace"),
    pytest.param(model, id="model", marks=pytest.mark.process),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_answers_are_the_same_in_another_language(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english, other = both(program, tmp_path, monkeypatch)
    # both are looked at in the other language: what is kept of the first is no sentence
    assert answers(english) == answers(other)
    assert all(note.startswith("Satz ") for note in other.coverage.notes)
    assert all(link.summary.startswith("Satz ") for finding in other.findings for link in finding.chain)
    assert repr(parse_report(to_json(other))) == repr(other)
    render(other, show_all=True)


def test_the_sample_has_what_is_decided_by_notes_and_steps(tmp_path: Path) -> None:
    reports = [whynan.explain(target) for target in HAZARDS]
    rules = {finding.rule for report in reports for finding in (*report.findings, *report.damaging)}
    assert {"WN001", "WN003", "WN101", "WN108"} <= rules
    assert any(report.coverage.notes_of("allowed") for report in reports)
    kinds = {
        link.typed_summary.kind
        for report in reports
        for finding in (*report.findings, *report.damaging, *report.absorbed)
        for link in finding.chain
    }
    assert {"bears", "carries_on", "computed", "holds", "made_of_bad", "reached"} <= kinds


# -- twins: what reads English is caught -----------------------------------------------------------------------------


def _reads_the_step(said: Note) -> bool:
    return " holds NaN" in sentence(said)


def test_a_rule_that_reads_a_step_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english, other = both(explained(labels_left_out), tmp_path, monkeypatch)
    assert answers(english) == answers(other)
    monkeypatch.undo()
    monkeypatch.setattr(wn108_nan_of_the_forward, "_made", _reads_the_step)
    (tmp_path / "planted").mkdir()
    english, other = both(explained(labels_left_out), tmp_path / "planted", monkeypatch)
    assert answers(english) != answers(other)


def test_a_redaction_that_reads_a_note_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_words(_redaction: object, held: tuple[Note, ...], _holder: object) -> tuple[Note, ...]:
        return tuple(note for note in held if " is allowed" in sentence(note))

    monkeypatch.setitem(FACTS[Coverage], "typed_notes", by_words)  # type: ignore[arg-type]
    report = whynan.explain(allowed)
    english = answers(report)
    foreign(monkeypatch)
    assert english != answers(report)


def test_a_branch_that_reads_a_note_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_words(coverage: Coverage, kind: str) -> tuple[Note, ...]:
        return tuple(note for note in coverage.typed_notes if kind in sentence(note))

    monkeypatch.setattr(Coverage, "notes_of", by_words)
    report = Report.model_validate(
        {
            "verdict": "clean",
            "run": {"command": "train.py", "exit_status": {"script": 0, "whynan": 0}},
            "coverage": {"typed_notes": (Note.create("watched", steps=3),)},
        }
    )
    assert "no step went bad" in render(report)
    foreign(monkeypatch)
    assert "no step went bad" not in render(report)
