"""The concert of ranks: a run of several processes that is stopped together and has one report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.capture.ranks import has_group, launched, spawned_store
from whynan.faults import report_internal_error
from whynan.records import Note
from whynan.run.pipeline import with_note
from whynan.run.ranks.channel import Channel, StoreError, leave, open_channel
from whynan.run.ranks.meeting import Meeting
from whynan.run.ranks.merging import Crossing, RankReport, arrival_of, merge_ranks
from whynan.run.ranks.rehearsal import Rehearsal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from whynan.config import Options
    from whynan.records import Report
    from whynan.run.ranks.merging import End
    from whynan.training.guard import Guard


_BUDGET: Final = 256 << 20
"""Bytes of what collectives have given that are kept for a replay, unless --memory says another number."""


class Stopped(Protocol):
    """The run of one rank, which the others may stop."""

    def stop_with_others(self) -> BaseException | None:
        """What the rank is to end with, at a step of its own."""
        ...

    def stop_blocked(self) -> None:
        """Make its report from another thread."""
        ...

    def leave(self, report: Report) -> None:
        """Have a report stand where that of all ranks shall, if an option says where."""
        ...


def join_ranks(options: Options, run: Stopped) -> Concert | None:
    """Join the other ranks of a launcher; None where they cannot be reached."""
    rank = launched(os.environ)
    channel = None if rank is None else open_channel(os.environ, rank)
    if channel is None:
        return None
    return Concert(channel, run, options)


class Concert:
    """One rank's part in a run of several, which stops together where a bad step stops one."""

    def __init__(self, channel: Channel, run: Stopped, options: Options) -> None:
        from whynan.capture.torch.interposition.collective_calls import begin_log

        self._channel = channel
        self._run = run
        self._stops = options.on_nonfinite in ("stop", "raise")
        self._meeting = Meeting(channel, channel.connect) if options.on_nonfinite == "skip" else None
        self._calls = begin_log((options.memory or _BUDGET) if self._stops else 0, self._fail)
        self.rehearsal = Rehearsal(channel) if self._stops else None
        """In which fixes are proved, if all ranks come to the bad step."""
        self._blocked = False
        self.skipped = 0
        """How many steps were left out here for what is bad on another rank."""
        self._hooks: Any = None
        channel.begin(self._stop_blocked)

    def watch_steps(self, guard: Guard | None) -> None:
        """Ask before each optimizer step that is good whether the run is to stop; `guard`: who judges the steps."""
        if guard is not None:
            # torch's hooks may not be taken off while it walks over others: those of the guard serve
            guard.agreed = self.agree
            return
        from whynan.capture.torch.interposition.wrappers import StepHooks

        self._hooks = StepHooks(self._fail)
        self._hooks.install()
        self._hooks.before = self._before

    def suspicion(self) -> AbstractContextManager[None]:
        """For as long as a bad step is looked into."""
        return self._channel.suspicion()

    def agree(self, optimizer: Any, *, is_bad: bool) -> BaseException | None:
        """Before a step: what it is to end with, because another rank has found something; None to make it.

        Where bad steps are skipped, one that is bad on another rank is left out here, too.
        """
        if self._calls.here.replayed is not None:
            return None
        self._calls.end_step()
        meeting = self._meeting if has_group() else None
        if meeting is not None and meeting.is_bad(here=is_bad) and not is_bad:
            from whynan.capture.torch.sinks.gradients import leave_out

            self.skipped += 1
            leave_out(optimizer)
        if self._channel.is_quiet or not self._channel.hold():
            return None
        try:
            return self._run.stop_with_others()
        except Exception:
            report_internal_error()
        return None

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        ending = self.agree(optimizer, is_bad=False)
        if ending is not None:
            raise ending

    def _fail(self) -> bool:
        report_internal_error()
        return False

    def alarm(self) -> None:
        """Stop the other ranks, too."""
        try:
            self._channel.alarm()
        except StoreError:
            return

    def begin_report(self) -> None:
        """The report of this rank is being made."""
        self._channel.take_over()

    def tell_early(self, report: Report) -> None:
        """What is found is left at once, by the first rank to know: all of them may be killed before they agree."""
        self._leave(RankReport(_numbered(report, self._channel.rank.number), "terminated"))

    def _leave(self, own: RankReport) -> None:
        number, world = self._channel.rank
        is_born = any(arrival_of(finding) is None for finding in own.report.findings)
        try:
            # what the program has started it outlives
            if spawned_store() is None and self._channel.is_first_to_tell(found=is_born):
                note = Note.create("provisional", rank=number)
                self._run.leave(with_note(merge_ranks({number: own}, world), note))
        except StoreError:
            return
        except Exception:
            report_internal_error()

    def merge(self, report: Report, *, stopped: bool, terminated: bool, is_share_good: bool) -> Report | None:
        """The report of all ranks, if this one is to write it; None where another does.

        `stopped`: by whynan. `terminated`: by the launcher. `is_share_good`: what is bad here is another rank's.
        """
        end: End = "blocked" if self._blocked else "stopped" if stopped else "terminated" if terminated else "ended"
        number, world = self._channel.rank
        calls = (self._calls.sent, self._calls.received, self._calls.given())
        sent, received, given = (tuple(Crossing(c.key, c.site, c.sender) for c in of) for of in calls)
        own = RankReport(_numbered(self._with_meetings(report), number), end, sent, received, is_share_good, given)
        status = report.run.exit_status
        self._leave(own)
        try:
            if self._stops and not terminated and status.script and status.whynan:
                # the launcher would end all ranks as soon as this one is gone
                self._channel.alarm()
            self._channel.post(own.to_document())
            waits = stopped or terminated or bool(status.script and self._channel.is_alarmed)
            held = self._channel.collect(waits=waits)
            if held is None:
                return None
            ranks = {n: own if n == number else RankReport.from_document(document) for n, document in held.items()}
        except StoreError:
            # whoever served the store is gone, and the launcher with it
            return with_note(own.report, Note.create("store_lost")) if number == 0 or report.findings else None
        return merge_ranks({**ranks, number: own}, world)

    def amended(self, report: Report, script: int) -> Report:
        """The report of all ranks with the exit status that this one's program has come to since."""
        own = self._channel.rank.number
        ranks = (r.model_copy(update={"script": script}) if r.rank == own else r for r in report.run.ranks)
        return report.model_copy(update={"run": report.run.model_copy(update={"ranks": tuple(ranks)})})

    def _with_meetings(self, report: Report) -> Report:
        """A report with the steps that were left out for another rank, and since when each has decided for itself."""
        if self.skipped:
            report = with_note(
                report, Note.create("skipped_with_others", rank=self._channel.rank.number, steps=self.skipped)
            )
        if self._meeting is not None and self._meeting.parted:
            report = with_note(report, Note.create("ranks_parted", step=self._meeting.parted))
        return report

    def conclude(self, report: Report) -> None:
        """The report of all ranks is written; where the program has started them, that one writes it."""
        try:
            self._channel.conclude(report.to_json(indent=None) if spawned_store() is not None else None)
        except StoreError:
            return

    def hurry(self) -> None:
        """The launcher terminates the run."""
        self._channel.hurry()

    def close(self) -> None:
        """The run is over."""
        if self._hooks is not None:
            self._hooks.remove()
        self._calls.remove()
        self._channel.close()

    def abandon_in_child(self) -> None:
        """This is a child that the program has forked."""
        if self._hooks is not None:
            self._hooks.remove()
        self._channel.abandon_in_child()
        self._calls.abandon_in_child()

    def _stop_blocked(self) -> None:
        self._blocked = True
        try:
            self._run.stop_blocked()
        except Exception:
            report_internal_error()
        leave(1)


def _numbered(report: Report, number: int) -> Report:
    """A report whose findings have their rank."""
    return report.model_copy(
        update={
            name: tuple(f.model_copy(update={"rank": number}) for f in getattr(report, name))
            for name in ("findings", "damaging", "absorbed")
        }
    )
