"""The fixes of a report's findings, each with its verdict: candidates are judged, and the best tried in the program."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.config import PROOF_SECONDS
from whynan.ops.table import TORCH
from whynan.records import APPLICABLE, STATUSES, ChainLink, Fix, FixVerdict, Note
from whynan.records.report import Source
from whynan.replay.live_objects import listed_once
from whynan.report.wording import count_text
from whynan.rules import intents as intents_
from whynan.rules.catalogue import rules
from whynan.run.output.capsules import capsule_finding
from whynan.run.proof.local_proof import cures, saturating, values_at
from whynan.run.proof.operand_fidelity import are_same, operands_of
from whynan.run.proof.outcomes import EditOutcome, outcome_of
from whynan.run.proof.reruns import NOT_ALIKE, EditedRun
from whynan.run.proof.trials import (
    ProgramText,
    RankedCandidate,
    Trials,
    intents_of,
    of_dtype,
    reason_of,
    tried_verdict,
)
from whynan.source.text import file_text
from whynan.verify.in_place.swap import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from whynan.fixes.candidates import Candidate, Declined
    from whynan.fixes.python import MovedActivation
    from whynan.records import Finding, Report, Site
    from whynan.records.intents import FixIntent
    from whynan.records.neighbourhood import Neighbourhood
    from whynan.run.proof.omissions import Omission
    from whynan.run.proof.reruns import Rerunner
    from whynan.run.proof.trials import Progress
    from whynan.traces import Trace
    from whynan.training.course import Course
    from whynan.verify.in_place.visits import Visits

    Keep = Callable[[Site, Visits], None]

_MOST_MAKERS: Final = 3
"""So many expressions that may have made what came in are told."""
_MOST_JUDGED: Final = 4
"""So many edits that compute in float32 are judged."""
_BROKEN_OFF: Final = Note.create("proof_interrupted")
_ALL_MASKED: Final = "WN501"
_FINITE: Final = "a large negative number in place of -Inf where it is written"
_FINITE_WHY: Final = (
    "its exponential is 0 as that of -Inf is, and a row of nothing else has a finite logarithm, which means nothing"
)
_SETTING: Final = "it is no edit of an expression, and was not tried"
_IN_BFLOAT16: Final = "run with it, the program is finite to its end; each of its numbers has 8 bits in place of 11"
_BEHIND: Final = "not tried: what is run again begins behind where it asks for float16"


class Audience(Protocol):
    """Whoever waits for a proof."""

    def explained(self, report: Report, *, by_itself: bool = False) -> None:
        """A report is explained, and its fixes are about to be proved; `by_itself`: the program will end itself."""
        ...

    def proved(self, report: Report) -> None:
        """The fixes of a program that is about to end itself are proved."""
        ...

    def trying(self, number: int, total: int) -> None:
        """So many changes of so many are being tried."""
        ...


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """How fixes are proved.

    Attributes:
        seconds: of processor time that those of one report are sought for; what is judged then has half as many more.
        keep: is given the visits of the function that the finding of a capsule was born in.
        progress: is told how many changes of how many are tried.
    """

    seconds: float = PROOF_SECONDS
    keep: Keep | None = None
    progress: Progress | None = None


def prove_fixes(report: Report, again: Rerunner, options: ProofOptions = ProofOptions()) -> Report:
    """A report whose findings have their fixes, proved as far as `again` can run the program; never one that is worse.

    Escaped and damaging findings have fixes, absorbed and allowed ones none. What is known of the surroundings of its
    births is let go of. An interrupt ends the proof: what is left was not tried then.
    """
    proving = _Proving(report, again, options)
    try:
        with listed_once():
            report = proving.report()
    except Exception:
        proving.fail()
    return _with_around(report, {})


def is_interrupted(report: Report) -> bool:
    """Whether the user has broken off the proof of a report's fixes."""
    return bool(report.coverage.notes_of(_BROKEN_OFF.kind))


def with_surroundings(report: Report, trace: Trace) -> Report:
    """A report whose findings know what was around their births, in the trace that it was made of."""
    births = (*trace.births, *trace.silent)
    # the element of a finding is its birth's own
    return _with_around(report, {id(birth.element): birth.around for birth in births})


def _with_around(report: Report, around: Mapping[int, Neighbourhood | None]) -> Report:
    changed = {
        name: tuple(f.model_copy(update={"around": around.get(id(f.element))}) for f in getattr(report, name))
        for name in ("findings", "damaging")
    }
    return report.model_copy(update=changed)


