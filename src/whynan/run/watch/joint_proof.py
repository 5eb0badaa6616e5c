"""The proof of fixes on several ranks: all of them replay the step together, first as it was, then with each edit.

Which edit that is each rank works out anew, from the finding and its own source: nothing that another rank has said
is run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from whynan.capture.ranks import TOGETHER
from whynan.records import Finding, Fix, FixVerdict, Report
from whynan.records.report import Further
from whynan.run.proof.proving import ProofOptions, prove_fixes, user_texts
from whynan.run.proof.reruns import NOT_ALIKE, EditedRun, Rerunner
from whynan.source.positions import file_of_site
from whynan.verify.in_place.swap import SwappedTexts, edits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from whynan.capture.ranks import Rank
    from whynan.run.proof.arguments import Heard
    from whynan.run.proof.reruns import Mended
    from whynan.verify.in_place.live_objects import Meanwhile
    from whynan.verify.in_place.visits import Visits

    Edits: TypeAlias = tuple[tuple[str, str, str], ...]
    """The path of each file that an edit changes, its text and the edited one."""

_OVER = "the ranks replay it together no longer: the time for that is over, or one of them is gone"


class Way(Rerunner, Protocol):
    """The way on which one rank comes to its bad step again; see ``whynan.run.watch.replays:ReplayRerunner``."""

    def unheard(self) -> AbstractContextManager[object]:
        """What is differentiated in here is none of the program's losses."""
        ...

    def unfaithful(self) -> str | None:
        """Why it does not lead to the same step; None where it does."""
        ...

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> EditedRun | str:
        """The report of a replay with an edit; or why there is none."""
        ...


class Attempt(NamedTuple):
    """One way to a bad step: its number, and where the way begins; both are the same on all ranks that replay it.

    `explain`: what looks at the replay for a rank that could make none by itself, or none from there; whether that was
    faithful. `wanted`: it is made if one rank wants it, and all can.
    """

    number: int
    where: str
    way: Way
    explain: Callable[[], tuple[bool, Report | None]] | None = None
    wanted: bool = True

    @property
    def name(self) -> list[Any]:
        """What tells it from others, on all ranks."""
        return [self.number, self.where]


class Lockstep(Protocol):
    """What ranks do at the same time; see ``whynan.run.ranks.rehearsal``."""

    rank: Rank

    def gather(self) -> bool:
        """Whether all ranks look into a bad step now."""
        ...

    def exchange(self, value: object) -> list[Any]:
        """What each rank says in this round; nothing where one does not."""
        ...

    def begin_trials(self) -> None:
        """All ranks are about to try an edit."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Replays in here are made by all ranks."""
        ...

    def leave(self) -> None:
        """Take no further part."""
        ...


