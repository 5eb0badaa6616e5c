"""What is to be compared, and how B is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEVELS: Final = {"none": "disabled", "basic": "basic", "extended": "extended", "all": "all"}
DTYPES: Final = ("fp16", "bf16", "fp64")
ENGINES: Final = ("onnxruntime", "reference")
BUDGET: Final = 512 << 20
"""Bytes of the values of one run that are held in memory."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one side is run.

    ``level`` is of ONNX Runtime's optimisation: None runs the graph as it is written and looks at what optimisation
    makes of its outputs. ``dtype`` is the arithmetic that it is run in.
    """

    level: Literal["disabled", "basic", "extended", "all"] | None = None
    dtype: Literal["fp16", "bf16", "fp64"] | None = None
    engine: Literal["onnxruntime", "reference"] = "onnxruntime"
    provider: str | None = None
    compiled: bool = False
    device: str | None = None

    @property
    def words(self) -> str:
        """What is different from the default, in words; empty where nothing is."""
        parts = [
            f"optimisation {self.level}" if self.level is not None else "",
            self.dtype or "",
            "reference evaluator" if self.engine == "reference" else "",
            self.provider or "",
            "compiled" if self.compiled else "",
            self.device or "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be compared: the two programs, how B is run, and on what.

    ``rtol`` and ``atol``: outputs that are nearer to each other agree, whatever is found on the way.
    """

    a: Any
    b: Any
    settings: Settings = Settings()
    inputs: Any = None
    files: Sequence[str] = ()
    seed: int | None = None
    rtol: float | None = None
    atol: float | None = None
    budget: int = BUDGET

    def __post_init__(self) -> None:
        for option, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{option} {value} is no tolerance", "give a number from 0 up")


def read_settings(
    level: str | None,
    dtype: str | None,
    engine: str | None,
    provider: str | None,
    *,
    compiled: bool,
    device: str | None,
) -> Settings:
    """The settings of B by the words of the command; raises ``UsageError`` with those that there are."""
    for option, given, legal in (
        ("--b-opt-level", level, tuple(LEVELS)),
        ("--b-dtype", dtype, DTYPES),
        ("--b-engine", engine, ENGINES),
    ):
        if given is not None and given not in legal:
            raise UsageError(f"{option} {given} is none", f"give one of {', '.join(legal)}")
    known = cast("Mapping[str, Any]", LEVELS)
    return Settings(
        level=None if level is None else known[level],
        dtype=cast("Any", dtype),
        engine=cast("Any", engine or "onnxruntime"),
        provider=provider,
        compiled=compiled,
        device=device,
    )
