"""Notes: what is to be said beside the findings, as a kind and the values of its sentence.

No sentence stands here: `whynan.report.notes` has one for each kind. What decides reads kinds and values.
"""

from __future__ import annotations

import math
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
    "tests": ("loss", "tested", "gradients", "held", "given"),
    "bad": ("NaN", "Inf", "-Inf"),
    "sink": ("loss", "gradient", "parameter", "buffer", "output", "observed"),
}
"""The words that may stand in a field."""
_LARGEST: Final = 1 << 53
"""Integers below are the same as a float."""
_DEEPEST: Final = 4
"""Notes within notes."""
_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _field_privacy(**classes: str) -> Fields:
    """The fields of a kind: under the class of each, their names."""
    return {name: cast("Privacy", privacy) for privacy, names in classes.items() for name in names.split()}


COVERAGE: Final[Mapping[str, Fields]] = {
    # of any report
    "written": _field_privacy(text="sentence"),
    "left_out": _field_privacy(),
    "notes_left_out": _field_privacy(count="count"),
    "allowed": _field_privacy(rule="code name", path="file", line="line", text="reason"),
    # whynan itself
    "whynan_failed": _field_privacy(),
    "no_torch": _field_privacy(),
    "forked": _field_privacy(),
    "stepped_aside": _field_privacy(),
    "terminated": _field_privacy(),
    "one_of_several": _field_privacy(count="rank world"),
    "ranks_missing": _field_privacy(counts="ranks", count="world"),
    "provisional": _field_privacy(count="rank"),
    "store_lost": _field_privacy(),
    "skipped_with_others": _field_privacy(count="rank steps"),
    "ranks_parted": _field_privacy(count="step"),
    "no_others": _field_privacy(),
    # a trace on disk
    "no_facts": _field_privacy(),
    "rank_without_end": _field_privacy(count="rank step events"),
    "unfinished": _field_privacy(count="events"),
    "trace_stopped": _field_privacy(path="folder", count="events", text="why"),
    "trace_full": _field_privacy(path="folder", count="events megabytes"),
    "ended_in_a_replay": _field_privacy(),
    # what was looked at in a program
    "other_values_formula": _field_privacy(),
    "other_gradient_formula": _field_privacy(node="node"),
    "fused_kernel": _field_privacy(),
    "compiled_region": _field_privacy(path="file", line="line"),
    "thread_not_entered": _field_privacy(name="thread"),
    "nested_tensors": _field_privacy(),
    "no_silent_on_device": _field_privacy(),
    "large_sparse": _field_privacy(count="elements"),
    "discarded_gradients": _field_privacy(count="times"),
    "looked_up_to": _field_privacy(count="step"),
    "never_reached": _field_privacy(count="step"),
    "only_modules": _field_privacy(name="module"),
    "no_such_module": _field_privacy(name="module others"),
    "operands_let_go": _field_privacy(count="events"),
    "ranges_left_out": _field_privacy(count="tensors"),
    "value_ranges_left_out": _field_privacy(count="values"),
    "damage_not_followed": _field_privacy(word="of"),
    # a training
    "watched": _field_privacy(count="steps"),
    "graph_replays": _field_privacy(count="replays"),
    "spoilt_at_the_end": _field_privacy(count="parameters", flag="graphs"),
    "spoilt_before": _field_privacy(count="parameters step"),
    "optimizer_state": _field_privacy(text="state"),
    "more_bad_steps": _field_privacy(count="steps"),
    "bad_step": _field_privacy(count="step gradients skipped", flag="loss read raised"),
    "found_late": _field_privacy(count="step", flag="skipped"),
    "sync_advice": _field_privacy(),
    "compiler_suspected": _field_privacy(text="way", flag="eager"),
    "no_replay": _field_privacy(text="way why", flag="eager"),
    "gone_on": _field_privacy(),
    "another_thread": _field_privacy(),
    "replay_together": _field_privacy(),
    "share_good": _field_privacy(),
    "sender_unexplained": _field_privacy(count="rank"),
    "began_bad": _field_privacy(),
    "another_optimizer": _field_privacy(),
    "no_way": _field_privacy(),
    "start_step_advice": _field_privacy(count="step"),
    "rerun_advice": _field_privacy(),
    "mode_trace_advice": _field_privacy(),
    "evaluation_not_run_again": _field_privacy(text="why"),
    # a second run, and proofs
    "no_second_run": _field_privacy(text="why"),
    "second_run_not_used": _field_privacy(text="why"),
    "meant_after_all": _field_privacy(),
    "no_proof_together": _field_privacy(),
    "proof_ended": _field_privacy(number="seconds"),
    "proof_interrupted": _field_privacy(),
    # capsules
    "no_capsule": _field_privacy(text="why"),
    "no_operation": _field_privacy(text="why"),
    "capsule_has_values": _field_privacy(),
    "other_device": _field_privacy(text="old new"),
    "other_version": _field_privacy(text="package here there"),
    "operands_cut": _field_privacy(),
    "other_bits": _field_privacy(count="count total"),
    "same_bits": _field_privacy(),
    "not_reproduced": _field_privacy(counts="index", flag="was_nan was_inf", value="result"),
    # a model
    "given": _field_privacy(name="outputs", text="literals"),
    "failed_after": _field_privacy(count="nodes"),
    "cases_failed": _field_privacy(count="count first", text="why"),
    "fixes_not_proved": _field_privacy(word="cause"),
    "numpy_makes": _field_privacy(path="file", line="line"),
    "proving_ended": _field_privacy(number="seconds", count="untried"),
    "too_many_nodes": _field_privacy(),
    "unreadable": _field_privacy(name="value_name", text="why"),
    "provider_compiles": _field_privacy(text="asked others"),
    "provider_missing": _field_privacy(text="provider others"),
    "provider_partial": _field_privacy(text="provider others", counts="counts", count="nodes"),
    "float16_emulated": _field_privacy(count="values"),
    "float16_overflow": _field_privacy(name="value_name", value="greatest"),
    "float16_overflows": _field_privacy(count="count"),
    "body_not_entered": _field_privacy(name="node_name", text="op"),
    "body_differs": _field_privacy(name="node_name", text="op"),
    "one_at_a_time": _field_privacy(count="node_index", text="why"),
    "nodes_unmapped": _field_privacy(count="count total", flag="more", name="names"),
    "memory_exceeded": _field_privacy(count="came_to limit"),
    "optimisation_elsewhere": _field_privacy(name="outputs"),
    "optimisation_bears": _field_privacy(),
    "optimisation_cures": _field_privacy(),
    "computed_before": _field_privacy(name="names", count="more"),
    "computed_before_otherwise": _field_privacy(name="names", count="more"),
    "without_blocks": _field_privacy(),
    "in_blocks": _field_privacy(),
    "not_compared": _field_privacy(),
    "slow_run": _field_privacy(number="seconds"),
    "bits_equal": _field_privacy(word="engine", count="outputs"),
    "runs_differ": _field_privacy(word="engine"),
    "bits_differ": _field_privacy(word="engine", name="outputs"),
    # two runs side by side
    "sides_differ": _field_privacy(text="what"),
    "harmless_difference": _field_privacy(text="op", name="value_name", value="max_abs"),
    "not_judged": _field_privacy(count="count", name="names"),
    "amplified": _field_privacy(name="output", value="max_rel"),
}
"""Kinds that stand in ``coverage``."""

