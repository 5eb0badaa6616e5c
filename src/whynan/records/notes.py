"""Notes: what is to be said beside the findings, as a kind and the values of its sentence.

No sentence stands here: `whynan.report.notes` has one for each kind. What decides reads kinds and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, Self, TypeAlias, Union, cast

from pydantic import model_validator

from whynan.floats import format_value
from whynan.records.base import Record

Privacy: TypeAlias = Literal[
    "count", "counts", "line", "number", "flag", "word", "rule", "node", "exception", "note", "name", "path", "value",
    "shown", "text",
]  # fmt: skip
"""What a value of a note is, and by that how private.

Numbers (``count``, ``counts``, ``line``, ``number``), switches (``flag``) and words of whynan's own (``word``) are not.
``rule``: the code or name of a rule; ``node``: of an autograd node; ``exception``: its type and text; ``note``: a note
within a note. Nothing of the others may be known where a report is redacted: ``name`` of the program's, ``path``,
``value`` that it computed, ``shown`` values of any type, ``text`` of source, of an engine or of a reason.
"""
Fields: TypeAlias = "Mapping[str, Privacy]"
Scalar: TypeAlias = Union[bool, int, float, str, "Note", None]
Value: TypeAlias = Union[Scalar, "tuple[Scalar, ...]"]

_WORDS: Final = {
    "of": ("events", "nodes"),
    "cause": ("crash", "end", "failure"),
    "engine": ("session", "evaluator"),
    "does": ("ends", "leaves", "skips"),
    "tests": ("loss", "tested", "gradients", "held"),
    "bad": ("NaN", "Inf", "-Inf"),
    "sink": ("loss", "gradient", "parameter", "buffer", "output", "observed"),
}
"""The words that may stand in a field."""
_LARGEST: Final = 1 << 53
"""Integers below are the same as a float."""
_DEEPEST: Final = 4
"""Notes within notes."""
_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _of(**classes: str) -> Fields:
    """The fields of a kind: under the class of each, their names."""
    return {name: cast("Privacy", privacy) for privacy, names in classes.items() for name in names.split()}


COVERAGE: Final[Mapping[str, Fields]] = {
    # of any report
    "written": _of(text="sentence"),
    "left_out": _of(),
    "notes_left_out": _of(count="count"),
    "allowed": _of(rule="code name", path="file", line="line", text="reason"),
    # whynan itself
    "whynan_failed": _of(),
    "no_torch": _of(),
    "forked": _of(),
    "stepped_aside": _of(),
    "terminated": _of(),
    "one_of_several": _of(count="rank world"),
    "no_others": _of(),
    # a trace on disk
    "no_facts": _of(),
    "unfinished": _of(count="events"),
    "trace_stopped": _of(path="folder", count="events", text="why"),
    "trace_full": _of(path="folder", count="events megabytes"),
    "ended_in_a_replay": _of(),
    # what was looked at in a program
    "other_values_formula": _of(),
    "other_gradient_formula": _of(node="node"),
    "compiled_region": _of(path="file", line="line"),
    "thread_not_entered": _of(name="thread"),
    "nested_tensors": _of(),
    "large_sparse": _of(count="elements"),
    "discarded_gradients": _of(count="times"),
    "looked_up_to": _of(count="step"),
    "never_reached": _of(count="step"),
    "only_modules": _of(name="module"),
    "no_such_module": _of(name="module others"),
    "operands_let_go": _of(count="events"),
    "ranges_left_out": _of(count="tensors"),
    "value_ranges_left_out": _of(count="values"),
    "damage_not_followed": _of(word="of"),
    # a training
    "watched": _of(count="steps"),
    "graph_replays": _of(count="replays"),
    "spoilt_at_the_end": _of(count="parameters", flag="graphs"),
    "spoilt_before": _of(count="parameters step"),
    "optimizer_state": _of(text="state"),
    "more_bad_steps": _of(count="steps"),
    "bad_step": _of(count="step gradients skipped", flag="loss read raised"),
    "found_late": _of(count="step", flag="skipped"),
    "sync_advice": _of(),
    "compiler_suspected": _of(text="way", flag="eager"),
    "no_replay": _of(text="way why", flag="eager"),
    "gone_on": _of(),
    "another_thread": _of(),
    "replay_together": _of(),
    "another_optimizer": _of(),
    "no_way": _of(),
    "start_step_advice": _of(count="step"),
    "rerun_advice": _of(),
    "mode_trace_advice": _of(),
    "evaluation_not_run_again": _of(text="why"),
    # a second run, and proofs
    "no_second_run": _of(text="why"),
    "second_run_not_used": _of(text="why"),
    "meant_after_all": _of(),
    "no_proof_together": _of(),
    "proof_ended": _of(number="seconds"),
    # capsules
    "no_capsule": _of(text="why"),
    "no_operation": _of(text="why"),
    "capsule_has_values": _of(),
    "other_device": _of(text="old new"),
    "other_version": _of(text="package here there"),
    "operands_cut": _of(),
    "other_bits": _of(count="count total"),
    "same_bits": _of(),
    "not_reproduced": _of(counts="index", flag="was_nan was_inf", value="result"),
    # a model
    "given": _of(name="outputs", text="literals"),
    "failed_after": _of(count="nodes"),
    "cases_failed": _of(count="count first", text="why"),
    "fixes_not_proved": _of(word="cause"),
    "proving_ended": _of(number="seconds", count="untried"),
    "too_many_nodes": _of(),
    "unreadable": _of(name="value_name", text="why"),
    "provider_compiles": _of(text="asked others"),
    "provider_missing": _of(text="provider others"),
    "provider_partial": _of(text="provider others", counts="counts", count="nodes"),
    "float16_emulated": _of(count="values"),
    "float16_overflow": _of(name="value_name", value="greatest"),
    "float16_overflows": _of(count="count"),
    "body_not_entered": _of(name="node_name", text="op"),
    "body_differs": _of(name="node_name", text="op"),
    "one_at_a_time": _of(count="node_index", text="why"),
    "nodes_unmapped": _of(count="count total", flag="more", name="names"),
    "memory_exceeded": _of(count="came_to limit"),
    "optimisation_elsewhere": _of(name="outputs"),
    "optimisation_bears": _of(),
    "optimisation_cures": _of(),
    "computed_before": _of(name="names", count="more"),
    "computed_before_otherwise": _of(name="names", count="more"),
    "without_blocks": _of(),
    "in_blocks": _of(),
    "not_compared": _of(),
    "slow_run": _of(number="seconds"),
    "bits_equal": _of(word="engine", count="outputs"),
    "runs_differ": _of(word="engine"),
    "bits_differ": _of(word="engine", name="outputs"),
}
"""Kinds that stand in ``coverage``."""

REPLAY: Final[Mapping[str, Fields]] = {
    "identical": _of(count="loss_count gradients", flag="read raised whole eager", text="way"),
    "same_elements": _of(),
    "rerun_identical": _of(),
    "births_identical": _of(),
    "births_identical_eagerly": _of(),
    "other_values": _of(),
    "other_events": _of(count="second first"),
    "other_births": _of(),
    "second_run_raised": _of(exception="exception"),
    "takes_from": _of(text="taken"),
    "together": _of(),
    "run_again": _of(text="why"),
    "run_again_eagerly": _of(),
    "raised": _of(exception="exception"),
    "bore_nothing": _of(),
    "bore_others": _of(),
}
"""Kinds that say of a second run or a replay whether it was faithful, and why not."""

ORIGINS: Final[Mapping[str, Fields]] = {
    "uninitialised": _of(),
    "entered": _of(text="sort dtype", name="tensor", flag="literal", note="since"),
    "spoilt_during": _of(count="step", text="optimizer"),
    "bad_before": _of(count="step"),
    "left_by_processes": _of(text="operation"),
    "ahead": _of(text="place"),
    "written_by": _of(text="operator"),
    "outside_support": _of(),
    "kept_for_derivative": _of(),
    "mask_of_finfo": _of(),
    "model_value": _of(text="sort", name="value_name"),
    "unseen_value": _of(name="value_name"),
}
"""Kinds that say where a bad number came from that no operation bore, and since when."""

CHAIN: Final[Mapping[str, Fields]] = {
    # what made an operand bad
    "wrote_last": _of(text="operator"),
    "program_writes": _of(shown="result"),
    "model_writes": _of(shown="result"),
    "made_range": _of(text="operator", shown="low high"),
    "drew": _of(text="operator", shown="result"),
    "made": _of(text="operator", shown="result"),
    "gives": _of(text="operator", shown="result"),
    "cast": _of(text="dtype", shown="operand result", value="smallest"),
    "turned_into": _of(text="operator", shown="operand result"),
    "row_of": _of(text="operator", shown="operand result"),
    "range_of": _of(text="operator", shown="low high result"),
    "computed": _of(text="operator dtype", shown="operands result", flag="arithmetic", value="smallest"),
    "scaled": _of(text="operator", shown="operands result"),
    "logit_of_infinity": _of(text="operator", shown="result"),
    "product_term": _of(shown="first second result", flag="exact"),
    "outside": _of(text="sort", name="tensor", counts="index", shown="result", flag="known"),
    "reordered": _of(shown="result", flag="known"),
    "body_begins": _of(name="value_name", counts="index", shown="result", text="body"),
    "holds": _of(note="origin", word="bad", counts="index"),
    "expression": _of(text="code given", word="bad"),
    # the birth, and what came of it
    "bears": _of(text="operator", word="bad", flag="back"),
    "carries_on": _of(text="operator"),
    "float64_differs": _of(text="operator", shown="result meant"),
    "made_of_bad": _of(text="operator", shown="result", word="bad"),
    "drops_nan": _of(text="operator"),
    "place_of_nan": _of(text="operator"),
    "more_events": _of(line="count"),
    "reached": _of(word="sink", name="tensor", count="n_bad total"),
    "decided": _of(word="does tests", value="held"),
    "operation_result": _of(),
    # where the rest is left out
    "result_of": _of(text="operator"),
    "came_in": _of(),
    "gives_bad": _of(text="operator"),
    "leaves": _of(),
}
"""Kinds that say what an event of a chain did."""

KINDS: Final[Mapping[str, Fields]] = {**COVERAGE, **REPLAY, **ORIGINS, **CHAIN}
"""For each kind of note its fields and how private each is."""


class Note(Record):
    """A sentence to be: its kind, and the values that it is made of, by name."""

    kind: str
    values: dict[str, Value]

    @classmethod
    def of(cls, kind: str, /, **values: Value) -> Self:
        """A note of a kind, with its values in the order of its sentence."""
        return cls(kind=kind, values=values)

    def is_like(self, other: Note, *fields: str) -> bool:
        """Whether another note is of the same kind, and has the same values in some fields."""
        return self.kind == other.kind and all(self.values.get(n) == other.values.get(n) for n in fields)

    @model_validator(mode="before")
    @classmethod
    def _with_numbers(cls, held: Any) -> Any:
        """What JSON has no number for is a number again where the kind has one."""
        if not isinstance(held, dict):
            return held
        given = cast("dict[str, Any]", held)
        kind, values = given.get("kind"), given.get("values")
        fields = KINDS.get(kind) if isinstance(kind, str) else None
        if fields is None or not isinstance(values, dict):
            return given
        return {**given, "values": {n: _number(v, fields.get(n)) for n, v in cast("dict[str, Any]", values).items()}}

    @model_validator(mode="after")
    def _known(self) -> Self:
        fields = KINDS.get(self.kind)
        if fields is None:
            raise ValueError("there is no such kind of note")
        if fields.keys() != self.values.keys():
            raise ValueError(f"a note of the kind {self.kind} has {', '.join(fields) or 'no values'}")
        for name, value in self.values.items():
            if not _fits(name, fields[name], value):
                raise ValueError(f"{name} of a note of the kind {self.kind} is no {fields[name]}")
        if _depth(self) > _DEEPEST:
            raise ValueError("a note is nested too deeply")
        return self

    def __hash__(self) -> int:
        return hash((self.kind, frozenset(self.values.items())))


def _number(value: Any, privacy: Privacy | None) -> Any:
    if privacy not in ("number", "value", "shown"):
        return value
    if isinstance(value, list | tuple):
        return tuple(_number(one, privacy) for one in cast("list[Any]", value))
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def shown(value: Any) -> Scalar:
    """A value of the program as a note holds it: what JSON has no number for as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and abs(value) < _LARGEST:
        return int(value)
    return format_value(value, digits=4)


