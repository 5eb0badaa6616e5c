"""The fixes of a report's findings, each with its verdict: candidates are judged, and the best tried in the program."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from whynan.analysis import cause_groups
from whynan.config import PROOF_SECONDS
from whynan.errors import WhynanError
from whynan.faults import report_internal_error
from whynan.ops.table import TORCH
from whynan.records import APPLICABLE, STATUSES, Fix, FixVerdict, Note
from whynan.records.report import Further, Source
from whynan.report.notes import sentence
from whynan.rules import intents as intents_
from whynan.rules.catalogue import rules
from whynan.run.output.capsules import capsule_finding
from whynan.run.pipeline import source_reader
from whynan.run.proof.local_proof import alike, cures, judge_candidate, saturating, values_at
from whynan.run.proof.outcomes import EditOutcome, birth_of, is_in_edit, outcome_of, so_far
from whynan.source.text import file_text
from whynan.traces.format import FAILED
from whynan.verify.in_place.swap import SwappedTexts, is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.fixes.candidates import Candidate, Declined, Formula
    from whynan.fixes.python import MovedActivation
    from whynan.records import Finding, Report, Site
    from whynan.records.intents import FixIntent, FixKind
    from whynan.records.neighbourhood import Neighbourhood
    from whynan.run.proof.arguments import Heard
    from whynan.run.proof.omissions import Omission
    from whynan.traces import Trace
    from whynan.training.course import Course
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.visits import Visits

    Keep = Callable[[Site, Visits], None]
    Progress = Callable[[int, int], None]

RERUN: Final = "whynan run --rerun runs it again to prove fixes"


class RunOnce(str):
    """Why nothing was proved, where a further run of the whole program would prove it."""

    __slots__ = ()


RUN_ONCE: Final = RunOnce(f"the program was run once: {RERUN}")

INTERRUPTED: Final = "not tried (interrupted)"

_MOST_TRIED: Final = 2
"""So many candidates of one finding are tried in the program."""
_MOST_EDITS: Final = 3
_MOST_JUDGED: Final = 4
"""So many edits that compute in float32 are judged."""
_STRICTNESS: Final[tuple[FixKind, ...]] = ("reformulation", "guard", "epsilon", "setting")
_BROKEN_OFF: Final = Note.create("proof_interrupted")
_NOT_TRIED: Final = "not tried in the program: others did better on the captured operands"
_SETTING: Final = "it is no edit of an expression, and was not tried"
_IN_BFLOAT16: Final = "run with it, the program is finite to its end; each of its numbers has 8 bits in place of 11"
_BEHIND: Final = "not tried: what is run again begins behind where it asks for float16"


class Rerunner(Protocol):
    """A way to run once more what a report is of; all is put back after it, and nothing that fails in it is raised."""

    def visits(self, path: str, text: str, line: int, edited: SwappedTexts | None = None) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none.

        ``edited``: what runs in place of what the program has loaded, where the text is that of an edited file.
        """
        ...

    def hear(self, objects: Heard) -> Heard | str:
        """What hears of the objects that the run uses, once it has; or why it has not."""
        ...

    def trial(self, path: str, before: str, after: str, live: Meanwhile | None = None) -> Report | EditedRun | str:
        """The report of a run with another text of a file, and argument of live objects; or why there is none."""
        ...

    def course(self, path: str = "", before: str = "", after: str = "") -> Course | str:
        """The steps of a training from its start, with another text of a file; or why it cannot be run from there."""
        ...


@dataclass(frozen=True, slots=True)
class EditedRun:
    """The report of a run with an edit, and what is known of it beside its numbers that are bad."""

    report: Report
    moved: str | None = None
    """That a number which was finite in the first run is another one."""
    further: int | None = None
    """How many more steps it made, where the program's own guard kept it from the first."""
    bad: str | None = None
    """What became bad after the step that the report is of."""


