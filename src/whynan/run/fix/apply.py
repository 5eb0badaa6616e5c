"""A fix of a report made anew: from the rule and the place, on the file as it was; never from the report's text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from whynan.errors import UsageError
from whynan.fixes import python as source
from whynan.fixes.candidates import Declined
from whynan.fixes.diffs import Diff, DiffError, apply_diff, merge, read_diff, read_diffs
from whynan.records import APPLICABLE, Finding, Fix, Member, Report
from whynan.records.intents import FixIntent
from whynan.records.report import Further
from whynan.report.fixes.proposals import Offer, best, offers
from whynan.report.redaction import is_redacted
from whynan.rules import intents
from whynan.rules.arguments import arguments_of, operands_of
from whynan.rules.catalogue import rules
from whynan.run.fix.file import RUN_AGAIN, Editable, open_editable, replace_files
from whynan.run.proof.ignored_batches import ignored_texts
from whynan.run.proof.masked_products import masked_texts
from whynan.run.proof.omissions import row_texts, sample_texts

_MARK: Final = "\ufeff"
"""Stands at the beginning of a file of the encoding ``utf-8-sig``, and is no part of its text."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside one file and one finding: the texts of the files of a fix, and the findings of the run."""

    texts: Mapping[str, str]
    findings: tuple[Finding, ...] = ()