class JointRerunner:
    """The way of one rank, and with it the other ranks': an edit is tried on all of them, if they take part.

    `alone`: nothing is exchanged on the way, so that an edit is tried on this rank where others take no part. `bound`:
    this rank cannot go the way by itself.
    """

    def __init__(self, way: Way, ranks: Lockstep | None, *, alone: bool = False, bound: bool = False) -> None:
        self._way = way
        self._ranks = ranks
        self._alone = alone and ranks is None
        self._bound = bound

    def visits(
        self, path: str, text: str, line: int, edited: SwappedTexts | None = None, mends: Mended = ()
    ) -> Visits | str:
        """The visits of this rank: what it read is not another's."""
        ranks = self._ranks
        if self._alone or (edited is None and not (self._bound and ranks)):
            return self._way.visits(path, text, line, edited)
        if ranks is None:
            return TOGETHER
        if (why := self._ask(edited.edits if edited is not None else (), mends)) is not None:
            return why
        with ranks.together():
            found = self._way.visits(path, text, line, edited)
        return found if ranks.exchange(value=None) else _OVER

    def _ask(self, edits: Edits, mends: Mended) -> str | None:
        """Have the others make an edit, or none; why they do not."""
        from whynan.fixes.python import patch

        if self._ranks is None:
            return TOGETHER
        changes = "".join(patch(file_of_site(path), before, after) for path, before, after in edits)
        if not self._ranks.exchange({"patch": changes, "mends": [one.model_dump(mode="json") for one in mends]}):
            return _OVER
        able = self._ranks.exchange(value=True) if edits else [True]
        if edits:
            self._ranks.begin_trials()
        return None if able and all(able) else NOT_ALIKE if able else _OVER

    def hear(self, objects: Heard) -> Heard | str:
        """What hears of the objects of this rank."""
        del objects
        return TOGETHER

    def course(self, path: str = "", before: str = "", after: str = "") -> str:
        """No training is run again from its start."""
        del path, before, after
        return TOGETHER

    def trial(
        self, path: str, before: str, after: str, live: Meanwhile | None = None, mends: Mended = ()
    ) -> EditedRun | str:
        """The report of this rank of a replay with an edit, and what speaks against it on another; or why none."""
        others = edits_of(live)
        if live is not None and not others:
            return TOGETHER
        edits = ((path, before, after), *others)
        if self._alone:
            return _tried(self._way, edits)
        if self._ranks is None:
            return TOGETHER
        if (why := self._ask(edits, mends)) is not None:
            return why
        ran, said = _try_together(self._ranks, self._way, edits)
        if isinstance(ran, str) or not said:
            return ran if isinstance(ran, str) else _OVER
        for number, one in enumerate(said):
            if one["why"] is not None:
                return f"on rank {number}, {one['why']}"
        others = [(number, one) for number, one in enumerate(said) if number != self._ranks.rank.number]
        bad = next((f"with it rank {n} ends with a bad number" for n, one in others if one["bad"]), None)
        bad = bad or next((f"{one['later']} on rank {n}" for n, one in others if one["later"] is not None), None)
        moved = next((f"{one['moved']} on rank {n}" for n, one in others if one["moved"] is not None), None)
        return replace(ran, moved=ran.moved or moved, bad=ran.bad or bad)


class JointProof:
    """The proof of one rank's fixes by a way on which it comes to its bad step; `ranks`: None where it is alone.

    `attempts`: the ways that ranks may go together, the best first; without them, it is the last one. `alone`: as of
    ``JointRerunner``.
    """

    def __init__(self, attempts: list[Attempt], ranks: Lockstep | None, *, alone: bool = False) -> None:
        self._alone = alone
        self._attempts = attempts
        self._way = attempts[-1].way
        self._bound = False
        self._ranks = ranks
        self._report: Report | None = None

    def prove(self, report: Report | None, options: ProofOptions) -> Report | None:
        """A report with its fixes, tried on all ranks if all of them can replay the step together.

        Without a report this rank makes the replays by which others prove theirs.
        """
        self._report = report
        with self._way.unheard():
            try:
                said = self._gathered()
                report = self._report
                known: set[object] = set()
                proved: Report | None = None
                for number, document in enumerate(said):
                    led = None if document is None else Report.from_json(document)
                    keys = {(finding.rule, finding.site) for finding in _findings_of(led)}
                    # equal findings are told once, of the first rank
                    if self._ranks is None or keys <= known:
                        continue
                    known |= keys
                    if number != self._ranks.rank.number:
                        _follow(self._ranks, number, led, self._way)
                    elif report is not None:
                        again = JointRerunner(self._way, self._ranks, bound=self._bound)
                        proved = prove_fixes(report, again, options)
                        self._ranks.exchange(None)
            except BaseException:
                if self._ranks is not None:
                    self._ranks.leave()
                raise
            if proved is not None or report is None:
                return proved
            return prove_fixes(report, JointRerunner(self._way, None, alone=self._alone), options)

    def _gathered(self) -> list[Any]:
        """The report of each rank, if all of them come to the same step again, together and without an edit."""
        from whynan.capture.torch.interposition.collective_calls import active_log

        ranks, log = self._ranks, active_log()
        if ranks is None or log is None:
            return []
        own = {"ways": [[*one.name, one.wanted] for one in self._attempts], "calls": log.counts()}
        said = ranks.exchange(own) if ranks.gather() else []
        if said and is_quiet([one["calls"] for one in said]):
            for attempt in _common(self._attempts, [one["ways"] for one in said]):
                before = self._report
                # what is looked at once more is known from that
                crossings = None if attempt.explain is None else log.crossings()
                with ranks.together():
                    if attempt.explain is None:
                        is_faithful = attempt.way.unfaithful() is None
                    else:
                        is_faithful, self._report = attempt.explain()
                faithful = ranks.exchange(is_faithful)
                if faithful and all(faithful):
                    self._way, self._bound = attempt.way, attempt.explain is not None
                    self._report = self._report or before
                    return ranks.exchange(None if self._report is None else self._report.to_json(indent=None))
                self._report = before
                if crossings is not None:
                    log.set_crossings(crossings)
        ranks.leave()
        return []


