"""The notes of a run that hold nothing private, and what may be said of those that do."""

# pyright: strict

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.ops.vocabulary import is_torch_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEFT_OUT: Final = (
    "names, values, source text and paths are left out; files, functions, modules and tensors are numbered instead"
)


def exception_type(text: str) -> str:
    """The type of an exception without its text: ``ValueError``; one that is not Python's own is somebody's name."""
    name = text.split(":")[0]
    found: object = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else "an exception"


def _node(name: str) -> str:
    return name if is_torch_node(name) else "a gradient"


class _Part(NamedTuple):
    """What may stand in a place of a note, and what is said in its stead."""

    pattern: str
    said: Callable[[str], str] | str | None
    """A function of it, or something else; None: as it is."""


_PARTS: Final = {
    "count": _Part(r"[\d,]+", None),
    "rule": _Part(r"WN[\dX]\d{2} [a-z0-9-]+", None),
    "node": _Part(r".*", _node),
    "place": _Part(r"(?: at .*)?", ""),
    "reason": _Part(r"(?:: .*)?", ""),
    "modules": _Part(r".*", "the chosen modules"),
    "module": _Part(r".*", "as --only says"),
    "others": _Part(r".*", "left out"),
    "outputs": _Part(r".*", "outputs"),
    "literals": _Part(r".*", "left out"),
    "folder": _Part(r".*", "its folder"),
    "thread": _Part(r"thread .*|a thread", "a thread"),
    "exception": _Part(r".*", exception_type),
    "bits": _Part(
        r"[\d,]+ loss(?:es)?(?: and [\d,]+ bad gradients?)?|[\d,]+ bad gradients?|"
        r"the number that was read|what was raised",
        None,
    ),
    "bad": _Part(
        r"the (?:loss|weights)(?: and [\d,]+ gradients?)?|[\d,]+ gradients?|a number that was read|"
        "what the program held as it raised",
        None,
    ),
    "more": _Part(r"[\d,]+ more steps?", None),
    "steps": _Part(r"[\d,]+ steps?", None),
    "replays": _Part(r"[\d,]+ replays?", None),
    "parameters": _Part(r"[\d,]+ parameters?", None),
    "skips": _Part(r"(?:, which a loss scaler has skipped [\d,]+ times on end)?", None),
    "plural": _Part("s?", None),
    "state": _Part(r".*", "left out"),
    "way": _Part(r"(?:eagerly )?(?:from|by calling) .*", "from the program's source"),
    "refusal": _Part(r".*", "a reason, left out"),
}

