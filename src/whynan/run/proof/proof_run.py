"""Proof run: a program once more from its beginning, in which its fixes are proved, each by a further run of its own.

``whole_program`` starts it, and reads what it leaves in a folder.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.errors import UsageError
from whynan.records import Note
from whynan.records.neighbourhood import Neighbourhood
from whynan.report.json import parse_report, to_json
from whynan.report.redaction import redacted
from whynan.run.output import capsules
from whynan.run.output.files import write_text
from whynan.run.proof.further_run import FurtherRun, StepRun, WholeRun
from whynan.run.proof.proving import ProofOptions, prove_fixes, with_surroundings
from whynan.run.proof.whole_program import (
    ASKED,
    CAPSULE,
    NAMES,
    PROVED,
    SEED,
    further_environment,
    further_run,
    hide_hash_seed,
    key_of,
    likeness_of,
    run_child,
)
from whynan.run.region import Region
from whynan.run.runner import attach, isolation_here, wait_for_threads
from whynan.run.script import without_own_frames
from whynan.source.text import file_text
from whynan.verify.in_place.instrument import Loaded, every_function, instrument_function
from whynan.verify.in_place.swap import edits_of, is_same_file
from whynan.verify.in_place.visits import ProcessRecorders

if TYPE_CHECKING:
    import ast

    from whynan.records import Finding, Fix, Report
    from whynan.run.isolation import Isolation
    from whynan.run.proof.arguments import Heard, Listener
    from whynan.run.proof.further_run import End
    from whynan.run.proof.reruns import Mended
    from whynan.run.region import Region
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.swap import SwappedTexts
    from whynan.verify.in_place.visits import Visits

SAME: Final = Note.create("births_identical")
NO_TRIAL: Final = "it takes a run of the whole program to see this step again, and none was made for the fix"
_EAGER: Final = Note.create("births_identical_eagerly")
_AS_WRITTEN: Final = "; tried without torch.compile"
_ELSEWHERE: Final = "what it was there is not known: the run again was made to tell of other functions"
_UNHEARD: Final = "the run again was not made to tell of it"
_TOO_LONG: Final = "run with it, the program took more than the {:,.0f} seconds that were left for proofs"
_NO_TIME: Final = "the time for proofs was over"
_REPORT: Final = "report.json"
_ENDED: Final = "ended.json"
_NEVER: Final = 1 << 62
_leave: Final = os._exit


class ProofRun(WholeRun):
    """The run again of the program as it is; what mends its findings is tried in further runs of it."""

    def __init__(self, folder: str, asked: dict[str, Any], isolation: Isolation) -> None:
        super().__init__(folder, asked, isolation)
        self._until = monotonic() + float(self.asked["seconds"])
        self.heard: dict[str, ProcessRecorders] = {}
        for path, lines in self.asked["places"].items():
            text = file_text(path)
            with suppress(SyntaxError):
                # where a compiled function's expressions stand, the first run does not know
                wanted = every_function(text or "") if self.asked["eager"] else lines
                self.heard |= {} if text is None else {path: ProcessRecorders(path, text, wanted)}
        self.end_of_it: End = "end"
        self.why = ""
        self._tried = 0
        self._objects: tuple[Listener, ...] = ()
        self._hearing = ExitStack()

    def source_overrides(self) -> Loaded:
        """The syntax of the files that findings were born in, with the calls that tell of their names."""
        trees: dict[str, ast.Module] = {path: heard.tree for path, heard in self.heard.items()}
        return Loaded(trees)

    def start_capture(self) -> None:
        """Look at everything from here on, and record the names."""
        from whynan.run.proof.arguments import calls_of, objects_of

        self.keeper = capsules.keeper_for(self.options)
        super().start_capture()
        for heard in self.heard.values():
            heard.begin()
        # it cannot be had later
        codes = [key[0] for _, _, key, _ in self.asked["findings"]]
        self._objects = (*objects_of(codes), *calls_of(codes))
        for objects in self._objects:
            self._hearing.enter_context(objects.heard())

    def write_findings(self, region: Region, end: End, why: str) -> None:
        """Leave the fixes of what was found in the first run, too; or why nothing of this run is used."""
        self.end_of_it, self.why = end, why
        self._hearing.close()
        report = with_surroundings(region.report, region.trace)
        same = self._same(report)
        if not same:
            self._leave({"why": _stored(self._difference(report))})
            return
        visits: dict[Any, Visits] = {}
        report = prove_fixes(
            report,
            self,
            ProofOptions(self.options.proof_seconds, None if self.keeper is None else visits.__setitem__),
        )
        self._leave_proved(report, same, visits)

    def _same(self, report: Report) -> dict[tuple[str, int], tuple[str, int]]:
        """Where the findings of the first run are, and where they are here."""
        here = [(name, i, f) for name in NAMES for i, f in enumerate(getattr(report, name))]
        found: dict[tuple[str, int], tuple[str, int]] = {}
        for name, index, key, likeness in self.asked["findings"]:
            match = next(((n, i) for n, i, f in here if self._is_same(f, key, likeness)), None)
            if match is not None:
                found[name, index] = match
        return found

    def _is_same(self, finding: Finding, key: list[Any], likeness: list[Any]) -> bool:
        if not self.asked["eager"]:
            return key_of(finding) == key
        # what was compiled stands elsewhere as it is written
        return any(one == other for one, other in zip(likeness_of(finding), likeness, strict=True))

    def _difference(self, report: Report) -> Note:
        if self.end_of_it == "raised":
            return Note.create("run_again", why=Note.create("raised", exception=self.why))
        if report.findings or report.damaging:
            return Note.create("run_again", why=Note.create("bore_others"))
        if self.asked["eager"]:
            return Note.create("run_again_eagerly")
        return Note.create("run_again", why=Note.create("bore_nothing"))

    def _leave_proved(
        self, report: Report, same: dict[tuple[str, int], tuple[str, int]], visits: dict[Any, Visits]
    ) -> None:
        if self.keeper is not None:
            within = replace(self.options, capsule=os.path.join(self.folder, CAPSULE))
            capsules.pack_finding(report, self.keeper, within, visits)
        if self.options.redact:
            report = redacted(report)
        found = {at: getattr(report, name)[index] for at, (name, index) in same.items()}
        told = [[name, index, self._document_of(finding)] for (name, index), finding in found.items()]
        why = _EAGER if self.asked["eager"] else SAME
        self._leave({"why": _stored(why), "findings": told, "notes": self._notes(report)})

    def _document_of(self, finding: Finding) -> dict[str, Any]:
        if not self.asked["eager"]:
            return {"fixes": finding.model_dump(mode="json", by_alias=True)["fixes"]}
        fixes = tuple(_as_written(fix) for fix in finding.fixes)
        return finding.model_copy(update={"fixes": fixes}).model_dump(mode="json", by_alias=True)

    def _notes(self, report: Report) -> list[Any]:
        return [_stored(note) for note in report.coverage.notes_of("proof_ended")]

    def _leave(self, document: dict[str, Any]) -> None:
        write_text(os.path.join(self.folder, PROVED), json.dumps(document))

    # -- the program once more, for a fix --

    def visits(
        self, path: str, text: str, line: int, edited: SwappedTexts | None = None, mends: Mended = ()
    ) -> Visits | str:
        """The visits of the function at a line of a file whose text that is; or why there are none."""
        del mends
        if edited is not None:
            return _ELSEWHERE
        try:
            function = instrument_function(text, line).function
        except UsageError as error:
            return error.what
        for known, heard in self.heard.items():
            for recorder in heard.recorders if is_same_file(known, path) else ():
                visits = recorder.visits
                if recorder.function == function and any(visit.line <= line for visit in visits.visits):
                    return visits
        return _ELSEWHERE

    def hear(self, objects: Heard) -> Heard | str:
        """What has heard of the objects that this run uses; or why nothing has."""
        return next((cast("Heard", one) for one in self._objects if type(one) is type(objects)), _UNHEARD)

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> Report | str:
        """The report of a run with another text of a file, which makes its objects; or why there is none."""
        del before, mends
        texts = {path: after, **{other: text for other, _, text in edits_of(live)}}
        try:
            compile(after, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"the edited text is no Python ({error.msg})"
        left = self._until - monotonic()
        if left <= 0:
            return _NO_TIME
        self._tried += 1
        folder = os.path.join(self.folder, f"trial-{self._tried}")
        os.mkdir(folder, 0o700)
        if not self._run(folder, texts, left):
            return _TOO_LONG.format(left)
        found = read_trial(folder)
        return found if isinstance(found, str) else self._judged(*found)

    def course(self, path: str = "", before: str = "", after: str = "") -> str:
        """Why the steps of a training are not looked at."""
        del path, before, after
        return "a training is not looked at step by step in a further run"

    def _judged(self, report: Report, end: End, why: str) -> Report | str:
        """A run's report, if it went as far as this one did."""
        if end == "raised" and (self.end_of_it != "raised" or _type(why) != _type(self.why)):
            return f"run with it, the program raised {why}"
        if end == "end" and self.end_of_it in ("door", "step"):
            return "run with it, the program ended before it came as far as without it"
        return report

    def _run(self, folder: str, texts: dict[str, str], seconds: float) -> bool:
        asked = {
            "kind": "trial",
            "program": self.asked["program"],
            "options": self.asked["options"],
            "texts": texts,
            "door": self.doors if self.end_of_it == "door" else None,
            "eager": self.asked["eager"],
            "random": self.asked["random"],
        }
        write_text(os.path.join(folder, ASKED), json.dumps(asked))
        environment = further_environment(self.beginning.environment, folder)
        return run_child(further_run(folder), environment, cwd=self.beginning.folder, seconds=seconds) is None


