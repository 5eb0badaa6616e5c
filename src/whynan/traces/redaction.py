"""What is left of a record when nothing private may be: an allow-list of fields, and numbers in place of names.

A field that no table names is dropped, so that one which is added later is let through by nobody's oversight.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from whynan.ops.public_names import (
    is_dtype,
    is_onnx_argument,
    is_onnx_operator,
    is_torch_argument,
    is_torch_node,
    is_torch_operator,
)
from whynan.records import (
    KINDS,
    Aligned,
    Argument,
    ChainLink,
    Coverage,
    Damage,
    Data,
    Element,
    ExitStatus,
    Fed,
    ForwardOperand,
    Inference,
    Neighbourhood,
    Note,
    Operand,
    Operation,
    Range,
    RankRun,
    Reach,
    Replay,
    Run,
    ScaleFall,
    Selection,
    Site,
    Step,
)
from whynan.traces.facts import STILL_HELD, Birth, Event, Silent, Sink, Trace

T = TypeVar("T")

LEFT_OUT: Final = Note.create("left_out")
"""The note that heads those of a redacted report."""
CUSTOM_OPERATOR: Final = "a custom operator"
CUSTOM_FUNCTION: Final = "a custom function"

_CODE: Final = re.compile(r"WN[\dX]\d{2}", re.ASCII)
_RULE_NAME: Final = re.compile(r"[a-z0-9-]+", re.ASCII)
_POSITION: Final = re.compile(r"(output|argument \d+)(\[\d+\])*", re.ASCII)
_DEVICE: Final = re.compile(r"(cpu|cuda|mps|xpu|hpu|xla|meta)(:\d+)?", re.ASCII)
_VERSION: Final = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)*(\+(cpu|cu\d+|rocm[\d.]+))?", re.ASCII)
_PACKAGES: Final = frozenset("whynan python torch numpy transformers onnx onnxruntime".split())
_FLAGS: Final = frozenset("deterministic_algorithms float32_matmul_precision default_dtype threads".split())
_PRECISIONS: Final = frozenset("highest high medium".split())
_PROVIDER: Final = re.compile(
    r"(CPU|CUDA|Tensorrt|NvTensorRTRTX|ROCM|MIGraphX|OpenVINO|Dnnl|CoreML|Dml|QNN|Xnnpack|ACL|ArmNN|Azure|WebGPU|JS|"
    r"WebNN|VitisAI|CANN|Rknpu|SNPE|TVM|Nnapi|VSINPU)ExecutionProvider",
    re.ASCII,
)
_DOMAIN: Final = re.compile(
    r"|ai\.onnx(\.ml|\.preview|\.training|\.preview\.training)?|com\.microsoft(\.\w+)?", re.ASCII
)
_GENERIC_NAMES: Final = frozenset(("<module>", "<lambda>"))


class Pseudonyms:
    """Numbers in place of names: the first file is ``file 1``, and is so wherever it is named."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def pseudonym(self, kind: str, name: str) -> str:
        """The pseudonym of a name, new where it was not met before."""
        known = self._known.setdefault(kind, {})
        return known.setdefault(name, f"{kind} {len(known) + 1}")


class _Dropped:
    """The value of a field that is left at its default."""


DROPPED: Final = _Dropped()

Treatment = Callable[["Redaction", Any, Any], Any]
"""From a redaction, the value of a field and the record that holds it to what may be known of the value."""
Table = Mapping[str, Treatment]


@dataclass(frozen=True, slots=True)
class Redaction:
    """What becomes of each field of each type of record, and the pseudonyms that were given so far."""

    tables: Mapping[type, Table]
    names: Pseudonyms = field(default_factory=Pseudonyms)

    def redact(self, record: T) -> T:
        """The record without what is private; raises ``KeyError`` for a type without a table."""
        table = self.tables[type(record)]
        treated = ((name, treat(self, getattr(record, name), record)) for name, treat in table.items())
        left = {name: value for name, value in treated if value is not DROPPED}
        if isinstance(record, BaseModel):
            return cast("T", type(record).model_validate(left))
        return type(record)(**left)


def by_value(treat: Callable[[Any], Any]) -> Treatment:
    """What a function makes of the value alone."""
    return lambda _redaction, value, _holder: treat(value)


def by_holder(treat: Callable[[Any], Any]) -> Treatment:
    """What a function makes of the record that holds the field."""
    return lambda _redaction, _value, holder: treat(holder)


