"""The options of a run: defaults, then ``[tool.whynan]``, then ``WHYNAN_*``, then arguments; the later ones win."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, get_args

from whynan.errors import UsageError

_SIZE: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>(?:[kmgt]i?)?b?)", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
ALLOWABLE: Final = re.compile(r"WN(?:[0-9X][0-9]{0,2})?|[A-Z]{2,8}[0-9X][0-9]{0,2}|[a-z][a-z0-9]*(-[a-z0-9]+)*")
OnNonfinite = Literal["stop", "skip", "continue", "raise"]
Mode = Literal["watch", "trace"]
Sync = Literal["step", "deferred"]
PROOF_SECONDS: Final = 20.0
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user can choose for a run.

    Attributes:
        memory: bytes of operand values to hold for explanations; ``None`` leaves it to capture.
        rerun: run the target a second time for operand values that were gone; a whole program, to explain a bad step
            that cannot be run again within it, and to prove fixes.
        prove: run a bad step again to prove the fixes of what was found.
        proof_seconds: of processor time that the fixes of one report are sought and proved for.
        attribute: run a bad step again under other conditions, to tell what makes it bad.
        together: the ranks of a launcher that serves a store stop together and have one report.
        ranges: record counters and finite range of every tensor.
        strict: warnings count as findings for the exit status.
        all_: show the absorbed findings too.
        quiet: print no report.
        redact: leave out source text, values, names and absolute paths.
        on_nonfinite: what a run does at the first bad number that escapes: ``stop``, ``continue`` or ``raise``; where
            steps are watched, also ``skip``, which leaves out the bad step.
        pdb: open the debugger where a run is stopped.
        start_step: the step, from 1, from which on a run is looked at.
        steps: how many steps are looked at; all where ``None``.
        only: the path or class of the modules whose forward is looked at; all where ``None``.
        mode: ``trace`` looks at every operation; ``watch`` at the steps, from the first one on, and at the operations
            of a bad one. ``None`` is ``watch`` where nothing else that is chosen asks for all operations.
        sync: where steps are watched, when the numbers of one are read: at the ``step``, which on an accelerator waits
            for it once; or ``deferred`` to the next one, which waits for nothing, and finds a bad step when it has
            moved the weights.
        json: the file to write the report to.
        trace: the folder to record the trace in.
        capsule: the folder to pack the failing operation into.
        baseline: an earlier report, whose findings are known.
        allow: findings that are meant: codes (``WN213``), starts of codes (``WN5``) or names of rules.
    """

    memory: int | None = None
    rerun: bool = False
    prove: bool = True
    proof_seconds: float = PROOF_SECONDS
    attribute: bool = False
    together: bool = True
    ranges: bool = False
    strict: bool = False
    all_: bool = False
    quiet: bool = False
    redact: bool = False
    on_nonfinite: OnNonfinite = "stop"
    pdb: bool = False
    start_step: int = 1
    steps: int | None = None
    only: str | None = None
    mode: Mode | None = None
    sync: Sync = "step"
    json: str | None = None
    trace: str | None = None
    capsule: str | None = None
    baseline: str | None = None
    allow: tuple[str, ...] = ()

    @property
    def looks_at_all(self) -> bool:
        """Whether nothing of a run is left out by choice."""
        return self.start_step == 1 and self.steps is None and self.only is None

    @property
    def watches(self) -> bool:
        """Whether the steps of a run are watched, once it makes some."""
        if self.mode is not None:
            return self.mode == "watch"
        return self.looks_at_all and self.trace is None

    @classmethod
    def load(
        cls, *, directory: Path | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
    ) -> Self:
        """The options that hold in a directory, by default the current one; an argument of ``None`` was not given.

        Raises ``UsageError`` for an unknown key or a wrong value, with where it stands and what is legal.
        """
        options = cls()
        path = nearest_pyproject(directory)
        if path is not None:
            options = options._with(_table(path), f"[tool.whynan] in {path}", _FROM_FILE)
        options = options._with(_from_environment(os.environ if environment is None else environment), "", _ENVIRONMENT)
        given = {name: value for name, value in arguments.items() if value is not None}
        return options._with(given, "argument", {name: name for name in _READERS})

    @classmethod
    def from_document(cls, stored: Mapping[str, Any]) -> Self:
        """The options that ``stored()`` gave in another process."""
        values: dict[str, Any] = {**stored, "allow": tuple(stored["allow"])}
        return cls(**values)

    def to_document(self) -> dict[str, Any]:
        """The options as a document for another process."""
        return asdict(self)

    def _with(self, values: Mapping[str, object], where: str, legal: Mapping[str, str]) -> Self:
        """These options with values by their outside names, which ``legal`` maps to attributes."""
        read: dict[str, Any] = {}
        for name, value in values.items():
            attribute = legal.get(name)
            place = f"{where} {name}".strip()
            if attribute is None:
                raise UsageError(f"{place} is no option there", f"the options are {', '.join(legal)}")
            try:
                read[attribute] = _READERS[attribute](value)
            except ValueError as error:
                raise UsageError(f"{place} = {value!r}", f"give {error}") from None
        return replace(self, **read)


