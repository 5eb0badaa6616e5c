"""Whole-program proof: the program is run again in a child process, where its user asks for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.ranks import is_one_of_several
from whynan.config import PROOF_SECONDS
from whynan.faults import report_internal_error
from whynan.records import Finding, Fix, Note, Replay
from whynan.report.notes import sentence
from whynan.run.output.capsules import no_capsule
from whynan.run.output.delivery import progress_message, say
from whynan.run.parent import binding
from whynan.run.pipeline import with_note
from whynan.run.script import interpreter_name
from whynan.training.fidelity import StepSignature, place_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from whynan.capture.torch.sinks.gradients import Fault
    from whynan.config import Options
    from whynan.records import Report, Site
    from whynan.run.script import Beginning
    from whynan.run.watch.training import Training
    from whynan.traces.redaction import Pseudonyms
    from whynan.training.guard import Guard


# -- A child process that ends with its parent, is waited for a limited time, and ended where somebody is impatient ----


INTERRUPTED: Final = "it was interrupted"
_ENDING: Final[tuple[Any, ...]] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)


def run_child(command: Sequence[str], environment: Mapping[str, str], *, cwd: str, seconds: float) -> str | None:
    """Run a command out of sight, without anything that this process has open; gives why it was ended, if it was."""
    with _interruptible() as interrupts:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=binding(),
        )
        interrupts.process = process.pid
        try:
            process.wait(0 if interrupts.came else seconds)
        except subprocess.TimeoutExpired:
            return INTERRUPTED if interrupts.came else f"it took more than {seconds:,.0f} seconds"
        finally:
            interrupts.kill()
            process.wait()
    return INTERRUPTED if interrupts.came else None


class _Interrupts:
    """Whether somebody does not want to wait for a process and its workers any more."""

    def __init__(self) -> None:
        self.came = False
        self.process: int | None = None

    def kill(self) -> None:
        """End them."""
        if self.process is not None:
            with suppress(OSError):
                os.killpg(self.process, signal.SIGKILL)


@contextmanager
def _interruptible() -> Generator[_Interrupts]:
    """Have what would end this process end the one that it waits for, so that the report still comes."""
    interrupts = _Interrupts()

    def interrupted(*_: object) -> None:
        interrupts.came = True
        interrupts.kill()

    # what is ignored stays so; only the main thread handles signals
    handles = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in _ENDING if handles and signal.getsignal(s) is not signal.SIG_IGN}
    for one in before:
        signal.signal(one, interrupted)
    try:
        yield interrupts
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# -- Whole-program proof: a program is run again, where its user asks for it, to explain a bad step or to prove fixes
#
# It runs in processes of its own, each of which does all that the program does; this is the side that waits for them.


TIMES: Final = 5.0
"""A step that is traced takes longer than the first run's, and the machine may be busier by now."""
AT_LEAST: Final = 60.0
NAMES: Final = ("findings", "damaging")
ASKED: Final = "asked.json"
STEP: Final = "step.json"
PROVED: Final = "proved.json"
CAPSULE: Final = "capsule"
WHY: Final = "why"
"""The file that says why a further run is not to be used."""
RUN_AGAIN: Final = (
    "--rerun: once the program has ended, it is run again, as it is and with each fix, with all that it does to files "
    "and to the network"
)
_BY_A_SIGNAL: Final = "the program was ended by a signal"
_SPARE: Final = 5.0
"""Seconds in which a run that proves can still tell of what it has proved."""
_REGION: Final = "inductor.compiled_region"
SEED: Final = "_WHYNAN_HASHSEED"
"""The variable that keeps what ``PYTHONHASHSEED`` was for the program."""


_hash_seed: Final[list[str]] = []
"""What this process has, and further ones shall have."""


def prepare(options: Options) -> None:
    """Say what a further run means, and begin anew where Python has drawn the seed of its hashes.

    What is proved by a further run depends on the order of sets, too: it needs a seed that another process can have.
    """
    if SEED not in os.environ:
        if not options.quiet:
            say(RUN_AGAIN)
        given = os.environ.get("PYTHONHASHSEED", "")
        seed = str(int.from_bytes(os.urandom(4), "little") or 1) if given in ("", "random") else given
        environment = {**os.environ, "PYTHONHASHSEED": seed, SEED: given}
        os.execve(sys.executable, sys.orig_argv, environment)
    hide_hash_seed()


def hide_hash_seed() -> None:
    """Give the program the ``PYTHONHASHSEED`` that it would have."""
    _hash_seed.append(os.environ["PYTHONHASHSEED"])
    given = os.environ.pop(SEED)
    if given:
        os.environ["PYTHONHASHSEED"] = given
    else:
        del os.environ["PYTHONHASHSEED"]


