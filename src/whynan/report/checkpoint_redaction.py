"""The post-mortem of checkpoints for other eyes: what kind of bad where, without names, paths and values."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.records.checkpoint import Checkpoint, Checkpoints, Logged, Order, Stored
from whynan.traces.redaction import Pseudonyms, Redaction, Table, by_value, dropped, kept, named, record

if TYPE_CHECKING:
    from collections.abc import Mapping


def _stored_name(redaction: Redaction, value: str | None, holder: Any) -> str | None:
    kind = "number" if holder.layout == "number" else "tensor"
    return None if value is None else redaction.names.of(kind, value)


def _checkpoint_name(redaction: Redaction, _: Any, holder: Any) -> str:
    return redaction.names.of("checkpoint", holder.path)


def _error(redaction: Redaction, value: str | None, holder: Any) -> str | None:
    return None if value is None else f"{redaction.names.of('checkpoint', holder.path)} cannot be read"


def _literal(why: str | None) -> str | None:
    return "allowed" if why is not None and why.startswith("allowed by ") else why


def _why(why: str) -> str:
    return "one of them stores no step" if why.endswith(" stores no step") else why


_CHECKPOINTS: Final[Mapping[type, Table]] = {
    Stored: {
        "name": _stored_name, "file": named("file"), "dtype": kept, "shape": kept, "layout": kept, "n": kept,
        "n_nan": kept, "n_posinf": kept, "n_neginf": kept, "n_zero": kept, "n_subnormal": kept, "bad": kept,
        "literal": by_value(_literal), "same_as": _stored_name,
        "unread": by_value(lambda why: None if why is None else "its elements cannot be read"),
    },
    Logged: {"name": named("logged number"), "n": kept, "n_bad": kept, "first": kept, "step": kept},
    Checkpoint: {
        "name": _checkpoint_name, "path": _checkpoint_name, "form": kept, "files": named("file"), "size": kept,
        "steps": kept, "verdict": kept, "error": _error,
        "n_tensors": kept, "n_bad": kept, "n_bad_numbers": kept, "tensors": record, "numbers": record,
        "logged": record, "unloaded": named("class"), "notes": dropped,
    },
    Order: {"by": kept, "key": kept, "why": by_value(_why)},
    Checkpoints: {
        "schema_": dropped, "verdict": kept, "versions": kept, "order": record, "first_bad": kept, "last_good": kept,
        "unused_allows": named("name"), "checkpoints": record,
    },
}  # fmt: skip
"""What becomes of each field."""


def redacted(report: Checkpoints) -> Checkpoints:
    """The post-mortem that lets nothing private through."""
    return Redaction(_CHECKPOINTS, Pseudonyms()).of(report)
