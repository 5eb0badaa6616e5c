"""Candidates for one place of the program: judged on what was recorded there, and the best tried in the program."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from whynan.analysis import cause_groups
from whynan.errors import WhynanError
from whynan.faults import report_internal_error
from whynan.fixes.diffs import kept_lines, merge
from whynan.records import APPLICABLE, STATUSES, FixVerdict, Note
from whynan.records.report import Further
from whynan.report.notes import sentence
from whynan.rules import intents as intents_
from whynan.rules.catalogue import rules
from whynan.run.pipeline import source_reader
from whynan.run.proof.local_proof import (
    Origin,
    cures,
    judge_candidate,
    moved_behind,
    wider_pairs,
)
from whynan.run.proof.outcomes import EditOutcome, birth_of, is_in_edit, outcome_of, so_far
from whynan.run.proof.reruns import INTERRUPTED, EditedRun, NoRerun, RunOnce
from whynan.traces.format import FAILED
from whynan.verify.in_place.swap import SwappedTexts, is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.fixes.candidates import Candidate, Formula
    from whynan.fixes.python import MovedActivation
    from whynan.records import Finding, Report
    from whynan.records.intents import FixIntent, FixKind
    from whynan.run.proof.reruns import Mended, Rerunner
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.visits import Visits

    Progress = Callable[[int, int], None]

_MOST_TRIED: Final = 2
"""So many candidates of one finding are tried in the program."""
_MOST_EDITS: Final = 4
_GRACE: Final = 0.5
"""So much of the time that proofs have may the judgement of a candidate take, if little of that is left."""
_STRICTNESS: Final[tuple[FixKind, ...]] = ("reformulation", "guard", "epsilon", "setting")
_NOT_TRIED: Final = "not tried in the program: others did better on the captured operands"


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A file of the program, whose text is what ran, or what a moved activation makes of that."""

    path: str
    text: str
    moved: MovedActivation | None = None
    loaded: str | None = None
    """What the program has loaded, of a text that is edited further."""
    mends: Mended = ()
    """What such a text mends beside the finding."""

    @property
    def before(self) -> str:
        """The text that the program has loaded."""
        return self.loaded or (self.text if self.moved is None else self.moved.before)

    @property
    def others(self) -> tuple[tuple[str, str, str], ...]:
        """Other files that are edited too: the path, the text and the edited text of each."""
        return () if self.moved is None else self.moved.others

    @property
    def edited(self) -> SwappedTexts | None:
        """What runs in place of what is loaded."""
        is_loaded = self.moved is None and self.loaded is None
        return None if is_loaded else SwappedTexts(((self.path, self.before, self.text), *self.others))

    def located(self, finding: Finding) -> Finding:
        """A finding of the text that the program has loaded at the same expression here."""
        return finding if self.moved is None else self.moved.relocated(finding)

    def holds(self, candidate: Candidate) -> Candidate:
        """A candidate as one for this file."""
        return replace(candidate, path=self.path)


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate and what is known of it so far; ``further`` are the births that it mends beside its finding."""

    candidate: Candidate
    verdict: FixVerdict
    further: tuple[Further, ...] = ()
    leaves: bool = False
    """Whether the program, run with it, is bad still, from another hazard, or learns nothing."""

    @property
    def rank(self) -> tuple[float, ...]:
        """The best first: by the verdict, what leaves nothing bad, what computes the same, what moves few elements."""
        verdict, kind = self.verdict, _STRICTNESS.index(self.candidate.kind)
        moved = float(verdict.max_rel or 0.0) if verdict.status == "distorting" else 0.0
        return STATUSES.index(verdict.status), self.leaves, kind, float(verdict.healthy_worse or 0), moved


@dataclass(frozen=True, slots=True)
class _Held:
    """What mends a birth, as it is proved on what was recorded there, and which other the program then still has."""

    birth: Further
    one: RankedCandidate
    leaves: object

    @property
    def functions(self) -> set[object]:
        """Where it edits something."""
        return {birth.site.function for birth in (self.birth, *self.one.further)}

    def is_apart(self, parts: Sequence[_Held], source: ProgramText) -> bool:
        """Whether it edits another function of the same file than each of some others."""
        is_here = is_same_file(self.birth.site.file, source.path)
        return is_here and all(self.functions.isdisjoint(part.functions) for part in parts)


def _joined(parts: Sequence[_Held], edited: str) -> RankedCandidate:
    """Several changes as one, with the worst of their verdicts."""
    first, *others = parts
    title = "; ".join(dict.fromkeys(part.one.candidate.title for part in parts))
    kind = _STRICTNESS[max(_STRICTNESS.index(part.one.candidate.kind) for part in parts)]
    worst = max((part.one for part in parts), key=lambda one: one.rank).verdict
    given = tuple(one for part in parts for one in part.one.verdict.stand_ins) if worst.status == "guarded" else ()
    further = (*first.one.further, *(birth for part in others for birth in (part.birth, *part.one.further)))
    whole = replace(first.one.candidate, title=title, kind=kind, edited=edited)
    return RankedCandidate(whole, worst.model_copy(update={"stand_ins": given}), further)


class Trials:
    """The candidates for the findings of one report, each judged and tried once.

    Args:
        report: whose findings they are to mend.
        again: how the program can be run again.
        seconds: of processor time from `begin` on, behind which nothing new is begun.
        progress: is told how many candidates of how many are judged.
    """

    def __init__(
        self,
        report: Report,
        again: Rerunner,
        seconds: float,
        progress: Progress | None,
    ) -> None:
        self.again = again
        self.ended = False
        """Whether something was left because the time was over."""
        self._report = report
        self._seconds, self._deadline = seconds, math.inf
        self._progress = progress
        self._failed = False
        self._family: dict[int, frozenset[object]] = {}
        self._visited: dict[tuple[str, str, int], Visits | str] = {}
        self._held: dict[object, list[_Held]] = {}
        """What mends one finding but leaves another, by its birth."""
        self._verdicts: dict[tuple[Formula, Formula, str, Origin, str, str], FixVerdict] = {}
        self._trials: dict[tuple[str, str], Report | EditedRun | str] = {}

    def begin(self) -> None:
        """The time counts from here."""
        groups = cause_groups((*self._report.findings, *self._report.damaging), source_reader(self._report))
        self._family = {id(f.element): frozenset(map(birth_of, group)) for group in groups for f in group}
        self._deadline = time.process_time() + self._seconds

    def interrupt(self) -> None:
        """The user waits no longer: nothing is run again, and what was known of runs is let go of."""
        self.again = NoRerun(INTERRUPTED)
        self._visited, self._trials, self._verdicts = {}, {}, {}

    @property
    def is_interrupted(self) -> bool:
        """Whether the user waits no longer."""
        return isinstance(self.again, NoRerun) and self.again.why == INTERRUPTED

    @property
    def out_of_time(self) -> Note:
        """The note that the time was over."""
        return Note.create("proof_ended", seconds=self._seconds)

    def is_over(self) -> bool:
        """Whether the time is over; whoever asks leaves something then."""
        self.ended = self.ended or time.process_time() > self._deadline
        return self.ended

    def fail(self) -> None:
        """Called while an exception of whynan's own is being handled: one warning for the whole proof."""
        if not self._failed:
            self._failed = True
            report_internal_error()

    def family_of(self, finding: Finding) -> frozenset[object]:
        """The births that have one cause with a finding's."""
        return self._family.get(id(finding.element), frozenset())

    def proofs(self, finding: Finding, source: ProgramText, found: Sequence[Candidate]) -> list[RankedCandidate]:
        """The candidates with their verdicts, the best first."""
        judged_: list[RankedCandidate] = []
        for number, candidate in enumerate(found, 1):
            if self._progress is not None:
                self._progress(number, len(found))
            judged_.append(self.judged(finding, source, candidate))
        tried_: list[RankedCandidate] = []
        for number, one in enumerate(sorted(judged_, key=lambda j: j.rank)):
            if one.verdict.status == "unverified" or not _may_cure(one.verdict):
                tried_.append(one)
            elif self._is_enough(finding, tried_, number):
                tried_.append(_unverified(one, _NOT_TRIED))
            elif self.is_over():
                tried_.append(_unverified(one, sentence(self.out_of_time)))
            else:
                tried_.append(self._in_place(finding, source, one))
        return sorted(tried_, key=lambda j: j.rank)

    def _is_enough(self, finding: Finding, tried: Sequence[RankedCandidate], number: int) -> bool:
        """Whether enough candidates were tried: the best by themselves, or one that only leaves another finding."""
        held = self._held.get(birth_of(finding), ())
        if any(part.one.verdict.status == "verified" for part in held):
            return True
        return number >= _MOST_TRIED and (
            bool(held) or any(t.verdict.status in APPLICABLE and not t.leaves for t in tried)
        )

    def is_held(self, finding: Finding) -> bool:
        """Whether a change mends a finding as far as it is proved by itself, and leaves another."""
        return birth_of(finding) in self._held

    def judged(self, finding: Finding, source: ProgramText, candidate: Candidate) -> RankedCandidate:
        unknown = FixVerdict(status="unverified", why=sentence(self.out_of_time))
        if self.is_over():
            return RankedCandidate(candidate, unknown)
        visits = self.visits(source, candidate.original.line)
        if isinstance(visits, str):
            return RankedCandidate(
                candidate, unknown.model_copy(update={"why": str(visits), "reason": reason_of(visits)})
            )
        from whynan.verify.oracle import TimeIsOverError, ends_at

        origin = Origin.of(finding)
        key = candidate.original, candidate.repaired, candidate.kind, origin, source.text, candidate.edited
        try:
            if key not in self._verdicts:
                with ends_at(max(self._deadline, time.process_time() + self._seconds * _GRACE)):
                    self._verdicts[key] = _judged(candidate, source, visits, origin)
            return RankedCandidate(candidate, self._verdicts[key])
        except TimeIsOverError:
            self.ended = True
            return RankedCandidate(candidate, unknown)
        except WhynanError as error:
            return RankedCandidate(candidate, unknown.model_copy(update={"why": str(error)}))
        except Exception:
            self.fail()
            return RankedCandidate(candidate, unknown.model_copy(update={"why": sentence(FAILED)}))

    def visits(self, source: ProgramText, line: int) -> Visits | str:
        """The visits of the function at a line; the program is not run again for another line of the same one."""
        key = source.path, source.text, line
        for (*file, _), known in self._visited.items():
            is_of_it = file == [source.path, source.text] and not isinstance(known, str)
            if is_of_it and not isinstance(known, str) and any(v.line == line for v in known.visits):
                return known
        if key not in self._visited:
            self._visited[key] = self.again.visits(source.path, source.text, line, source.edited, source.mends)
        return self._visited[key]

    def trial(
        self, source: ProgramText, edited: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> Report | EditedRun | str:
        key = source.path, edited
        if key not in self._trials:
            live = live if not source.others else SwappedTexts(source.others)
            trial = self.again.trial(source.path, source.before, edited, live, mends)
            # what was not looked at to its end proves nothing
            looked_at = trial.report if isinstance(trial, EditedRun) else trial
            unseen = not isinstance(looked_at, str) and bool(looked_at.coverage.notes_of(FAILED.kind))
            self._trials[key] = sentence(FAILED) if unseen else trial
        return self._trials[key]

    def _in_place(self, finding: Finding, source: ProgramText, one: RankedCandidate, edits: int = 1) -> RankedCandidate:
        """A candidate after the program has run with it, and with what mends the births that it leaves."""
        from whynan.verify.in_place.numpy_births import NumpyBirths

        candidate = one.candidate
        births = NumpyBirths() if candidate.library == "numpy" else None
        makes_up = candidate.kind != "reformulation"
        # of what is exact wherever it was bad, the loss that was finite may have been the wrong one
        exact = one.verdict.status == "verified" and not makes_up and source.moved is None
        outcome = self.outcome(
            finding, source, candidate.edited, makes_up=makes_up, live=births, exact=exact, mends=one.further
        )
        if isinstance(outcome, str):
            return replace(one, verdict=tried_verdict(one.verdict, outcome))
        if outcome.next is not None and births is not None:
            following = (finding.model_copy(update={"site": site}) for site in births.sites)
            outcome = replace(outcome, next=next(following, None))
        left = outcome.next or self._absorbed_birth(finding, source, one)
        texts = source.before, candidate.edited
        if left is not None and finding.step not in (None, left.step) and is_in_edit(finding, texts, left):
            # not hidden by what the edit mends: what the training has made of its weights by then
            left = None
        if left is not None and edits < _MOST_EDITS and not self.is_over():
            for further in self._add_further_edits(finding, source, one, left):
                mended = self._in_place(finding, source, further, edits + 1)
                if mended.verdict.status in (*APPLICABLE, "distorting"):
                    return mended
        if outcome.next is not None and outcome.remains is not None and one.verdict.status in APPLICABLE:
            self._hold(finding, source, one, birth_of(outcome.next))
        is_left = outcome.remains is not None or outcome.stands_still is not None
        return replace(one, verdict=tried_verdict(one.verdict, outcome), leaves=is_left)

    def _hold(self, finding: Finding, source: ProgramText, one: RankedCandidate, leaves: object) -> None:
        """Keep what mends a finding of what is loaded, for what mends the other one that it leaves."""
        further = _further_of(finding)
        if source.edited is None and one.candidate.library == "torch" and further is not None:
            self._held.setdefault(birth_of(finding), []).append(_Held(further, one, leaves))

    def combined(self, finding: Finding, source: ProgramText) -> RankedCandidate | None:
        """What mends a finding together with what mends those that it leaves, each proved by itself, if that holds.

        Each is in a function of its own, so that none changes what the others are proved of.
        """
        for first in self._held.get(birth_of(finding), ())[:_MOST_TRIED]:
            parts, edited, left = [first], first.one.candidate.edited, first.leaves
            while len(parts) < _MOST_EDITS and not self.is_over():
                following = next((part for part in self._held.get(left, ()) if part.is_apart(parts, source)), None)
                merged = None if following is None else merge(source.text, edited, following.one.candidate.edited)
                if following is None or merged is None:
                    break
                parts, edited = [*parts, following], merged
                whole = _joined(parts, edited)
                makes_up = whole.candidate.kind != "reformulation"
                outcome = self.outcome(finding, source, edited, makes_up=makes_up, mends=whole.further)
                if isinstance(outcome, str):
                    break
                verdict = tried_verdict(whole.verdict, outcome)
                if verdict.status in APPLICABLE:
                    return replace(whole, verdict=verdict, leaves=outcome.remains is not None)
                left = None if outcome.next is None else birth_of(outcome.next)
        return None

    def _absorbed_birth(self, finding: Finding, source: ProgramText, one: RankedCandidate) -> Finding | None:
        """What keeps a derivative bad that the program itself leaves out behind the function that is edited."""
        if one.verdict.backward_finite is not False or one.candidate.library == "numpy":
            return None
        trial = self.trial(source, one.candidate.edited, mends=one.further)
        ran = trial.report if isinstance(trial, EditedRun) else trial
        before = {birth_of(f) for f in self._report.absorbed}
        born = () if isinstance(ran, str) else (f for f in ran.absorbed if birth_of(f) not in before)
        place = finding.site and (finding.site.file, finding.site.function)
        here = (f for f in born if f.phase == "backward" and f.site and (f.site.file, f.site.function) == place)
        return next((f.model_copy(update={"fate": "escaped"}) for f in here), None)

    def outcome(
        self,
        finding: Finding,
        source: ProgramText,
        edited: str,
        *,
        makes_up: bool,
        live: Meanwhile | None = None,
        exact: bool = False,
        mends: Mended = (),
    ) -> EditOutcome | str:
        """What the program does with an edit; or why it was not tried."""
        trial = self.trial(source, edited, live, mends)
        if isinstance(trial, str):
            return trial
        ran = trial if isinstance(trial, EditedRun) else EditedRun(trial)
        if ran.moved is not None and finding.fate == "escaped" and not self._report.damaging and not exact:
            return EditOutcome(rejected=ran.moved)
        family = self.family_of(finding)
        is_here = finding.site is not None and is_same_file(finding.site.file, source.path)
        texts = (source.before, edited) if is_here else ("", "")
        outcome = outcome_of(ran.report, self._report, finding, *texts, makes_up=makes_up, family=family)
        return outcome.after(ran)

    def _add_further_edits(
        self, finding: Finding, source: ProgramText, one: RankedCandidate, left: Finding
    ) -> list[RankedCandidate]:
        """What also mends a birth that a first edit leaves, judged as one edit."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import candidates

        first, further = one.candidate, _further_of(left)
        if finding.site is None or further is None or not is_same_file(further.site.file, source.path):
            return []
        wanted = intents_.NUMPY if first.library == "numpy" else intents_of(left)
        visits = self.visits(source, finding.site.line)
        if isinstance(visits, str):
            return []
        found: list[RankedCandidate] = []
        for second in candidates(first.edited, left, wanted, library=first.library):
            if any(known.verdict.status == "verified" for known in found):
                break
            if isinstance(second, Declined):
                continue
            if second.kind == "epsilon" and any(known.verdict.status in APPLICABLE for known in found):
                continue
            title = first.title if first.title == second.title else f"{first.title}; {second.title}"
            kind: FixKind = max((first.kind, second.kind), key=_STRICTNESS.index)
            apart = self._judge_separately(source, second, left)
            if apart is None and one.verdict.status in APPLICABLE:
                # what came there was bad before the first edit, or came there in no step
                there = replace(source, text=first.edited, loaded=source.before, mends=one.further)
                apart = self.judged(left, there, there.holds(second)).verdict
            together = self._judge_together(finding, source, replace(second, title=title, kind=kind), visits)
            if apart is not None and apart.status in APPLICABLE:
                if together is not None and together.verdict.status == "rejected":
                    # the second may take what the first has given for what it mends
                    continue
                whole = replace(first, title=title, kind=kind, edited=second.edited)
                worst = max((one.verdict, apart), key=lambda verdict: RankedCandidate(whole, verdict).rank)
                given = (*one.verdict.stand_ins, *apart.stand_ins) if worst.status == "guarded" else ()
                found.append(RankedCandidate(whole, worst.model_copy(update={"stand_ins": given})))
                continue
            together = together or self._judge_over(finding, source, one, replace(second, title=title, kind=kind), left)
            if together is not None:
                found.append(together)
        kept = [j for j in found if j.verdict.status in (*APPLICABLE, "distorting")]
        return [replace(j, further=(*one.further, further)) for j in sorted(kept, key=lambda j: j.rank)[:1]]

    def _judge_together(
        self, finding: Finding, source: ProgramText, whole: Candidate, visits: Visits
    ) -> RankedCandidate | None:
        """Two edits as one, with as many statements behind them as it takes to prove that nothing else is moved.

        What a selection leaves out may come to anything, as it may where only one of the two is edited.
        """
        assert finding.site is not None
        first: RankedCandidate | None = None
        for further, pair in wider_pairs(source.text, whole.edited, source.path, finding.site.line, visits):
            if first is not None and self.is_over():
                break
            both = source.holds(replace(whole, original=pair[0], repaired=pair[1]))
            if further and not cures(both, visits, silent=finding.fate == "damaging"):
                # what is known where it begins may be of other visits than those that fail
                continue
            made = self.judged(finding, source, both)
            if made.verdict.status in (*APPLICABLE, "distorting"):
                return made
            first = first or made
        return first

    def _judge_over(
        self, finding: Finding, source: ProgramText, one: RankedCandidate, whole: Candidate, left: Finding
    ) -> RankedCandidate | None:
        """Two edits, the second judged by itself and the first on what the second gives, at the visits of the run.

        So it is where what stands between them, as the call of a module, can be in no formula of both.
        """
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates

        was = _at_line(left, kept_lines(one.candidate.edited, source.text))
        if was is None or one.further or one.candidate.library != "torch":
            return None
        titles = whole.title.removeprefix(f"{one.candidate.title}; "), one.candidate.title
        made = candidates(source.text, was, [i for i in intents_of(was) if i.title == titles[0]])
        for second in (source.holds(c) for c in made if isinstance(c, Candidate)):
            at = _at_line(finding, kept_lines(source.text, second.edited))
            intents = (*intents_of(finding), *intents_.tried_last(intents_of(finding)))
            over = [] if at is None else candidates(second.edited, at, [i for i in intents if i.title == titles[1]])
            both = next((c for c in over if isinstance(c, Candidate) and c.edited == whole.edited), None)
            if both is None:
                continue
            apart = self.judged(was, source, second)
            pair = one.candidate.original, both.repaired
            if apart.verdict.status not in APPLICABLE or pair[0].inputs != pair[1].inputs:
                continue
            first = self.judged(finding, source, source.holds(replace(whole, original=pair[0], repaired=pair[1])))
            worst = max((first, apart), key=lambda judged: judged.rank).verdict
            given = (*first.verdict.stand_ins, *apart.verdict.stand_ins) if worst.status == "guarded" else ()
            return replace(first, verdict=worst.model_copy(update={"stand_ins": given}))
        return None

    def _judge_separately(self, source: ProgramText, second: Candidate, left: Finding) -> FixVerdict | None:
        """The verdict of a second edit by itself, where it mends what the first run had too, at another place."""
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates

        first_run = (*self._report.findings, *self._report.damaging)
        known = next((finding for finding in first_run if birth_of(finding) == birth_of(left)), None)
        if known is None:
            return None
        known = source.located(known)
        made = candidates(source.text, known, [i for i in intents_of(known) if i.title == second.title])
        bodies = second.original.body, second.repaired.body
        for alone in (source.holds(c) for c in made if isinstance(c, Candidate)):
            if (alone.original.body, alone.repaired.body) == bodies:
                return self.judged(known, source, alone).verdict
        return None


def _at_line(finding: Finding, lines: Mapping[int, int]) -> Finding | None:
    """A finding of another text, where its lines stand there; None where they do not."""
    site = finding.site
    if site is None or site.line not in lines:
        return None
    moved = lines[site.line] - site.line
    end = site.end_line
    if end is not None and lines.get(end) != end + moved:
        return None
    there = site.model_copy(update={"line": site.line + moved, "end_line": None if end is None else end + moved})
    return finding.model_copy(update={"site": there})


def intents_of(finding: Finding) -> tuple[FixIntent, ...]:
    return of_dtype(next((rule.fixes for rule in rules() if rule.code == finding.rule), ()), finding)


def of_dtype(intents: Sequence[FixIntent], finding: Finding) -> tuple[FixIntent, ...]:
    return tuple(intent for intent in intents if not intent.dtypes or finding.element.dtype in intent.dtypes)


def _judged(candidate: Candidate, source: ProgramText, visits: Visits, origin: Origin) -> FixVerdict:
    """The verdict on a candidate by what was recorded, and by what is computed of what it gives."""
    verdict = judge_candidate(candidate, visits, origin)
    if candidate.kind != "guard" or not _may_cure(verdict):
        return verdict
    pairs = wider_pairs(source.text, candidate.edited, candidate.path, candidate.original.line, visits)
    wider = [replace(candidate, original=original, repaired=repaired) for _, (original, repaired) in pairs]
    if verdict.forward_finite is False:
        # an Inf that it leaves may be finite again behind it
        behind = next((one for one in wider if cures(one, visits)), None)
        verdict = verdict if behind is None else judge_candidate(behind, visits, origin)
    moved = moved_behind(wider, visits)
    return verdict if moved is None else FixVerdict(status="rejected", why=moved)


def _may_cure(verdict: FixVerdict) -> bool:
    """Whether what does not cure the captured operands may still do so with another edit."""
    return verdict.status != "rejected" or verdict.forward_finite is False or verdict.backward_finite is False


def tried_verdict(verdict: FixVerdict, outcome: EditOutcome | str) -> FixVerdict:
    """A verdict with what the program did with the edit."""
    if isinstance(outcome, EditOutcome):
        return outcome.apply_to(verdict)
    why = so_far(verdict, f"it was not tried in the program: {outcome}")
    return verdict.as_status("unverified", why, reason_of(outcome))


def reason_of(why: str) -> Literal["run_once"] | None:
    return "run_once" if isinstance(why, RunOnce) else None


def _unverified(one: RankedCandidate, why: str) -> RankedCandidate:
    return replace(one, verdict=one.verdict.as_status("unverified", why))


def _further_of(left: Finding) -> Further | None:
    if left.site is None:
        return None
    return Further(
        rule=left.rule, birth=left.birth, phase=left.phase, op=left.op, forward_op=left.forward_op, site=left.site
    )
