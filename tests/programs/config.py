"""A training run configured by dataclasses whose types are looked up in ``__main__``."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import typing
from dataclasses import dataclass, field


class Schedule(enum.Enum):
    FLAT = "flat"
    COSINE = "cosine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    rate: float = 1e-3
    schedule: Schedule = Schedule.COSINE


@dataclass
class Config:
    width: int = 8
    optimizer: Optimizer = field(default_factory=Optimizer)
    tags: list[str] = field(default_factory=list)


def build(kind, values):
    hints = typing.get_type_hints(kind)
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]):
            values[name] = build(hints[name], value)
        elif isinstance(hints[name], type) and issubclass(hints[name], enum.Enum):
            values[name] = hints[name](value)
    return kind(**values)


config = build(Config, json.loads(sys.argv[1]))
print(config, Config.__module__, repr(Schedule.FLAT))
print(json.dumps(dataclasses.asdict(config), default=lambda e: e.value, sort_keys=True))
