"""A bad number on one rank: all ranks stop, and one report says on which it was born and how it came to the others."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from jsonschema import Draft202012Validator

from whynan.report.json import schema

pytestmark = [pytest.mark.process, pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")]

PROGRAMS = Path(__file__).parents[1] / "programs" / "ranks"
PROGRAM, ENDS, PROOFS = PROGRAMS / "kinds.py", PROGRAMS / "ends.py", PROGRAMS / "proofs.py"
EARLIER = PROGRAMS / "earlier.py"
LINES = PROGRAM.read_text().splitlines()
SECONDS = 60
"""From the bad step to the end of the last process."""
START = 60
"""For what comes before it, on a busy machine."""
ELSEWHERE = {
    line[4:-3]: program
    for program in (ENDS, PROOFS, EARLIER)
    for line in program.read_text().splitlines()
    if line.startswith("def ") and line.endswith("():")
}
"""The kinds of the other programs."""


def marked(comment: str, program: Path = PROGRAM) -> int | None:
    """The line that ends with a comment; None where none does."""
    lines = LINES if program is PROGRAM else program.read_text().splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}")), None)


@dataclass(frozen=True)
class Ended:
    """How a program of several ranks ended."""

    status: int
    report: dict[str, Any] | None
    said: tuple[str, ...]
    stdout: str
    stderr: str


def processes(folder: Path) -> list[int]:
    """The processes that were started for a folder and are still there."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"RANKS_OF={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def start(folder: Path, *arguments: str, options: tuple[str, ...] | None, world: int = 2) -> subprocess.Popen[str]:
    """Start the program under torchrun; by whynan where there are options."""
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    by = [] if options is None else ["-m", "whynan", "run", "--json", "report.json", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1", "RANKS_OF": str(folder)}
    return subprocess.Popen(
        [*launcher, *by, str(ELSEWHERE.get(arguments[0], PROGRAM)), *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder: Path, process: subprocess.Popen[str], seconds: float = SECONDS + START) -> Ended:
    """Wait for its end; no process is left, and one report at most."""
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    finally:
        process.kill()
    # workers of a loader see that their parent is gone within seconds
    end = time.monotonic() + 15
    while (left := processes(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []
    written = [path.name for path in folder.glob("report*")]
    assert written in ([], ["report.json"])
    report = json.loads((folder / "report.json").read_text()) if written else None
    if report is not None:
        Draft202012Validator(schema()).validate(report)
    said = tuple(path.read_text() for path in sorted(folder.glob("said.*")))
    return Ended(process.returncode, report, said, stdout, stderr)


def ran(folder: Path, *arguments: str, options: tuple[str, ...] | None = (), world: int = 2) -> Ended:
    """Run the program to its end."""
    return ended(folder, start(folder, *arguments, options=options, world=world))


@dataclass(frozen=True)
class Expected:
    """What is to be said of a kind of program: of which rank, with which phase, and how it came to the other."""

    kind: str
    rank: int
    phase: str
    operation: str | None = None
    is_sent_known: bool = False
    step: int = 4


SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
"""As fully_shard calls it."""
BAD = [
    Expected("replicas", 1, "backward", "all_reduce"),
    Expected("accumulation", 0, "backward", "all_reduce"),
    Expected("sums", 1, "backward", "all_reduce", is_sent_known=True),
    Expected("later_sums", 1, "backward", "all_reduce", is_sent_known=True),
    Expected("contrast", 1, "forward", "all_gather", is_sent_known=True),
    Expected("pipeline", 0, "forward", "send"),
    Expected("evaluation", 0, "forward", step=5),
    Expected("half_sums", 0, "collective"),
    Expected("compressed", 1, "accumulation", "all_reduce"),
    Expected("loader", 0, "backward"),
    Expected("scaler", 0, "forward"),
    Expected("joined", 1, "backward", step=6),
    Expected("local_steps", 1, "backward"),
    Expected("redundancy", 0, "backward", "all_reduce"),
    Expected("experts", 0, "forward", "all_to_all_single", is_sent_known=True),
    Expected("stages", 1, "backward", "send"),
    Expected("shards", 1, "backward", SCATTER),
    Expected("low_rank", 1, "backward", "a collective"),
    Expected("parts", 1, "optimizer", step=1),
]
SAMPLE = ("replicas", "shards")


@pytest.mark.parametrize(
    "expected",
    [pytest.param(e, id=e.kind, marks=[] if e.kind in SAMPLE else pytest.mark.full) for e in BAD],
)
def test_one_report_names_the_rank_and_the_line_that_were_first(expected: Expected, tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", expected.kind, "bad")
    assert done.status == 1
    assert done.report is not None, done.stderr
    assert done.report["verdict"] == "nonfinite"
    (found,) = done.report["findings"]
    place = found["site"]["line"], found["rank"], found["phase"], found["step"]
    assert place == (marked(f"born {expected.kind}"), expected.rank, expected.phase, expected.step)
    if expected.operation is not None:
        (transfer,) = found["transfers"]
        assert (transfer["operation"], transfer["sender"]) == (expected.operation, expected.rank)
        assert transfer["receivers"] == [1 - expected.rank]
        if expected.is_sent_known:
            lines = transfer["sender_site"]["line"], transfer["receiver_site"]["line"]
            assert lines == (marked(f"sent {expected.kind}"),) * 2
    ends = {rank["end"] for rank in done.report["run"]["ranks"]}
    assert ends <= {"stopped", "blocked", "ended"}
    # one rank speaks
    assert done.stderr.count("1 error (") == 1


@pytest.mark.full
def test_an_element_of_a_weight_in_parts_is_told_by_its_index_in_the_whole(tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", "parts", "bad")
    assert done.report is not None, done.stderr
    element = done.report["findings"][0]["element"]
    assert (element["tensor"], element["index"], element["shape"]) == ("weight", [2, 0], [3, 4])
    assert (element["global_index"], element["global_shape"]) == ([5, 0], [6, 4])
    assert "[5, 0] of weight, f32[6, 4], is NaN, and 3 more of the 12 on this rank" in done.stderr


@pytest.mark.full
def test_a_value_that_does_no_harm_where_it_was_born_is_told_as_arrived(tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", "statistics", "bad")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    (transfer,) = found["transfers"]
    assert (found["rank"], found["birth"]) == (1, "entered")
    assert (transfer["operation"], transfer["sender"], transfer["receivers"]) == ("broadcast", 0, [1])
    assert transfer["receiver_site"]["line"] == marked("sent statistics")


@pytest.mark.full
def test_of_what_is_gathered_the_rank_is_told_that_it_came_from(tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", "gathered", "bad")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    (transfer,) = found["transfers"]
    assert (found["rank"], found["birth"], found["step"]) == (0, "entered", 5)
    assert (transfer["operation"], transfer["sender"], transfer["receivers"]) == ("gather", 1, [0])
    assert transfer["receiver_site"]["line"] == marked("sent gathered")


@pytest.mark.full
def test_weights_in_parts_over_a_mesh_of_ranks(tmp_path: Path) -> None:
    alone = ran(tmp_path / "alone", "mesh", options=None, world=4)
    seen = ran(tmp_path / "seen", "mesh", world=4)
    assert (seen.status, seen.said) == (0, alone.said), seen.stderr
    done = ran(tmp_path / "bad", "mesh", "bad", "first", options=("--mode", "trace"), world=4)
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    place = found["site"]["line"], found["rank"], found["phase"], found["step"]
    assert place == (marked("born mesh"), 1, "backward", 1)
    assert {"0.weight", "2.weight"} <= {reached["name"] for reached in found["reaches"]}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["statistics", "replicas", "sums", "half_sums"])
def test_what_is_traced_names_the_birth_on_the_other_rank(kind: str, tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", kind, "bad", "first", options=("--mode", "trace"))
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["site"]["line"], found["step"]) == (marked(f"born {kind}"), 1)


@pytest.mark.full
def test_equal_findings_of_several_ranks_are_one(tmp_path: Path) -> None:
    done = ran(tmp_path / "bad", "half_sums", "bad", world=4)
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rank"], found["ranks"]) == (0, [0, 1, 2, 3])
    assert "on ranks 0, 1, 2 and 3" in done.stderr


@dataclass(frozen=True)
class Proof:
    """What is to be said of a fix of a kind of program."""

    kind: str
    status: str
    why: str = ""
    world: int = 2


PROOF = [
    Proof("roots", "verified"),
    Proof("summed", "verified"),
    Proof("summed", "verified", world=4),
    Proof("failing", "unverified", "it was not tried in the program"),
    Proof("left_bad", "unverified", "with it rank 0 ends with a bad number"),
    Proof("diverging", "unverified", "the ranks call different collectives"),
]


@pytest.mark.proof
@pytest.mark.parametrize(
    "proof",
    [pytest.param(p, id=f"{p.kind}-{p.world}", marks=[] if p.kind == "roots" else pytest.mark.full) for p in PROOF],
)
def test_a_fix_is_proved_where_all_ranks_go_on_with_it(proof: Proof, tmp_path: Path) -> None:
    done = ran(tmp_path / "proved", proof.kind, world=proof.world)
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rank"], found["rule"], found["step"]) == (1, "WN301", 4)
    (best, *_) = found["fixes"]
    assert (best["verdict"]["status"], "torch.where" in best["patch"]) == (proof.status, True), best["verdict"]["why"]
    assert proof.why in best["verdict"]["why"]
    assert {rank["end"] for rank in done.report["run"]["ranks"]} == {"stopped"}


@pytest.mark.full
def test_a_fix_that_edits_several_files_is_proved_by_all_ranks(tmp_path: Path) -> None:
    done = ran(tmp_path / "apart", "apart")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rank"], found["rule"], found["step"]) == (1, "WN207", 4)
    (best, *_) = found["fixes"]
    assert best["verdict"]["status"] == "verified", best["verdict"]["why"]
    files = [Path(line.split()[1]).name for line in best["patch"].splitlines() if line.startswith("+++ ")]
    assert files == ["proofs.py", "probabilities.py"]


@pytest.mark.full
@pytest.mark.proof
def test_a_fix_of_several_expressions_is_proved_by_all_ranks(tmp_path: Path) -> None:
    done = ran(tmp_path / "both", "both")
    assert done.report is not None, done.stderr
    for found in done.report["findings"]:
        (best, *_) = found["fixes"]
        assert best["verdict"]["status"] == "guarded", best["verdict"]["why"]
        assert [left["rule"] for left in best["further"]] == [{"WN301": "WN308", "WN308": "WN301"}[found["rule"]]]


@pytest.mark.full
@pytest.mark.proof
def test_a_step_whose_collectives_were_not_kept_is_replayed_by_all_ranks(tmp_path: Path) -> None:
    done = ran(tmp_path / "clipped", "clipped")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rank"], found["rule"], found["step"]) == (1, "WN301", 4)
    assert done.report["run"]["replay"]["faithful"] is True
    assert found["fixes"][0]["verdict"]["status"] == "verified", found["fixes"][0]["verdict"]["why"]


@pytest.mark.full
def test_what_an_update_has_made_is_led_back_by_all_ranks_from_the_program_s_start(tmp_path: Path) -> None:
    done = ran(tmp_path / "moved", "moved")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rule"], found["phase"], found["step"], found["ranks"]) == ("WN801", "optimizer", 4, [0, 1])
    assert found["site"]["line"] == marked("born moved", EARLIER)
    assert "NaN in the parameters at step 5, born in step 4 on ranks 0 and 1" in done.stderr
    assert done.report["run"]["replay"]["faithful"] is True


@pytest.mark.parametrize("mode", ["trace", pytest.param("watch", marks=pytest.mark.full)])
def test_a_weight_that_is_spoilt_and_read_no_more_is_told_on_each_rank(mode: str, tmp_path: Path) -> None:
    done = ran(tmp_path / "given", "given", options=("--mode", mode))
    assert done.report is not None, done.stderr
    verdict = {"trace": "nonfinite", "watch": "inconclusive"}[mode]
    assert {rank["verdict"] for rank in done.report["run"]["ranks"]} == {done.report["verdict"]} == {verdict}
    if mode == "trace":
        (found,) = done.report["findings"]
        assert (found["site"]["line"], found["ranks"]) == (marked("born given", EARLIER), [0])
        (transfer,) = found["transfers"]
        assert (transfer["operation"], transfer["sender"], transfer["receivers"]) == ("broadcast", 0, [1])


@pytest.mark.full
def test_a_buffer_that_came_to_the_others_is_led_back_to_the_rank_that_spoilt_it(tmp_path: Path) -> None:
    done = ran(tmp_path / "level", "level")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["rule"], found["phase"], found["step"], found["ranks"]) == ("WN201", "forward", 4, [0])
    assert found["site"]["line"] == marked("born level", EARLIER)
    (transfer,) = found["transfers"]
    assert (transfer["operation"], transfer["sender"], transfer["receivers"]) == ("broadcast", 0, [1])
    assert found["fixes"][0]["verdict"]["status"] == "distorting", found["fixes"][0]["verdict"]["why"]


@pytest.mark.full
def test_a_buffer_that_is_not_led_back_is_told_of_the_rank_that_gave_it_to_the_others(tmp_path: Path) -> None:
    done = ran(tmp_path / "beside", "level_beside")
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (found["ranks"], found["step"]) == ([0], 5)
    (transfer,) = found["transfers"]
    assert (transfer["operation"], transfer["sender"], transfer["receivers"]) == ("broadcast", 0, [1])
    assert "buffer module.level holds -Inf" in done.stderr


HEALTHY = [
    *("replicas", "accumulation", "sums", "later_sums", "statistics", "contrast", "pipeline", "evaluation"),
    *("half_sums", "compressed", "loader", "scaler", "masked", "uneven"),
    *("joined", "local_steps", "gathered", "redundancy", "experts", "stages", "shards", "low_rank"),
]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "replicas" else pytest.mark.full) for kind in HEALTHY]
)
def test_a_healthy_program_is_clean_and_does_what_it_does_alone(kind: str, tmp_path: Path) -> None:
    alone = ran(tmp_path / "alone", kind, options=None)
    seen = ran(tmp_path / "seen", kind)
    assert (alone.status, seen.status) == (0, 0), seen.stderr
    assert (seen.said, sorted(seen.stdout.splitlines())) == (alone.said, sorted(alone.stdout.splitlines()))
    assert seen.report is not None
    assert seen.report["verdict"] == "clean"
    assert [(r["rank"], r["end"]) for r in seen.report["run"]["ranks"]] == [(0, "ended"), (1, "ended")]
    assert seen.stderr.count("clean: no bad number") == 1


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == "awaited" else pytest.mark.full)
        for kind in ("awaited", "left", "objects")
    ],
)
def test_no_rank_waits_for_the_end_of_another(kind: str, tmp_path: Path) -> None:
    done = ran(tmp_path / "ended", kind, world=2 if kind == "awaited" else 4)
    assert done.status == 0, done.stderr
    assert done.report is not None
    assert done.report["verdict"] == "clean"
    assert {rank["end"] for rank in done.report["run"]["ranks"]} == {"ended"}
    assert done.stderr.count("clean: no bad number") == 1


@pytest.mark.parametrize("kind", ["raises", pytest.param("raises_backward", marks=pytest.mark.full)])
def test_a_rank_that_fails_fails_as_it_would_alone(kind: str, tmp_path: Path) -> None:
    what = {"raises": "KeyError: 'no such column'", "raises_backward": "RuntimeError: shape '[7]' is invalid"}[kind]
    done = ran(tmp_path / "raised", kind)
    assert done.status == 1
    assert f"[rank1]: {what}" in done.stderr
    assert done.report is not None
    assert done.report["verdict"] == "clean"
    assert done.report["run"]["exception"].startswith(what.partition(":")[0])
    first, other = done.report["run"]["ranks"]
    assert (other["end"], other["script"]) == ("ended", 1)
    # the other is ended by the launcher, or by what it waits for
    assert first["end"] == ("terminated" if kind == "raises" else "ended")


@pytest.mark.full
def test_a_rank_with_findings_that_goes_on_does_not_end_the_others(tmp_path: Path) -> None:
    done = ran(tmp_path / "continued", "continues", options=("--on-nonfinite", "continue"))
    assert done.report is not None, done.stderr
    assert (done.status, done.report["verdict"]) == (1, "inconclusive")
    assert [(rank["end"], rank["script"]) for rank in done.report["run"]["ranks"]] == [("ended", 0)] * 2


@pytest.mark.parametrize(
    ("kind", "world"),
    [
        pytest.param(*case, marks=[] if case == ("skips", 2) else pytest.mark.full)
        for case in product(["skips", "skips_replicas", "skips_shards"], [2, 4])
    ],
)
def test_a_step_that_is_bad_on_one_rank_is_skipped_on_all(kind: str, world: int, tmp_path: Path) -> None:
    alone = ran(tmp_path / "alone", kind, "by_hand", options=None, world=world)
    seen = ran(tmp_path / "seen", kind, options=("--on-nonfinite", "skip"), world=world)
    assert alone.status == 0, alone.stderr
    assert len(seen.said) == world
    assert seen.said == alone.said
    assert seen.report is not None, seen.stderr
    assert (seen.status, seen.report["verdict"]) == (1, "inconclusive")
    assert {(rank["end"], rank["script"]) for rank in seen.report["run"]["ranks"]} == {("ended", 0)}
    if kind == "skips":
        assert "note: rank 0 has left out" in seen.stderr


@pytest.mark.full
def test_ranks_that_do_not_step_side_by_side_skip_by_themselves(tmp_path: Path) -> None:
    done = ran(tmp_path / "parted", "skips_in_turn", options=("--on-nonfinite", "skip"))
    assert done.report is not None, done.stderr
    assert {(rank["end"], rank["script"]) for rank in done.report["run"]["ranks"]} == {("ended", 0)}
    assert "from step 1 on each rank has left out its own bad steps alone" in done.stderr


@pytest.mark.parametrize(
    ("kind", "world"), [("replicas", 2), *(pytest.param("sums", n, marks=pytest.mark.full) for n in (2, 4))]
)
def test_the_rank_that_was_first_raises_and_all_end(kind: str, world: int, tmp_path: Path) -> None:
    done = ran(tmp_path / "raised", kind, "bad", options=("--on-nonfinite", "raise"), world=world)
    assert done.report is not None, done.stderr
    (found,) = done.report["findings"]
    assert (done.status, found["rank"], found["step"]) == (1, 1, 4)
    raised = [line for line in done.stderr.splitlines() if "whynan.errors.NonFiniteError" in line]
    assert [line.partition(":")[0] for line in raised] == ["[rank1]"]
    assert "[rank1]:     optimizer.step()" in done.stderr
    assert {rank["end"] for rank in done.report["run"]["ranks"]} <= {"stopped", "blocked"}
    # what the program makes of the exception is known later, if at all
    assert {rank["script"] for rank in done.report["run"]["ranks"]} <= {None, 1}


@pytest.mark.full
def test_what_a_stopped_rank_has_written_is_in_its_files(tmp_path: Path) -> None:
    done = ran(tmp_path / "stopped", "written")
    assert done.report is not None, done.stderr
    assert (done.report["verdict"], done.report["findings"][0]["rank"]) == ("nonfinite", 1)
    assert [(tmp_path / "stopped" / f"log.{number}").read_text() for number in (0, 1)] == ["begun\n"] * 2


@pytest.mark.parametrize("kind", ["roots", pytest.param("left", marks=pytest.mark.full)])
def test_the_first_rank_to_know_leaves_a_report_where_all_are_killed(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process = start(folder, kind, options=())
    while not (folder / "report.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for one in processes(folder):
        os.kill(one, signal.SIGKILL)
    done = ended(folder, process, SECONDS)
    assert done.report is not None
    if kind == "roots":
        (found,) = done.report["findings"]
        assert (done.report["verdict"], found["rank"], found["rule"]) == ("nonfinite", 1, "WN301")
    else:
        assert done.report["verdict"] == "inconclusive"
    assert sorted(rank["end"] for rank in done.report["run"]["ranks"])[0] == ("ended" if kind == "left" else "missing")
    assert any("has left this report before there is one of all ranks" in n for n in done.report["coverage"]["notes"])


@pytest.mark.parametrize("number", [pytest.param(n, marks=[] if n < 1 else pytest.mark.full) for n in range(100)])
def test_whatever_rank_is_killed_the_others_end(number: int, tmp_path: Path) -> None:
    chance = random.Random(number)
    folder, world = tmp_path / "killed", chance.choice([2, 2, 4])
    kind = chance.choice(
        ["replicas", "sums", "evaluation", "uneven", "contrast", "half_sums", "raises", "awaited", "roots"]
    )
    process = start(folder, kind, *chance.choice([(), ("bad",)]), options=(), world=world)
    victim, told = chance.randrange(world), chance.choice([signal.SIGKILL, signal.SIGTERM])
    time.sleep(chance.uniform(1, 12))
    for one in processes(folder):
        try:
            if f"\0RANK={victim}\0".encode() in Path(f"/proc/{one}/environ").read_bytes():
                os.kill(one, told)
                break
        except OSError:
            continue
    ended(folder, process, SECONDS)
