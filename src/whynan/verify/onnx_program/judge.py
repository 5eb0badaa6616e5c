"""The verdict of a repaired ONNX model: its outputs, and the part of its graph that was changed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.records.report import APPLICABLE, FixVerdict
from whynan.verify.onnx_program.program import GraphProgram, angle_of
from whynan.verify.onnx_program.regions import Region, captured_in, changed_region, inline_functions, upstream_values
from whynan.verify.onnx_program.run import Engines, Unrunnable, part
from whynan.verify.sampling import captured_samples
from whynan.verify.verdict import Judgement, Question, RejectedError
from whynan.verify.wording import invented_value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from whynan.records.intents import FixKind

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_UPWARDS: Final = 12
"""So many nodes up the inputs of a part are looked for that are finite."""


def judge_graph(
    original: onnx.ModelProto,
    repaired: onnx.ModelProto,
    feeds: Sequence[Mapping[str, Any]],
    *,
    kind: FixKind,
    engines: Engines | None = None,
    others: int = 0,
    damaging: bool = False,
    seed: int = 0,
    seconds: float = 30.0,
) -> FixVerdict:
    """Whether a repaired model is cured of what was captured, and keeps what was healthy.

    Args:
        original: as it was run.
        repaired: the same with an edit.
        feeds: inputs by name; on at least one of them the original gives a bad number, or a wrong one.
        kind: how the edit is judged; a ``guard`` may change nothing that is healthy.
        engines: what runs both; ONNX Runtime where None.
        others: further births that escaped, whose bad numbers may remain.
        damaging: what is to be mended ends in finite numbers that are wrong.
        seed: of the inputs that are made.
        seconds: of the processor, after which no more inputs are made up; what was tried on too few is ``unverified``.
    """
    asked = Question(kind, seed, cures=False, silent=damaging, until=time.process_time() + seconds)
    repair = _Repair(original, repaired, engines or Engines(), others, asked)
    try:
        return repair.verdict(feeds)
    except RejectedError as reason:
        return FixVerdict(status="rejected", forward_finite=False, why=str(reason))
    except Unrunnable as error:
        return FixVerdict(status="unverified", why=f"could not be run again: {error}")


class _Repair:
    """A model and its repaired version."""

    def __init__(
        self, original: onnx.ModelProto, repaired: onnx.ModelProto, engines: Engines, others: int, asked: Question
    ) -> None:
        self.original, self.repaired = original, repaired
        self.before, self.after = inline_functions(original), inline_functions(repaired)
        self.engines, self.others, self.asked = engines, others, asked
        self.damaging = bool(asked.silent)
        self.remains = 0

    def verdict(self, feeds: Sequence[Mapping[str, Any]]) -> FixVerdict:
        """The verdict on the whole model, then on the part that was changed; raises the reason where it is rejected."""
        was = self.engines.outputs(self.original, feeds, optimised=True)
        failing = [i for i, found in enumerate(was) if _bad(found)]
        if not failing and not self.damaging:
            return FixVerdict(status="unverified", why="what was captured does not fail by itself")
        self._check_cured([feeds[i] for i in failing], [was[i] for i in failing])
        for i, found in enumerate(was):
            if i not in failing:
                self._check_healthy_feed(feeds[i], found)
        region = self._region()
        if region is None:
            return FixVerdict(
                status="unverified", forward_finite=True, why="no single part of one graph holds all that was changed"
            )
        return self._judge_region(region, feeds)

    def _judge_region(self, region: Region, feeds: Sequence[Mapping[str, Any]]) -> FixVerdict:
        region, known = self._capture_inputs(region, feeds)
        judgement = Judgement(*self._parts(region, known[0]), self.asked)
        judgement.forward = True
        try:
            found = judgement.verdict(captured_samples(known))
            if judgement.near.made_up is not None:
                raise RejectedError(invented_value_text(judgement.near.made_up))
            wider = self._look_upwards(region, feeds)
        except RejectedError as reason:
            return judgement.fix_verdict("rejected", str(reason))
        if wider is not None and found.status in APPLICABLE:
            found = wider.with_stand_ins(found)
        remains = f"; {self.remains:,} elements of the outputs remain bad for another reason" if self.remains else ""
        return found.model_copy(update={"why": found.why + remains}) if found.status in APPLICABLE else found

    def _region(self) -> Region | None:
        """What was changed, with what follows on it; of an angle nothing does, whose every value is defined."""
        alone = changed_region(self.before, self.after, follow=False)
        if alone is not None and angle_of(self.before, alone) is not None:
            return alone
        return changed_region(self.before, self.after)

    def _check_cured(self, feeds: Sequence[Mapping[str, Any]], was: Sequence[Mapping[str, Any]]) -> None:
        """Raises where the failing inputs still fail, on the graph as it is written or as it is optimised."""
        for optimised in (False, True) if self.engines.engine == "onnxruntime" else (False,):
            try:
                found = self.engines.outputs(self.repaired, feeds, optimised=optimised)
            except Unrunnable as error:
                raise RejectedError(f"cannot be run: {error}") from error
            for old, new in zip(was, found, strict=True):
                self._check_outputs(old, new)

    def _check_outputs(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for name, value in old.items():
            if name not in new:
                raise RejectedError(f"has no output {name}")
            if new[name].dtype != value.dtype or new[name].shape != value.shape:
                given = f"{new[name].dtype}{list(new[name].shape)}"
                raise RejectedError(f"gives {name} as {given} instead of {value.dtype}{list(value.shape)}")
        bad, left = _bad(old), _bad(new)
        allowed = left <= bad if self.damaging else self.others and left < bad
        if left and not allowed:
            name = next(name for name in old if _count(new[name]))
            raise RejectedError(f"{_count(new[name]):,} of {new[name].size:,} elements of {name} are still NaN or Inf")
        self.remains = max(self.remains, left)

    def _check_healthy_feed(self, feed: Mapping[str, Any], old: Mapping[str, Any]) -> None:
        try:
            new = self.engines.open_model(self.repaired, optimised=True).run(feed)
        except Unrunnable as error:
            raise RejectedError(f"cannot be run on healthy inputs: {error}") from error
        if spoilt := _bad(new):
            total = sum(value.size for value in old.values())
            raise RejectedError(f"{spoilt:,} of {total:,} elements of a healthy input become NaN or Inf")

    def _capture_inputs(
        self, region: Region, feeds: Sequence[Mapping[str, Any]]
    ) -> tuple[Region, list[dict[str, Any]]]:
        """What the part reads; where that is bad already, so that the truth is lost before, a part that makes it."""
        made: frozenset[str] = frozenset()
        known: list[dict[str, Any]] = []
        for _ in range(_UPWARDS):
            known = captured_in(self.before, region, feeds, self.engines)
            if not known:
                raise Unrunnable("what the changed part reads could not be captured")
            bad = {name for values in known for name, value in values.items() if _count(value)}
            wider = changed_region(self.before, self.after, made=made | bad) if bad - made else None
            if wider is None or wider == region:
                break
            made, region = made | bad, wider
        return region, known

    def _look_upwards(self, region: Region, feeds: Sequence[Mapping[str, Any]]) -> Judgement | None:
        """What a wider part says of what was captured; raises where that becomes finite and wrong by its truth.

        The logarithm of a 0 to which a softmax has underflowed is no pole, and sin(x) / x has a limit at 0. None where
        there is no wider part, or none whose truth is known.
        """
        made = frozenset[str]() if region.way else upstream_values(self.before, region)
        wider = changed_region(self.before, self.after, made=made) if made else None
        if wider is None or wider == region:
            return None
        known = captured_in(self.before, wider, feeds, self.engines)
        judgement = Judgement(*self._parts(wider, known[0]), replace(self.asked, silent=False))
        judgement.look_at_captured(captured_samples(known))
        return judgement if judgement.missing is None else None

    def _parts(self, region: Region, inputs: Mapping[str, Any]) -> tuple[GraphProgram, GraphProgram]:
        """A part before and after, as models of their own."""
        try:
            before = part(self.original, region.before, inputs, region.outputs, region.constants)
            after = part(self.repaired, region.after, inputs, region.outputs, region.constants)
            opened = [self.engines.open_model(model, optimised=True) for model in (before, after)]
        except Unrunnable as error:
            raise Unrunnable(f"the changed part by itself: {error}") from error
        is_angle = angle_of(self.original, region) is not None
        one, other = (GraphProgram(self.original, region, self.engines, each, is_angle) for each in opened)
        return one, other


def _count(value: Any) -> int:
    return int((~np.isfinite(value)).sum()) if value.dtype.name in _FLOATS else 0


def _bad(values: Mapping[str, Any]) -> int:
    return sum(map(_count, values.values()))