# Any other note may hold anything.
_KNOWN: Final = (
    LEFT_OUT,
    "notes that may hold names, left out: {count}",
    "whynan met an error of its own and stopped looking: what follows it was not seen",
    "PyTorch computes eigvalsh, svdvals, cond and the matrix norms by another formula while they are watched; they can "
    "differ without",
    "{node}: PyTorch computes this gradient by another formula while it is watched; it can differ without",
    "a compiled region{place} was looked at only where values enter and leave it; "
    "TORCH_COMPILE_DISABLE=1, or torch.compiler.set_stance('force_eager'), shows what happens inside",
    "{thread} was not entered: what it computed was not traced",
    "damage of absorbed births was not followed any further: too many events",
    "operands of {count} earlier events were let go to keep within the memory budget: what came before may be missing, "
    "and a larger memory= keeps it",
    "a sparse tensor of more than {count} elements was looked at as a whole",
    "ranges of {count} more tensors were left out",
    "{rule}{place} is allowed{reason}",
    "looked at up to step {count}, as --steps says",
    "step {count} was never reached, so nothing was looked at",
    "only the forward of {modules} was looked at, and every backward",
    "no module called {module} ran; those that ran: {others}",
    "the program never loaded torch, so there was nothing to look at",
    "the program traces itself: what it did from there on is in its own report",
    "this trace is unfinished: its run was killed, still goes on, or could write no more, and what it did after "
    "{count} operations is not known",
    "rank {count} of {count}: one of several processes is not stopped by itself, nor run again",
    "the program was told to terminate: what it would have done after that is not known",
    "nothing of this process was looked at, and nothing is known of those beside it",
    "no replay: one of several processes, which would have to run it again together",
    "the trace holds no facts: its run was over before any were written",
    "what is bad in {outputs} was given: {literals}",
    "the trace in {folder} stopped after {count} events{reason}",
    "the trace in {folder} holds the first {count} events only{reason}",
    "{count} time{plural} the program discarded gradients that were NaN or Inf",
    "{steps} watched: the loss and the gradients of each were finite",
    "{parameters} bad after the last step: spoilt by that step",
    "{parameters} bad at the end: spoilt by the last step, or in a CUDA graph",
    "NaN or Inf in {bad} at step {count}{skips}",
    "{parameters} bad before step {count}: by the step before it, or earlier; whynan run --start-step {count} looks at "
    "every operation from that step on",
    "{parameters} bad before step 1, the first that was watched",
    "what the optimizer keeps of the first element that is bad: {state}",
    "{more} bad after that, not looked into",
    "replayed {way}, the step is finite: the compiler is the suspect; TORCHDYNAMO_DISABLE=1 runs the program as it is "
    'written, and torch.compile(backend="aot_eager") without the kernels of inductor',
    "no replay {way}: {refusal}",
    "no replay: another optimizer has stepped on the gradients of the same backward, and its weights have moved; two "
    "that were seen to step so before are explained",
    "no replay: what led to the step stands in no code that can be run again from its source",
    "whynan run --start-step {count} looks at every operation from that step on, in another run",
    "whynan run --rerun runs the program again, with all that it does, to explain that step",
    "no replay: another thread is looked at",
    "no replay: the program has gone on from that step",
    'found one step late: sync="deferred"; weights were moved by step {count}',
    'found one step late: sync="deferred"; a loss scaler has skipped step {count}',
    "{replays} of CUDA graphs: what ran inside was not looked at",
    'sync="step" finds such a step before it is made, and explains it there',
    "a module gave NaN or Inf in an evaluation, which could not be run again: {refusal}",
    "whynan run --mode trace looks at every operation",
    "the run ended in the replay of a bad step: whether that is what has happened is not known",
    "the same elements are bad of what the module gives again",
    "no second run: {refusal}",
    "a second run was not used: {refusal}",
    "the program had been stopped before a second run could tell that what was born is allowed",
    "the capsule holds no operation to replay: {refusal}",
    "there is no capsule: {refusal}",
    "the capsule holds the values of the operation's operands, which --redact leaves in it",
    # why a second run was believed, or was not
    "results, events and findings identical",
    "{bits} identical, run again {way}",
    "the second run returned other values: the target is not deterministic, or keeps state elsewhere",
    "the second run had {count} events, the first {count}",
    "the second run had other births",
    "the second run raised {exception}",
)
_PLACE: Final = re.compile(r"\{(\w+)\}")


def _pattern(template: str) -> re.Pattern[str]:
    pieces = _PLACE.split(template)
    escaped = (f"({_PARTS[piece].pattern})" if number % 2 else re.escape(piece) for number, piece in enumerate(pieces))
    return re.compile("".join(escaped), re.DOTALL | re.ASCII)


_PATTERNS: Final = tuple((_pattern(template), template) for template in _KNOWN)


def without_names(note: str) -> str | None:
    """What may be said of a note: its general part; None where it is no known one."""
    for pattern, template in _PATTERNS:
        match = pattern.fullmatch(note)
        if match is not None:
            said = [_said(part, text) for part, text in zip(_PLACE.findall(template), match.groups(), strict=True)]
            return _PLACE.sub("{}", template).format(*said)
    return None


def _said(part: str, text: str) -> str:
    said = _PARTS[part].said
    if said is None:
        return text
    return said if isinstance(said, str) else said(text)


def generic(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes without names, headed by the one that says so; of those that are not known, how many there were."""
    said = [without_names(note) for note in notes]
    unknown = [f"notes that may hold names, left out: {said.count(None)}"] if None in said else []
    return tuple(dict.fromkeys((LEFT_OUT, *(note for note in said if note is not None), *unknown)))
