"""Arguments of constructors: which the program's own source could give, and what the live objects then compute."""

# pyright: basic

from __future__ import annotations

import ast
import gc
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from whynan.fixes.candidates import Declined
from whynan.fixes.python.constructors import ArgumentEdit, constructions, edit_title
from whynan.replay.checkpoint import stack
from whynan.rules.arguments import arguments_of
from whynan.verify.in_place.live_objects import LiveArgument, ModuleCalls, class_named, names_of
from whynan.verify.optimizer_step import OptimizerSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from whynan.fixes.python.constructors import Construction
    from whynan.records import Finding, FixVerdict
    from whynan.records.intents import ArgumentIntent, FixKind


class HeardObjects(Protocol):
    """The objects that a run again is heard to use, and what they compute."""

    def heard(self) -> AbstractContextManager[None]:
        """Hear what the program does while the block runs."""
        ...

    def of(self, known: type) -> tuple[Any, ...]:
        """Those of a class."""
        ...

    def failing(self, known: type) -> tuple[Any, ...]:
        """Those of a class at which something bad was born."""
        ...

    def verdict(self, live: LiveArgument, kind: FixKind) -> FixVerdict:
        """The verdict on an argument by what they compute with it."""
        ...


@dataclass(frozen=True, slots=True)
class ArgumentProposal:
    """An edit of a constructor's call, the live objects that it is about, and the verdict on what these compute."""

    edit: ArgumentEdit
    live: LiveArgument
    verdict: FixVerdict


def objects_of(codes: Iterable[str], owner: str = "") -> tuple[HeardObjects, ...]:
    """What hears of the objects that the arguments for some rules are of; of one ``owner``, or of all."""
    rows = [row for code in codes for row in arguments_of(code) if owner in ("", row.owner)]
    classes = dict.fromkeys(cls for row in rows if row.owner == "module" for cls in row.classes)
    found: list[HeardObjects] = [ModuleCalls(tuple(classes))] if classes else []
    return (*found, *([OptimizerSteps()] if any(row.owner == "optimizer" for row in rows) else ()))


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
        if not any(cls.rpartition(".")[2] in text for cls in intent.classes for text in texts.values()):
            continue
        if intent.owner not in heard:
            heard[intent.owner] = hear(*objects_of((finding.rule,), intent.owner))
        objects = heard[intent.owner]
        # without its objects there is nothing to be proved
        found = None if isinstance(objects, str) else _Located(finding, intent, texts).proposal(objects)
        if found is not None:
            yield found


class _Located:
    """The call that constructed the object at a finding's fault."""

    def __init__(self, finding: Finding, intent: ArgumentIntent, texts: Mapping[str, str]) -> None:
        self._intent, self._texts = intent, texts
        self._value = intent.value_for(finding.element.dtype)

    def proposal(self, heard: HeardObjects) -> ArgumentProposal | Declined | None:
        """The argument with the objects that were heard; None where none of them is at fault."""
        for cls in self._intent.classes:
            known = class_named(cls)
            failing = heard.failing(known) if known is not None else ()
            kinds = {type(one) for one in failing}
            if known is None or len(kinds) != 1:
                continue
            (kind,) = kinds
            if kind is known or (not kind.__module__.startswith("torch.") and known in kind.__bases__):
                return self._of(cls, "" if kind is known else kind.__name__, heard.of(kind), failing, heard)
        return None

    def _of(
        self, cls: str, subclass: str, objects: tuple[Any, ...], failing: tuple[Any, ...], heard: HeardObjects
    ) -> ArgumentProposal | Declined:
        name, title = self._intent.name, edit_title(cls, self._intent, self._value)
        calls = constructions(self._texts, cls, subclass)
        if isinstance(calls, str):
            return Declined(title, calls)
        chosen = calls
        if len(calls) > 1:
            chosen = [call for call in calls if any(_is_held(one, call) for one in failing)]
            objects = tuple(one for one in objects if any(_is_held(one, call) for call in chosen))
            failing = tuple(one for one in failing if any(one is other for other in objects))
        if len(chosen) != 1:
            lines = ", ".join(call.where for call in calls[:3])
            why = f"{len(calls)} calls construct a {cls.rpartition('.')[2]} ({lines}), and which made it is not known"
            return Declined(title, why)
        edit = chosen[0].edit(self._intent, self._value, title)
        if isinstance(edit, Declined):
            return edit
        if not all(_has_given(one, edit, name, is_subclass=subclass != "") for one in failing):
            return Declined(title, f"the object has other arguments than the call at {chosen[0].where} gives")
        objects = tuple(one for one in objects if _has_given(one, edit, name, is_subclass=subclass != ""))
        live = LiveArgument(objects, name, ast.literal_eval(edit.value))
        verdict = heard.verdict(live, self._intent.kind)
        if verdict.status == "guarded" and self._intent.instead:
            verdict = verdict.model_copy(update={"why": f"{self._intent.instead}; {verdict.why}"})
        return ArgumentProposal(edit, live, verdict)


def _is_held(live: Any, call: Construction) -> bool:
    """Whether an object is held as what a call assigns it to."""
    target = call.target
    if target is None:
        return False
    if target.function:
        frames = (frame for frame in stack() if frame.f_code.co_name == target.function)
        return any(frame.f_locals.get(target.name) is live for frame in frames)
    holders = gc.get_referrers(live)
    names = [one for one in holders if type(one) is dict and one.get(target.name) is live]
    if not target.owner:
        path = os.path.abspath(call.path)
        return any(os.path.abspath(str(one.get("__file__"))) == path for one in names)
    above = gc.get_referrers(*names)
    modules = [one for one in above if type(one) is dict and any(one.get("_modules") is part for part in names)]
    owners = [o for o in (*holders, *above, *gc.get_referrers(*modules)) if _is_named(type(o), target.owner)]
    parts = [part for one in owners for part in (vars(one), vars(one).get("_modules") or {})]
    return any(part.get(target.name) is live for part in parts)


def _is_named(cls: type, name: str) -> bool:
    return cls.__dictoffset__ != 0 and any(base.__name__ == name for base in cls.__mro__)


def _has_given(live: Any, edit: ArgumentEdit, name: str, *, is_subclass: bool) -> bool:
    """Whether an object has what the call that is to have constructed it gives, as far as that can be read."""
    held = names_of(live)
    values = [names[name] for names in held if name in names]
    if not values or any(repr(value) != repr(values[0]) for value in values):
        return False
    if edit.given is None:
        default = inspect.signature(type(live).__init__).parameters.get(name)
        if not is_subclass and (default is None or default.default != values[0]):
            return False
    return all(_may_be(text, held[-1][key]) for key, text in edit.named if key in held[-1])


def _may_be(text: str, value: Any) -> bool:
    """Whether an expression may have a value: anything but another literal may."""
    try:
        return bool(ast.literal_eval(text) == value)
    except ValueError:
        return True