REPLAY: Final[Mapping[str, Fields]] = {
    "identical": _field_privacy(count="loss_count gradients", flag="read raised whole eager", text="way"),
    "same_elements": _field_privacy(),
    "rerun_identical": _field_privacy(),
    "births_identical": _field_privacy(),
    "births_identical_eagerly": _field_privacy(),
    "other_values": _field_privacy(),
    "other_events": _field_privacy(count="second first"),
    "other_births": _field_privacy(),
    "second_run_raised": _field_privacy(exception="exception"),
    "takes_from": _field_privacy(text="taken"),
    "together": _field_privacy(),
    "run_again": _field_privacy(text="why"),
    "run_again_eagerly": _field_privacy(),
    "raised": _field_privacy(exception="exception"),
    "bore_nothing": _field_privacy(),
    "bore_others": _field_privacy(),
}
"""Kinds that say of a second run or a replay whether it was faithful, and why not."""

ORIGINS: Final[Mapping[str, Fields]] = {
    "uninitialised": _field_privacy(),
    "entered": _field_privacy(text="sort dtype", name="tensor", flag="literal", note="since"),
    "spoilt_during": _field_privacy(count="step", text="optimizer"),
    "bad_before": _field_privacy(count="step"),
    "left_by_processes": _field_privacy(text="operation"),
    "ahead": _field_privacy(text="place"),
    "written_by": _field_privacy(text="operator"),
    "outside_support": _field_privacy(),
    "kept_for_derivative": _field_privacy(),
    "mask_of_finfo": _field_privacy(),
    "model_value": _field_privacy(text="sort", name="value_name"),
    "unseen_value": _field_privacy(name="value_name"),
}
"""Kinds that say where a bad number came from that no operation bore, and since when."""