_MOST_TEXTS: Final = 64
"""So many are gone on with where none of them has only lines of the change, as where it edits one line twice."""
_NOTHING_KNOWN: Final = Known({})


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file that a fix changes, and its text afterwards."""

    file: Editable
    text: str

    @property
    def shown(self) -> str:
        """What is changed, as a unified diff to be looked at."""
        return source.patch(self.file.path, self.file.text, self.text)

    @property
    def patch(self) -> bytes:
        """What is changed, as ``git apply`` takes it: in the encoding of the file."""
        mark, encoding = (_MARK, "utf-8") if self.file.encoding == "utf-8-sig" else ("", self.file.encoding)
        return source.patch(self.file.path, mark + self.file.text, mark + self.text).encode(encoding)


@dataclass(frozen=True, slots=True)
class Edit:
    """A fix that can be made: the files that it changes, and their texts afterwards."""

    offer: Offer
    files: tuple[FileEdit, ...]

    @property
    def paths(self) -> str:
        """The files, in words."""
        return " and ".join(one.file.path for one in self.files)

    @property
    def patch(self) -> bytes:
        """What is changed, as ``git apply`` takes it."""
        return b"".join(one.patch for one in self.files)

    def check_writable(self) -> None:
        """Raise ``UsageError`` where a file or its folder is read-only."""
        for one in self.files:
            one.file.check_writable()

    def make(self, check: Callable[[], None] | None = None) -> tuple[str, ...]:
        """Edit the files, all or none; gives the paths of the backups. Raises ``UsageError``, with nothing changed.

        `check` is called right before the first file changes; with what it raises nothing changes.
        """
        return replace_files([(one.file, one.text) for one in self.files], check)


def choose_fix(report: Report, number: int | None, kind: str) -> Offer:
    """The fix of a kind, ``source`` or ``graph``, that a user asks for; by default the best that is verified.

    Raises ``UsageError`` where there is none, or not of this kind, or where it is rejected.
    """
    told = offers(report)
    if not told:
        raise UsageError(why_none(report), "there is nothing to apply")
    if number is None:
        made = best(told, kind)
        if made is None:
            raise UsageError(f"the report has no verified fix of {_KINDS[kind]}", "--choose N takes another one")
        return made
    if not 1 <= number <= len(told):
        legal = f"1 to {len(told)}" if len(told) > 1 else "1"
        raise UsageError(f"there is no fix {number}", f"the numbers are {legal}; whynan fix without options lists them")
    offer = told[number - 1]
    if offer.fix.kind != kind:
        raise UsageError(f"fix {number} is {_ARTICLES[offer.fix.kind]}", _HINTS[offer.fix.kind])
    if offer.fix.verdict.status == "rejected":
        why = f" ({offer.fix.verdict.why})" if offer.fix.verdict.why else ""
        raise UsageError(f"fix {number} is rejected{why}", "choose another one, or have your own judged with --try")
    if offer.fix.patch is None and not is_redacted(report):
        why = f" ({offer.fix.verdict.why})" if offer.fix.verdict.why else ""
        raise UsageError(f"fix {number} could not be written{why}", "change it by hand")
    return offer


def choose_proved(report: Report, number: int | None) -> Offer:
    """The fix of the source that a user asks for, as ``choose_fix``; raises ``UsageError`` too where none is proved."""
    told = offers(report)
    if number is None and told and best(told, "source") is None:
        raise UsageError("the report has no verified fix of the source", "a pull request says what is proved")
    offer = choose_fix(report, number, "source")
    if offer.fix.verdict.status not in APPLICABLE:
        what = f"fix {offer.number} is {offer.fix.verdict.status}, and a pull request says what is proved"
        raise UsageError(what, "choose one that is verified or guarded")
    if offer.fix.patch is None:
        raise UsageError("this report was made with --redact, and holds no change", "take that of the run without it")
    return offer


_KINDS: Final = {"source": "the source", "graph": "the model"}
_ARTICLES: Final = {"source": "a change of the source", "graph": "a change of the model", "setting": "a setting"}
_HINTS: Final = {
    "source": "--apply or --patch FILE makes it",
    "graph": "--output FILE.onnx writes a model with it",
    "setting": "change it by hand",
}


def why_none(report: Report) -> str:
    """Why a report has no fixes."""
    harmful = (*report.findings, *report.damaging)
    if not harmful and report.absorbed_count:
        return "no fixes: all bad numbers were absorbed, and what does no harm is not mended"
    if not harmful:
        return f"no fixes: the run is {report.verdict}, and has no finding"
    known = {rule.code: rule.fixes for rule in rules()}
    mended = [finding.rule for finding in harmful if known.get(finding.rule)]
    if not mended:
        codes = ", ".join(dict.fromkeys(finding.rule for finding in harmful))
        return f"no fixes: none is known for {codes}, and whynan rules CODE says what can be done"
    return f"no fixes: none was tried or could be written for {', '.join(dict.fromkeys(mended))}"


def made_anew(report: Report, offer: Offer) -> Edit | None:
    """The edit that a fix of the source is, made from its rule and place; None where it is in the files already.

    Raises ``UsageError`` where a file cannot be had as it was in the run, or what is made is not what was proved.
    """
    if is_redacted(report):
        raise UsageError("this report was made with --redact, and names no file", "take that of the run without it")
    paths = edited_files(report, offer)
    known = Known(_texts_of(report), (*report.findings, *report.damaging))
    made = {path: _made_in(report, offer, path, known) for path in paths}
    missing = [path for path, edit in made.items() if edit is None]
    if len(missing) == len(made):
        return None
    if missing:
        # with half of a change in them the files are none that were proved
        raise UsageError(f"{missing[0]} is not what it was during the run", RUN_AGAIN)
    return Edit(offer, tuple(edit for edit in made.values() if edit is not None))


def _texts_of(report: Report) -> dict[str, str]:
    """The texts of the run's files that may be edited and are what they were."""
    texts: dict[str, str] = {}
    for each in report.run.sources:
        with suppress(UsageError):
            file = open_editable(each.file)
            if file.is_of(each.sha256):
                texts[each.file] = file.text
    return texts


def _made_in(report: Report, offer: Offer, path: str | None, known: Known) -> FileEdit | None:
    """The edit of one file; None where it is in it already."""
    if path is None or path.startswith("<"):
        where = "no place in the source" if path is None else f"{path}, which is no file"
        raise UsageError(f"fix {offer.number} is at {where}", "change it by hand")
    recorded = next((s.sha256 for s in report.run.sources if s.file == path), None)
    if recorded is None:
        raise UsageError(f"the report does not say what {path} was during the run", RUN_AGAIN)
    file = open_editable(path)
    if not file.is_of(recorded):
        if _is_there(file, _diff_of(offer.fix, path), recorded):
            return None
        raise UsageError(f"{file.path} is not what it was during the run", RUN_AGAIN)
    return FileEdit(file, _edited(file, path, offer, known))


def edited_files(report: Report, offer: Offer) -> tuple[str | None, ...]:
    """The files of the run that a fix edits."""
    if len(_diffs(offer.fix)) < 2:
        return (offer.file,)
    return _files_of(offer.fix, [source.file for source in report.run.sources])


