"""The four questions, asked of a repaired ONNX model and of the part of its graph that was changed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats import format_of
from whynan.records.report import FixVerdict
from whynan.verify.comparison import disputed, distances, standing
from whynan.verify.onnx_program.exact import Exactness, angle_of
from whynan.verify.onnx_program.regions import Region, behind, captured_in, changed, inlined
from whynan.verify.onnx_program.run import Engines, Opened, Unrunnable, part
from whynan.verify.onnx_program.sampling import perturbed, sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from whynan.records.intents import FixKind
    from whynan.verify.comparison import Truth

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_UPWARDS: Final = 12
"""So many nodes up the inputs of a part are looked for that are finite."""
_ROUNDS: Final = 4
"""So many kinds of made-up inputs a verified repair has been tried on."""
_TOLERATED: Final = 1e-3
"""Relative: what a declared epsilon may move of the run's own values, and what is beyond it is damage."""


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
    until = time.process_time() + seconds
    judge = _Judge(original, repaired, kind, engines or Engines(), others, damaging, seed, until)
    try:
        return judge.verdict(feeds)
    except Unrunnable as error:
        return FixVerdict(status="unverified", why=f"could not be run again: {error}")


@dataclass
class _Counted:
    """What was found out about the part that was changed."""

    healthy: int = 0
    changed: int = 0
    worse: int = 0
    invented: int = 0
    remaining: int = 0
    undecided: int = 0
    own_changed: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    own_rel: float = 0.0
    wrong: int = 0
    still_wrong: int = 0
    rounds: int = 0
    unsupported: dict[str, None] = field(default_factory=dict[str, None])