@dataclass(frozen=True, slots=True)
class NoRerun:
    """No way to run it again, and why."""

    why: str

    def visits(self, *_: object, **__: object) -> str:
        """Why there is none; of a hearing, a trial and a course as well."""
        return self.why

    hear = trial = course = visits


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of the program, whose text is what ran, or what a moved activation makes of that."""

    path: str
    text: str
    moved: MovedActivation | None = None
    loaded: str | None = None
    """What the program has loaded, of a text that is edited further."""

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


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate and what is known of it so far; ``further`` are the births that it mends beside its finding."""

    candidate: Candidate
    verdict: FixVerdict
    further: tuple[Further, ...] = ()
    leaves: bool = False
    """Whether the program, run with it, is bad still, from another hazard."""

    @property
    def rank(self) -> tuple[float, ...]:
        """The best first: by the verdict, what leaves nothing bad, what computes the same, what moves few elements."""
        verdict, kind = self.verdict, _STRICTNESS.index(self.candidate.kind)
        moved = float(verdict.max_rel or 0.0) if verdict.status == "distorting" else 0.0
        return STATUSES.index(verdict.status), self.leaves, kind, float(verdict.healthy_worse or 0), moved


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
        seconds: of processor time that those of one report are sought for; what has begun then comes to its end.
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
        self._options = options
        self._again = again
        self._course = functools.cache(again.course)
        self._deadline = 0.0
        self._ended = False
        self._failed = False
        self._known: dict[object, tuple[Fix, ...]] = {}
        self._visited: dict[tuple[str, str, int], Visits | str] = {}
        self._verdicts: dict[tuple[Formula, Formula, str, frozenset[str]], FixVerdict] = {}
        self._trials: dict[tuple[str, str], Report | EditedRun | str] = {}
        self._numpy_sites: tuple[Site, ...] | None = None
        self._makers: dict[object, Site] = {}
        """The expressions of NumPy's that have made what came in, by what findings with the same fixes share."""
        self._same_cause: dict[int, frozenset[object]] = {}
        self._hashes = {source.file: source.sha256 for source in report.run.sources}

    def report(self) -> Report:
        """The report with the fixes of its findings."""
        if self._options.keep is not None:
            self._keep_visits(self._options.keep)
        groups = cause_groups((*self._report.findings, *self._report.damaging), source_reader(self._report))
        self._same_cause = {id(f.element): frozenset(map(birth_of, group)) for group in groups for f in group}
        self._deadline = time.process_time() + self._options.seconds
        changed: dict[str, object] = {
            name: tuple(self._with_fixes(finding) for finding in getattr(self._report, name))
            for name in ("findings", "damaging")
        }
        said = [*([self._out_of_time] if self._ended else []), *([_BROKEN_OFF] if self._is_interrupted() else [])]
        if said:
            changed["coverage"] = self._report.coverage.with_notes(*said)
        sources = tuple(Source(file=file, sha256=digest) for file, digest in self._hashes.items())
        changed["run"] = self._report.run.model_copy(update={"sources": sources})
        return self._report.model_copy(update=changed)

    def _keep_visits(self, keep: Keep) -> None:
        """Hand over what a fix of the user's own is judged on later; there it needs none of ours beside it."""
        finding = capsule_finding(self._report)
        source = None if finding is None else self._source(finding)
        if finding is None or finding.site is None or source is None:
            return
        visits = self._visits(source, finding.site.line)
        if not isinstance(visits, str):
            keep(finding.site, visits)

    def fail(self) -> None:
        """Called while an exception of whynan's own is being handled: one warning for the whole proof."""
        if not self._failed:
            self._failed = True
            report_internal_error()

    def _with_fixes(self, finding: Finding) -> Finding:
        if finding.allowed is not None or finding.fate == "absorbed":
            return finding
        key = _alike(finding)
        if key not in self._known:
            try:
                self._known[key] = self._fixes(finding)
            except (KeyboardInterrupt, SystemExit):
                # by a handler of the program's own, too
                self._again = NoRerun(INTERRUPTED)
                self._course = functools.cache(self._again.course)
                self._visited, self._trials, self._verdicts = {}, {}, {}
                self._known[key] = self._fixes(finding)
        return _made_by(finding.model_copy(update={"fixes": self._known[key]}), self._makers.get(key))

    def _is_interrupted(self) -> bool:
        """Whether the user waits no longer."""
        return isinstance(self._again, NoRerun) and self._again.why == INTERRUPTED

    @property
    def _out_of_time(self) -> Note:
        return Note.create("proof_ended", seconds=self._options.seconds)

    def _is_over(self) -> bool:
        self._ended = self._ended or time.process_time() > self._deadline
        return self._ended

    def _fixes(self, finding: Finding) -> tuple[Fix, ...]:
        intents = _intents(finding)
        settings = tuple(
            Fix(title=i.title, kind="setting", patch=None, verdict=FixVerdict(status="unverified", why=_SETTING))
            for i in intents
            if i.kind == "setting"
        )
        source = self._source(finding)
        if source is None or self._is_over():
            return settings
        arguments = self._argument_fixes(finding, source)
        made = self._edit_fixes(finding, source, intents)
        if not any(fix.verdict.status == "verified" for fix in (*arguments, *made)):
            made = (*self._moved_fixes(finding, source, intents), *made)
        further: tuple[Callable[[], tuple[Fix, ...]], ...] = (
            lambda: self._less_specific_fixes(finding, source, intents),
            lambda: self._numpy_fixes(finding),
            lambda: self._omission_fixes(finding, source),
            lambda: self._training_fixes(finding),
            lambda: self._whole_in_float32(finding, source),
        )
        for fixes in further:
            if not any(fix.verdict.status in APPLICABLE for fix in (*arguments, *made)):
                known = {fix.patch for fix in made if fix.patch}
                made = (*made, *(fix for fix in fixes() if fix.patch not in known))
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
            settings = (*self._in_bfloat16(finding, source, alone=not made), *settings)
        ranked = sorted((*arguments, *made), key=lambda fix: (fix.patch is None, STATUSES.index(fix.verdict.status)))
        return (*ranked, *settings)

    def _less_specific_fixes(self, finding: Finding, source: _Source, tried: Sequence[FixIntent]) -> tuple[Fix, ...]:
        """What holds of what a rule tries last, where that is the limit there, and of what the others that match do."""
        last, others = intents_.tried_last(tried), [r for code in finding.matched for r in rules() if r.code == code]
        made = self._edit_fixes(finding, source, last) if last else ()
        limits = tuple(fix for fix in made if fix.verdict.status == "verified")
        wanted = [
            i for rule in others for i in _of_dtype(rule.fixes, finding) if i not in tried and i.kind != "setting"
        ]
        if limits or not wanted:
            return limits
        return tuple(fix for fix in self._edit_fixes(finding, source, wanted) if fix.verdict.status in APPLICABLE)

    def _edit_fixes(self, finding: Finding, source: _Source, intents: Sequence[FixIntent]) -> tuple[Fix, ...]:
        """The edits of the expression at a finding's site."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import candidates

        found = candidates(source.text, finding, [intent for intent in intents if intent.kind != "setting"])
        edits = [_in(source, c) for c in found if not isinstance(c, Declined)]
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

    def _moved_fixes(self, finding: Finding, source: _Source, intents: Sequence[FixIntent]) -> tuple[Fix, ...]:
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
                self._is_over()
                or _is_hooked(source.path, moved)
                or any(digest != self._hashes.get(path, digest) for path, digest in digests.items())
            ):
                break
            there, at = _Source(source.path, moved.text, moved), moved.relocated(finding)
            found = candidates(there.text, at, [intent for intent in intents if intent.kind != "setting"])
            edits = [
                replace(one, path=source.path, title=f"{one.title}, of logits that {moved.title} gives")
                for one in found
                if isinstance(one, Candidate) and one.kind == "reformulation"
            ]
            for proof in self._proofs(at, there, edits if edits and self._is_same_run(finding, there) else []):
                if proof.verdict.status != "verified":
                    continue
                # what tells that a call is of nothing else is needed to make it anew
                digests |= {path: sha256_of(path) for path in others}
                self._hashes |= {path: digest for path, digest in digests.items() if digest is not None}
                shorter = moved.without_unread(proof.candidate.edited)
                outcome = self._outcome(at, there, shorter, makes_up=False)
                if isinstance(outcome, EditOutcome) and outcome.rejected is None and outcome.remains is None:
                    proof = replace(proof, candidate=replace(proof.candidate, edited=shorter))
                return (_fix_of(proof, there),)
        return ()

    def _is_same_run(self, finding: Finding, source: _Source) -> bool:
        """Whether a finding is born alike where a text that is to compute the same runs in place of what is loaded."""
        trial = self._trial(source, source.text)
        report = trial.report if isinstance(trial, EditedRun) else trial
        found = () if isinstance(report, str) else (*report.findings, *report.damaging)
        return any(_birth_numbers(other) == _birth_numbers(finding) for other in found)

    def _proved_edits(self, finding: Finding, source: _Source, edits: Sequence[Candidate]) -> tuple[Fix, ...]:
        return tuple(_fix_of(proof, source) for proof in self._proofs(finding, source, edits))

    def _numpy_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edits of the program's NumPy expressions, of what came in bad from there; up to the first that holds."""
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates
        from whynan.verify.in_place.numpy_births import NumpyBirths

        if self._numpy_sites is None:
            uses_numpy = any("numpy" in text for text in self._user_texts().values())
            heard = self._again.hear(NumpyBirths()) if uses_numpy else ""
            self._numpy_sites = () if isinstance(heard, str) else heard.sites
        made: list[Fix] = []
        for site in self._numpy_sites:
            at = finding.model_copy(update={"site": site, "around": None, "chain": ()})
            source = self._source(at, known=False)
            if source is not None and not self._is_over():
                found = candidates(source.text, at, intents_.NUMPY, library="numpy")
                made += self._proved_edits(at, source, [_in(source, c) for c in found if isinstance(c, Candidate)])
            if any(fix.verdict.status in APPLICABLE for fix in made):
                # without what it made nothing bad comes in
                self._makers[_alike(finding)] = site
                break
        return tuple(made)

    def _omission_fixes(self, finding: Finding, source: _Source) -> tuple[Fix, ...]:
        """The edit that leaves out the rows of a table that came in bad, where the program then goes on."""
        from whynan.run.proof.omissions import without_bad_rows

        # NaN that comes in is a birth, and Inf that does the cause of one
        comes_in = finding.birth == "entered" or finding.data is not None
        if not comes_in or finding.site is None or self._is_over():
            return ()
        visits = self._visits(source, finding.site.line)
        found = None if isinstance(visits, str) else without_bad_rows(source.text, visits)
        made = () if found is None else (self._omission_fix(finding, source, found),)
        if any(fix.verdict.status in APPLICABLE for fix in made):
            return made
        return (*made, *self._sample_fixes(finding))

    def _sample_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The edit that leaves out the samples of a loader's dataset that came in bad, where the program goes on."""
        from whynan.run.proof.omissions import without_bad_samples
        from whynan.verify.in_place.loaded_samples import LoaderCalls

        if finding.data is None or finding.data.kind != "batch" or self._is_over():
            return ()
        # of the second only the loaders are asked: with other random numbers it may end elsewhere
        calls, others = (LoaderCalls(finding.data.name, seed) for seed in (0, 1))
        heard = self._again.hear(calls)
        self._again.hear(others)
        for loaded in () if isinstance(heard, str) else calls.alike(others):
            source = self._source(finding.model_copy(update={"site": loaded.site}), known=False)
            found = None if source is None else without_bad_samples(source.text, loaded, self._user_texts().values())
            if source is not None and found is not None:
                fix = self._omission_fix(finding, source, found)
                if fix.verdict.status in APPLICABLE:
                    return (fix,)
        return ()

    def _omission_fix(self, finding: Finding, source: _Source, found: Omission) -> Fix:
        from whynan.fixes.python import patch
        from whynan.source.positions import file_of_site

        outcome = self._outcome(finding, source, found.edited, makes_up=True)
        verdict = _tried(FixVerdict(status="guarded", why=found.lost), outcome)
        change = patch(file_of_site(source.path), source.text, found.edited)
        return Fix(title=found.title, kind="source", patch=change, verdict=verdict)

    def _training_fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """The changes of how the program trains, up to the first with which it does so without failing."""
        from whynan.fixes.python import patch
        from whynan.run.proof.training_fixes import changes_of
        from whynan.source import sha256_of

        made: list[Fix] = []
        for change, verdict in changes_of(finding, self._user_texts(), self._course):
            digest = sha256_of(change.path)
            if digest is not None and self._hashes.setdefault(change.path, digest) == digest:
                diff = patch(change.path, change.before, change.edited)
                made.append(Fix(title=change.title, kind="source", patch=diff, verdict=verdict))
            if self._is_over() or verdict.status in APPLICABLE:
                break
        return tuple(made)

    def _argument_fixes(self, finding: Finding, source: _Source) -> tuple[Fix, ...]:
        """The edits of what the object at fault was constructed with, or called with; or why there is none."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import patch
        from whynan.run.proof.arguments import operand_proposals, proposals
        from whynan.source import sha256_of

        made: dict[str, Fix] = {}
        try:
            operands = operand_proposals(finding, source.path, source.text, self._again.hear)
            for one in itertools.chain(proposals(finding, self._user_texts(), self._again.hear), operands):
                if isinstance(one, Declined):
                    made.setdefault(one.why, Fix(title=one.title, kind="source", patch=None, verdict=_declined(one)))
                    continue
                edit, verdict, digest = one.edit, one.verdict, sha256_of(one.edit.path)
                if digest is not None and self._hashes.setdefault(edit.path, digest) == digest:
                    if verdict.status in (*APPLICABLE, "distorting"):
                        edited = _Source(os.path.abspath(edit.path), edit.before)
                        outcome = self._outcome(finding, edited, edit.edited, makes_up=True, live=one.live)
                        verdict = _tried(verdict, outcome)
                    change = patch(edit.path, edit.before, edit.edited)
                    made[change] = Fix(title=edit.title, kind="source", patch=change, verdict=verdict)
                if self._is_over():
                    break
        except Exception:
            self.fail()
        return tuple(made.values())

    def _user_texts(self) -> dict[str, str]:
        """The user's files that the program has loaded, by their paths."""
        from whynan.replay.open_files import own_modules
        from whynan.source.ownership import Owner, owner_of
        from whynan.source.positions import file_of_site

        files = [str(names.get("__file__")) for names in own_modules()]
        loaded = [file_of_site(f) for f in files if f.endswith(".py") and owner_of(f) is Owner.USER]
        own = (path for path in self._hashes if not path.startswith("<"))
        texts = {path: file_text(path) for path in dict.fromkeys((*own, *loaded))}
        return {path: text for path, text in texts.items() if text is not None}

    def _whole_in_float32(self, finding: Finding, source: _Source) -> tuple[Fix, ...]:
        """The file in float32 that asks for float16, where all of it is finite then."""
        from whynan.fixes.python import in_float32, patch
        from whynan.run.proof.training_fixes import TWICE
        from whynan.source.positions import file_of_site

        change = None
        if finding.element.dtype == "float16" and finding.phase != "optimizer" and not self._is_over():
            change = in_float32(source.path, source.text)
        if change is None:
            return ()
        outcome = self._outcome(finding, source, change.edited, makes_up=False)
        if isinstance(outcome, str) or outcome.rejected is not None or outcome.remains is not None:
            return ()
        verdict = _tried(FixVerdict(status="guarded", why=f"{TWICE}; run with it, the program is finite"), outcome)
        diff = patch(file_of_site(source.path), source.text, change.edited)
        return (Fix(title=change.title, kind="source", patch=diff, verdict=verdict),)

    def _in_bfloat16(self, finding: Finding, source: _Source, *, alone: bool) -> tuple[Fix, ...]:
        """The other half format, where the program asks for float16: tried, and proved of no number.

        Where it cannot be tried it is said if it stands ``alone``.
        """
        from whynan.fixes.python import in_format

        is_half = finding.element.dtype == "float16"
        edited = in_format(source.text, "bfloat16", "bfloat16") if is_half and not self._is_over() else None
        if edited is None:
            return ()
        trial = self._trial(source, edited)
        if isinstance(trial, str):
            if not alone:
                return ()
            why = f"not tried: {trial}"
        else:
            ran = trial.report if isinstance(trial, EditedRun) else trial
            family = self._same_cause.get(id(finding.element), frozenset[object]())
            outcome = outcome_of(ran, self._report, finding, source.text, edited, family=family)
            is_behind = outcome.next is not None and outcome.next.element.dtype == "float16"
            why = _BEHIND if is_behind else outcome.rejected or outcome.remains or _IN_BFLOAT16
        verdict = FixVerdict(status="unverified", why=why, reason=_reason(trial) if isinstance(trial, str) else None)
        title = f"bfloat16, which has the range of float32, wherever {os.path.basename(source.path)} asks for float16"
        return (Fix(title=title, kind="setting", patch=None, verdict=verdict),)

    def _in_float32(self, finding: Finding, source: _Source, *, alone: bool) -> list[Candidate]:
        """The smallest edits that compute in float32 what a half format has no room for, and hold where it failed.

        Where nothing can be proved there is one, if it stands ``alone``.
        """
        from whynan.fixes.python import HALVES, float32_candidates, nothing_known, outside_autocast

        if finding.element.dtype not in HALVES or finding.site is None:
            return []
        births = [f.site for f in (*self._report.findings, *finding.also) if f.site is not None]
        births = [site for site in births if site.file == finding.site.file]
        visits = self._visits(source, finding.site.line)
        if isinstance(visits, str):
            made = float32_candidates(source.text, finding, births, nothing_known)
            return [_in(source, one) for one in made if alone and not one.widens][:1]
        made = (_in(source, one) for one in float32_candidates(source.text, finding, births, values_at(visits)))
        silent = finding.fate == "damaging"
        found: list[Candidate] = []
        for one in itertools.islice((one for one in made if cures(one, visits, silent=silent)), _MOST_JUDGED):
            if self._judged(finding, source, one).verdict.status == "verified":
                apart = outside_autocast(source.text, finding, one)
                return [one, apart] if apart is not None and self._uses_autocast() else [one]
            found.append(one)
        return found[:1]

    def _uses_autocast(self) -> bool:
        """Whether a file of the program speaks of autocast."""
        return any("autocast" in line for path in self._hashes for line in linecache.getlines(path))

    def _source(self, finding: Finding, *, known: bool = True) -> _Source | None:
        """The file of a finding's expression, if it is what ran; ``known``: it is one that the report has met."""
        from whynan.source import sha256_of

        site = finding.site
        digest = None if site is None else sha256_of(site.file)
        if site is None or digest is None or (known and site.file not in self._hashes):
            return None
        if self._hashes.setdefault(site.file, digest) != digest:
            return None
        text = file_text(site.file)
        return None if text is None else _Source(os.path.abspath(site.file), text)

    def _proofs(self, finding: Finding, source: _Source, found: Sequence[Candidate]) -> list[RankedCandidate]:
        """The candidates with their verdicts, the best first."""
        judged_: list[RankedCandidate] = []
        for number, candidate in enumerate(found, 1):
            if self._options.progress is not None:
                self._options.progress(number, len(found))
            judged_.append(self._judged(finding, source, candidate))
        tried_: list[RankedCandidate] = []
        for number, one in enumerate(sorted(judged_, key=lambda j: j.rank)):
            # what does not cure the captured operands may still do so with another edit
            may_cure = one.verdict.status != "rejected" or one.verdict.forward_finite is False
            may_cure = may_cure or one.verdict.backward_finite is False
            if one.verdict.status == "unverified" or not may_cure:
                tried_.append(one)
            elif number >= _MOST_TRIED and any(t.verdict.status in APPLICABLE and not t.leaves for t in tried_):
                tried_.append(_unverified(one, _NOT_TRIED))
            elif self._is_over():
                tried_.append(_unverified(one, sentence(self._out_of_time)))
            else:
                tried_.append(self._in_place(finding, source, one))
        return sorted(tried_, key=lambda j: j.rank)

    def _judged(self, finding: Finding, source: _Source, candidate: Candidate) -> RankedCandidate:
        unknown = FixVerdict(status="unverified", why=sentence(self._out_of_time))
        if self._is_over():
            return RankedCandidate(candidate, unknown)
        visits = self._visits(source, candidate.original.line)
        if isinstance(visits, str):
            return RankedCandidate(
                candidate, unknown.model_copy(update={"why": str(visits), "reason": _reason(visits)})
            )
        rounded = saturating(finding)
        key = candidate.original, candidate.repaired, candidate.kind, rounded
        try:
            if key not in self._verdicts:
                self._verdicts[key] = judge_candidate(candidate, visits, rounded=rounded)
            return RankedCandidate(candidate, self._verdicts[key])
        except WhynanError as error:
            return RankedCandidate(candidate, unknown.model_copy(update={"why": str(error)}))
        except Exception:
            self.fail()
            return RankedCandidate(candidate, unknown.model_copy(update={"why": sentence(FAILED)}))

    def _visits(self, source: _Source, line: int) -> Visits | str:
        """The visits of the function at a line; the program is not run again for another line of the same one."""
        key = source.path, source.text, line
        for (*file, _), known in self._visited.items():
            is_of_it = file == [source.path, source.text] and not isinstance(known, str)
            if is_of_it and not isinstance(known, str) and any(v.line == line for v in known.visits):
                return known
        if key not in self._visited:
            self._visited[key] = self._again.visits(source.path, source.text, line, source.edited)
        return self._visited[key]

    def _trial(self, source: _Source, edited: str, live: Meanwhile | None = None) -> Report | EditedRun | str:
        key = source.path, edited
        if key not in self._trials:
            live = live if not source.others else SwappedTexts(source.others)
            trial = self._again.trial(source.path, source.before, edited, live)
            # what was not looked at to its end proves nothing
            looked_at = trial.report if isinstance(trial, EditedRun) else trial
            unseen = not isinstance(looked_at, str) and bool(looked_at.coverage.notes_of(FAILED.kind))
            self._trials[key] = sentence(FAILED) if unseen else trial
        return self._trials[key]

    def _in_place(self, finding: Finding, source: _Source, one: RankedCandidate, edits: int = 1) -> RankedCandidate:
        """A candidate after the program has run with it, and with what mends the births that it leaves."""
        from whynan.verify.in_place.numpy_births import NumpyBirths

        candidate = one.candidate
        births = NumpyBirths() if candidate.library == "numpy" else None
        makes_up = candidate.kind != "reformulation"
        # of what is exact wherever it was bad, the loss that was finite may have been the wrong one
        exact = one.verdict.status == "verified" and not makes_up and source.moved is None
        outcome = self._outcome(finding, source, candidate.edited, makes_up=makes_up, live=births, exact=exact)
        if isinstance(outcome, str):
            return replace(one, verdict=_tried(one.verdict, outcome))
        if outcome.next is not None and births is not None:
            following = (finding.model_copy(update={"site": site}) for site in births.sites)
            outcome = replace(outcome, next=next(following, None))
        left = outcome.next or self._absorbed_birth(finding, source, one)
        texts = source.before, candidate.edited
        if left is not None and finding.step not in (None, left.step) and is_in_edit(finding, texts, left):
            # not hidden by what the edit mends: what the training has made of its weights by then
            left = None
        if left is not None and edits < _MOST_EDITS and not self._is_over():
            for further in self._add_further_edits(finding, source, one, left):
                mended = self._in_place(finding, source, further, edits + 1)
                if mended.verdict.status in (*APPLICABLE, "distorting"):
                    return mended
        return replace(one, verdict=_tried(one.verdict, outcome), leaves=outcome.remains is not None)

    def _absorbed_birth(self, finding: Finding, source: _Source, one: RankedCandidate) -> Finding | None:
        """What keeps a derivative bad that the program itself leaves out behind the function that is edited."""
        if one.verdict.backward_finite is not False or one.candidate.library == "numpy":
            return None
        trial = self._trial(source, one.candidate.edited)
        ran = trial.report if isinstance(trial, EditedRun) else trial
        before = {birth_of(f) for f in self._report.absorbed}
        born = () if isinstance(ran, str) else (f for f in ran.absorbed if birth_of(f) not in before)
        place = finding.site and (finding.site.file, finding.site.function)
        here = (f for f in born if f.phase == "backward" and f.site and (f.site.file, f.site.function) == place)
        return next((f.model_copy(update={"fate": "escaped"}) for f in here), None)

    def _outcome(
        self,
        finding: Finding,
        source: _Source,
        edited: str,
        *,
        makes_up: bool,
        live: Meanwhile | None = None,
        exact: bool = False,
    ) -> EditOutcome | str:
        """What the program does with an edit; or why it was not tried."""
        trial = self._trial(source, edited, live)
        if isinstance(trial, str):
            return trial
        ran = trial if isinstance(trial, EditedRun) else EditedRun(trial)
        if ran.moved is not None and finding.fate == "escaped" and not self._report.damaging and not exact:
            return EditOutcome(rejected=ran.moved)
        family = self._same_cause.get(id(finding.element), frozenset())
        is_here = finding.site is not None and is_same_file(finding.site.file, source.path)
        texts = (source.before, edited) if is_here else ("", "")
        outcome = outcome_of(ran.report, self._report, finding, *texts, makes_up=makes_up, family=family)
        return outcome.after(ran.bad, ran.further)

    def _add_further_edits(
        self, finding: Finding, source: _Source, one: RankedCandidate, left: Finding
    ) -> list[RankedCandidate]:
        """What also mends a birth that a first edit leaves, judged as one edit."""
        from whynan.fixes.candidates import Declined
        from whynan.fixes.python import candidates

        first, further = one.candidate, _further_of(left)
        if finding.site is None or further is None or not is_same_file(further.site.file, source.path):
            return []
        wanted = intents_.NUMPY if first.library == "numpy" else _intents(left)
        visits = self._visits(source, finding.site.line)
        if isinstance(visits, str):
            return []
        found: list[RankedCandidate] = []
        for second in candidates(first.edited, left, wanted, library=first.library):
            if any(known.verdict.status == "verified" for known in found):
                break
            if isinstance(second, Declined):
                continue
            title = first.title if first.title == second.title else f"{first.title}; {second.title}"
            kind: FixKind = max((first.kind, second.kind), key=_STRICTNESS.index)
            apart = self._judge_separately(source, second, left)
            if apart is None and one.verdict.status in APPLICABLE:
                # what came there was bad before the first edit, or came there in no step
                there = replace(source, text=first.edited, loaded=source.before)
                apart = self._judged(left, there, _in(there, second)).verdict
            if apart is not None and apart.status in APPLICABLE:
                whole = replace(first, title=title, kind=kind, edited=second.edited)
                worst = max((one.verdict, apart), key=lambda verdict: RankedCandidate(whole, verdict).rank)
                given = (*one.verdict.stand_ins, *apart.stand_ins) if worst.status == "guarded" else ()
                found.append(RankedCandidate(whole, worst.model_copy(update={"stand_ins": given})))
                continue
            pair = alike(source.text, second.edited, source.path, finding.site.line, visits)
            if not isinstance(pair, Declined):
                whole = replace(second, title=title, kind=kind, path=source.path, original=pair[0], repaired=pair[1])
                found.append(self._judged(finding, source, whole))
        kept = [j for j in found if j.verdict.status in (*APPLICABLE, "distorting")]
        return [replace(j, further=(*one.further, further)) for j in sorted(kept, key=lambda j: j.rank)[:1]]

    def _judge_separately(self, source: _Source, second: Candidate, left: Finding) -> FixVerdict | None:
        """The verdict of a second edit by itself, where it mends what the first run had too, at another place."""
        from whynan.fixes.candidates import Candidate
        from whynan.fixes.python import candidates

        first_run = (*self._report.findings, *self._report.damaging)
        known = next((finding for finding in first_run if birth_of(finding) == birth_of(left)), None)
        if known is None:
            return None
        known = source.located(known)
        made = candidates(source.text, known, [i for i in _intents(known) if i.title == second.title])
        bodies = second.original.body, second.repaired.body
        for alone in (_in(source, c) for c in made if isinstance(c, Candidate)):
            if (alone.original.body, alone.repaired.body) == bodies:
                return self._judged(known, source, alone).verdict
        return None


