"""What the trainer of transformers writes beside a checkpoint: how far it had come, and what it logged on the way."""

# pyright: strict

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from whynan.models.files import damaged, unreadable
from whynan.models.order import steps_of
from whynan.records.checkpoint import Logged

if TYPE_CHECKING:
    from pathlib import Path

    from whynan.records.base import Number

LOG: Final = "trainer_state.json"
_HISTORY: Final = "log_history"


class TrainerLog(NamedTuple):
    """Steps, the bad numbers of the history, and the rest of the document."""

    steps: dict[str, Number]
    logged: tuple[Logged, ...]
    rest: dict[str, Any]


def read_log(path: Path) -> TrainerLog:
    """The log of a training; its history is the past, and a bad number in it no fault of the checkpoint."""
    try:
        document: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is no JSON") from error
    held = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    history = held.get(_HISTORY)
    listed = cast("list[Any]", history if isinstance(history, list) else [])
    entries = cast("list[dict[str, Any]]", [entry for entry in listed if isinstance(entry, dict)])
    rest = {name: value for name, value in held.items() if name != _HISTORY}
    return TrainerLog(steps_of(held), _logged(entries), rest)


def _logged(entries: list[dict[str, Any]]) -> tuple[Logged, ...]:
    counts: dict[str, int] = {}
    bad: dict[str, list[tuple[float, Any]]] = {}
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, float):
                counts[name] = counts.get(name, 0) + 1
                if not math.isfinite(value):
                    bad.setdefault(name, []).append((value, entry.get("step")))
    return tuple(
        Logged(
            name=name,
            n=counts[name],
            n_bad=len(found),
            first=found[0][0],
            step=found[0][1] if isinstance(found[0][1], int) else None,
        )
        for name, found in bad.items()
    )