class _Proving:
    """The proof of one report's fixes."""

    def __init__(self, report: Report, again: Rerunner, options: ProofOptions) -> None:
        self._report = report
        self._keep = options.keep
        self._trials = Trials(report, again, options.seconds, options.progress)
        self._course = functools.cache(again.course)
        self._known: dict[object, tuple[Fix, ...]] = {}
        self._mended = set[frozenset[object]]()
        """The births of each cause that a verified change mends."""
        self._numpy_sites: tuple[Site, ...] | None = None
        self._makers: dict[object, Site] = {}
        """The expressions of NumPy's that have made what came in, by what findings with the same fixes share."""
        self._hashes = {source.file: source.sha256 for source in report.run.sources}

    def report(self) -> Report:
        """The report with the fixes of its findings."""
        if self._keep is not None:
            self._keep_visits(self._keep)
        self._trials.begin()
        for finding in (*self._report.findings, *self._report.damaging):
            # what mends one may be tried with what mends another
            self._with_fixes(finding)
        changed: dict[str, object] = {
            name: tuple(self._with_combined(self._with_fixes(finding)) for finding in getattr(self._report, name))
            for name in ("findings", "damaging")
        }
        said = [self._trials.out_of_time] if self._trials.ended else []
        said += [_BROKEN_OFF] if self._trials.is_interrupted else []
        said += self._beside_numpy()
        if said:
            changed["coverage"] = self._report.coverage.with_notes(*said)
        sources = tuple(Source(file=file, sha256=digest) for file, digest in self._hashes.items())
        changed["run"] = self._report.run.model_copy(update={"sources": sources})
        return self._report.model_copy(update=changed)

    def _beside_numpy(self) -> list[Note]:
        """The lines at which NumPy has made a bad number in a run that something bad came into from outside PyTorch."""
        findings = (*self._report.findings, *self._report.damaging)
        came_in = [f for f in findings if f.data is not None and f.data.computed is None]
        untold = [f for f in came_in if _alike(f) not in self._makers]
        places = dict.fromkeys((site.file, site.line) for site in self._numpy_sites or () if untold)
        return [Note.create("numpy_makes", file=file, line=line) for file, line in list(places)[:_MOST_MAKERS]]

    def fail(self) -> None:
        """Called while an exception of whynan's own is being handled."""
        self._trials.fail()

    def _keep_visits(self, keep: Keep) -> None:
        """Hand over what a fix of the user's own is judged on later; there it needs none of ours beside it."""
        finding = capsule_finding(self._report)
        source = None if finding is None else self._source(finding)
        if finding is None or finding.site is None or source is None:
            return
        visits = self._trials.visits(source, finding.site.line)
        if not isinstance(visits, str):
            keep(finding.site, visits)

    def _with_fixes(self, finding: Finding) -> Finding:
        if finding.allowed is not None or finding.fate == "absorbed":
            return finding
        key, family = _alike(finding), self._trials.family_of(finding)
        if key not in self._known and family in self._mended:
            # with a change that is verified for one birth of a cause nothing is left of the others
            self._known[key] = ()
        if key not in self._known:
            try:
                self._known[key] = self._fixes(finding)
            except (KeyboardInterrupt, SystemExit):
                # by a handler of the program's own, too
                self._trials.interrupt()
                self._course = functools.cache(self._trials.again.course)
                self._known[key] = self._fixes(finding)
            if any(fix.verdict.status == "verified" for fix in self._known[key]):
                self._mended.add(family)
        return _made_by(finding.model_copy(update={"fixes": self._known[key]}), self._makers.get(key))

    def _with_combined(self, finding: Finding) -> Finding:
        """A finding with what mends it together with what mends the others, where no change alone holds."""
        source = None if any(fix.verdict.status in APPLICABLE for fix in finding.fixes) else self._source(finding)
        if source is None or finding.allowed is not None or finding.fate == "absorbed":
            return finding
        made = self._trials.combined(finding, source)
        if made is not None:
            fixes = (_fix_of(made, source), *finding.fixes)
        elif self._trials.is_held(finding):
            fixes = self._with_further(finding, source, finding.fixes)
        else:
            return finding
        return finding.model_copy(update={"fixes": tuple(_best_first(fixes))})

    def _fixes(self, finding: Finding) -> tuple[Fix, ...]:
        intents = intents_of(finding)
        settings = tuple(
            Fix(title=i.title, kind="setting", patch=None, verdict=FixVerdict(status="unverified", why=_SETTING))
            for i in intents
            if i.kind == "setting"
        )
        source = self._source(finding)
        if source is None or self._trials.is_over():
            return settings
        arguments = self._argument_fixes(finding, source)
        made = self._edit_fixes(finding, source, intents)
        if not any(fix.verdict.status == "verified" for fix in (*arguments, *made)):
            made = (*self._moved_fixes(finding, source, intents), *made)
        if not self._trials.is_held(finding):
            made = self._with_further(finding, source, (*arguments, *made))[len(arguments) :]
        if any(fix.patch for fix in arguments):
            # what does not fit how it is written is of no more use
            made = tuple(fix for fix in made if fix.patch)
            # nor is what is said in words and was tried
            tried = {fix.title.partition("(")[2].partition("=")[0] for fix in arguments if fix.patch}
            settings = tuple(fix for fix in settings if fix.title.partition("=")[0] not in tried)
        if any(fix.verdict.status in APPLICABLE for fix in arguments):
            # what is said in words is done
            settings = ()
        elif not any(fix.verdict.status == "verified" for fix in made):
            settings = (*self._in_bfloat16(finding, alone=not made), *settings)
        ranked = _best_first((*arguments, *made))
        # two spellings of one idea are one fix, where the first holds
        first = {fix.title: fix for fix in reversed(ranked) if fix.verdict.status in APPLICABLE}
        return (*(fix for fix in ranked if first.get(fix.title, fix) is fix), *settings)

    def _with_further(self, finding: Finding, source: ProgramText, made: tuple[Fix, ...]) -> tuple[Fix, ...]:
        """Fixes, and behind them what else may mend a finding, up to the first that does."""
        further: tuple[Callable[[], tuple[Fix, ...]], ...] = (
            lambda: self._less_specific_fixes(finding, source, intents_of(finding)),
            lambda: self._producer_fixes(finding),
            lambda: self._numpy_fixes(finding),
            lambda: self._mask_fixes(finding),
            lambda: self._literal_fixes(finding),
            lambda: self._omission_fixes(finding, source),
            lambda: self._batch_fixes(finding, source),
            lambda: self._uncast_fixes(finding, source),
            lambda: self._training_fixes(finding),
            lambda: self._whole_in_float32(finding),
        )
        for fixes in further:
            if not any(fix.verdict.status in APPLICABLE for fix in made):
                known = {fix.patch for fix in made if fix.patch}
                made = (*made, *(fix for fix in fixes() if fix.patch not in known))
        return made

    def _less_specific_fixes(
        self, finding: Finding, source: ProgramText, tried: Sequence[FixIntent]
    ) -> tuple[Fix, ...]:
        """What holds of what a rule tries last, and of what the others that match do; a share at its limit."""
        last, others = intents_.tried_last(tried), [r for code in finding.matched for r in rules() if r.code == code]
        made = self._edit_fixes(finding, source, last) if last else ()
        held = [fix for fix in made if fix.verdict.status in APPLICABLE]
        best = tuple(f for f in held if f.verdict.status == "verified" or f.title != intents_.ONLY_SHARE.title)
        wanted = [i for rule in others for i in of_dtype(rule.fixes, finding) if i not in tried and i.kind != "setting"]
        if best or not wanted:
            return best
        return tuple(fix for fix in self._edit_fixes(finding, source, wanted) if fix.verdict.status in APPLICABLE)

    def _edit_fixes(self, finding: Finding, source: ProgramText, intents: Sequence[FixIntent]) -> tuple[Fix, ...]:
        """The edits of the expression at a finding's site."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import candidates

        found = candidates(source.text, finding, [intent for intent in intents if intent.kind != "setting"])
        edits = [source.holds(c) for c in found if not isinstance(c, Declined)]
        wider = self._in_float32(finding, source, alone=not edits)
        # an exponential soon has no room in float32 either
        is_exponential = bool(saturating(finding) & TORCH.having("exponential"))
        edits = [*edits, *wider] if is_exponential else [*wider, *edits]
        made = self._proved_edits(finding, source, edits)
        if not made:
            # a rewrite of another expression than this is none of it
            declined = {c.title: c for c in reversed(found) if isinstance(c, Declined) and not c.unfit}
            made = tuple(
                Fix(title=title, kind="source", patch=None, verdict=_declined(one))
                for title, one in reversed(declined.items())
            )
        return made

    def _moved_fixes(self, finding: Finding, source: ProgramText, intents: Sequence[FixIntent]) -> tuple[Fix, ...]:
        """The logarithm of an activation that another function has computed; up to the first that is verified."""
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates, moved_activations
        from whynan.source import sha256_of
        from whynan.source.positions import file_of_site

        others = {path: text for path, text in self._user_texts().items() if not is_same_file(path, source.path)}
        births = [*self._report.findings, *self._report.damaging]
        for moved in moved_activations({**others, source.path: source.text}, source.path, finding, births):
            digests = {file_of_site(path): sha256_of(path) for path, _, _ in moved.others}
            if (
                self._trials.is_over()
                or _is_hooked(source.path, moved)
                or (
                    moved.callee is not None
                    and _is_imported_elsewhere(moved.callee, source.path, {*others, source.path})
                )
                or any(digest != self._hashes.get(path, digest) for path, digest in digests.items())
            ):
                break
            there, at = ProgramText(source.path, moved.text, moved), moved.relocated(finding)
            found = candidates(there.text, at, [intent for intent in intents if intent.kind != "setting"])
            edits = [
                replace(one, path=source.path, title=f"{one.title}, of logits {moved.title}")
                for one in found
                if isinstance(one, Candidate) and one.kind == "reformulation"
            ]
            for proof in self._trials.proofs(at, there, edits if edits and self._is_same_run(finding, there) else []):
                if proof.verdict.status != "verified":
                    continue
                # what tells that a call is of nothing else is needed to make it anew
                digests |= {path: sha256_of(path) for path in others}
                self._hashes |= {path: digest for path, digest in digests.items() if digest is not None}
                shorter = moved.without_unread(proof.candidate.edited)
                outcome = self._trials.outcome(at, there, shorter, makes_up=False, mends=proof.further)
                if isinstance(outcome, EditOutcome) and outcome.holds:
                    proof = replace(proof, candidate=replace(proof.candidate, edited=shorter))
                return (_fix_of(proof, there),)
        return ()

    def _is_same_run(self, finding: Finding, source: ProgramText) -> bool:
        """Whether a finding is born alike where a text that is to compute the same runs in place of what is loaded.

        So it is if what the expressions at fault are of has the same values and derivatives, too.
        """
        trial = self._trials.trial(source, source.text)
        report = trial.report if isinstance(trial, EditedRun) else trial
        found = () if isinstance(report, str) else (*report.findings, *report.damaging)
        if not any(_birth_numbers(other) == _birth_numbers(finding) for other in found):
            return False
        known = (*self._report.findings, *self._report.damaging)
        there = [one for one in known if one.site is not None and is_same_file(one.site.file, source.path)]
        loaded = ProgramText(source.path, source.before)
        first, second = (
            operands_of(self._trials.again, text, [text.located(one) for one in there]) for text in (loaded, source)
        )
        if NOT_ALIKE in (first, second):
            # other ranks make anew what mends, and not what only shows
            return True
        return not isinstance(first, str) and not isinstance(second, str) and are_same(first, second)

    def _proved_edits(self, finding: Finding, source: ProgramText, edits: Sequence[Candidate]) -> tuple[Fix, ...]:
        return tuple(_fix_of(proof, source) for proof in self._trials.proofs(finding, source, edits))

    def _numpy_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edits of the program's NumPy expressions, of what came in bad from there; up to the first that holds."""
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates
        from whynan.verify.in_place.numpy_births import NumpyBirths

        if self._numpy_sites is None:
            uses_numpy = any("numpy" in text for text in self._user_texts().values())
            heard = self._trials.again.hear(NumpyBirths()) if uses_numpy else ""
            self._numpy_sites = () if isinstance(heard, str) else heard.sites
        made: list[Fix] = []
        for site in self._numpy_sites:
            at = finding.model_copy(update={"site": site, "around": None, "chain": ()})
            source = self._source(at, known=False)
            if source is not None and not self._trials.is_over():
                found = candidates(source.text, at, intents_.NUMPY, library="numpy")
                made += self._proved_edits(at, source, [source.holds(c) for c in found if isinstance(c, Candidate)])
            if any(fix.verdict.status in APPLICABLE for fix in made):
                # without what it made nothing bad comes in
                self._makers[_alike(finding)] = site
                break
        return tuple(made)

    def _producer_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The bound of a number where the program makes it, of which a library's code has no finite value."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import producer_edit, producer_of

        made = producer_of(finding)
        source = None if made is None else self._source(finding.model_copy(update={"site": made.site}), known=False)
        bounded = None if source is None else producer_edit(source.text, finding)
        if source is None or bounded is None or isinstance(bounded, Declined) or self._trials.is_over():
            return ()
        return (self._stated_fix(finding, source, bounded.title, bounded.edited, bounded.instead),)

    def _mask_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edits with which a mask chooses what a product with it has left NaN; up to the first that holds."""
        from whynan.run.proof.masked_products import chosen_by_mask

        made: list[Fix] = []
        site = next((link.site for link in finding.chain if link.typed_summary.kind == "times_zero"), None)
        source = None if site is None else self._source(finding.model_copy(update={"site": site}), known=False)
        if site is None or source is None or self._trials.is_over():
            return ()
        visits = self._trials.visits(source, site.line)
        for found in () if isinstance(visits, str) else chosen_by_mask(source.text, site, visits):
            made.append(self._omission_fix(finding, source, found))
            if made[-1].verdict.status in APPLICABLE or self._trials.is_over():
                break
        return tuple(made)

    def _literal_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edit with which the program writes large negative numbers in place of the -Inf that a NaN is of."""
        from whynan.fixes.python import finite_instead, written_infinities

        is_of_exponentials = _ALL_MASKED in (finding.rule, *finding.matched)
        sites = written_infinities(finding) if finding.birth == "invalid" and is_of_exponentials else []
        source = None if not sites else self._source(finding.model_copy(update={"site": sites[0]}), known=False)
        edited = None if source is None else finite_instead(source.text, sites, finding.element.dtype)
        if source is None or edited is None or self._trials.is_over():
            return ()
        return (self._stated_fix(finding, source, _FINITE, edited, _FINITE_WHY),)

    def _omission_fixes(self, finding: Finding, source: ProgramText) -> tuple[Fix, ...]:
        """The edit that leaves out the rows of a table that came in bad, where the program then goes on."""
        from whynan.run.proof.omissions import without_bad_rows

        # NaN that comes in is a birth, and Inf that does the cause of one
        comes_in = finding.birth == "entered" or finding.data is not None
        if not comes_in or finding.site is None or self._trials.is_over():
            return ()
        visits = self._trials.visits(source, finding.site.line)
        found = None if isinstance(visits, str) else without_bad_rows(source.text, visits)
        made = () if found is None else (self._omission_fix(finding, source, found),)
        if any(fix.verdict.status in APPLICABLE for fix in made):
            return made
        return (*made, *self._sample_fixes(finding))

    def _batch_fixes(self, finding: Finding, source: ProgramText) -> tuple[Fix, ...]:
        """The edit with which a loop leaves out a batch without targets for a loss that a library computes."""
        from whynan.run.proof.ignored_batches import without_ignored_batch

        if finding.rule != "WN602" or finding.library_site is None:
            return ()
        for found in without_ignored_batch(source.text, source.path, finding):
            if self._trials.is_over():
                break
            fix = self._omission_fix(finding, source, found)
            if fix.verdict.status in APPLICABLE:
                return (fix,)
        return ()

    def _uncast_fixes(self, finding: Finding, source: ProgramText) -> tuple[Fix, ...]:
        """The edit with which what autocast has no room for, as a layer, is in float32."""
        from whynan.fixes.python import call_outside_autocast

        made = call_outside_autocast(source.text, finding) if self._uses_autocast() else None
        if made is None or self._trials.is_over():
            return ()
        why = f"what autocast cast to {finding.element.dtype} is float32 there; run with it, the program is finite"
        return (self._stated_fix(finding, source, *made, why, makes_up=False),)

    def _sample_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edit that leaves out the samples of a loader's dataset that came in bad, where the program goes on."""
        from whynan.run.proof.omissions import without_bad_samples
        from whynan.verify.in_place.loaded_samples import LoaderCalls

        if finding.data is None or finding.data.kind != "batch" or self._trials.is_over():
            return ()
        # of the second only the loaders are asked: with other random numbers it may end elsewhere
        calls, others = (LoaderCalls(finding.data.name, seed) for seed in (0, 1))
        heard = self._trials.again.hear(calls)
        self._trials.again.hear(others)
        for loaded in () if isinstance(heard, str) else calls.alike(others):
            source = self._source(finding.model_copy(update={"site": loaded.site}), known=False)
            found = None if source is None else without_bad_samples(source.text, loaded, self._user_texts().values())
            if source is not None and found is not None:
                fix = self._omission_fix(finding, source, found)
                if fix.verdict.status in APPLICABLE:
                    return (fix,)
        return ()

    def _omission_fix(self, finding: Finding, source: ProgramText, found: Omission) -> Fix:
        return self._stated_fix(finding, source, found.title, found.edited, found.lost)

    def _stated_fix(
        self, finding: Finding, source: ProgramText, title: str, edited: str, why: str, *, makes_up: bool = True
    ) -> Fix:
        """An edit that is tried in the program alone, and guarded with what is stated of it."""
        from whynan.fixes.python import patch
        from whynan.source.positions import file_of_site

        outcome = self._trials.outcome(finding, source, edited, makes_up=makes_up)
        verdict = tried_verdict(FixVerdict(status="guarded", why=why), outcome)
        change = patch(file_of_site(source.path), source.text, edited)
        return Fix(title=title, kind="source", patch=change, verdict=verdict)

    def _training_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The changes of how the program trains, up to the first with which it does so without failing."""
        from whynan.fixes.python import patch
        from whynan.run.proof.training_fixes import changes_of
        from whynan.source import sha256_of
        from whynan.source.positions import file_of_site

        made: list[Fix] = []
        for change, verdict in changes_of(finding, self._user_texts(), self._course):
            digest = sha256_of(change.path)
            if digest is not None and self._hashes.setdefault(change.path, digest) == digest:
                diff = patch(file_of_site(change.path), change.before, change.edited)
                made.append(Fix(title=change.title, kind="source", patch=diff, verdict=verdict))
            if self._trials.is_over() or verdict.status in APPLICABLE:
                break
        return tuple(made)

    def _argument_fixes(self, finding: Finding, source: ProgramText) -> tuple[Fix, ...]:
        """The edits of what the object at fault was constructed with, or called with; or why there is none."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import patch
        from whynan.run.proof.arguments import operand_proposals, proposals
        from whynan.source import sha256_of
        from whynan.source.positions import file_of_site

        made: dict[str, Fix] = {}
        try:
            operands = operand_proposals(finding, source.path, source.text, self._trials.again.hear)
            for one in itertools.chain(proposals(finding, self._user_texts(), self._trials.again.hear), operands):
                if isinstance(one, Declined):
                    made.setdefault(one.why, Fix(title=one.title, kind="source", patch=None, verdict=_declined(one)))
                    continue
                edit, verdict, digest = one.edit, one.verdict, sha256_of(one.edit.path)
                if digest is not None and self._hashes.setdefault(edit.path, digest) == digest:
                    if verdict.status in (*APPLICABLE, "distorting"):
                        edited = ProgramText(os.path.abspath(edit.path), edit.before)
                        outcome = self._trials.outcome(finding, edited, edit.edited, makes_up=True, live=one.live)
                        verdict = tried_verdict(verdict, outcome)
                    change = patch(file_of_site(edit.path), edit.before, edit.edited)
                    made[change] = Fix(title=edit.title, kind="source", patch=change, verdict=verdict)
                if self._trials.is_over():
                    break
        except Exception:
            self._trials.fail()
        return tuple(made.values())

    def _user_texts(self) -> dict[str, str]:
        """The user's files that the program has loaded, by their paths."""
        return user_texts(self._report, self._hashes)

    def _whole_in_float32(self, finding: Finding) -> tuple[Fix, ...]:
        """The file in float32 that asks for float16, where all of it is finite then."""
        from whynan.fixes.python import in_float32, patch
        from whynan.run.proof.training_fixes import TWICE
        from whynan.source import sha256_of

        if finding.element.dtype != "float16" or finding.phase == "optimizer":
            return ()
        changes = (in_float32(path, text) for path, text in self._user_texts().items())
        for change in (change for change in changes if change is not None):
            digest = sha256_of(change.path)
            if self._trials.is_over() or digest is None or self._hashes.get(change.path, digest) != digest:
                continue
            edited = ProgramText(os.path.abspath(change.path), change.before)
            outcome = self._trials.outcome(finding, edited, change.edited, makes_up=False)
            if isinstance(outcome, str) or not outcome.holds:
                continue
            self._hashes[change.path] = digest
            verdict = FixVerdict(status="guarded", why=f"{TWICE}; run with it, the program is finite")
            diff = patch(change.path, change.before, change.edited)
            return (Fix(title=change.title, kind="source", patch=diff, verdict=tried_verdict(verdict, outcome)),)
        return ()

    def _in_bfloat16(self, finding: Finding, *, alone: bool) -> tuple[Fix, ...]:
        """The other half format, where the program asks for float16: tried, and proved of no number.

        Where it cannot be tried it is said if it stands ``alone``.
        """
        from whynan.fixes.python import in_format

        found: list[Fix] = []
        for path, text in self._user_texts().items() if finding.element.dtype == "float16" else ():
            edited = None if self._trials.is_over() else in_format(text, "bfloat16", "bfloat16")
            if edited is None:
                continue
            trial = self._trials.trial(ProgramText(os.path.abspath(path), text), edited)
            ran = trial.report if isinstance(trial, EditedRun) else trial
            if isinstance(ran, str):
                why = f"not tried: {ran}"
            else:
                family = self._trials.family_of(finding)
                outcome = outcome_of(ran, self._report, finding, text, edited, family=family)
                is_behind = outcome.next is not None and outcome.next.element.dtype == "float16"
                why = _BEHIND if is_behind else outcome.rejected or outcome.remains or _IN_BFLOAT16
            if why != _IN_BFLOAT16:
                why = _course_text(self._course(path, text, edited)) or why
            if alone or not why.startswith("not tried: "):
                title = f"bfloat16, which has the range of float32, wherever {os.path.basename(path)} asks for float16"
                reason = reason_of(ran) if isinstance(ran, str) else None
                verdict = FixVerdict(status="unverified", why=why, reason=reason)
                found.append(Fix(title=title, kind="setting", patch=None, verdict=verdict))
        return tuple(found)

    def _in_float32(self, finding: Finding, source: ProgramText, *, alone: bool) -> list[Candidate]:
        """The smallest edits that compute in float32 what a half format has no room for, and hold where it failed.

        Where nothing can be proved there is one, if it stands ``alone``.
        """
        from whynan.fixes.python import HALVES, float32_candidates, nothing_known, outside_autocast

        if finding.element.dtype not in HALVES or finding.site is None:
            return []
        births = [f.site for f in (*self._report.findings, *finding.also) if f.site is not None]
        births = [site for site in births if site.file == finding.site.file]
        visits = self._trials.visits(source, finding.site.line)
        if isinstance(visits, str):
            made = float32_candidates(source.text, finding, births, nothing_known)
            return [source.holds(one) for one in made if alone and not one.widens][:1]
        made = (source.holds(one) for one in float32_candidates(source.text, finding, births, values_at(visits)))
        silent = finding.fate == "damaging"
        found: list[Candidate] = []
        for one in itertools.islice((one for one in made if cures(one, visits, silent=silent)), _MOST_JUDGED):
            if self._trials.judged(finding, source, one).verdict.status == "verified":
                apart = outside_autocast(source.text, finding, one)
                return [one, apart] if apart is not None and self._uses_autocast() else [one]
            found.append(one)
        return found[:1]

    def _uses_autocast(self) -> bool:
        """Whether a file of the program speaks of autocast."""
        return any("autocast" in line for path in self._hashes for line in linecache.getlines(path))

    def _source(self, finding: Finding, *, known: bool = True) -> ProgramText | None:
        """The file of a finding's expression, if it is what ran; ``known``: it is one that the report has met."""
        from whynan.source import sha256_of

        site = finding.site
        digest = None if site is None else sha256_of(site.file)
        if site is None or digest is None or (known and site.file not in self._hashes):
            return None
        if self._hashes.setdefault(site.file, digest) != digest:
            return None
        text = file_text(site.file)
        return None if text is None else ProgramText(os.path.abspath(site.file), text)


