"""The verdict of a fix of any program: is it cured, is the healthy kept, is nothing invented, what remains."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.errors import UsageError
from whynan.records.report import FixVerdict
from whynan.verify import wording
from whynan.verify.arrays import OtherKindError, array_of, size_of, tensors_in
from whynan.verify.cases import Case, cases_of, changes_healthy, is_disputed, repaired_arrays, with_gradient_scale
from whynan.verify.comparison import (
    Healthy,
    at_kink,
    at_limit,
    is_far,
    is_wrong_beyond,
    limit_objection,
    made_up_size,
    objection,
)
from whynan.verify.sampling import Sample, captured_samples, fresh_samples, grown_samples
from whynan.verify.stand_ins import Stated, inexact, lost, mended, merged, possible, steep
from whynan.verify.tally import Example, Ledger
from whynan.verify.truth import (
    BESIDE,
    UnknowableError,
    excused_truths,
    is_by_element,
    is_light,
    nearby_truths,
    nearest_values,
    steps_of,
    takes_logarithms,
    truths,
    values_around,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from whynan.records.intents import FixKind
    from whynan.records.report import Lack, StandIn
    from whynan.verify.cases import TestedProgram
    from whynan.verify.comparison import Truth

    _Seen = tuple[Case, Mapping[str, Any]]

BOUND: Final = 1e-3
"""By so much, relative, may an epsilon move the run's own healthy elements."""
VISITS: Final = 16
"""So many captured visits are looked at, the last ones."""
ELEMENTS: Final = 1 << 24
"""Visits of so many elements in all, though always one."""
ASKED: Final = 26
"""Of so many fresh inputs is the truth asked."""
_BITS: Final = {"captured": 8192, "own": 2048, "extreme": 1024}
_WORK: Final = 26_000
"""So many steps of single elements are computed exactly of fresh inputs, but of half as many cases at least."""
_MOST: Final = 160
"""Elements of the largest tensor for which the oracle is asked of a captured input as it is."""
_MOST_WHOLE: Final = 4096
"""The same of one that does not fail any more when it is cut down, as a product of very many factors."""
_MOST_LIGHT: Final = 1 << 19
"""The same where each of its numbers is read once, as in a sum of very many, or soon."""
_ABOUT: Final = 4.0
"""So far may a logarithm be off that is known by its rounding alone."""


class RejectedError(Exception):
    """The first reason against a fix."""