_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_hooked(path: str, moved: MovedActivation) -> bool:
    """Whether a hook may be given the logits, or not be called where a sequence of modules is taken apart."""
    from torch import nn

    from whynan.replay.checkpoint import stack
    from whynan.replay.open_files import objects_of

    files = [path, *(other for other, _, _ in moved.others)]
    files += [str(nn.modules.container.__file__), str(nn.modules.activation.__file__)]
    modules = objects_of((nn.Module,), [frame.f_locals for frame in stack(libraries=True)])
    hooked: list[Any] = [type(one) for one in modules if any(one.__dict__.get(name) for name in _HOOKS)]
    codes = [getattr(getattr(kind, "forward", None), "__code__", None) for kind in hooked]
    homes = {code.co_filename for code in codes if code is not None}
    return any(is_same_file(home, file) for home in homes for file in files)


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
    return finding.model_copy(update={"data": data, "message": message})


def _birth_numbers(finding: Finding) -> tuple[object, ...]:
    """What is the same of two births of the same numbers, wherever in the source they are."""
    element = finding.element
    operands = tuple((one.name, str(one.value)) for one in element.operands)
    return finding.op, finding.phase, element.index, element.count, element.total, str(element.value), operands


def _fix_of(proof: RankedCandidate, source: _Source) -> Fix:
    """A proved candidate as a fix, with a diff of all files that it changes."""
    from whynan.fixes.python import patch
    from whynan.source.positions import file_of_site

    made = proof.candidate
    files = [*source.others, (source.path, source.before, made.edited)]
    diff = "".join(patch(file_of_site(path), before, after) for path, before, after in files)
    return Fix(title=made.title, kind="source", patch=diff, verdict=proof.verdict, further=proof.further)