def user_texts(report: Report, known: Collection[str] = ()) -> dict[str, str]:
    """The user's files that the program of a report has loaded, and those ``known`` beside, by their paths."""
    from whynan.replay.live_objects import own_modules
    from whynan.source.ownership import Owner, owner_of
    from whynan.source.positions import file_of_site

    files = [str(names.get("__file__")) for names in own_modules()]
    files.append(os.path.abspath(report.run.command))
    loaded = [file_of_site(f) for f in files if f.endswith(".py") and owner_of(f) is Owner.USER]
    own = (path for path in known if not path.startswith("<"))
    texts = {path: file_text(path) for path in dict.fromkeys((*own, *loaded))}
    return {path: text for path, text in texts.items() if text is not None}


_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_hooked(path: str, moved: MovedActivation) -> bool:
    """Whether a hook may be given the logits, or not be called where a sequence of modules is taken apart."""
    from torch import nn

    from whynan.replay.checkpoint import stack
    from whynan.replay.live_objects import objects_of

    files = [path, *(other for other, _, _ in moved.others)]
    files += [str(nn.modules.container.__file__), str(nn.modules.activation.__file__)]
    modules = objects_of((nn.Module,), [frame.f_locals for frame in stack(libraries=True)])
    hooked: list[Any] = [type(one) for one in modules if any(one.__dict__.get(name) for name in _HOOKS)]
    codes = [getattr(getattr(kind, "forward", None), "__code__", None) for kind in hooked]
    homes = {code.co_filename for code in codes if code is not None}
    return any(is_same_file(home, file) for home in homes for file in files)