def judge(
    original: Callable[..., Any],
    repaired: Callable[..., Any],
    captured: Sequence[Mapping[str, Any]],
    *,
    kind: FixKind,
    seed: int = 0,
    rounded: bool = False,
    infinite: float | None = None,
    widens: bool = False,
) -> FixVerdict:
    """The verdict of a fix: ``repaired`` in the place of ``original``, both called with their parameters by name.

    ``captured`` are the visits of the run, parameter name to value, tensors with ``requires_grad`` where a gradient
    was wanted; the key ``""`` may hold the gradient that came in from behind, one for each returned tensor. They are
    run on what was captured, on fresh inputs like it in three dtypes, and on the extremes of these dtypes; where they
    differ the oracle decides. A ``guard`` and an ``epsilon`` may not move a healthy element at all to be verified, and
    by less than 1e-3 of the run's own to be ``distorting``; a ``reformulation`` may move them by the original's own
    rounding noise. A finite number that is not the exact one is rejected, but of an ``epsilon``, whose trade it is.
    Where nothing captured is bad, a value that is finite and has lost half of its digits is what has to be cured.
    Where what was captured is known to have been ``rounded`` on its way, as the sigmoid that a module gives, nothing
    that a guard makes up is right if it is not so for what rounds to that. Where the program wrote an operand as an
    ``infinite`` number, that number is as healthy as any where it stays. A value that is undefined may be made
    up, though no greater one than is healthy, than the limit there, or than the logarithm of one. A guard may end a
    value whose slope is out of range, and says so. What ``widens`` may be of a wider dtype, which the verdict says. The
    same arguments have the same verdict. Raises ``UsageError`` where the repaired does.
    """
    from whynan.verify.torch_program import TorchProgram, in_real_parts, on_host

    asked = Question(kind, seed, rounded=rounded, infinite=infinite, widens=widens)
    (old, new), visits = in_real_parts(*on_host((original, repaired), _latest_visits(captured)))
    judgement = Judgement(TorchProgram(old), TorchProgram(new), asked)
    try:
        return judgement.verdict(captured_samples(visits))
    except RejectedError as reason:
        return judgement.fix_verdict("rejected", str(reason))


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a fix.

    ``cures``: the captured inputs have to be finite, which a part of a graph need not be whose whole model is.
    ``silent``: what is to be cured is finite and far from the exact value; None where it is so if nothing fails.
    ``until``: the processor time after which no more fresh inputs are tried. ``widens``: a value may be of a wider
    dtype.
    """

    kind: FixKind
    seed: int = 0
    rounded: bool = False
    infinite: float | None = None
    cures: bool = True
    silent: bool | None = None
    until: float = math.inf
    widens: bool = False


class Judgement:
    """One fix that is being judged."""

    def __init__(self, original: TestedProgram, repaired: TestedProgram, asked: Question) -> None:
        self.original, self.repaired, self.asked, self.seed = original, repaired, asked, asked.seed
        self.strict, self.declared = asked.kind != "reformulation", asked.kind == "epsilon"
        self.near, self.far = Ledger(asked.infinite), Ledger(asked.infinite)
        self.missing: str | None = None
        self.silent = False
        self.rounded = asked.rounded and self.strict
        self.healthy: dict[str, Healthy] = {}
        self.unknown: tuple[float, float] | None = None
        self.stand_ins: dict[tuple[int | None, Lack], StandIn] = {}
        self._computes_by_element: bool | None = None
        self.far_off = 0
        self.cut_short = False
        self.forward: bool | None = None
        self.backward: bool | None = None
        self.dtype = "float32"

    def verdict(self, samples: list[Sample]) -> FixVerdict:
        """The verdict on what was captured and on fresh inputs; raises the reason where it is rejected."""
        cases, why = self._cases(samples)
        if not cases:
            return self.fix_verdict(
                "unverified", f"the original could not be run again: {why or 'nothing was captured'}"
            )
        if not any(case.old for case in cases):
            return self.fix_verdict("unverified", "it gives no floating-point number that could be judged")
        fresh = fresh_samples(samples, self.seed, self._accepts, self.original.dtypes)
        every = self._prepare_cases(cases, self._cases(fresh)[0])
        for case in every[: len(cases)]:
            self._check_captured(case)
        if self.silent and not self.far_off:
            return self.fix_verdict("unverified", "what was captured does not fail by itself")
        self._settle()
        self._check_fresh(every[len(cases) :])
        self._settle()
        values = {name for case in cases for name in case.old if name.isdecimal()}
        if values - self.near.arrays:
            self._check_fresh(
                with_gradient_scale(self._cases(grown_samples(samples, self.seed, self._accepts))[0], self.dtype)
            )
            self._settle()
            if values - self.near.arrays - self.far.arrays:
                return self.fix_verdict("unverified", "nothing healthy is known that it could be compared on")
        return self._final_verdict()

    def look_at_captured(self, samples: list[Sample]) -> None:
        """Raises the reason where what was captured speaks against the fix; what is healthy there is not asked for."""
        cases, _ = self._cases(samples)
        for case in self._prepare_cases(cases, []) if cases else ():
            self._check_captured(case)
        if self.near.made_up is not None:
            raise RejectedError(wording.invented_value_text(self.near.made_up))

    def _prepare_cases(self, cases: list[Case], fresh: list[Case]) -> list[Case]:
        """The cases with what is known of all of them, those that fail first."""
        fails = any(case.fails for case in cases if case.given)
        self.silent = not fails if self.asked.silent is None else self.asked.silent
        self.dtype = cases[0].sample.dtype
        for name in {name for case in cases for name in case.old if name.isdecimal()}:
            healthy = Healthy.from_arrays([case.old[name][0] for case in cases if name in case.old])
            self.healthy |= {} if healthy is None else {name: healthy}
        return with_gradient_scale([*sorted(cases, key=lambda c: not c.fails), *fresh], self.dtype)

    def fix_verdict(self, status: Any, why: str) -> FixVerdict:
        """A verdict with what was counted so far."""
        near, far = self.near, self.far
        healthy = near.healthy + far.healthy
        return FixVerdict(
            status=status,
            forward_finite=self.forward,
            backward_finite=self.backward,
            healthy_elements=healthy if healthy else None,
            healthy_worse=near.worse + far.worse if healthy else None,
            max_ulp=max(near.ulps, far.ulps) if healthy else None,
            max_rel=max(near.off, far.off) if healthy else None,
            undecided=near.undecided + far.undecided if healthy else None,
            why=why,
        )

    def _cases(self, samples: Iterable[Sample]) -> tuple[list[Case], str]:
        found, why = list[Case](), ""
        for sample in samples:
            try:
                found += cases_of(self.original, sample, self.seed)
            except Exception as error:
                why = _error_text(error)
        return found, why

    def _check_captured(self, case: Case) -> None:
        new = self._run_repaired(case)
        seen = case, new
        if (case.fails or self.silent) and case.given and self.asked.cures:
            self._check_cured(case, new)
        small = case
        if _size(case) > _MOST and self._needs_truth(case, new):
            cut = self._cut(case, new)
            if cut is None:
                self.missing = "inputs as large as the captured ones"
                self.near.add(case, new, None, strict=self.strict, judged=True, by_element=False)
                return
            if cut is not case:
                self.near.add(
                    case,
                    new,
                    None,
                    strict=self.strict and not self.silent,
                    judged=False,
                    by_element=self._by_element(case),
                )
                small, new = cut, self._run_repaired(cut)
        known = self._weigh(small, new, self.near)
        rounded: Mapping[str, Any] = {}
        if self.rounded and case.given and self.unknown is None:
            rounded = self._check_rounded_inputs(small, new, known, seen)
        if known is not None and case.given:
            self._check_plausible(small, new, known, seen, rounded)
        if self.silent and case.given and known is not None:
            self._check_accuracy(small, new, known)

    def _check_plausible(
        self, case: Case, new: Mapping[str, Any], known: Mapping[str, Truth], seen: _Seen, rounded: Mapping[str, Any]
    ) -> None:
        """Raises where a number stands that makes no sense as one, though no exact one can be told against it.

        What does make sense is noted, but where it is told already that what was read had been ``rounded``.
        """

        @cache
        def around(side: float, *, scaled: bool = False) -> dict[str, list[Any]]:
            return self._values(values_around, case, side=side, scaled=scaled)

        values = [(name, old) for name, (old, _) in case.old.items() if name.isdecimal()]
        changed = [name for name, old in values if mended(old, new[name]).any()]
        logarithmic = bool(changed) and takes_logarithms(self.original, case)
        asks = logarithmic and not self.declared and any(known[name].undefined.any() for name in changed)
        nearest = self._values(nearest_values, case) if asks else {}
        stated: list[Stated] = []
        for name in changed:
            (old, dtype), truth, healthy = case.old[name], known[name], self.healthy.get(name)
            most = made_up_size(dtype, healthy, logarithmic=logarithmic, nearest=nearest.get(name))
            found = objection(old, new[name], dtype, truth, healthy, strict=self.strict, most=most)
            if found is not None and truth.undefined.any():
                # what the values on both sides come to may be larger than all that is healthy
                beside = [one for side in (BESIDE, -BESIDE) for one in around(side).get(name, [])]
                most = np.where(at_limit(new[name], beside, healthy), np.inf, most)
                found = objection(old, new[name], dtype, truth, healthy, strict=self.strict, most=most)
            made_up = mended(old, new[name]) & (truth.undefined | truth.infinite)
            if found is None and made_up.any():
                found = limit_objection(
                    np.where(made_up, old, 0.0),
                    new[name],
                    around(BESIDE).get(name, []),
                    healthy,
                    lambda name=name: around(BESIDE**2).get(name, []),
                    lambda name=name: around(BESIDE, scaled=True).get(name, []),
                )
            if found is not None:
                raise RejectedError(wording.implausible_value_text(name, found))
            # a logarithm out of its domain by rounding is known as far as that
            is_about = np.abs(np.abs(new[name]) - nearest.get(name, np.nan)) <= _ABOUT
            known_otherwise = (is_about & ~truth.infinite) | rounded.get(name, False)
            stated += inexact(name, old, np.where(known_otherwise, np.nan, new[name]), dtype, truth)
            if self.strict:
                stated += lost(name, old, np.where(rounded.get(name, False), np.nan, new[name]), dtype, truth, healthy)
        if self.strict and self._by_element(case) and (there := steep("0", case, new, known)).any():
            exact = known["0"].values
            stated.append(Stated("0", "steep", there, exact, exact, new["0"][there]))
        told = self._state(case, seen, self._without_limits(case, new, stated))
        told += [self.stand_ins[int(name), "unknown"] for name in rounded]
        if not any(given.gradient_zero for given in told):
            gradients = [(name, *case.old[name]) for name in known if not name.isdecimal()]
            self._check_slopes(case, new, known)
            stated = [s for name, old, dtype in gradients for s in inexact(name, old, new[name], dtype, known[name])]
            self._state(case, seen, self._without_limits(case, new, stated))

    def _check_slopes(self, case: Case, new: Mapping[str, Any], known: Mapping[str, Truth]) -> None:
        """Raises where a gradient other than 0 stands that is not the one that the gradients around it come to."""
        slopes = {
            name: mended(old, new[name]) & known[name].undefined & (new[name] != 0)
            for name, (old, _) in case.old.items()
            if not name.isdecimal() and name in known
        }
        if self.strict or not any(there.any() for there in slopes.values()):
            return

        @cache
        def around(side: float) -> dict[str, list[Any]]:
            return self._values(values_around, case, side=side, gradients=True)

        for name, there in slopes.items():
            old, given = np.where(there, case.old[name][0], 0.0), new[name]
            beside = around(BESIDE).get(name, [])
            found = limit_objection(old, given, beside, None, lambda name=name: around(BESIDE**2).get(name, []))
            if found is not None:
                raise RejectedError(wording.implausible_value_text(name, found))

    def _without_limits(self, case: Case, new: Mapping[str, Any], stated: Sequence[Stated]) -> list[Stated]:
        """What stands for what has no exact value, but where it is the limit of those around, or a subgradient."""
        if not any(one.lack == "undefined" for one in stated):
            return [*stated]
        gradients = any(not one.name.isdecimal() for one in stated)

        @cache
        def on_side(side: float) -> dict[str, list[Any]]:
            return self._values(values_around, case, side=side, gradients=gradients)

        def around(name: str, beside: float) -> list[Any]:
            return [array for side in (beside, -beside) for array in on_side(side).get(name, ())]

        found: list[Stated] = []
        for one in stated:
            if one.lack == "undefined":
                values, given = around(one.name, BESIDE), new[one.name]
                known = at_limit(given, values, self.healthy.get(one.name))
                if not one.name.isdecimal():
                    known |= at_kink(given, values, around(one.name, BESIDE**2))
                one = replace(one, there=one.there & ~known)
            found.append(one)
        return [one for one in found if one.there.any()]

    def _values(self, ask: Callable[..., dict[str, Any]], case: Case, **given: Any) -> dict[str, Any]:
        """What the oracle knows of a case; nothing where it lacks an operation."""
        try:
            return ask(self.original, case, **given)
        except UnknowableError:
            return {}

    def _cut(self, case: Case, new: Mapping[str, Any]) -> Case | None:
        """A large case cut down, if it still fails then; else as it is, where it is not too large for the oracle."""
        cut = self.original.shrink_case(case, new, self.seed)
        if cut is not None and (cut.fails or not case.fails):
            return cut
        size = max([_size(case), *(old.size for old, _ in case.old.values())])
        return case if size <= _MOST_WHOLE or (size <= _MOST_LIGHT and is_light(self.original, case)) else None

    def _check_accuracy(self, case: Case, new: Mapping[str, Any], known: Mapping[str, Truth]) -> None:
        """Raises where a captured value that was finite and far from the exact one is as far from it still."""
        for name, (old, dtype) in case.old.items():
            usual = case.usual.get(name, 0.0)
            wrong = is_far(old, dtype, known[name], usual=usual)
            still = wrong & is_far(new[name], dtype, known[name], usual=usual)
            self.far_off += int(wrong.sum())
            if still.any():
                place = int(np.argmax(still))
                value, exact = float(new[name].reshape(-1)[place]), float(known[name].values.reshape(-1)[place])
                raise RejectedError(wording.inaccurate_text(name, int(still.sum()), still.size, value, exact))

    def _check_rounded_inputs(
        self, case: Case, new: Mapping[str, Any], known: Mapping[str, Truth] | None, seen: _Seen
    ) -> Mapping[str, Any]:
        """Where what was bad is a number now that is not the exact one of what was rounded to the input.

        What may stand there is a stand-in, and noted; anything else is wrong for some of what was rounded.
        """
        found: dict[str, Any] = {}
        try:
            nearby = list(nearby_truths(self.original, case, bits=_BITS[case.sample.nature]))
        except UnknowableError as what:
            self.missing = str(what)
            return found
        for name in filter(str.isdecimal, case.old):
            (old, _), given = case.old[name], new[name]
            exact = possible(name, case, given, nearby)
            wrong = exact.off if known is None else exact.off & ~exact.stands(old, given, known[name])
            if wrong.any():
                place = int(np.argmax(wrong))
                value = np.fmin(exact.least, exact.greatest).reshape(-1)[place]
                self.unknown = float(given.reshape(-1)[place]), float(value)
                return found
            if exact.off.any():
                found[name] = exact.off
                self._state(case, seen, [Stated.rounded(name, exact)])
        return found

    def _state(self, case: Case, seen: _Seen, stated: Iterable[Stated]) -> list[StandIn]:
        """Note what stands where there is no exact value, with that of the same output in earlier cases."""
        whole, new = seen
        told: list[StandIn] = []
        for one in stated:
            if one.given is None and whole is not case and not mended(whole.old[one.name][0], new[one.name]).any():
                # what is cut from a healthy input may sum to 0, as that does not
                continue
            found = one.stand_in(whole, new, whole=whole is case)
            told.append(found)
            known = self.stand_ins.get((found.output, found.lack))
            self.stand_ins[found.output, found.lack] = found if known is None else merged(known, found)
        return told

    def _check_cured(self, case: Case, new: Mapping[str, Any]) -> None:
        """Raises where the failing input still fails; an Inf that an infinite input must give is none."""
        entered = any(not np.isfinite(array_of(t)).all() for t in tensors_in(case.sample.arguments).values())
        for name, (old, _) in case.old.items():
            bad = ~np.isfinite(new[name])
            if entered:
                bad &= ~(np.isinf(new[name]) & (new[name] == old))
            meant = (old == (math.nan if self.asked.infinite is None else self.asked.infinite)) & (new[name] == old)
            bad &= ~meant
            finite = not bad.any()
            if name.isdecimal() and not meant.any():
                self.forward = finite and self.forward is not False
            elif name.isdecimal():
                self.forward = None
            else:
                self.backward = finite and self.backward is not False
            if not finite and not self.silent:
                value = float(new[name][bad][0])
                raise RejectedError(wording.uncured_text(name, int(bad.sum()), bad.size, value))

    def _check_fresh(self, cases: Sequence[Case]) -> None:
        pairs: list[tuple[Case, dict[str, Any]]] = []
        for case in cases:
            try:
                new = self._run_repaired(case)
                if not self._overflows_before(case, new):
                    pairs.append((case, new))
            except RejectedError:
                # in another dtype than the run's what it says of itself is its own affair
                if case.sample.dtype == self.dtype:
                    raise
        asked = self._choose_truth_cases(pairs)
        for number, (case, new) in enumerate(pairs):
            if time.process_time() > self.asked.until:
                self.cut_short = number < len(pairs) // 2
                return
            like = case.sample.nature == "own" and (not self.strict or case.sample.dtype == self.dtype)
            ledger = self.near if like else self.far
            if number in asked:
                self._weigh(case, new, ledger)
            else:
                ledger.add(case, new, None, strict=self.strict, judged=False, by_element=self._by_element(case))

    def _overflows_before(self, case: Case, new: dict[str, Any]) -> bool:
        """Whether an extreme input overflows in both forms of a function, where it is scaled before they part.

        What one form happens to make of that Inf is nothing that the other has to keep: ``exp(x / t) / sum`` gives 0
        beside an ``x / t`` of Inf, and a softmax NaN. Of what was bad and is finite now any such Inf explains it.
        """
        loses = _loses(case, new)
        if self.strict or case.sample.nature != "extreme" or not (loses or is_disputed(case, new)):
            return False
        was = self.original.first_overflow(case.sample.arguments, scaling=loses)
        now = None if was is None else self.repaired.first_overflow(case.sample.arguments, scaling=loses)
        if was is None or now is None or was[0] != now[0]:
            return False
        return np.array_equal(array_of(was[1]), array_of(now[1]), equal_nan=True)

    def _choose_truth_cases(self, pairs: list[tuple[Case, dict[str, Any]]]) -> set[int]:
        """Those whose truth is asked: of every kind one first, the run's own dtype before the others.

        Of those like the run's, ones in which a healthy element changed are a kind of their own.
        """
        seen: dict[tuple[str, str, bool], int] = {}
        ranked: list[tuple[int, int]] = []
        for number, (case, new) in enumerate(pairs):
            if is_disputed(case, new):
                key = case.sample.title, case.sample.dtype, case.sample.nature == "own" and changes_healthy(case, new)
                seen[key] = seen.get(key, -1) + 1
                ranked.append((2 * seen[key] + (case.sample.dtype != self.dtype) - 4 * _loses(case, new), number))
        most = ASKED // 2
        if len(ranked) > most:
            # how long each takes is known by recording it, which is long itself
            work = sum(steps_of(self.original, case) for case, _ in pairs) / len(pairs)
            most = max(most, min(ASKED, int(_WORK / max(1.0, work))))
        return {number for _, number in sorted(ranked)[:most]}

    def _weigh(self, case: Case, new: dict[str, Any], ledger: Ledger) -> Mapping[str, Truth] | None:
        found: Mapping[str, Truth] | None = None
        if self._needs_truth(case, new):
            bits = _BITS[case.sample.nature]
            try:
                found = truths(self.original, case, new, bits=bits)
                if not self.strict and not case.given:
                    found = excused_truths(self.repaired, case, new, found)
            except UnknowableError as what:
                self.missing = str(what)
        ledger.add(case, new, found, strict=self.strict, judged=found is None, by_element=self._by_element(case))
        if self.asked.widens and found is not None:
            self._check_widened(case, new, found)
        return found

    def _check_widened(self, case: Case, new: Mapping[str, Any], known: Mapping[str, Truth]) -> None:
        """Raises where a value that only float32 has room for is another than the exact one."""
        for name, (old, dtype) in case.old.items():
            off = is_wrong_beyond(new[name], dtype, "float32", known[name])
            if name.isdecimal() and off.any():
                place = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), old.shape))
                exact = float(known[name].values[place])
                wrong = Example(case.sample.title, name, place, float(old[place]), float(new[name][place]), exact)
                raise RejectedError(wording.invented_value_text(wrong))

    def _by_element(self, case: Case) -> bool:
        """Whether one value is computed, each element of it from one element of what comes in.

        Of fresh inputs only where what is given in place of exact values is stated: nothing else of them is told.
        """
        if case.sample.nature != "captured" and not self.stand_ins:
            return False
        if self._computes_by_element is None:
            values = [name for name in case.old if name.isdecimal()]
            self._computes_by_element = values == ["0"] and is_by_element(self.original, case)
        return self._computes_by_element

    def _needs_truth(self, case: Case, new: dict[str, Any]) -> bool:
        """Whether the truth of a case has to be known."""
        return is_disputed(case, new) or (self.asked.silent is True and case.sample.nature == "captured")

    def _accepts(self, sample: Sample) -> bool:
        return bool(self._cases([sample])[0])

    def _run_repaired(self, case: Case) -> dict[str, Any]:
        try:
            return repaired_arrays(self.repaired, case, widens=self.asked.widens)
        except OtherKindError as what:
            raise RejectedError(f"gives {what}") from None
        except UsageError:
            # it could not be run, which says nothing of it
            raise
        except Exception as error:
            raise RejectedError(f"the repaired code raises {_error_text(error)}") from error

    def _settle(self) -> None:
        """Raises the first reason against the fix."""
        near, far = self.near, self.far
        if near.gone is not None:
            raise RejectedError(wording.lost_elements_text(near.gone, near.lost))
        if self.strict and near.worse and near.max_relative_change >= BOUND:
            raise RejectedError(wording.changes(near))
        if not self.strict and near.worse:
            raise RejectedError(wording.worse_elements_text(near))
        if near.made_up is not None and not self.declared:
            raise RejectedError(wording.invented_value_text(near.made_up))
        if not self.strict:
            self._settle_far(far)

    def _settle_far(self, far: Ledger) -> None:
        if far.gone is not None:
            raise RejectedError(wording.lost_elements_text(far.gone, far.lost))
        if far.worse:
            raise RejectedError(wording.worse_elements_text(far))
        if far.made_up is not None:
            raise RejectedError(wording.invented_value_text(far.made_up))

    def _final_verdict(self) -> FixVerdict:
        near, far = self.near, self.far
        if self.cut_short:
            return self.fix_verdict("unverified", "the time was up before it had been tried on enough other inputs")
        if self.unknown is not None:
            return self.fix_verdict("unverified", wording.rounded_input_text(*self.unknown))
        if self.missing is not None and near.undecided + far.undecided:
            count = near.undecided + far.undecided
            return self.fix_verdict(
                "unverified", f"exact values are not known of {self.missing}, so {count:,} elements are undecided"
            )
        moves = self.strict and (near.worse + far.worse or near.made_up is not None)
        if moves and (given := next((s for s in self.stand_ins.values() if s.lack == "unknown"), None)):
            why = wording.rounded_input_text(float(given.least), float(given.exact_least or 0.0))
            return self.fix_verdict("unverified", why)
        if moves:
            return self.fix_verdict("distorting", wording.distorting(near, far, self.dtype))
        backward = self.backward is not None
        wider = wording.widened_text(self.dtype) if self.asked.widens else ""
        why = wording.verified(near, far, backward=backward, strict=self.strict) + wider
        return self.with_stand_ins(self.fix_verdict("verified", why))

    def with_stand_ins(self, found: FixVerdict) -> FixVerdict:
        """A verdict of what holds, with what stands where there is no exact value: it is guarded then."""
        given = tuple(self.stand_ins.values())
        return found.model_copy(update={"status": "guarded" if given else "verified", "stand_ins": given})


def _latest_visits(captured: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last visits, in their order, as many as memory is meant for."""
    found: list[Mapping[str, Any]] = []
    left = ELEMENTS
    for visit in reversed(captured[-VISITS:]):
        left -= sum(size_of(t) for t in tensors_in(visit).values())
        if found and left < 0:
            break
        found.append(visit)
    return found[::-1]


def _loses(case: Case, new: Mapping[str, Any]) -> bool:
    """Whether an element is bad that was not."""
    return any((np.isfinite(old) & ~np.isfinite(new[name])).any() for name, (old, _) in case.old.items())


def _size(case: Case) -> int:
    return max((size_of(t) for t in tensors_in(case.sample.arguments).values()), default=0)


def _error_text(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