def _fits(name: str, privacy: Privacy, value: Value) -> bool:
    """Whether a value is of the type that its sentence can be made of."""
    match privacy:
        case "flag":
            return isinstance(value, bool)
        case "word":
            return value in _WORDS[name]
        case "rule":
            return isinstance(value, str)
        case "count":
            return _is_count(value)
        case "line":
            return value is None or _is_count(value)
        case "counts":
            return value is None or (isinstance(value, tuple) and all(map(_is_count, value)))
        case "number" | "value":
            return (isinstance(value, int | float) and not isinstance(value, bool)) or (
                value is None and privacy == "value"
            )
        case "note":
            return value is None or isinstance(value, Note)
        case "node" | "exception":
            return value is None or isinstance(value, str)
        case "shown":
            return not isinstance(value, Note)
        case "name" | "path" | "text":
            several: tuple[Scalar, ...] = value if isinstance(value, tuple) else (value,)
            return all(one is None or isinstance(one, str | Note) for one in several)


def _is_count(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _depth(note: Note) -> int:
    several = (value if isinstance(value, tuple) else (value,) for value in note.values.values())
    return 1 + max((_depth(one) for inner in several for one in inner if isinstance(one, Note)), default=0)


Note.model_rebuild()


def text_note(text: str) -> Note:
    """A sentence that is known as text only."""
    return Note.of("written", sentence=text)


def sentence(note: Note) -> str:
    """What a note says, by the catalogue of `whynan.report`."""
    return import_module("whynan.report.notes").sentence(note)


def typed(held: Any, text: str, note: str, made: Callable[[Any], Any]) -> Any:
    """What a record is read from, with notes in place of the text that a document has beside them, or alone.

    `made`: the value of the field `note` by that of `text`; raises ``ValueError`` for what is no text.
    """
    if not isinstance(held, dict):
        return held
    given = dict(cast("dict[str, Any]", held))
    if text not in given:
        return given
    found = made(given.pop(text))
    return given if note in given else {**given, note: found}


def as_written(text: Any) -> Note:
    """The note of a text in a document."""
    if not isinstance(text, str):
        raise ValueError("Input should be a valid string")
    return text_note(text)


def all_as_written(texts: Any) -> tuple[Note, ...]:
    """The notes of several texts in a document."""
    if not isinstance(texts, list | tuple):
        raise ValueError("Input should be a valid list")
    return tuple(map(as_written, cast("list[Any]", texts)))