dropped: Final = by_value(lambda _: DROPPED)
"""The default of the field."""
unknown: Final = by_value(lambda _: None)
"""None, where a field has no default."""
kept: Final = by_value(lambda value: value)
"""Numbers, and the words of a fixed set that a record type declares."""


def record(redaction: Redaction, value: Any, _holder: Any) -> Any:
    """A record, or several of them."""
    if isinstance(value, tuple | list):
        several = cast("tuple[Any, ...] | list[Any]", value)
        return type(several)([redaction.redact(one) for one in several])
    return None if value is None else redaction.redact(value)


def alias(kind: str) -> Treatment:
    """A name of the program's, or several; numbered."""

    def treat(redaction: Redaction, value: Any, _holder: Any) -> Any:
        if isinstance(value, dict):
            return {redaction.names.pseudonym(kind, name): None for name in cast("dict[str, None]", value)}
        if isinstance(value, tuple):
            return tuple(redaction.names.pseudonym(kind, name) for name in cast("tuple[str, ...]", value))
        return value if value is None or value in _GENERIC_NAMES else redaction.names.pseudonym(kind, value)

    return treat


def tensor(redaction: Redaction, value: str | None, _holder: Any) -> str | None:
    """The name of a tensor; what only says where it stood may stay."""
    if value is None or value == STILL_HELD or _POSITION.fullmatch(value):
        return value
    return redaction.names.pseudonym("tensor", value)


def argument(redaction: Redaction, value: str, _holder: Any) -> str:
    """The name of an operator's argument."""
    return value if is_torch_argument(value) or is_onnx_argument(value) else redaction.names.pseudonym("operand", value)


def _operator(name: str | None) -> str | None:
    known = name is None or is_torch_operator(name) or is_onnx_operator(name)
    return name if known else CUSTOM_OPERATOR


operator: Final = by_value(_operator)
"""PyTorch's and ONNX's operators have names that everyone knows; a program's own do not."""


@by_value
def node(name: str | None) -> str | None:
    """PyTorch's nodes of the graph; those of a program's ``autograd.Function`` carry its name."""
    return name if name is None or is_torch_node(name) else CUSTOM_FUNCTION


@by_value
def dtype(name: str | None) -> str | None:
    """The type of numbers."""
    return name if name is None or is_dtype(name) else "a dtype"


@by_value
def nonfinite(value: object) -> float | None:
    """That an element is NaN or infinite is the finding; any other value is the program's."""
    return value if isinstance(value, float) and not math.isfinite(value) else None


_WAYS: Final = frozenset("input metadata name module topology fingerprint output".split())


def _ways(by: dict[str, int]) -> dict[str, int]:
    """By what values were aligned: the words of whynan's own."""
    return {way: count for way, count in by.items() if way in _WAYS}


def _entries(redaction: Redaction, value: tuple[int | str, ...], _holder: Any) -> tuple[int | str, ...]:
    """Entries of a dataset: their numbers may stay, their names not."""
    return tuple(redaction.names.pseudonym("entry", entry) if isinstance(entry, str) else entry for entry in value)


@by_holder
def _summary(link: ChainLink) -> Note:
    """What an event of a chain did, as it holds for every one of its role."""
    op, said = _operator(link.op), link.typed_summary
    match link.role:
        case "cause":
            return Note.create("came_in") if op is None else Note.create("result_of", operator=op)
        case "birth":
            return Note.create("gives_bad", operator=op)
        case "step" if op is None:
            return said if said.kind == "more_events" else Note.create("more_events", count=None)
        case "step":
            return Note.create("carries_on", operator=op)
        case "sink":
            return said if said.kind == "decided" and _is_public(said.values["held"]) else Note.create("leaves")


def _is_public(held: object) -> bool:
    """Whether a number says no more than that it is bad."""
    return held is None or (isinstance(held, float) and not math.isfinite(held))


def _birth_note(redaction: Redaction, note: Note | None, holder: Birth) -> Note | None:
    """What came in or was written, by its kind and the tensor's pseudonym."""
    if note is None or note.kind == "uninitialised":
        return note
    sort, literal = note.values.get("sort"), holder.label_kind == "literal"
    known: dict[str, Any] = {"sort": None, "tensor": None, "literal": literal, "dtype": None, "since": None}
    if note.kind == "entered" and sort in ("parameter", "buffer", "argument"):
        name = note.values["tensor"]
        known |= {"sort": sort, "tensor": tensor(redaction, name if isinstance(name, str) else None, holder)}
    return Note.create("entered", **known)


