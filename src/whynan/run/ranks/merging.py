"""The merge of the ranks' reports: which was first, what arrived from which, and what is the same on several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from whynan.records import Note, RankRun, Report, Site, Transfer
from whynan.rules.catalogue import explain
from whynan.run.pipeline import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from whynan.records import Finding

End = Literal["ended", "stopped", "blocked", "terminated", "missing"]
_IN_A_STEP: Final = {"data": 0, "forward": 1, "backward": 2, "accumulation": 3, "collective": 3, "optimizer": 4}
"""The phases as a step has them."""
Key = tuple[str, int, str]
"""A call of a collective: its group, its number in that group, its operation."""


@dataclass(frozen=True)
class Crossing:
    """A bad number in a call of a collective, as one rank has seen it: put in, or come out."""

    key: Key
    site: Site | None
    sender: int | None = None

    @classmethod
    def from_document(cls, held: Mapping[str, Any]) -> Crossing:
        """The one that ``to_document()`` gave on another rank."""
        site = held["site"]
        key = (str(held["group"]), int(held["sequence"]), str(held["operation"]))
        return cls(key, None if site is None else Site.model_validate(site), held["sender"])

    def to_document(self) -> dict[str, Any]:
        """It as a document for another rank."""
        group, sequence, operation = self.key
        site = None if self.site is None else self.site.model_dump(mode="json")
        return {"group": group, "sequence": sequence, "operation": operation, "site": site, "sender": self.sender}


@dataclass(frozen=True)
class RankReport:
    """What one rank hands in: its report, how it ended, and the bad numbers that it has sent and received.

    ``shares``: its bad step was replayed with its own part of what collectives gave, and that part was good.
    ``given``: the calls of its last steps that it alone has put something in, of which it does not know what.
    """

    report: Report
    end: End
    sent: tuple[Crossing, ...] = ()
    received: tuple[Crossing, ...] = ()
    shares: bool = False
    given: tuple[Crossing, ...] = ()

    @classmethod
    def from_document(cls, held: Mapping[str, Any]) -> RankReport:
        """The one that ``to_document()`` gave on another rank; raises ``ValueError`` for what is none."""
        return cls(
            Report.from_json(held["report"]),
            held["end"],
            tuple(map(Crossing.from_document, held["sent"])),
            tuple(map(Crossing.from_document, held["received"])),
            bool(held["shares"]),
            tuple(map(Crossing.from_document, held["given"])),
        )

    def to_document(self) -> dict[str, Any]:
        """It as a document for the rank that writes."""
        return {
            "report": self.report.to_json(indent=None),
            "end": self.end,
            "sent": [crossing.to_document() for crossing in self.sent],
            "received": [crossing.to_document() for crossing in self.received],
            "shares": self.shares,
            "given": [crossing.to_document() for crossing in self.given],
        }


def merge_ranks(ranks: Mapping[int, RankReport], world: int) -> Report:
    """One report of several ranks; ``ranks`` has at least one, by number, the first to end first."""
    arrivals = _Arrivals(ranks, world)
    findings = _folded(arrivals.resolve((n, f) for n in sorted(ranks) for f in ranks[n].report.findings))
    damaging = _folded((n, f) for n in sorted(ranks) for f in ranks[n].report.damaging)
    absorbed = _folded((n, f) for n in sorted(ranks) for f in ranks[n].report.absorbed)
    findings = sorted(findings, key=_order)
    first = findings[0].rank if findings else None
    if first is None:
        first = next((n for n, r in ranks.items() if r.report.run.exception), min(ranks))
    base = ranks[first].report
    explained = any(f.severity == "error" for f in findings)
    # what a rank says that only received says nothing of the cause
    speaking = [n for n in sorted(ranks) if not explained or ranks[n].report is base or _is_own(ranks[n], n, findings)]
    verdict = "nonfinite" if explained else min((r.report.verdict for r in ranks.values()), key=VERDICTS.index)
    coverage = base.coverage.model_copy(
        update={
            "events": sum(r.report.coverage.events for r in ranks.values()),
            "eager": sum(r.report.coverage.eager for r in ranks.values()),
            "compiled_regions": sum(r.report.coverage.compiled_regions for r in ranks.values()),
            "skipped_steps": max(r.report.coverage.skipped_steps for r in ranks.values()),
            "typed_notes": _notes([ranks[n].report for n in speaking], ranks, world, _silent_senders(ranks, findings)),
        }
    )
    whynan = max(r.report.run.exit_status.whynan for r in ranks.values())
    script = base.run.exit_status.script
    if script == 0:
        script = next((s for r in ranks.values() if (s := r.report.run.exit_status.script) != 0), 0)
    sources = {source.file: source for r in ranks.values() for source in r.report.run.sources}
    run = base.run.model_copy(
        update={
            "exit_status": base.run.exit_status.model_copy(update={"script": script, "whynan": whynan}),
            "sources": tuple(sources.values()),
            "exception": base.run.exception or _exception(ranks),
            "ranks": tuple(_rank_run(n, ranks.get(n)) for n in range(world)),
        }
    )
    return base.model_copy(
        update={
            "verdict": "inconclusive" if verdict == "clean" and len(ranks) < world else verdict,
            "findings": tuple(findings),
            "damaging": tuple(damaging),
            "absorbed": tuple(absorbed),
            "absorbed_count": max(len(absorbed), *(r.report.absorbed_count for r in ranks.values())),
            "coverage": coverage,
            "run": run,
        }
    )


def _is_own(rank: RankReport, number: int, findings: Sequence[Finding]) -> bool:
    return any(number in finding.ranks for finding in findings) and not rank.shares


def _rank_run(number: int, rank: RankReport | None) -> RankRun:
    if rank is None:
        return RankRun(rank=number, end="missing")
    script = rank.report.run.exit_status.script
    return RankRun(rank=number, end=rank.end, verdict=rank.report.verdict, script=script)


def _exception(ranks: Mapping[int, RankReport]) -> str | None:
    return next((r.report.run.exception for r in ranks.values() if r.report.run.exception), None)


def _silent_senders(ranks: Mapping[int, RankReport], findings: Sequence[Finding]) -> list[int]:
    """The ranks from which something bad has come that they have not borne again, though their step was bad, too."""
    senders = {transfer.sender for f in findings if arrival_of(f) is not None for transfer in f.transfers}
    unexplained = (n for n, rank in ranks.items() if rank.report.verdict == "inconclusive" and not rank.shares)
    return sorted(number for number in unexplained if number in senders)


def _notes(
    reports: Iterable[Report], ranks: Mapping[int, RankReport], world: int, silent: Sequence[int]
) -> tuple[Note, ...]:
    notes = list(dict.fromkeys(note for report in reports for note in report.coverage.typed_notes))
    for number in silent:
        notes += [Note.create("sender_unexplained", rank=number), *ranks[number].report.coverage.typed_notes]
    missing = tuple(n for n in range(world) if n not in ranks)
    if missing:
        notes.insert(0, Note.create("ranks_missing", ranks=missing, world=world))
    return tuple(notes)


class _Arrivals:
    """Findings of what came through a collective, joined to those of where it was born."""

    def __init__(self, ranks: Mapping[int, RankReport], world: int) -> None:
        self._ranks = ranks
        self._world = world
        self._births: list[tuple[int, Finding]] = []
        self._arrived: list[tuple[int, Finding]] = []
        self._senders: dict[Key, list[tuple[int, Crossing]]] = {}
        for number, rank in ranks.items():
            for crossing in rank.sent:
                self._senders.setdefault(crossing.key, []).append((number, crossing))

    def resolve(self, found: Iterable[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
        """The births, each with the ranks that it was sent to; an arrival stays where no sender is known."""
        known = list(found)
        self._births = [(n, f) for n, f in known if arrival_of(f) is None and not _is_in_bucket(f)]
        self._arrived = [(n, f) for n, f in known if arrival_of(f) is not None or _is_in_bucket(f)]
        transfers: dict[int, list[Transfer]] = {}
        left: list[tuple[int, Finding]] = []
        for number, finding in self._arrived:
            crossing = self._crossing(number, finding)
            sent = {} if crossing is None else dict(self._senders.get(crossing.key, ()))
            sent.pop(number, None)
            sources = [(n, f) for n in sent for f in self._births_behind(n, finding, {number})]
            if not sent:
                # by what torch itself calls, as DistributedDataParallel does, or in a replay
                born = [(n, f) for n, f in reversed(self._births) if f.step == finding.step]
                made = {n: (n, f) for n, f in born if n != number or _is_in_bucket(finding)}
                sources = [made[n] for n in sorted(made)]
            if not sources and arrival_of(finding) is None:
                left.append((number, finding))
            elif not sources:
                left.append((number, self._unsent(number, finding, crossing, sent)))
            for sender, birth in sources:
                if any(n == number and f is birth for n, f in self._births):
                    # it has come back
                    continue
                told = transfers.setdefault(id(birth), [])
                _add(told, _transfer(finding, crossing, sender, sent.get(sender), number))
        told = [(n, f.model_copy(update={"transfers": tuple(transfers.get(id(f), ()))})) for n, f in self._births]
        return [*self._with_shares(told), *left]

    def _births_behind(self, sender: int, arrived: Finding, passed: set[int]) -> list[Finding]:
        """What a rank has sent: a birth of its own, what it had from others itself, or what did no harm there."""
        own = [f for n, f in self._births if n == sender]
        if own:
            return [next((f for f in own if f.step == arrived.step), own[0])]
        if sender in passed:
            return []
        further: dict[int, Finding] = {}
        for number, finding in self._arrived:
            crossing = self._crossing(number, finding) if number == sender else None
            for n, _ in () if crossing is None else self._senders.get(crossing.key, ()):
                if n != sender:
                    found = self._births_behind(n, finding, passed | {sender})
                    further |= {id(f): f for f in found}
        if not further:
            self._births += (harmless := self._sent_without_harm(sender, arrived))
            return [f for _, f in harmless]
        return [*further.values()]

    def _sent_without_harm(self, number: int, arrived: Finding) -> list[tuple[int, Finding]]:
        """The births of a rank that did no harm there: one of them did it where it arrived."""
        born = [f for f in self._ranks[number].report.absorbed if f.birth not in ("entered", "literal")]
        born = [f for f in born if f.step in (None, arrived.step)]
        harm = {"fate": arrived.fate, "severity": arrived.severity, "reaches": arrived.reaches}
        return [(number, f.model_copy(update=harm)) for f in born[-1:]]

    def _crossing(self, number: int, finding: Finding) -> Crossing | None:
        operation = arrival_of(finding)
        return next((c for c in self._ranks[number].received if _same(c.key[2], operation)), None)

    def _with_shares(self, births: list[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
        """A birth, with the ranks whose own part of the step was good: they have it by the buckets of DDP."""
        good = tuple(n for n, rank in self._ranks.items() if rank.shares)
        if not good:
            return births
        told = list(births)
        sent: set[int] = set()
        for place, (number, birth) in enumerate(births):
            if birth.severity == "error" and number not in sent and set(good) - {number}:
                sent.add(number)
                shared = Transfer(
                    operation="all_reduce", sender=number, receivers=tuple(n for n in good if n != number)
                )
                told[place] = number, birth.model_copy(update={"transfers": (*birth.transfers, shared)})
        return told

    def _unsent(
        self,
        number: int,
        finding: Finding,
        crossing: Crossing | None,
        senders: Mapping[int, Crossing],
    ) -> Finding:
        """An arrival whose birth no rank has: from a rank without a report, or made by the collective itself."""
        site = crossing.site if crossing is not None else None
        if senders or crossing is None or len(self._ranks) < self._world or not _reduces(crossing.key[2]):
            sender = next(iter(senders), None if crossing is None else crossing.sender)
            sent = None if sender is None or crossing is None else self._given(sender, crossing, senders)
            transfer = _transfer(finding, crossing, sender, sent, number)
            return _as_entered(finding).model_copy(update={"transfers": (transfer,)})
        value = finding.element.value
        is_nan = value is None or math.isnan(value)
        what = (
            f"every rank put in finite numbers, and {crossing.key[2]} of {self._world} ranks gave "
            f"{'NaN' if is_nan else 'Inf'}: the result is out of the range of {finding.element.dtype}"
        )
        op = next((link.op for link in finding.chain if link.phase == "collective" and link.op), finding.op)
        update: dict[str, Any] = {"phase": "collective", "birth": "invalid" if is_nan else "overflow", "op": op}
        update |= {"site": site or finding.site, "message": what, "origin": None, "transfers": ()}
        # the rule that it was known by was for what comes from outside
        update |= {"rule": "WN000", "name": "unexplained", "matched": (), "fixes": ()}
        update["explanation"] = "Reduce in a wider dtype, or divide by the number of ranks before the sum."
        return finding.model_copy(update=update)

    def _given(self, sender: int, crossing: Crossing, known: Mapping[int, Crossing]) -> Crossing | None:
        """What a rank has put in where a bad number came out: one that was seen as bad there, or its call."""
        rank = self._ranks.get(sender)
        calls = () if rank is None else rank.given
        return known.get(sender) or next((call for call in calls if call.key == crossing.key), None)


def arrival_of(finding: Finding) -> str | None:
    """The collective by which a bad number arrived, or what one is made from; None for one that was born here."""
    origin: object = finding.origin
    if finding.birth != "entered":
        held = (link.typed_summary for link in finding.chain if link.role == "cause")
        origin = next((note.values["origin"] for note in held if note.kind == "holds"), None)
    if not isinstance(origin, Note) or origin.kind != "entered":
        return None
    since = origin.values.get("since")
    return str(since.values["operation"]) if isinstance(since, Note) and since.kind == "left_by_processes" else None


def _as_entered(finding: Finding) -> Finding:
    """What an operation has made of what arrived, as that which came in there: it was born elsewhere."""
    held = next((link for link in finding.chain if link.typed_summary.kind == "holds"), None)
    place = next((n for n, link in enumerate(finding.chain) if link.role == "birth"), None)
    if finding.birth == "entered" or held is None or place is None:
        return finding
    birth, origin = finding.chain[place], held.typed_summary.values["origin"]
    assert isinstance(origin, Note)
    came = birth.model_copy(update={"op": None, "typed_summary": origin})
    carries = Note.create("carries_on", operator=birth.op)
    on = birth.model_copy(update={"role": "step", "typed_summary": carries})
    update: dict[str, Any] = {"birth": "entered", "op": None, "grad_fn": None, "forward_op": None, "origin": origin}
    update |= {"chain": (held, came, on, *finding.chain[place + 1 :]), "message": came.summary}
    update["element"] = finding.element.model_copy(update={"operands": ()})
    # what it was known by is a hazard of that operation
    update |= {"rule": "WN000", "matched": (), "fixes": (), "forward_operands": (), "explanation": ""}
    return explain(finding.model_copy(update=update))


def _is_in_bucket(finding: Finding) -> bool:
    """Whether a bad number was first seen where a hook reads a bucket: torch has written gradients there unseen."""
    return finding.birth == "entered" and finding.phase == "accumulation" and arrival_of(finding) is None


def _same(call: str, operation: str | None) -> bool:
    """Whether a call of the program's is an operation of the dispatcher: ``all_reduce`` is ``allreduce``."""
    return operation is not None and _bare(call) == _bare(operation)