def _intents(finding: Finding) -> tuple[FixIntent, ...]:
    return _of_dtype(next((rule.fixes for rule in rules() if rule.code == finding.rule), ()), finding)


def _of_dtype(intents: Sequence[FixIntent], finding: Finding) -> tuple[FixIntent, ...]:
    return tuple(intent for intent in intents if not intent.dtypes or finding.element.dtype in intent.dtypes)


def _in(source: _Source, candidate: Candidate) -> Candidate:
    return replace(candidate, path=source.path)


def _unverified(one: RankedCandidate, why: str) -> RankedCandidate:
    return replace(one, verdict=one.verdict.as_status("unverified", why))


def _tried(verdict: FixVerdict, outcome: EditOutcome | str) -> FixVerdict:
    """A verdict with what the program did with the edit."""
    if isinstance(outcome, EditOutcome):
        return outcome.apply_to(verdict)
    why = so_far(verdict, f"it was not tried in the program: {outcome}")
    return verdict.as_status("unverified", why, _reason(outcome))


def _declined(one: Declined) -> FixVerdict:
    return FixVerdict(status="unverified", why=one.why)


def _reason(why: str) -> Literal["run_once"] | None:
    return "run_once" if isinstance(why, RunOnce) else None


def _further_of(left: Finding) -> Further | None:
    if left.site is None:
        return None
    return Further(
        rule=left.rule, birth=left.birth, phase=left.phase, op=left.op, forward_op=left.forward_op, site=left.site
    )