def exception_type(text: str) -> str:
    """The type of an exception without its text: ``ValueError``; one that is not Python's own is somebody's name."""
    name = text.split(":")[0]
    found: object = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else "an exception"


def _exception(text: str | None) -> str | None:
    return None if text is None else exception_type(text)


def _rule(note: Note) -> dict[str, str]:
    """The code and name of a rule of whynan's own; those of others may be named for what is private."""
    code, name = str(note.values["code"]), str(note.values["name"])
    known = _CODE.fullmatch(code) and _RULE_NAME.fullmatch(name)
    return {"code": code, "name": name} if known else {"code": "WN000", "name": "unexplained"}


def _values(redaction: Redaction, values: dict[str, Any], note: Note) -> dict[str, Any]:
    """What may be known of the values of a note, by what its kind says of each."""

    def treated(name: str, value: Any) -> Any:
        match KINDS[note.kind][name]:
            case "count" | "counts" | "line" | "number" | "flag" | "word":
                return value
            case "rule":
                return _rule(note)[name]
            case "node":
                return value if value is None or is_torch_node(value) else None
            case "exception":
                return _exception(value)
            case "note":
                return _note(redaction, value, note)
            case "name" | "path" | "value" | "shown" | "text":
                return None

    return {name: treated(name, value) for name, value in values.items()}


def _note(redaction: Redaction, value: Note | None, _holder: Any) -> Note | None:
    """A note without what is private; of one that is known as a sentence only, nothing."""
    return None if value is None or value.kind == "written" else redaction.redact(value)


def _notes(redaction: Redaction, notes: tuple[Note, ...], _holder: Any) -> tuple[Note, ...]:
    """Notes, headed by the one that says what was done; of those that are sentences only, how many there were."""
    left = (_note(redaction, note, None) for note in notes)
    count = sum(note.kind == "written" for note in notes)
    unknown = [Note.create("notes_left_out", count=count)] if count else []
    return tuple(dict.fromkeys((LEFT_OUT, *(note for note in left if note is not None), *unknown)))


def _versions(versions: dict[str, str]) -> dict[str, str]:
    found = {name: _VERSION.match(version) for name, version in versions.items() if name in _PACKAGES}
    return {name: match[0] for name, match in found.items() if match is not None}


def _flags(flags: dict[str, object]) -> dict[str, object]:
    return {name: held for name, held in flags.items() if name in _FLAGS and _is_setting(held)}


def _is_setting(held: object) -> bool:
    return held in _PRECISIONS or is_dtype(held) if isinstance(held, str) else True


def _device(device: str) -> str:
    return device if _DEVICE.fullmatch(device) else "a device"


def _provider(name: str | None) -> str | None:
    return name if name is None or _PROVIDER.fullmatch(name) else "a provider"


def _providers(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_provider(name) or "" for name in names)


def _placement(counts: dict[str, int]) -> dict[str, int]:
    return {_provider(name) or "": count for name, count in counts.items()}


def _opset(versions: dict[str, int]) -> dict[str, int]:
    return {domain: version for domain, version in versions.items() if _DOMAIN.fullmatch(domain)}


def _word(text: str | None) -> str | None:
    return text if text in ("disabled", "basic", "extended", "all") else None


def _origin(fed: Fed) -> str:
    return "generated" if fed.generated else "given"


_ELEMENT_OF_A_ROW: Final[Table] = {"index": kept, "value": dropped, "dtype": dtype, "origin": kept}

