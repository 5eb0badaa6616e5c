"""What the program did when it ran with an edit: whether that speaks against it, and what is left of other hazards."""

from __future__ import annotations

import ast
import difflib
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from whynan.floats import format_of, format_value
from whynan.records import APPLICABLE
from whynan.source.text import place_of

if TYPE_CHECKING:
    from whynan.records import Finding, FixVerdict, Report, Site
    from whynan.run.proof.reruns import EditedRun

_ASTRAY: Final = 100.0
"""A training whose losses are so many times as large as before is spoilt, though nothing in it is NaN or Inf."""
_FEWEST: Final = 2
_STANDS_STILL: Final = "with it every gradient of that step and of those after it is 0: the program learns nothing then"


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """What a run with an edit shows: why the edit is rejected, what is left of another hazard, which birth is next.

    ``ends_badly``: what is left is as harmful as what the edit is to mend, and the run is not finite to its end.
    """

    rejected: str | None = None
    remains: str | None = None
    next: Finding | None = None
    ends_badly: bool = False
    went_on: str | None = None
    astray: str | None = None
    stands_still: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing that the run shows speaks against the edit, or is left."""
        return self.rejected is None and self.remains is None and self.astray is None

    def after(self, ran: EditedRun) -> EditOutcome:
        """The same with what became bad, or far larger than before, in the steps after that, or how many there were."""
        if ran.bad is not None:
            remains = ran.bad if self.remains is None else f"{ran.bad}; {self.remains}"
            # what ends badly and has no birth is that
            rejected = None if self.next is None else self.rejected
            return replace(self, rejected=rejected, remains=remains, ends_badly=True)
        still = None if ran.learns or len(ran.later) < _FEWEST else _STANDS_STILL
        found = replace(self, astray=_gone_astray(ran), stands_still=still)
        if ran.further is None or self.remains is not None:
            return found
        more = f" and {ran.further} more" if ran.further else ""
        return replace(found, went_on=f"with it the program makes the step{more}")

    def apply_to(self, verdict: FixVerdict) -> FixVerdict:
        """A verdict with what the program did with the edit: only what is finite to its end is verified."""
        if self.rejected is not None:
            return verdict if verdict.status == "rejected" else verdict.as_status("rejected", self.rejected)
        against = self.remains if self.ends_badly else None if _is_exact(verdict) else self.astray
        if against is not None and verdict.status in (*APPLICABLE, "distorting"):
            return verdict.as_status("unverified", so_far(verdict, against))
        told = (verdict.why, self.remains or self.went_on, self.astray, self.stands_still)
        return verdict.model_copy(update={"why": "; ".join(text for text in told if text is not None)})


def _is_exact(verdict: FixVerdict) -> bool:
    """Whether an edit gives the exact values and gradients: what they do to a training is the formula's own doing."""
    return verdict.status == "verified" and verdict.healthy_elements is not None and not verdict.undecided


def _gone_astray(ran: EditedRun) -> str | None:
    """That the losses after the step are far larger than those before; None where they are not, or are few."""
    earlier = [abs(loss) for loss in ran.earlier if math.isfinite(loss)]
    if not earlier or len(ran.later) < _FEWEST:
        return None
    most, usual = max(earlier), statistics.median(ran.later)
    if not usual > _ASTRAY * most:
        return None
    least, size = (format_value(loss, digits=3) for loss in (most, usual))
    return f"with it the loss, of a magnitude of at most {least} up to that step, is {size} as a rule in those after it"


def so_far(verdict: FixVerdict, against: str) -> str:
    """What speaks against an edit, with what was found of it before, if it was judged on captured operands."""
    is_judged = verdict.forward_finite is not None or verdict.healthy_elements is not None
    return f"it holds on the captured operands, but {against}" if is_judged else against