class TrialRun(WholeRun):
    """The run of a program with another text of some of its files."""

    def source_overrides(self) -> Loaded:
        """The edited texts."""
        return Loaded(self.asked["texts"])

    def passed(self) -> None:
        """At a door; it ends at that at which the run without the edit ended."""
        if self.doors == self.asked["door"]:
            self.over("door")

    def write_findings(self, region: Region, end: End, why: str) -> None:
        """Leave its report, with what the rules read of its surroundings."""
        report = with_surroundings(region.report, region.trace)
        around = {
            name: [None if f.around is None else f.around.model_dump(mode="json") for f in getattr(report, name)]
            for name in NAMES
        }
        write_text(os.path.join(self.folder, _REPORT), to_json(report))
        write_text(os.path.join(self.folder, _ENDED), json.dumps({"end": end, "why": why, "around": around}))


def read_trial(folder: str) -> tuple[Report, End, str] | str:
    """What a trial has left: its report, and how it ended; or why there is none."""
    if not os.path.exists(os.path.join(folder, _ENDED)):
        return "run with it, the program was cut short"
    report = parse_report(Path(folder, _REPORT).read_bytes())
    ended = _document(os.path.join(folder, _ENDED))
    for name in NAMES:
        parts = cast("list[Any]", ended["around"][name])
        known = [None if part is None else Neighbourhood.model_validate(part) for part in parts]
        changed = (f.model_copy(update={"around": a}) for f, a in zip(getattr(report, name), known, strict=True))
        report = report.model_copy(update={name: tuple(changed)})
    return report, ended["end"], ended["why"]