FACTS: Final[Mapping[type, Table]] = {
    Site: {
        "file": alias("file"), "line": kept, "column": kept, "end_line": kept, "end_column": kept, "code": dropped,
        "function": alias("function"), "module": alias("module"),
    },
    Operand: {
        "name": argument, "expression": dropped, **_ELEMENT_OF_A_ROW, "shape": kept, "min": dropped, "max": dropped,
    },
    ForwardOperand: {"name": argument, "expression": dropped, **_ELEMENT_OF_A_ROW},
    Element: {
        "index": kept, "output": kept, "list_index": kept, "tensor": tensor, "shape": kept, "dtype": dtype,
        "value": nonfinite, "count": kept, "total": kept, "operands": record, "global_index": kept,
        "global_shape": kept,
    },
    Data: {
        "kind": kept, "name": alias("place"), "file": alias("file"), "site": record, "computed": record,
        "batch": kept, "passed": kept, "worker": kept, "rows": kept, "n_rows": kept, "indices": _entries,
        "in_order": kept,
    },
    ChainLink: {
        "role": kept, "op": operator, "phase": kept, "site": record, "node": alias("node"), "typed_summary": _summary,
    },
    Coverage: {
        "events": kept, "eager": kept, "compiled_regions": kept, "skipped_steps": kept,
        "aligned": record, "typed_notes": _notes,
    },
    Aligned: {"values": kept, "of": kept, "by": by_value(_ways), "unaligned": alias("tensor")},
    Note: {"kind": kept, "values": _values},
    Range: {
        "event": kept, "op": operator, "phase": kept, "output": kept, "dtype": dtype, "shape": kept, "n": kept,
        "n_nan": kept, "n_posinf": kept, "n_neginf": kept, "n_zero": kept, "n_subnormal": kept,
        "finite_min": unknown, "finite_max": unknown, "headroom": unknown, "node": alias("node"),
        "value": alias("tensor"), "provider": by_value(_provider), "site": record,
    },
    Event: {
        "ordinal": kept, "op": operator, "phase": kept, "site": record, "library_site": record, "grad_fn": node,
        "forward_op": operator, "step": kept, "micro": kept, "recomputed": kept,
        "node": alias("node"), "value": alias("tensor"), "made_of": dropped,
    },
    Birth: {
        "label": kept, "label_kind": kept, "event": record, "kind": kept, "element": record,
        "forward_operands": record, "causes": kept, "cause_links": record, "steps": record, "steps_omitted": kept,
        "occurrences": kept, "modules": alias("module"), "scope": kept, "note": _birth_note, "named": kept,
        "computed": kept, "data": record, "around": record,
    },
    Damage: {"kind": kept, "concerned": kept, "total": kept, "numbers": dropped},
    Silent: {
        "event": record, "element": record, "damage": record, "modules": alias("module"), "occurrences": kept,
        "scope": kept, "around": record, "reaches": record,
    },
    Reach: {"kind": kept, "name": tensor, "bad": kept, "total": kept, "value": nonfinite},
    Neighbourhood: {"dialect": kept, "middle": kept, "operations": record, "gone": kept, "left_out": record},
    Selection: {"op": operator, "side": argument, "mask": dropped, "line": kept},
    Operation: {"event": kept, "op": operator, "hops": kept, "arguments": record, "shape": kept},
    Argument: {
        "name": argument, "event": kept, "elements": kept, "value": dropped, "numbers": dropped, "text": dropped,
        "shape": kept, "dtype": dtype, "min": dropped, "max": dropped,
    },
    Sink: {
        "kind": kept, "name": tensor, "bad": kept, "total": kept, "labels": kept, "fatal": kept, "damage": kept,
        "counts": kept, "owner": kept, "scale_fall": record, "value": nonfinite,
        "decision": record,
    },
    ScaleFall: {"skipped": kept, "on_end": kept, "first": unknown, "last": unknown},
    Trace: {
        "births": record, "sinks": record, "coverage": record, "ranges": record, "fatal_seen": kept,
        "unexplained": record, "failed": kept, "silent": record,
    },
    ExitStatus: {"script": kept, "whynan": kept},
    Replay: {"kind": kept, "faithful": kept, "typed_why": _note},
    Step: {
        "step": kept, "loss": unknown, "norm": unknown, "scale": unknown, "skipped": kept,
    },
    Run: {
        "command": by_value(lambda _: "left out"), "exit_status": record, "versions": by_value(_versions),
        "device": by_value(_device), "flags": by_value(_flags),
        "replay": record, "history": record, "sources": dropped, "data": dropped, "exception": by_value(_exception),
        "inference": record, "ranks": record,
    },
    RankRun: {"rank": kept, "end": kept, "verdict": kept, "script": kept},
    Inference: {
        "model": alias("file"), "sha256": dropped, "engine": kept, "graph": kept, "level": by_value(_word),
        "opset": by_value(_opset), "providers": by_value(_providers), "placement": by_value(_placement),
        "nodes": kept, "nodes_as_written": kept, "segments": kept, "bit_equal": kept, "inputs": record, "case": kept,
        "cases": kept,
    },
    Fed: {"name": tensor, "dtype": dtype, "shape": kept, "origin": by_holder(_origin), "generated": kept},
}  # fmt: skip
"""What becomes of each field of a trace's facts, and of what is known of its run."""


def redacted_facts(trace: Trace, names: Pseudonyms | None = None) -> Trace:
    """A trace that lets nothing private through; `names`: the pseudonyms that were given before, and are to be kept."""
    return Redaction(FACTS, Pseudonyms() if names is None else names).redact(trace)