CHAIN: Final[Mapping[str, Fields]] = {
    # what made an operand bad
    "wrote_last": _field_privacy(text="operator"),
    "program_writes": _field_privacy(shown="result"),
    "model_writes": _field_privacy(shown="result"),
    "made_range": _field_privacy(text="operator", shown="low high"),
    "drew": _field_privacy(text="operator", shown="result"),
    "made": _field_privacy(text="operator", shown="result"),
    "gives": _field_privacy(text="operator", shown="result"),
    "cast": _field_privacy(text="dtype", shown="operand result", value="smallest"),
    "turned_into": _field_privacy(text="operator", shown="operand result"),
    "row_of": _field_privacy(text="operator", shown="operand result"),
    "range_of": _field_privacy(text="operator", shown="low high result"),
    "computed": _field_privacy(text="operator dtype", shown="operands result", flag="arithmetic", value="smallest"),
    "scaled": _field_privacy(text="operator", shown="operands result"),
    "logit_of_infinity": _field_privacy(text="operator", shown="result"),
    "product_term": _field_privacy(shown="first second result", flag="exact"),
    "outside": _field_privacy(text="sort", name="tensor", counts="index", shown="result", flag="known"),
    "reordered": _field_privacy(shown="result", flag="known"),
    "body_begins": _field_privacy(name="value_name", counts="index", shown="result", text="body"),
    "made_by_numpy": _field_privacy(word="bad"),
    "holds": _field_privacy(note="origin", word="bad", counts="index"),
    "expression": _field_privacy(text="code given", word="bad"),
    # the birth, and what came of it
    "bears": _field_privacy(text="operator", word="bad", flag="back"),
    "carries_on": _field_privacy(text="operator"),
    "times_zero": _field_privacy(text="operator"),
    "infinity_times_zero": _field_privacy(text="operator"),
    "float64_differs": _field_privacy(text="operator", shown="result meant"),
    "made_of_bad": _field_privacy(text="operator", shown="result", word="bad"),
    "drops_nan": _field_privacy(text="operator"),
    "place_of_nan": _field_privacy(text="operator"),
    "more_events": _field_privacy(line="count"),
    "reached": _field_privacy(word="sink", name="tensor", count="n_bad total"),
    "decided": _field_privacy(word="does tests", value="held"),
    "operation_result": _field_privacy(),
    # where the rest is left out
    "result_of": _field_privacy(text="operator"),
    "came_in": _field_privacy(),
    "gives_bad": _field_privacy(text="operator"),
    "leaves": _field_privacy(),
}
"""Kinds that say what an event of a chain did."""

KINDS: Final[Mapping[str, Fields]] = {**COVERAGE, **REPLAY, **ORIGINS, **CHAIN}
"""For each kind of note its fields and how private each is."""


class Note(Record):
    """A sentence to be: its kind, and the values that it is made of, by name."""

    kind: str
    values: dict[str, Value]

    @classmethod
    def create(cls, kind: str, /, **values: Value) -> Self:
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


def gives_infinity(note: Note) -> bool:
    """Whether an operation of a chain gave an Inf of what was none."""
    operands = note.values.get("operands", (note.values.get("operand"),))
    read = operands if isinstance(operands, tuple) else ()
    return is_infinite(note.values.get("result")) and not any(map(is_infinite, read))


def is_infinite(number: object) -> bool:
    """Whether a value of a note is Inf or -Inf."""
    return isinstance(number, float) and math.isinf(number)


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
    return Note.create("written", sentence=text)


def sentence(note: Note) -> str:
    """What a note says, by the catalogue of `whynan.report`."""
    return import_module("whynan.report.notes").sentence(note)


def read_typed_notes(held: Any, text: str, note: str, made: Callable[[Any], Any]) -> Any:
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


def written_note(text: Any) -> Note:
    """The note of a text in a document."""
    if not isinstance(text, str):
        raise ValueError("Input should be a valid string")
    return text_note(text)


def written_notes(texts: Any) -> tuple[Note, ...]:
    """The notes of several texts in a document."""
    if not isinstance(texts, list | tuple):
        raise ValueError("Input should be a valid list")
    return tuple(map(written_note, cast("list[Any]", texts)))