def _as_written(fix: Fix) -> Fix:
    """A fix that also says that it was tried without the compiler."""
    if fix.verdict.status == "unverified":
        return fix
    return fix.model_copy(update={"verdict": fix.verdict.model_copy(update={"why": fix.verdict.why + _AS_WRITTEN})})


def _stored(note: Note) -> dict[str, Any]:
    return note.model_dump(mode="json")


def _type(raised: str) -> str:
    return raised.partition(":")[0]


def _document(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


_KINDS: Final[dict[str, type[FurtherRun]]] = {"step": StepRun, "proof": ProofRun, "trial": TrialRun}


def main(folder: str) -> None:
    """Run a program as a folder says."""
    if SEED in os.environ:
        hide_hash_seed()
    asked = _document(os.path.join(folder, ASKED))
    isolation = isolation_here()
    run = _KINDS[asked["kind"]](folder, asked, isolation)
    loaded = run.source_overrides()
    loaded.install()
    run.beginning.program.enter()
    isolation.begin()
    attach(run)
    error: BaseException | None = None
    try:
        run.beginning.program.execute(loaded.code_of)
        wait_for_threads()
    except SystemExit:
        wait_for_threads()
    except BaseException as raised:
        error = without_own_frames(raised)
    # while Python is still whole: its exit handlers are not run
    run.end(error)


if __name__ == "__main__":
    main(sys.argv[1])