def _bare(name: str) -> str:
    plain = (
        name.replace("_", "")
        .removesuffix("base")
        .removesuffix("intotensor")
        .removesuffix("tensor")
        .removesuffix("single")
    )
    return {"irecv": "send", "isend": "send", "recv": "send", "alltoallsingle": "alltoall"}.get(plain, plain)


def _reduces(operation: str) -> bool:
    return "reduce" in operation


def _transfer(
    finding: Finding, crossing: Crossing | None, sender: int | None, sent: Crossing | None, receiver: int
) -> Transfer:
    operation = crossing.key[2] if crossing is not None else arrival_of(finding) or "a collective"
    # where the collective stands that it came by, if that is known, or else what read it
    held = (link.site for link in finding.chain if link.typed_summary.kind == "holds" and link.site is not None)
    site = (None if crossing is None else crossing.site) or next(held, finding.site)
    return Transfer(
        operation=operation,
        sequence=crossing.key[1] if crossing is not None and crossing.key[0] else None,
        sender=sender,
        receivers=(receiver,),
        sender_site=None if sent is None else sent.site,
        receiver_site=site,
    )


def _add(told: list[Transfer], new: Transfer) -> None:
    """One more transfer; one that differs in its receiver alone is the same."""
    for place, known in enumerate(told):
        if known.model_copy(update={"receivers": new.receivers}) == new:
            receivers = tuple(sorted({*known.receivers, *new.receivers}))
            told[place] = known.model_copy(update={"receivers": receivers})
            return
    told.append(new)