_MOST_FILES: Final = 2000


def _is_imported_elsewhere(name: str | None, path: str, known: Collection[str]) -> bool:
    """Whether a file beside the program's own, which it has not loaded, may have a name of another file's."""
    if name is None:
        return False
    stem = os.path.splitext(os.path.basename(path))[0]
    module = os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem
    imports = re.compile(rf"^\s*(?:from|import)\b.*\b{re.escape(module)}\b", re.MULTILINE)
    paths = {os.path.realpath(path) for path in known}
    folders = {os.path.dirname(path) for path in paths}
    files = (entry.path for folder in folders for entry in os.scandir(folder) if entry.name.endswith(".py"))
    others = (path for path in itertools.islice(files, _MOST_FILES) if os.path.realpath(path) not in paths)
    texts = (file_text(path) or "" for path in others)
    return any(name in text and imports.search(text) for text in texts)


def _best_first(fixes: Iterable[Fix]) -> list[Fix]:
    """Fixes with those that are edits ahead, by their verdicts."""
    return sorted(fixes, key=lambda fix: (fix.patch is None, STATUSES.index(fix.verdict.status)))


def _alike(finding: Finding) -> object:
    """What is the same of findings that have the same fixes."""
    return finding.rule, finding.site, finding.phase


def _made_by(finding: Finding, site: Site | None) -> Finding:
    """A finding of what came in that names the expression which has made it."""
    from whynan.rules.wording import data_text

    if site is None or finding.data is None or finding.data.computed is not None:
        return finding
    data = finding.data.model_copy(update={"computed": site})
    message = finding.message.replace(data_text(finding.data), data_text(data), 1)
    chain = tuple(_made_at(site, link) for link in finding.chain)
    return finding.model_copy(update={"data": data, "message": message, "chain": chain})