def nearest_pyproject(directory: Path | None = None) -> Path | None:
    """The ``pyproject.toml`` of a directory, by default the current one, or of the nearest above it, or ``None``."""
    try:
        here = (directory or Path.cwd()).resolve()
        return next((path for place in (here, *here.parents) if (path := place / "pyproject.toml").is_file()), None)
    except OSError:
        # it was removed, or one above it may not be looked into
        return None


def parse_size(value: object) -> int:
    """A number of bytes: an integer, or text such as ``512MB`` (powers of 1000) or ``1.5 GiB`` (powers of 1024).

    Raises ``ValueError`` with what is legal.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a number of bytes, 0 or more, such as 67108864, '512MB' or '1.5GiB'")
    unit = match["unit"].lower()
    base = 1024 if "i" in unit else 1000
    whole, _, fraction = match["number"].partition(".")
    # Exact: a float would round sizes above 2**53.
    return int(whole + fraction) * base ** _POWERS[unit.rstrip("b").rstrip("i")] // 10 ** len(fraction)


def parse_switch(value: object) -> bool:
    """A yes or no: a bool, or one of ``1 true yes on 0 false no off``. Raises ``ValueError`` with what is legal."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in (*_YES, *_NO):
        raise ValueError(f"true or false, or one of {', '.join((*_YES, *_NO))}")
    return word in _YES


def parse_ending(value: object) -> str:
    """What a run does at a bad number that escapes. Raises ``ValueError`` with what is legal."""
    if value not in get_args(OnNonfinite):
        raise ValueError(f"one of {', '.join(get_args(OnNonfinite))}")
    return cast("str", value)


def parse_mode(value: object) -> str:
    """How a run is looked at. Raises ``ValueError`` with what is legal."""
    if value not in get_args(Mode):
        raise ValueError(f"one of {', '.join(get_args(Mode))}")
    return cast("str", value)


def parse_sync(value: object) -> str:
    """When the numbers of a step are read. Raises ``ValueError`` with what is legal."""
    if value not in get_args(Sync):
        raise ValueError(f"one of {', '.join(get_args(Sync))}")
    return cast("str", value)


def parse_count(value: object) -> int:
    """A number of steps, 1 or more. Raises ``ValueError`` with what is legal."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number, 1 or more")
    return int(text)


def parse_seconds(value: object) -> float:
    """A time in seconds, more than 0. Raises ``ValueError`` with what is legal."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(str(value).strip())
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise ValueError("a number of seconds, more than 0")
    return seconds


def parse_text(value: object) -> str:
    """A path or a name. Raises ``ValueError`` with what is legal."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text that is not empty")
    return value


def parse_allow(value: object) -> tuple[str, ...]:
    """The rules that are meant: a sequence of codes or names, or text with commas between them.

    Raises ``ValueError`` with what is legal.
    """
    entries = _entries(value)
    if entries is None or not all(isinstance(entry, str) and ALLOWABLE.fullmatch(entry) for entry in entries):
        raise ValueError("codes such as 'WN213', starts of codes such as 'WN5', or names such as 'sqrt-at-zero'")
    return tuple(cast("list[str]", entries))


def _entries(value: object) -> list[object] | None:
    if isinstance(value, str):
        return [entry.strip() for entry in value.split(",") if entry.strip()]
    return list(cast("Iterable[object]", value)) if isinstance(value, list | tuple) else None


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "memory": parse_size,
    "rerun": parse_switch,
    "prove": parse_switch,
    "proof_seconds": parse_seconds,
    "attribute": parse_switch,
    "together": parse_switch,
    "ranges": parse_switch,
    "strict": parse_switch,
    "all_": parse_switch,
    "quiet": parse_switch,
    "redact": parse_switch,
    "on_nonfinite": parse_ending,
    "pdb": parse_switch,
    "start_step": parse_count,
    "steps": parse_count,
    "only": parse_text,
    "mode": parse_mode,
    "sync": parse_sync,
    "json": parse_text,
    "trace": parse_text,
    "capsule": parse_text,
    "baseline": parse_text,
    "allow": parse_allow,
}

# A file found in a directory is a stranger's: nothing in it may run the user's program again (rerun), name a file to
# write or a library to load, nor open a debugger.
_NOT_FROM_FILE: Final = ("rerun", "pdb", "json", "trace", "capsule", "baseline")
_FROM_FILE: Final = {name.rstrip("_"): name for name in _READERS if name not in _NOT_FROM_FILE}
_ENVIRONMENT: Final = {f"WHYNAN_{name.rstrip('_').upper()}": name for name in _READERS}
# Not an option of a run: whynan's own tests set it to see its internal errors.
_INTERNAL: Final = "WHYNAN_RAISE_INTERNAL"


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith("WHYNAN_") and name != _INTERNAL}


def _table(path: Path) -> Mapping[str, object]:
    """The ``[tool.whynan]`` table of a file; empty where there is none."""
    import tomllib

    try:
        with path.open("rb") as file:
            document: dict[str, Any] = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error})", "mend or move it: it may hold [tool.whynan]") from error
    tool: object = document.get("tool", {})
    table: object = cast("dict[str, object]", tool).get("whynan", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"tool.whynan in {path} is no table", f"write [tool.whynan] with {', '.join(_FROM_FILE)}")
    return cast("dict[str, object]", table)