def _files_of(fix: Fix, known: Collection[str]) -> tuple[str | None, ...]:
    """Those of some files that a fix names; None for one that is none of them."""
    named = (next((file for file in known if _is_named(diff, file)), None) for diff in _diffs(fix))
    return tuple(dict.fromkeys(named))


def _diffs(fix: Fix) -> list[Diff]:
    """The changes of a fix, file by file; none where its patch is no diff."""
    try:
        return read_diffs((fix.patch or "").replace(_MARK, ""))
    except DiffError:
        return []


def _diff_of(fix: Fix, path: str) -> Diff | None:
    """The change of one file; of a fix that changes one alone it is that, whatever it is called there."""
    found = _diffs(fix)
    return found[0] if len(found) == 1 else next((diff for diff in found if _is_named(diff, path)), None)


def _is_named(diff: Diff, file: str) -> bool:
    return any(name.lstrip("/") == file.lstrip("/") for name in diff.names)


def _is_there(file: Editable, change: Diff | None, recorded: str) -> bool:
    """Whether a file is what a change makes of the file of the run: taken back, it is that one."""
    try:
        return change is not None and file.was_of(apply_diff(change.reversed(), file.text), recorded)
    except DiffError:
        return False


def _edited(file: Editable, path: str, offer: Offer, known: Known) -> str:
    """The text of a file with a fix, made from the rule and the place; it must be the change that the verdict is of."""
    made = regenerate_text(path, file.text, offer.finding, offer.fix, known)
    if isinstance(made, str):
        return made
    why = f" ({made.why})" if made.why else ""
    what = f"fix {offer.number} is not what {offer.finding.rule} makes of {file.path} now{why}"
    raise UsageError(what, "the report was altered, or is of another version of whynan: run the program again")


def regenerate_text(path: str, text: str, finding: Finding, fix: Fix, known: Known = _NOTHING_KNOWN) -> str | Declined:
    """A file's text with a fix of a finding, by all that its rules propose there; or why none of that is the fix."""
    first = _regenerate(path, text, finding, fix, known)
    others = (_member_birth(finding, member) for member in finding.also)
    made = (again for birth in others if isinstance(again := _regenerate(path, text, birth, fix, known), str))
    return next(made, first) if isinstance(first, Declined) else first


def regenerate_texts(finding: Finding, fix: Fix, known: Known) -> dict[str, str] | None:
    """The files that a fix of a finding edits, by their paths, each with its text made anew; None where one is not."""
    made: dict[str, str] = {}
    for path in _files_of(fix, known.texts):
        text = None if path is None else regenerate_text(path, known.texts[path], finding, fix, known)
        if path is None or not isinstance(text, str):
            return None
        made[path] = text
    return made or None


def _regenerate(path: str, text: str, finding: Finding, fix: Fix, known: Known) -> str | Declined:
    proved = _diff_of(fix, path)
    births = [finding, *(_remaining_birth(finding, left) for left in fix.further)]
    if len(_diffs(fix)) > 1:
        births = [birth for birth in births if birth.site is not None and birth.site.file == path]
    wanted = _applied(proved, text)
    texts, declined = _mended_texts(text, births, wanted)
    texts += _merged_texts(text, births, wanted, known.findings)
    texts += _moved_texts(path, finding, births[1:], {**known.texts, path: text}, known.findings)
    texts += [edit.edited for row in arguments_of(finding.rule) for edit in source.argument_edits(path, text, row)]
    given = [source.operand_edit(path, text, finding, row) for row in operands_of(finding.rule)]
    texts += [edit.edited for edit in given if isinstance(edit, source.ArgumentEdit)]
    bounded = source.producer_edit(text, finding)
    texts += [] if bounded is None or isinstance(bounded, Declined) else [bounded.edited]
    texts += source.finite_texts(text, [site for site in source.written_infinities(finding) if site.file == path])
    comes_in = finding.birth == "entered" or finding.data is not None
    entered = (*row_texts(text), *sample_texts(path, text, fix.patch or "")) if comes_in else ()
    masked = masked_texts(text, fix.patch or "") if "torch.where" in (fix.patch or "") else ()
    skipped = ignored_texts(text, fix.patch or "") if finding.rule == "WN602" else ()
    of_numpy = () if proved is None else _numpy_texts(path, text, births[1:], proved)
    trained = (change.edited for change in source.training_changes(path, text))
    for each in itertools.chain(texts, entered, masked, skipped, of_numpy, trained):
        if each != text and proved is not None and read_diff(source.patch(path, text, each)).hunks == proved.hunks:
            return each
    if finding.site is not None and len(_diffs(fix)) == 1:
        cast = source.with_casts(text, fix.patch or "", finding.site)
        if cast is not None:
            return cast
    return Declined(fix.title, declined[0] if declined and not texts else "")