class _Judge:
    def __init__(
        self,
        original: onnx.ModelProto,
        repaired: onnx.ModelProto,
        kind: FixKind,
        engines: Engines,
        others: int,
        damaging: bool,
        seed: int,
        until: float,
    ) -> None:
        self.original, self.repaired = original, repaired
        self.kind: FixKind = kind
        self.engines = engines
        self.others = others
        self.damaging = damaging
        self.seed = seed
        self.until = until
        self.remains = 0

    def verdict(self, feeds: Sequence[Mapping[str, Any]]) -> FixVerdict:
        before = self.engines.opened(self.original, optimised=True)
        was = [before.run(feed) for feed in feeds]
        failing = [i for i, found in enumerate(was) if _bad(found)]
        if not failing and not self.damaging:
            return FixVerdict(status="unverified", why="what was captured does not fail by itself")
        why = self._cured([feeds[i] for i in failing], [was[i] for i in failing])
        if why is not None:
            return FixVerdict(status="rejected", forward_finite=False, why=why)
        for i, found in enumerate(was):
            if i not in failing and (why := self._spoilt(feeds[i], found)) is not None:
                return FixVerdict(status="rejected", forward_finite=False, why=why)
        region = self._region()
        if region is None:
            return FixVerdict(
                status="unverified", forward_finite=True, why="no single part of one graph holds all that was changed"
            )
        return self._weighed(self._counted(region, feeds))

    def _region(self) -> Region | None:
        """What was changed, with what follows on it; of an angle nothing does, whose every value is defined."""
        before, after = inlined(self.original), inlined(self.repaired)
        alone = changed(before, after, follow=False)
        if alone is not None and angle_of(before, alone) is not None:
            return alone
        return changed(before, after)

    def _cured(self, feeds: Sequence[Mapping[str, Any]], was: Sequence[Mapping[str, Any]]) -> str | None:
        """Why the failing inputs still fail, on the graph as it is written or as it is optimised."""
        for optimised in (False, True) if self.engines.engine == "onnxruntime" else (False,):
            try:
                opened = self.engines.opened(self.repaired, optimised=optimised)
                found = [opened.run(feed) for feed in feeds]
            except Unrunnable as error:
                return f"cannot be run: {error}"
            for old, new in zip(was, found, strict=True):
                why = self._finite(old, new)
                if why is not None:
                    return why
        return None

    def _finite(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
        for name, value in old.items():
            if name not in new:
                return f"has no output {name}"
            if new[name].dtype != value.dtype or new[name].shape != value.shape:
                given = f"{new[name].dtype}{list(new[name].shape)}"
                return f"gives {name} as {given} instead of {value.dtype}{list(value.shape)}"
        bad, left = _bad(old), _bad(new)
        allowed = left <= bad if self.damaging else self.others and left < bad
        if left and not allowed:
            name = next(name for name in old if _count(new[name]))
            return f"{_count(new[name]):,} of {new[name].size:,} elements of {name} are still NaN or Inf"
        self.remains = max(self.remains, left)
        return None

    def _spoilt(self, feed: Mapping[str, Any], old: Mapping[str, Any]) -> str | None:
        try:
            new = self.engines.opened(self.repaired, optimised=True).run(feed)
        except Unrunnable as error:
            return f"cannot be run on healthy inputs: {error}"
        spoilt = _bad(new)
        total = sum(value.size for value in old.values())
        return f"{spoilt:,} of {total:,} elements of a healthy input become NaN or Inf" if spoilt else None

    def _captured(self, region: Region, feeds: Sequence[Mapping[str, Any]]) -> tuple[Region, list[dict[str, Any]]]:
        """What the part reads; where that is bad already, so that the truth is lost before, a part that makes it."""
        before, after = inlined(self.original), inlined(self.repaired)
        made: frozenset[str] = frozenset()
        known: list[dict[str, Any]] = []
        for _ in range(_UPWARDS):
            known = captured_in(before, region, feeds, self.engines, self.seed)
            if not known:
                raise Unrunnable("what the changed part reads could not be captured")
            bad = {name for values in known for name, value in values.items() if _count(value)}
            wider = changed(before, after, made=made | bad) if bad - made else None
            if wider is None or wider == region:
                break
            made, region = made | bad, wider
        return region, known

    def _counted(self, region: Region, feeds: Sequence[Mapping[str, Any]]) -> _Counted:
        region, known = self._captured(region, feeds)
        counted = _Counted()
        first = known[0]
        old, new = self._parts(region, first)
        exactness = Exactness(self.original, region, self.engines, old)
        for values in known:
            self._compared(values, old, new, exactness, counted, own=True)
        made = ((True, values) for values in perturbed(known, self.seed))
        for own, values in (*made, *((False, values) for values in sampled(known, self.seed))):
            if time.process_time() > self.until:
                break
            self._compared(values, old, new, exactness, counted, own=own)
            counted.rounds += not own
        counted.unsupported.update(exactness.unsupported)
        counted.invented += self._invented(region, feeds)
        return counted

    def _invented(self, region: Region, feeds: Sequence[Mapping[str, Any]]) -> int:
        """Of what was captured, how many elements become finite and wrong by the truth of a wider part.

        The logarithm of a 0 to which a softmax has underflowed is no pole.
        """
        before, after = inlined(self.original), inlined(self.repaired)
        made = frozenset[str]() if region.way else behind(before, region)
        wider = changed(before, after, made=made) if made else None
        if wider is None or wider == region:
            return 0
        counted = _Counted()
        known = captured_in(before, wider, feeds, self.engines, self.seed)
        old, new = self._parts(wider, known[0])
        exactness = Exactness(self.original, wider, self.engines, old)
        for values in known:
            self._compared(values, old, new, exactness, counted, own=True)
        return counted.invented

    def _parts(self, region: Region, inputs: Mapping[str, Any]) -> tuple[Opened, Opened]:
        """A part before and after, as models of their own."""
        try:
            before = part(self.original, region.before, inputs, region.outputs, region.constants)
            after = part(self.repaired, region.after, inputs, region.outputs, region.constants)
            return self.engines.opened(before, optimised=True), self.engines.opened(after, optimised=True)
        except Unrunnable as error:
            raise Unrunnable(f"the changed part by itself: {error}") from error

    def _compared(
        self, values: Mapping[str, Any], old: Opened, new: Opened, exactness: Exactness, counted: _Counted, *, own: bool
    ) -> None:
        try:
            before = old.run(values)
        except Unrunnable:
            # the original itself takes no such inputs
            return
        after = new.run(values)
        names = [name for name in before if before[name].dtype.name in _FLOATS]
        for name in names:
            if after[name].shape != before[name].shape or after[name].dtype != before[name].dtype:
                raise Unrunnable(f"{name} of the changed part has another shape or dtype on other inputs")
        asked = {name: disputed(_wide(before[name]), _wide(after[name]), before[name].dtype.name) for name in names}
        truths = {} if self._is_strict or not any(map(np.any, asked.values())) else exactness.truths(values, asked)
        invented = {name: ~np.isfinite(before[name]) & np.isfinite(after[name]) for name in names}
        if self._is_strict and any(map(np.any, invented.values())):
            truths = exactness.truths(values, invented)
        if own and self.damaging:
            self._count_wrong(before, after, exactness.truths(values, {n: _all(before[n]) for n in names}), counted)
        for name in names:
            old_values: Any = _wide(before[name])
            new_values: Any = _wide(after[name])
            truth = None
            if name in truths:
                # of very many elements in question some are looked at, and nothing is said of the others
                truth, looked = truths[name]
                left = (invented if self._is_strict else asked)[name] & ~looked
                new_values[left] = old_values[left]
            self._tally(old_values, new_values, before[name].dtype.name, truth, counted, own)

    def _count_wrong(
        self,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        truths: Mapping[str, tuple[Truth, Any]],
        counted: _Counted,
    ) -> None:
        """Of what was captured, how much is wrong by the truth, and how much of that remains so."""
        for name, (truth, looked) in truths.items():
            known = format_of(before[name].dtype.name)
            told = looked & ~(truth.infinite | truth.undefined | truth.undecided) & (np.abs(truth.values) <= known.max)
            allowed = _TOLERATED * np.abs(truth.values) + known.tiny
            with np.errstate(invalid="ignore"):
                wrong = told & ~(np.abs(_wide(before[name]) - truth.values) <= allowed)
                still = wrong & ~(np.abs(_wide(after[name]) - truth.values) <= allowed)
            counted.wrong += int(wrong.sum())
            counted.still_wrong += int(still.sum())

    @property
    def _is_strict(self) -> bool:
        return self.kind != "reformulation"

    def _tally(self, old: Any, new: Any, dtype: str, truth: Any, counted: _Counted, own: bool) -> None:
        found = standing(old, new, dtype, truth)
        worse = found.changed if self._is_strict else found.worse
        apart, ulps = distances(old, new, dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(worse & (old != 0), apart / np.abs(old), np.where(worse, 1.0, 0.0))
        counted.healthy += int(found.healthy.sum())
        counted.changed += int(found.changed.sum())
        counted.worse += int(worse.sum())
        counted.invented += int(found.invented.sum())
        counted.remaining += int(found.remaining.sum())
        undecided = found.undecided & ~found.healthy if self._is_strict else found.undecided
        counted.undecided += int(undecided.sum())
        if worse.any():
            counted.max_abs = max(counted.max_abs, float(apart[worse].max()))
            counted.max_ulp = max(counted.max_ulp, float(ulps[worse].max()))
            counted.max_rel = max(counted.max_rel, float(relative.max()))
            if own:
                counted.own_changed += int(worse.sum())
                counted.own_rel = max(counted.own_rel, float(relative.max()))

    def _weighed(self, counted: _Counted) -> FixVerdict:
        known: dict[str, Any] = {
            "forward_finite": True,
            "healthy_elements": counted.healthy,
            "healthy_worse": counted.worse,
            "max_ulp": counted.max_ulp,
            "max_rel": counted.max_rel,
        }
        if self.damaging and not counted.wrong:
            why = "nothing that was captured of the changed part is known to be wrong"
            return FixVerdict(status="unverified", why=why, **known)
        if counted.still_wrong:
            why = f"{counted.still_wrong:,} of {counted.wrong:,} wrong elements remain wrong"
            return FixVerdict(status="rejected", why=why, **known)
        if counted.worse:
            return self._moved(counted, known)
        if counted.invented:
            why = f"{counted.invented:,} bad elements become finite where the exact number is another"
            return FixVerdict(status="rejected", why=why, **known)
        if counted.undecided and counted.unsupported:
            missing = ", ".join(counted.unsupported)
            why = f"{counted.undecided:,} elements could not be judged: the oracle has no {missing}"
            return FixVerdict(status="unverified", why=why, **known)
        if counted.rounds < _ROUNDS:
            why = "the time was up before it had been tried on enough other inputs"
            return FixVerdict(status="unverified", why=why, **known)
        return FixVerdict(status="verified", why=self._kept(counted), **known)

    def _moved(self, counted: _Counted, known: dict[str, Any]) -> FixVerdict:
        """A guard or an epsilon that moves none of the run's own values by much distorts; all else is rejected."""
        share = (
            f"{_percent(counted.worse / max(1, counted.healthy))} of healthy elements, by up to {counted.max_abs:.3g}"
        )
        if self._is_strict and counted.own_rel < _TOLERATED:
            own = (
                "none of the run's own" if not counted.own_changed else f"the run's own by up to {counted.own_rel:.1g}"
            )
            return FixVerdict(status="distorting", why=f"changes {share}; {own}", **known)
        verb = "changes" if self._is_strict else "takes further from the truth"
        return FixVerdict(status="rejected", why=f"{verb} {share}", **known)

    def _kept(self, counted: _Counted) -> str:
        how = "within 2 ulp" if not counted.changed else "as near to the truth as before"
        parts = ["finite", f"all {counted.healthy:,} healthy elements {how}"]
        if counted.wrong:
            parts.insert(1, f"all {counted.wrong:,} wrong elements right")
        if self.remains:
            parts.append(f"{self.remains:,} elements of the outputs remain bad for another reason")
        if counted.remaining:
            parts.append(f"{counted.remaining:,} at the extremes remain bad")
        if counted.undecided:
            parts.append(f"{counted.undecided:,} undecided")
        return "; ".join(parts)


def _all(value: Any) -> Any:
    return np.ones(value.shape, np.bool_)


def _wide(value: Any) -> Any:
    return value.astype(np.float64)


def _count(value: Any) -> int:
    return int((~np.isfinite(value)).sum()) if value.dtype.name in _FLOATS else 0


def _bad(values: Mapping[str, Any]) -> int:
    return sum(map(_count, values.values()))


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else f"{share:.1g}"