def outcome_of(
    trial: Report,
    first: Report,
    finding: Finding,
    before: str,
    after: str,
    *,
    makes_up: bool = False,
    family: frozenset[object] = frozenset(),
) -> EditOutcome:
    """What a run with an edited file shows of the finding that the edit is to mend.

    A birth that the first run had too is another hazard, which remains; one that it had not is the edit's doing where
    it stands in an edited line, and else one that the first had hidden. A birth that does harm without leaving is the
    edit's doing where what the edited line made leads to it; so is, of an edit that ``makes_up`` numbers as a guard
    does, an overflow of the huge ones that it gives. With whatever is left the run ends badly that is no less severe
    than the finding, or one of its ``family``: the births of its cause.
    """
    left = [f for f in trial.findings if f.allowed is None]
    harm = [f for f in trial.damaging if f.allowed is None and f.damage is None]
    edit = _Edit(finding, before, after)
    if again := next((f for f in (*left, *harm) if birth_of(f) == birth_of(finding)), None):
        return EditOutcome(rejected=f"run with it, the program still gives {edit.relocate(again)}", next=again)
    known = {birth_of(f) for f in first.findings}
    new = [f for f in left if birth_of(f) not in known]
    for one in new:
        if edit.holds(one.site) or (makes_up and one.phase != "optimizer" and _overflows(one) and edit.leads_to(one)):
            return EditOutcome(rejected=f"run with it, the program gives {edit.relocate(one)}", next=one)
    harmed = {birth_of(f) for f in first.damaging}
    harm = [f for f in harm if birth_of(f) not in harmed]
    for one in harm:
        if birth_of(one) not in known and (edit.holds(one.site) or edit.leads_to(one)):
            why = f"run with it, the program gives {edit.relocate(one)}, which makes a finite number wrong"
            return EditOutcome(rejected=why, next=one)
    if left:
        first_left = (new or left)[0]
        where = "behind it, the program gives" if new else "another finding remains:"
        ends_badly = finding.severity == "warning" or any(f.severity == "error" for f in left)
        ends_badly |= any(birth_of(f) in family for f in (*left, *harm))
        return EditOutcome(remains=f"{where} {edit.relocate(first_left)}", next=first_left, ends_badly=ends_badly)
    if trial.verdict in ("nonfinite", "inconclusive"):
        return EditOutcome(rejected="run with it, the program still ends with a bad number")
    if harm:
        return EditOutcome(
            remains=f"behind it, the program gives {edit.relocate(harm[0])}, which makes a finite number wrong"
        )
    return EditOutcome()


def is_in_edit(finding: Finding, texts: tuple[str, str], left: Finding) -> bool:
    """Whether what an edit leaves is born in the lines that it has written: that is not hidden by what it mends."""
    return _Edit(finding, *texts).holds(left.site)


class _Edit:
    """The lines that an edit of the file of a finding has changed, and where the others stood before it."""

    def __init__(self, finding: Finding, before: str, after: str) -> None:
        self._file = None if finding.site is None else finding.site.file
        matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
        self._edited: set[int] = set()
        self._was: dict[int, int] = {}
        replaced: set[int] = set()
        for kind, begin, end, begins, ends in matcher.get_opcodes():
            if kind == "equal":
                self._was |= {begins + i + 1: begin + i + 1 for i in range(end - begin)}
            else:
                self._edited |= {*range(begins + 1, ends + 1)}
                replaced |= {*range(begin + 1, end + 1)}
        tree = place_of(before).tree if replaced else None
        nodes = (node for node in ast.walk(tree or ast.Module([], [])) if isinstance(node, ast.expr))
        self._kept = {ast.unparse(node) for node in nodes if node.lineno in replaced}

    def holds(self, site: Site | None) -> bool:
        """Whether a site is at an edited line, and is no expression that stood there before."""
        if site is None or self._file is None or site.file != self._file:
            return False
        there = bool(self._edited & {*range(site.line, (site.end_line or site.line) + 1)})
        return there and not (site.code is not None and _normal(site.code) in self._kept)

    def leads_to(self, finding: Finding) -> bool:
        """Whether what an edited line made is among the causes of a birth."""
        return any(self.holds(link.site) for link in finding.chain if link.role == "cause")

    def relocate(self, finding: Finding) -> str:
        """A birth with its place, by the line that the file itself has it at."""
        site = finding.site
        value = "a bad number" if finding.element.value is None else _number(float(finding.element.value))
        where = ""
        if site is not None:
            line = self._was.get(site.line) if site.file == self._file else site.line
            where = f" in the edited lines of {site.file}" if line is None else f" at {site.file}:{line}"
        return f"{value}{where} ({finding.rule} {finding.name})"


def _normal(code: str) -> str | None:
    """The text of an expression, however it is laid out; None of what is none."""
    try:
        return ast.unparse(ast.parse(f"({code})", mode="eval"))
    except SyntaxError:
        return None


def _overflows(finding: Finding) -> bool:
    """Whether a birth is of operands so large that their squares are out of range."""
    try:
        huge = format_of(finding.element.dtype).max ** 0.5
    except ValueError:
        return False
    sizes = [
        size for o in finding.element.operands for size in (o.value, o.min, o.max) if isinstance(size, (int, float))
    ]
    return finding.birth == "overflow" and any(abs(size) > huge for size in sizes)


def birth_of(finding: Finding) -> tuple[object, ...]:
    """What has to be the same for two births of two runs to be one, whichever lines their file has."""
    site = finding.site
    place = None if site is None else (site.file, site.function, site.code)
    return finding.op, finding.phase, finding.birth, place


def _number(value: float) -> str:
    return "NaN" if value != value else "-Inf" if value < 0 else "Inf"