class WholeProgramProof:
    """Knows how a program began, so that it can begin so again, and what a further run has to come to."""

    def __init__(self, beginning: Beginning, options: Options) -> None:
        self._beginning = beginning
        self._options = options
        self._random: dict[str, Any] = {}
        self._wanted: dict[str, Any] | None = None
        self.is_private = False
        self.refused: str | None = None

    def begin(self) -> None:
        """Torch is loaded: remember where the random generators are."""
        from whynan.replay.snapshot import rng_document

        self._random = rng_document()

    def hear(self, training: Training) -> None:
        """Be told of the bad step of a program that no replay explains."""
        training.unexplained = lambda fault: self._note(fault, training.guard)

    def _note(self, fault: Fault, guard: Guard) -> None:
        try:
            self.refused = _refused(fault, guard)
            if self.refused is None:
                self._wanted = {"kind": "step", "signature": StepSignature.of_fault(fault, guard).to_document()}
        except Exception:
            report_internal_error()

    def with_refusal_note(self, report: Report) -> Report:
        """A report that also says why the program is not run again, where it is not."""
        if self.refused is not None:
            return with_note(report, Note.create("no_second_run", why=self.refused))
        return (
            with_note(report, Note.create("no_proof_together")) if report.findings and is_one_of_several() else report
        )

    def wants(self, report: Report, looked_at: Report) -> bool:
        """Whether a further run may better a report.

        `looked_at`: the report of what was looked at from the program's beginning on, a part of the other one.
        """
        if self._wanted is None and not is_one_of_several():
            self._wanted = _unproved(report, looked_at)
        if self._wanted is None:
            return False
        self._wanted |= {"seconds": time.monotonic() - self._beginning.time, "random": self._random}
        return True

    @property
    def keeps_findings(self) -> bool:
        """Whether a further run gives the findings their fixes, and leaves them as they are."""
        wanted = self._wanted or {}
        return "findings" in wanted and not wanted["eager"]

    def report(self, first: Report, names: Pseudonyms | None = None, *, interrupted: bool = False) -> Report:
        """The first run's report, or a better one by further runs; `interrupted`: a signal has ended the program."""
        assert self._wanted is not None
        if interrupted:
            return with_note(first, Note.create("no_second_run", why=_BY_A_SIGNAL))
        if self._options.redact:
            from whynan.report.redaction import redacted

            # a further run leaves out what is private by itself
            first, self.is_private = redacted(first, names), True
        with tempfile.TemporaryDirectory(prefix="whynan-") as place:
            made = self._proved(first, place) if "findings" in self._wanted else self._explained(first, place)
            return self._with_capsule(made, os.path.join(place, CAPSULE))

    def _run(self, place: str) -> str | None:
        """Run the program again, in a folder for what it leaves; gives why it was ended, if it was."""
        from whynan.run.output.files import write_text

        assert self._wanted is not None
        more = max(0.0, self._options.proof_seconds - PROOF_SECONDS)
        seconds = TIMES * (self._wanted["seconds"] + more) + AT_LEAST
        run = {"program": self._beginning.program.to_document(), "options": self._options.to_document()}
        document = {**self._wanted, **run, "seconds": seconds - _SPARE}
        write_text(os.path.join(place, ASKED), json.dumps(document))
        # what it makes there goes with the folder
        environment = further_environment(self._beginning.environment, place)
        return run_child(further_run(place), environment, cwd=self._beginning.folder, seconds=seconds)

    def _explained(self, first: Report, place: str) -> Report:
        from whynan.report.json import parse_report

        assert self._wanted is not None
        step = self._wanted["signature"]["step"]
        with progress_message(f"running the program again up to step {step}", quiet=self._options.quiet):
            why = self._run(place)
        found, left = Path(place, STEP), Path(place, WHY)
        if why is None and found.exists():
            return _joined(first, parse_report(found.read_bytes()))
        if why is None:
            why = left.read_text("utf-8") if left.exists() else f"it was cut short before it came to step {step}"
        return with_note(first, Note.create("second_run_not_used", why=None if self._options.redact else why))

    def _proved(self, first: Report, place: str) -> Report:
        assert self._wanted is not None
        # beside a finding that is told already there is a line of progress
        is_quiet = self._options.quiet or self.keeps_findings
        with progress_message("running the program again to prove what would mend it", quiet=is_quiet):
            why = self._run(place)
        found = Path(place, PROVED)
        if why is None and not found.exists():
            why = "it was cut short"
        proved: dict[str, Any] = {} if why else json.loads(found.read_text(encoding="utf-8"))
        if why or (self._options.redact and "findings" not in proved):
            proved["why"] = {"kind": "run_again", "values": {"why": None if self._options.redact else why}}
        return merge_proofs(first, proved, self._wanted)

    def _with_capsule(self, report: Report, made: str) -> Report:
        """A further run's report, once the capsule that it made stands where it was wanted."""
        options = self._options
        if options.capsule is None or not os.path.isdir(made):
            return report
        from whynan.capsule.folder import move

        try:
            move(made, options.capsule)
        except OSError as error:
            why = f"{options.capsule} cannot be written ({error.strerror or error})"
            return no_capsule(report, why)
        run = report.run.model_copy(update={"data": None if options.redact else options.capsule})
        return report.model_copy(update={"run": run})


def further_run(place: str) -> list[str]:
    """The command that runs a program again as a folder says, and leaves there what it finds."""
    return [sys.executable, *interpreter_name()[1:], "-m", "whynan.run.proof.proof_run", place]


