"""Arguments of constructors and calls: which the user's source could give, and what the live objects then compute."""

# pyright: basic

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from whynan.fixes.candidates import Declined
from whynan.fixes.python.constructors import ArgumentEdit, assignment, configurations, constructions, edit_title
from whynan.fixes.python.operands import operand_edit
from whynan.records import FixVerdict
from whynan.replay.checkpoint import stack
from whynan.replay.live_objects import everything
from whynan.replay.live_objects import objects_of as live_objects
from whynan.rules.arguments import arguments_of, operands_of
from whynan.run.proof.local_proof import namespace_of
from whynan.verify.in_place.live_calls import ModuleCalls, OperandCalls
from whynan.verify.in_place.live_objects import LiveArgument, class_named, names_of
from whynan.verify.optimizer_step import OptimizerSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from whynan.fixes.python.constructors import Construction
    from whynan.records import Finding
    from whynan.records.intents import ArgumentIntent, FixKind


class Listener(Protocol):
    """What is told of objects and calls while a program runs again."""

    def heard(self) -> AbstractContextManager[None]:
        """Hear what the program does while the block runs."""
        ...


Heard = TypeVar("Heard", bound=Listener)


class HeardObjects(Listener, Protocol):
    """The objects that a run again is heard to use, and what they compute."""

    def of(self, cls: str) -> tuple[Any, ...]:
        """Those of a class, by its full public name."""
        ...

    def failing(self, cls: str) -> tuple[Any, ...]:
        """Those of a class at which something bad was born."""
        ...

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument by what they compute with it."""
        ...


@dataclass(frozen=True, slots=True)
class ArgumentProposal:
    """An edit of a call, the verdict on what objects then compute; of a constructor's call the live objects of it."""

    edit: ArgumentEdit
    live: LiveArgument | None
    verdict: FixVerdict


def objects_of(codes: Iterable[str], owner: str = "") -> tuple[HeardObjects, ...]:
    """What hears of the objects that the arguments for some rules are of; of one ``owner``, or of all."""
    rows = [row for code in codes for row in arguments_of(code) if owner in ("", row.owner)]
    classes = dict.fromkeys(cls for row in rows if row.owner == "module" for cls in row.classes)
    found: list[HeardObjects] = [ModuleCalls(tuple(classes))] if classes else []
    return (*found, *([OptimizerSteps()] if any(row.owner == "optimizer" for row in rows) else ()))


def calls_of(codes: Iterable[str]) -> tuple[OperandCalls, ...]:
    """What hears of the calls that the operands for some rules are of."""
    rows = [row for code in codes for row in operands_of(code)]
    return (OperandCalls(rows),) if rows else ()


def operand_proposals(
    finding: Finding, path: str, text: str, hear: Callable[[OperandCalls], OperandCalls | str]
) -> Iterator[ArgumentProposal | Declined]:
    """What could be given to the call at a finding's site, or why it cannot be written there.

    ``path`` and ``text``: of the file that the site is in. ``hear``: runs what was bad once more.
    """
    heard: OperandCalls | str | None = None
    for intent in operands_of(finding.rule):
        edit = operand_edit(path, text, finding, intent)
        if edit is None:
            continue
        if heard is None:
            (calls,) = calls_of((finding.rule,))
            heard = hear(calls)
        verdict = None if isinstance(heard, str) else heard.verdict(intent)
        if verdict is None or verdict.status == "unverified":
            continue
        if isinstance(edit, Declined):
            yield edit
            continue
        yield ArgumentProposal(edit, None, _stated(verdict, intent.instead))


def proposals(
    finding: Finding, texts: Mapping[str, str], hear: Callable[[HeardObjects], HeardObjects | str]
) -> Iterator[ArgumentProposal | Declined]:
    """What could be given where an object at fault is constructed, or why it cannot be written there.

    ``texts``: of the user's files that the program has loaded. ``hear``: runs what was bad once more.
    """
    heard: dict[str, HeardObjects | str] = {}
    for intent in arguments_of(finding.rule):
        if (intent.owner == "optimizer") != (finding.phase == "optimizer"):
            continue
        if intent.owner == "config":
            yield from _of_configuration(intent, texts)
            continue
        if not any(cls.rpartition(".")[2] in text for cls in intent.classes for text in texts.values()):
            continue
        if intent.owner not in heard:
            heard[intent.owner] = hear(*objects_of((finding.rule,), intent.owner))
        objects = heard[intent.owner]
        # without its objects there is nothing to be proved
        found = None if isinstance(objects, str) else _proposal(intent, finding, texts, objects)
        if found is not None:
            yield found