def _moved_texts(
    path: str, finding: Finding, further: Sequence[Finding], texts: Mapping[str, str], findings: Sequence[Finding]
) -> Iterator[str]:
    """A file's text with an activation moved, and in the file of the finding its births mended."""
    home = None if finding.site is None else finding.site.file
    for moved in source.moved_activations(texts, home, finding, findings) if home in texts and home is not None else ():
        yield from (after for other, _, after in moved.others if other == path)
        mended, _ = _mended_texts(moved.text, [moved.relocated(finding), *further]) if path == home else ([], [])
        # without them the program computes the same: that is tried first
        before = (moved.text,) if path == home else ()
        yield from (*before, *(one for each in mended for one in (each, moved.without_unread(each))))


def _mended_texts(text: str, births: Sequence[Finding], wanted: str | None = None) -> tuple[list[str], list[str]]:
    """A text with one birth mended after the other, in each way; and why there are no more."""
    texts, declined = [text], list[str]()
    for birth in births:
        made = [candidate for each in texts for candidate in source.consistent_candidates(each, birth, _intents(birth))]
        texts = [candidate.edited for candidate in made if not isinstance(candidate, Declined)]
        if birth is not births[-1]:
            texts = _on_the_way(texts, text, wanted)
        declined += [candidate.why for candidate in made if isinstance(candidate, Declined)]
    return texts, declined


def _merged_texts(text: str, births: Sequence[Finding], wanted: str | None, known: Sequence[Finding]) -> list[str]:
    """A text with several findings mended, each with the births that it hides and as if it were the only one."""
    heads = {(one.rule, one.site) for each in known for one in (each, *each.also)}
    starts = [0, *(n for n in range(1, len(births)) if (births[n].rule, births[n].site) in heads), len(births)]
    groups = [births[begin:end] for begin, end in itertools.pairwise(starts)]
    if len(groups) < 2:
        return []
    texts = [text]
    for group in groups:
        others = _on_the_way(_mended_texts(text, group, wanted)[0], text, wanted)
        pairs = itertools.product(texts, others)
        texts = [merged for one, other in pairs if (merged := merge(text, one, other)) is not None]
    return texts


def _on_the_way(texts: list[str], before: str, wanted: str | None) -> list[str]:
    """Of texts those that have no line but the ones before and behind a change; where none is so, a few of all."""
    known = {*before.splitlines(), *(wanted or "").splitlines()}
    return [each for each in texts if known.issuperset(each.splitlines())] or texts[:_MOST_TEXTS]


def _applied(change: Diff | None, text: str) -> str | None:
    try:
        return None if change is None else apply_diff(change, text)
    except DiffError:
        return None


def _numpy_texts(path: str, text: str, further: Sequence[Finding], proved: Diff) -> Iterator[str]:
    """What mends NumPy's expressions at the lines that a fix changes, and the births that this left."""
    if "numpy" not in text:
        return
    lines = [hunk.start + number for hunk in proved.hunks for number in range(len(hunk.before))]
    texts = source.numpy_texts(text, path, intents.NUMPY, lines)
    for birth in further:
        made = [c for each in texts for c in source.candidates(each, birth, intents.NUMPY, library="numpy")]
        texts = [candidate.edited for candidate in made if not isinstance(candidate, Declined)]
    yield from texts


def _member_birth(finding: Finding, member: Member) -> Finding:
    """Another birth of the cause of a finding, as a finding."""
    return finding.model_copy(update={"rule": member.rule, "site": member.site, "phase": member.phase, "op": member.op})


def _remaining_birth(finding: Finding, further: Further) -> Finding:
    """The birth that the edits before left, as a finding."""
    return finding.model_copy(update=dict(further))


def _intents(finding: Finding) -> tuple[FixIntent, ...]:
    known = {rule.code: rule.fixes for rule in rules()}
    made = tuple(intent for code in (finding.rule, *finding.matched) for intent in known.get(code, ()))
    return (*made, *intents.tried_last(made))
