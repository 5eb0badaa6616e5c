"""Every error that a user can meet: what happened, what to do about it, and the exit status of a command."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

_LONGEST: Final = 1000
"""Characters of one half of an error's line."""


class WhynanError(Exception):
    """The base of whynan's own errors; its text is one line, ``what: hint``.

    ``exit_status`` is that of a command which ends with it: 2 for bad usage or unreadable input, 1 for findings.
    What an error is made from is given by position, so that it survives pickling on its way out of a worker process.
    """

    exit_status: ClassVar[int] = 2
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{_one_line(self.what)}: {_one_line(self.hint)}"


class UsageError(WhynanError):
    """Something was called or configured in a way that cannot work; ``hint`` says what is legal."""

    def __init__(self, what: str, hint: str, /) -> None:
        self.what = what
        self.hint = hint


class NestedTraceError(WhynanError):
    """A trace was begun while another one runs in this process."""

    what = "a trace already runs in this process"
    hint = "it sees everything inside it, so take the inner one away"


class MetaTensorError(WhynanError):
    """A tensor of the target is on the meta device and has no values to look at; ``name`` says which."""

    def __init__(self, name: str, /) -> None:
        self.name = name
        self.what = f"{name} is on the meta device and has no values"
        self.hint = (
            "give the model real weights and inputs first, with model.to_empty(device='cpu') and load_state_dict"
        )


class InterruptedRunError(WhynanError):
    """A model was being run when the user broke off; ``path`` is its file."""

    exit_status = 130

    def __init__(self, path: str, /) -> None:
        self.path = path
        self.what = f"the run of {path} was interrupted"
        self.hint = "there is no report of it; --trace DIR keeps what was found until then"


class InterruptedEditError(WhynanError):
    """The user broke off before a change was made."""

    exit_status = 130

    def __init__(self) -> None:
        self.what = "interrupted before an edit"
        self.hint = "nothing was changed"


class MissingExtraError(WhynanError):
    """What was asked for needs packages that an extra of whynan brings; ``extra`` is its name.

    Where the package is there and too old, ``older`` names it with its version, and ``least`` the version needed.
    """

    def __init__(self, extra: str, /, *, older: str | None = None, least: str | None = None) -> None:
        self.extra = extra
        self.what = f"this needs the extra {extra!r}, which is not installed"
        if older is not None:
            self.what = f"this needs {older.partition(' ')[0]} {least} or newer, and {older} is installed"
        self.hint = f"pip install --upgrade 'whynan[{extra}]'" if older else f"pip install 'whynan[{extra}]'"


class Explained(Protocol):
    """What a finding has that an error can say."""

    @property
    def message(self) -> str:
        """One sentence with the values."""
        ...


class NonFiniteError(WhynanError):
    """A bad number was found where the run was told to raise; ``finding`` is the whole of what is known of it."""

    exit_status: ClassVar[int] = 1

    def __init__(self, finding: Explained, /) -> None:
        self.finding = finding
        self.what = finding.message or "a bad number was born here"
        self.hint = "the finding attribute of this error holds its site, operands, chain and sinks"


def _one_line(text: str) -> str:
    """Names and values come from strangers: control characters are shown, and no name fills the screen."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}... ({len(text) - _LONGEST:,} more characters) ...{text[-_LONGEST // 2 :]}"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