def _proposal(
    intent: ArgumentIntent, finding: Finding, texts: Mapping[str, str], heard: HeardObjects
) -> ArgumentProposal | Declined | None:
    """The argument of the call that constructed what was heard to fail; None where nothing of its classes does."""
    # of a module whose gradient is bad the output may be none
    found = {c: heard.failing(c) or (heard.of(c) if finding.phase == "backward" else ()) for c in intent.classes}
    cls = next((c for c, failing in found.items() if {type(one) for one in failing} == {class_named(c)}), None)
    if cls is None:
        return None
    failing, objects = found[cls], tuple(one for one in heard.of(cls) if type(one) is class_named(cls))
    value = intent.value_for(finding.element.dtype)
    title = edit_title(cls, intent, value)
    if (later := assignment(texts, intent.name)) is not None:
        return Declined(title, f"{later} assigns it later")
    calls = constructions(texts, cls)
    if isinstance(calls, str):
        return Declined(title, calls)
    if len(calls) == 1:
        chosen = [call for call in calls if any(_may_be_held(one, call) for one in failing)]
    else:
        chosen = [call for call in calls if any(_is_held(one, call) for one in failing)]
        objects = tuple(one for one in objects if any(_is_held(one, call) for call in chosen))
        failing = tuple(one for one in failing if any(one is other for other in objects))
    if len(chosen) != 1:
        lines = ", ".join(call.where for call in calls[:3])
        why = f"{len(calls)} calls construct a {cls.rpartition('.')[2]} ({lines}), and which made it is not known"
        return Declined(title, why)
    edit = chosen[0].edit(intent, value, title)
    if isinstance(edit, Declined):
        return edit
    if not all(_has_given(one, edit, intent.name) for one in failing):
        return Declined(title, f"the object has other arguments than the call at {chosen[0].where} gives")
    objects = tuple(one for one in objects if _has_given(one, edit, intent.name))
    live = LiveArgument(objects, intent.name, ast.literal_eval(edit.value))
    verdict = heard.verdict(live, intent.kind)
    if verdict.status == "unverified":
        return None
    return ArgumentProposal(edit, live, _stated(verdict, intent.instead))


def _of_configuration(intent: ArgumentIntent, texts: Mapping[str, str]) -> Iterator[ArgumentProposal]:
    """The argument of the call that has made or loaded the one configuration of a live model that has it otherwise."""
    from torch.nn import Module

    (library,), value = intent.classes, intent.values[0][1]
    wanted = ast.literal_eval(value)
    models: Any = live_objects((Module,), [frame.f_locals for frame in stack(libraries=True)])
    found = (vars(model).get("config") for model in models if _is_of(type(model), library))
    live = {id(one): one for one in found if _is_of(type(one), library)}
    held = [one for one in live.values() if vars(one).get(intent.name, wanted) != wanted]
    if len(held) != 1 or assignment(texts, intent.name) is not None:
        return
    makers = [held[0], *(model for model in models if vars(model).get("config") is held[0])]
    calls = configurations(texts, library, {type(held[0]).__name__}, {type(one).__name__ for one in makers})
    if len(calls) != 1 or not any(_may_be_held(one, calls[0]) for one in makers):
        return
    edit = calls[0].edit(intent, value, edit_title(calls[0].code(calls[0].call.func), intent, value))
    if isinstance(edit, ArgumentEdit) and not all(
        _may_be(text, vars(held[0])[key]) for key, text in edit.named if key in vars(held[0])
    ):
        return
    if isinstance(edit, ArgumentEdit):
        verdict = FixVerdict(status="guarded", why=intent.instead)
        yield ArgumentProposal(edit, LiveArgument((held[0],), intent.name, wanted), verdict)


def _is_of(kind: type, library: str) -> bool:
    return any(str(vars(base).get("__module__")).partition(".")[0] == library for base in kind.__mro__)


def _stated(verdict: FixVerdict, instead: str) -> FixVerdict:
    """A verdict that says first what is given where there is no exact value."""
    if verdict.status != "guarded" or not instead:
        return verdict
    return verdict.model_copy(update={"why": f"{instead}; {verdict.why}"})


def _may_be_held(live: Any, call: Construction) -> bool:
    """Whether an object may be what a call has made: of what is assigned to nothing that is left nothing is known."""
    target = call.target
    if target is None or _is_held(live, call):
        return True
    return bool(target.function) and not any(frame.f_code.co_name == target.function for frame in stack())


def _is_named(kind: type, name: str, known: dict[int, bool]) -> bool:
    """Whether a class, or one that it is derived from, has a name; a class of the program's need not be hashable."""
    if id(kind) not in known:
        known[id(kind)] = any(base.__name__ == name for base in kind.__mro__)
    return known[id(kind)]


def _is_held(live: Any, call: Construction) -> bool:
    """Whether an object is held as what a call assigns it to."""
    target = call.target
    if target is None:
        return False
    if target.function:
        frames = (frame for frame in stack() if frame.f_code.co_name == target.function)
        return any(frame.f_locals.get(target.name) is live for frame in frames)
    if not target.owner:
        return namespace_of(call.path).get(target.name) is live
    known: dict[int, bool] = {}
    owners = (one for one in everything() if _is_named(type(one), target.owner, known))
    held = (vars(one) for one in owners if type(one).__dictoffset__)
    return any(live is part.get(target.name) for names in held for part in (names, names.get("_modules") or {}))


def _has_given(live: Any, edit: ArgumentEdit, name: str) -> bool:
    """Whether an object has what the call that is to have constructed it gives, as far as that can be read."""
    held = names_of(live)
    values = [names[name] for names in held if name in names]
    if not values or any(repr(value) != repr(values[0]) for value in values):
        return False
    if edit.given is None:
        default = inspect.signature(type(live).__init__).parameters.get(name)
        if default is None or default.default != values[0]:
            return False
    return all(_may_be(text, held[-1][key]) for key, text in edit.named if key in held[-1])


def _may_be(text: str, value: Any) -> bool:
    """Whether an expression may have a value: anything but another literal may."""
    try:
        return bool(ast.literal_eval(text) == value)
    except ValueError:
        return True
