"""One report of several ranks: which was first, who sent what to whom, and what a rank without a report leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.run.test_merging import found, report
from whynan.records import ChainLink, Coverage, ExitStatus, Note, Report, Run, Site
from whynan.report.terminal import render
from whynan.run.ranks.merging import Crossing, RankReport, merge_ranks

KEY = ("0", 7, "all_reduce")


def line(number: int) -> Site:
    return Site(file="net.py", line=number, column=1, end_line=number, end_column=9, code="x", function="step")


def arrived(operation: str = "allreduce", **more: Any) -> Any:
    since = Note.create("left_by_processes", operation=operation)
    origin = Note.create("entered", sort=None, dtype=None, tensor=None, literal=False, since=since)
    return found(birth="entered", rule="WN101", origin=origin, site=line(90), **more)


def clean(exception: str | None = None, script: int = 0) -> Report:
    run = Run(command="train.py", exit_status=ExitStatus(script=script, whynan=0), exception=exception)
    return Report(verdict="clean", run=run, coverage=Coverage(events=1, eager=1))


def bad(*findings: Any) -> Report:
    return report(findings=findings)


@pytest.mark.parametrize("world", [2, 3])
def test_the_verdict_is_clean_only_where_every_rank_has_a_report(world: int) -> None:
    merged = merge_ranks({0: RankReport(clean(), "ended"), 1: RankReport(clean(), "ended")}, world)
    assert merged.verdict == ("clean" if world == 2 else "inconclusive")
    missing = [] if world == 2 else ["rank 2 of 3 left no report"]
    assert [*merged.coverage.notes] == missing
    assert [rank.end for rank in merged.run.ranks] == ["ended", "ended", "missing"][:world]


def test_where_only_a_rank_is_missing_no_bad_number_is_told_of() -> None:
    ranks = {0: RankReport(clean(), "terminated"), 1: RankReport(clean(), "terminated")}
    text = " ".join(render(merge_ranks(ranks, 3)).split())
    assert "no bad number reached a loss, a gradient, a parameter or an output on the ranks that left a report" in text
    assert "what rank 2 met is not known" in text
    unseen = clean().model_copy(update={"verdict": "inconclusive"})
    text = " ".join(render(merge_ranks({**ranks, 1: RankReport(unseen, "ended")}, 3)).split())
    assert "where it was born was not seen" in text


def test_of_one_step_what_comes_before_is_first_and_then_the_lower_rank() -> None:
    here = bad(found(phase="backward", site=line(4)), found(phase="optimizer", site=line(5)))
    there = bad(found(phase="forward", site=line(6)), found(phase="backward", site=line(7)))
    merged = merge_ranks({0: RankReport(here, "stopped"), 1: RankReport(there, "stopped")}, 2)
    order = [(f.rank, f.phase) for f in merged.findings]
    assert order == [(1, "forward"), (0, "backward"), (1, "backward"), (0, "optimizer")]


def test_an_earlier_step_is_before_an_earlier_phase() -> None:
    here, there = bad(found(phase="optimizer", step=2)), bad(found(phase="forward", step=3))
    merged = merge_ranks({0: RankReport(there, "stopped"), 1: RankReport(here, "stopped")}, 2)
    assert [(f.rank, f.step) for f in merged.findings] == [(1, 2), (0, 3)]


def test_each_rank_that_has_put_a_bad_number_in_is_told_as_a_sender() -> None:
    ranks = {
        number: RankReport(bad(found(site=line(10 + number))), "stopped", sent=(Crossing(KEY, line(20)),))
        for number in (0, 1)
    }
    ranks[2] = RankReport(bad(arrived()), "stopped", received=(Crossing(KEY, line(20)),))
    merged = merge_ranks(ranks, 3)
    told = [(f.rank, [(t.operation, t.sequence, t.sender, t.receivers) for t in f.transfers]) for f in merged.findings]
    assert told == [(0, [("all_reduce", 7, 0, (2,))]), (1, [("all_reduce", 7, 1, (2,))])]


def test_what_arrives_on_several_ranks_keeps_its_sender_and_the_line_there() -> None:
    key = ("0", 5, "broadcast")
    ranks = {
        n: RankReport(bad(arrived("broadcast")), "stopped", received=(Crossing(key, line(30), 0),)) for n in (1, 2)
    }
    merged = merge_ranks({**ranks, 0: RankReport(clean(), "blocked", given=(Crossing(key, line(20)),))}, 3)
    (one,) = merged.findings
    assert one.ranks == (1, 2)
    (transfer,) = one.transfers
    assert (transfer.sender, transfer.receivers, transfer.sequence) == (0, (1, 2), 5)
    assert (transfer.sender_site, transfer.receiver_site) == (line(20), line(30))


def test_what_a_rank_passes_on_is_told_of_the_rank_that_bore_it() -> None:
    first, second = ("0 0>1", 1, "send"), ("0 1>2", 1, "send")
    merged = merge_ranks(
        {
            0: RankReport(bad(found()), "stopped", sent=(Crossing(first, line(20)),)),
            1: RankReport(
                bad(arrived("send")),
                "stopped",
                sent=(Crossing(second, line(21)),),
                received=(Crossing(first, line(30), 0),),
            ),
            2: RankReport(bad(arrived("send")), "stopped", received=(Crossing(second, line(30), 1),)),
        },
        3,
    )
    (one,) = merged.findings
    assert one.rank == 0
    assert sorted((t.sender, t.receivers) for t in one.transfers) == [(0, (1,)), (1, (2,))]


def test_what_comes_back_to_the_rank_that_bore_it_is_no_birth_of_its_own() -> None:
    there, back = ("0", 1, "all_gather"), ("0", 2, "scatter")
    merged = merge_ranks(
        {
            0: RankReport(
                bad(arrived("all_gather")),
                "stopped",
                sent=(Crossing(back, line(21)),),
                received=(Crossing(there, line(30), 1),),
            ),
            1: RankReport(
                bad(found(), arrived("scatter")),
                "stopped",
                sent=(Crossing(there, line(20)),),
                received=(Crossing(back, line(31), 0),),
            ),
        },
        2,
    )
    (one,) = merged.findings
    assert (one.rank, one.birth) == (1, found().birth)
    assert [(t.operation, t.sender, t.receivers) for t in one.transfers] == [("all_gather", 1, (0,))]


def test_what_a_hook_reads_in_a_bucket_is_of_the_birth_of_that_step() -> None:
    origin = Note.create("entered", sort=None, dtype=None, tensor=None, literal=False, since=None)
    read = found(birth="entered", phase="accumulation", origin=origin, site=line(90))
    merged = merge_ranks(
        {0: RankReport(bad(found(), read), "stopped"), 1: RankReport(bad(read), "stopped")},
        2,
    )
    (one,) = merged.findings
    assert (one.rank, [(t.sender, t.receivers) for t in one.transfers]) == (0, [(0, (1,))])
    # where nothing was born in that step, it is what is known
    (alone,) = merge_ranks({0: RankReport(clean(), "stopped"), 1: RankReport(bad(read), "stopped")}, 2).findings
    assert (alone.rank, alone.birth) == (1, "entered")


def test_each_birth_is_told_as_sent_to_the_ranks_whose_own_part_was_good() -> None:
    ranks = {number: RankReport(bad(found(site=line(10 + number))), "stopped") for number in (0, 1)}
    ranks[2] = RankReport(clean(), "stopped", shares=True)
    merged = merge_ranks(ranks, 3)
    assert [[(t.sender, t.receivers) for t in f.transfers] for f in merged.findings] == [[(0, (2,))], [(1, (2,))]]


def test_the_exception_is_that_of_the_rank_that_ended_first() -> None:
    lost = RankReport(clean("RuntimeError: connection closed", 1), "ended")
    merged = merge_ranks({1: RankReport(clean("ValueError: seven", 1), "ended"), 0: lost}, 2)
    assert merged.run.exception == "ValueError: seven"
    assert merged.run.exit_status.script == 1


def test_what_a_rank_hands_in_comes_out_as_it_was() -> None:
    sent, received, given = (Crossing(KEY, line(2), 1),), (Crossing(KEY, None),), (Crossing(KEY, line(3)),)
    one = RankReport(bad(found(), arrived()), "blocked", sent, received, True, given)
    assert RankReport.from_document(one.to_document()) == one


def test_what_is_made_from_a_bad_number_that_arrived_is_not_born_there() -> None:
    since = Note.create("left_by_processes", operation="recv")
    origin = Note.create("entered", sort=None, dtype=None, tensor=None, literal=False, since=since)
    held = Note.create("holds", origin=origin, bad="NaN", index=(0,))
    cause = ChainLink(role="cause", op="c10d.recv_.default", site=line(90), typed_summary=held)
    made = found(phase="backward", birth="invalid", site=line(80), chain=(cause,))
    there = RankReport(bad(found(site=line(10))), "stopped", sent=(Crossing(("0", 1, "send"), line(20)),))
    here = RankReport(bad(made), "stopped", received=(Crossing(("0", 1, "send"), line(90)),))
    (told,) = merge_ranks({0: here, 1: there}, 2).findings
    assert (told.rank, told.site) == (1, line(10))
    assert [(t.sender, t.receivers) for t in told.transfers] == [(1, (0,))]


def test_what_an_operation_made_of_what_arrived_came_in_there_where_no_rank_has_borne_it() -> None:
    since = Note.create("left_by_processes", operation="recv")
    origin = Note.create("entered", sort=None, dtype=None, tensor=None, literal=False, since=since)
    holds = Note.create("holds", origin=origin, bad="NaN", index=(0, 0))
    bears = Note.create("bears", operator="aten.softplus_backward.default", bad="NaN", back=True)
    links = (
        ChainLink(role="cause", op="c10d.recv_.default", phase="collective", typed_summary=holds),
        ChainLink(role="birth", op="aten.softplus_backward.default", phase="backward", typed_summary=bears),
    )
    made = found(rule="WN108", phase="backward", birth="invalid", chain=links, site=line(18))
    key = ("0 1>0", 9, "send")
    lost = Coverage(
        typed_notes=(Note.create("no_replay", way="from line 35 of main", eager=False, why="other losses"),)
    )
    silent = clean().model_copy(update={"verdict": "inconclusive", "coverage": lost})
    ranks = {
        0: RankReport(bad(made), "stopped", received=(Crossing(key, line(58), 1),)),
        1: RankReport(silent, "stopped", given=(Crossing(key, line(63)),)),
        2: RankReport(silent, "stopped"),
    }
    merged = merge_ranks(ranks, 3)
    (arrival,) = merged.findings
    assert (arrival.rule, arrival.birth, arrival.op, arrival.phase) == ("WN001", "entered", None, "backward")
    assert arrival.message.startswith("data from outside (as recv of several processes left it) holds")
    assert [(link.role, link.op) for link in arrival.chain] == [
        ("cause", "c10d.recv_.default"),
        ("birth", None),
        ("step", "aten.softplus_backward.default"),
    ]
    (sent,) = arrival.transfers
    assert (sent.sender, sent.sender_site, sent.receiver_site) == (1, line(63), line(58))
    assert [*merged.coverage.notes] == [
        "it came from rank 1, whose own step has not shown where it was born:",
        "no replay from line 35 of main: other losses",
    ]


def test_where_no_rank_tells_of_its_calls_the_line_is_that_of_the_collective() -> None:
    since = Note.create("left_by_processes", operation="allreduce")
    origin = Note.create("entered", sort=None, dtype=None, tensor=None, literal=False, since=since)
    holds = Note.create("holds", origin=origin, bad="NaN", index=(0,))
    link = ChainLink(role="cause", op="c10d.allreduce_.default", phase="collective", site=line(25), typed_summary=holds)
    there = arrived(chain=(link,))
    ranks = {0: RankReport(bad(found()), "ended"), 1: RankReport(bad(there), "ended")}
    (birth,) = merge_ranks(ranks, 2).findings
    assert [(t.sender, t.receivers, t.receiver_site) for t in birth.transfers] == [(0, (1,), line(25))]