def further_environment(environment: Mapping[str, str], place: str) -> dict[str, str]:
    """The environment of a further run, of the one in which the program began; what is temporary goes to a folder."""
    seed = {"PYTHONHASHSEED": _hash_seed[0], SEED: environment.get("PYTHONHASHSEED", "")} if _hash_seed else {}
    return {**environment, **seed, "TMPDIR": place}


def _refused(fault: Fault, guard: Guard) -> str | None:
    if is_one_of_several():
        return "it is one of several processes"
    if fault.lag:
        return "the step was read after it was made"
    if fault.skipped:
        return "a loss scaler skips the step"
    return "its optimizer cannot be told from others" if place_of(fault.optimizer, guard) < 0 else None


def _unproved(report: Report, looked_at: Report) -> dict[str, Any] | None:
    """What a further run has to come to for a proof of what nothing has tried; None where there is nothing."""
    known = [key_of(f) for name in NAMES for f in getattr(looked_at, name) if is_open(f)]
    wanted = [
        (name, i, f)
        for name in NAMES
        for i, f in enumerate(getattr(report, name))
        if is_open(f) and f.site is not None and key_of(f) in known
    ]
    if not wanted:
        return None
    sites: list[Site] = [f.site for _, _, f in wanted if f.site is not None]
    places: dict[str, list[int]] = {}
    for site in sites:
        places.setdefault(os.path.abspath(site.file), []).append(site.line)
    return {
        "kind": "proof",
        "findings": [[name, i, key_of(f), likeness_of(f)] for name, i, f in wanted],
        "places": places,
        "eager": any(is_compiled(f) for _, _, f in wanted),
    }


def _joined(first: Report, second: Report) -> Report:
    """The second run's report, with what only the first could know."""
    known = (*first.coverage.notes_of("spoilt_before"), *first.coverage.notes_of("more_bad_steps"))
    coverage = second.coverage.with_notes(*known)
    if second.verdict == "clean":
        coverage = coverage.with_notes(Note.create("meant_after_all"))
    run = second.run.model_copy(update={"history": first.run.history})
    return second.model_copy(update={"run": run, "coverage": coverage})


def merge_proofs(first: Report, proved: dict[str, Any], wanted: dict[str, Any]) -> Report:
    """The first run's report with the fixes that further runs have proved, or with why they have not."""
    why = Note.model_validate(proved["why"])
    known = {(name, index): told for name, index, told in proved.get("findings", ())}
    changed: dict[str, Any] = {}
    for name in ("findings", "damaging"):
        findings = list(getattr(first, name))
        for wanted_name, index, *_ in wanted["findings"]:
            if wanted_name == name:
                findings[index] = _with_proofs(findings[index], known.get((name, index)), sentence(why))
        changed[name] = tuple(findings)
    replay = Replay(kind="rerun", faithful="findings" in proved, typed_why=why)
    changed["run"] = first.run.model_copy(update={"replay": replay})
    report = first.model_copy(update=changed)
    for note in proved.get("notes", ()):
        report = with_note(report, Note.model_validate(note))
    return report


def _with_proofs(finding: Finding, proved: dict[str, Any] | None, why: str) -> Finding:
    if proved is None:
        fixes = tuple(_without_proof(fix, why) for fix in finding.fixes)
    elif "rule" in proved:
        return Finding.model_validate(proved)
    else:
        fixes = tuple(Fix.model_validate(fix) for fix in proved["fixes"])
    return finding.model_copy(update={"fixes": fixes})


def _without_proof(fix: Fix, why: str) -> Fix:
    if fix.verdict.reason != "run_once":
        return fix
    return fix.model_copy(update={"verdict": fix.verdict.model_copy(update={"why": why, "reason": None})})


def is_open(finding: Finding) -> bool:
    """Whether nothing has tried the fixes of a finding."""
    tried = (fix.verdict.status != "unverified" for fix in finding.fixes if fix.kind == "source")
    return finding.allowed is None and finding.fate != "absorbed" and not any(tried)


def key_of(finding: Finding) -> list[Any]:
    """What has to be the same for a finding to be the same, its numbers included; as a document gives it back."""
    site = None if finding.site is None else finding.site.model_dump(mode="json")
    return [finding.rule, *_birth(finding), site, finding.message]


def likeness_of(finding: Finding) -> list[Any]:
    """What is the same of a finding, one or the other, where a compiled program is run as it is written."""
    reaches = [[r.kind, r.name, r.bad, r.total] for r in finding.reaches]
    return [_birth(finding), [finding.phase, finding.birth, reaches]]


def _birth(finding: Finding) -> list[Any]:
    element = finding.element
    index = None if element.index is None else list(element.index)
    born = [finding.op, finding.phase, finding.birth, index, list(element.shape), element.count, str(element.value)]
    return [*born, element.total]


def is_compiled(finding: Finding) -> bool:
    """Whether a finding was born in what ``torch.compile`` has made, where no expression is known."""
    from whynan.training.replay import compiles

    return compiles() and (finding.op == _REGION or (finding.site is not None and finding.site.column is None))