def _common(attempts: list[Attempt], said: list[list[list[Any]]]) -> list[Attempt]:
    """Those that all ranks can make and one of them wants, in the order of the first rank."""
    names = [[way[:-1] for way in one] for one in said]
    wanted = [way[:-1] for one in said for way in one if way[-1]]
    common = [name for name in names[0] if name in wanted and all(name in one for one in names)]
    own = {tuple(one.name): one for one in attempts}
    return [own[tuple(name)] for name in common]


def is_quiet(counts: list[dict[str, int]]) -> bool:
    """Whether the ranks of each group have made the same calls in it: none of them is under way."""
    made: dict[str, set[int]] = {}
    for one in counts:
        for group, number in one.items():
            made.setdefault(group, set()).add(number)
    return all(len(numbers) == 1 for numbers in made.values())


def _findings_of(report: Report | None) -> list[Finding]:
    found = () if report is None else (*report.findings, *report.damaging)
    return [finding for finding in found if finding.birth != "entered"]


def _follow(ranks: Lockstep, leader: int, led: Report | None, way: Way) -> None:
    """Make the replays that another rank proves its fixes by, until it has done so."""
    texts = {} if led is None else user_texts(led)
    while said := ranks.exchange(None):
        if said[leader] is None:
            return
        if not said[leader]["patch"]:
            # it looks at what its own code reads
            with ranks.together():
                way.unfaithful()
            ranks.exchange(value=None)
            continue
        edits = edits_anew(said[leader], _findings_of(led), texts)
        able = ranks.exchange(edits is not None)
        ranks.begin_trials()
        if able and all(able) and edits is not None:
            _try_together(ranks, way, edits)


def edits_anew(wanted: dict[str, Any], led: list[Finding], texts: Mapping[str, str]) -> Edits | None:
    """The edit that another rank tries, as this one makes it of its own `texts`; None where it makes no such one."""
    from whynan.run.fix.apply import Known, regenerate_texts

    unknown = FixVerdict(status="unverified", why="")
    mended = tuple(map(Further.model_validate, wanted["mends"]))
    fix = Fix(title="", kind="source", patch=wanted["patch"], verdict=unknown, further=mended)
    for finding in led:
        made = regenerate_texts(finding, fix, Known(texts, tuple(led)))
        if made is not None:
            return tuple((os.path.abspath(path), texts[path], text) for path, text in made.items())
    return None


def _tried(way: Way, edits: Edits) -> EditedRun | str:
    """What the run of one rank comes to with an edit."""
    first, *others = edits
    return way.trial(*first, SwappedTexts(tuple(others))) if others else way.trial(*first)


def _try_together(ranks: Lockstep, way: Way, edits: Edits) -> tuple[EditedRun | str, list[dict[str, Any]]]:
    """One edit on all ranks: what it comes to here, and on each."""
    with ranks.together():
        ran = _tried(way, edits)
    own: dict[str, Any] = {"why": ran, "bad": False, "moved": None, "later": None}
    if not isinstance(ran, str):
        is_bad = bool(ran.report.findings) or ran.report.verdict in ("nonfinite", "inconclusive")
        own = {"why": None, "bad": is_bad, "moved": ran.moved, "later": ran.bad}
    return ran, ranks.exchange(own)