def _made_at(site: Site, link: ChainLink) -> ChainLink:
    """What came in, where NumPy has made it; any other link as it is."""
    said = link.typed_summary
    if link.role != "cause" or said.kind != "holds":
        return link
    return ChainLink(
        role="cause",
        op=None,
        phase=link.phase,
        site=site,
        typed_summary=Note.create("made_by_numpy", bad=said.values["bad"]),
    )


def _birth_numbers(finding: Finding) -> tuple[object, ...]:
    """What is the same of two births of the same numbers, wherever in the source they are."""
    element = finding.element
    operands = tuple((one.name, str(one.value)) for one in element.operands)
    return finding.op, finding.phase, element.index, element.count, element.total, str(element.value), operands


def _fix_of(proof: RankedCandidate, source: ProgramText) -> Fix:
    """A proved candidate as a fix, with a diff of all files that it changes."""
    from whynan.fixes.python import patch
    from whynan.source.positions import file_of_site

    made = proof.candidate
    files = [(source.path, source.before, made.edited), *source.others]
    diff = "".join(patch(file_of_site(path), before, after) for path, before, after in files)
    return Fix(title=made.title, kind="source", patch=diff, verdict=proof.verdict, further=proof.further)


def _course_text(course: Course | str) -> str | None:
    """What a training from its start is like with another format; None where it was not finite, or came not as far."""
    if isinstance(course, str) or course.bad is not None or len(course.losses) < course.wanted:
        return None
    made = count_text(len(course.losses), "step")
    ran = f"run with it from its start, the program makes {made} where it failed at step {course.wanted:,}"
    return f"{ran}: all are finite; each of its numbers has 8 bits in place of 11"


def _declined(one: Declined) -> FixVerdict:
    return FixVerdict(status="unverified", why=one.why)