def _folded(found: Iterable[tuple[int, Finding]]) -> list[Finding]:
    """Equal findings of several ranks as one, of the first of them."""
    groups: dict[object, list[tuple[int, Finding]]] = {}
    for number, finding in found:
        key = (finding.rule, finding.birth, finding.phase, finding.op, finding.grad_fn, finding.site, finding.severity)
        groups.setdefault((*key, finding.step, finding.allowed), []).append((number, finding))
    told: list[Finding] = []
    for group in groups.values():
        number, first = min(group, key=lambda one: one[0])
        ranks = tuple(sorted({n for n, _ in group}))
        transfers: list[Transfer] = []
        for finding in (f for _, f in group):
            # what was born on several ranks needs no sender there
            needed = (t for t in finding.transfers if arrival_of(finding) or not set(t.receivers) <= set(ranks))
            for transfer in finding.transfers if len(ranks) == 1 else needed:
                _add(transfers, transfer)
        told.append(first.model_copy(update={"rank": number, "ranks": ranks, "transfers": tuple(transfers)}))
    return told


def _order(finding: Finding) -> tuple[object, ...]:
    """Errors first, then by step and, within one, as a step is made; births before what only arrived."""
    step = math.inf if finding.step is None else finding.step
    phase = _IN_A_STEP.get(finding.phase, _IN_A_STEP["forward"])
    return finding.severity != "error", step, arrival_of(finding) is not None, phase, finding.rank or 0
