"""What ranks do in lockstep: who says what, who is not waited for, and which edit a rank makes of what it is told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from tests.unit.run.test_merging import found, report
from whynan.capture.ranks import TOGETHER, Rank
from whynan.records import Site
from whynan.run.proof.reruns import EditedRun
from whynan.run.ranks import rehearsal
from whynan.run.ranks.channel import Channel
from whynan.run.ranks.rehearsal import Rehearsal
from whynan.run.watch.joint_proof import JointRerunner, edits_anew, is_quiet
from whynan.training.collective_replay import Ensemble

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
Distributed: Any = dist


def ranks(world: int) -> list[Channel]:
    store = Distributed.HashStore()
    return [Channel(store, Rank(number, world)) for number in range(world)]


def both(*calls: Any) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [made.result(30) for made in [pool.submit(call) for call in calls]]


def test_each_rank_hears_what_all_have_said() -> None:
    first, second = ranks(2)
    with first.suspicion(), second.suspicion():
        one, two = Rehearsal(first), Rehearsal(second)
        assert both(one.gather, two.gather) == [True, True]
        assert both(lambda: one.exchange("a"), lambda: two.exchange(None)) == [["a", None]] * 2
        assert both(lambda: one.exchange(1), lambda: two.exchange(2)) == [[1, 2]] * 2


def test_there_is_none_where_a_rank_looks_into_no_bad_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_GATHER", 0.1)
    first, _ = ranks(2)
    with first.suspicion():
        one = Rehearsal(first)
        assert not one.gather()
        assert one.exchange("a") == []


def test_where_one_rank_leaves_it_is_over_for_all() -> None:
    first, second = ranks(2)
    with first.suspicion(), second.suspicion():
        one, two = Rehearsal(first), Rehearsal(second)
        assert both(one.gather, two.gather) == [True, True]
        assert both(lambda: one.exchange("a"), two.leave)[0] == []
        assert one.is_over


def test_a_rank_without_a_sign_of_life_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_GONE", 0.2)
    first, second = ranks(2)
    with first.suspicion(), second.suspicion():
        one = Rehearsal(first)
        assert one.gather()
        assert one.exchange("a") == []


def test_what_trials_take_is_counted_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_FIRST", -1.0)
    first, second = ranks(2)
    with first.suspicion(), second.suspicion():
        one, two = Rehearsal(first), Rehearsal(second)
        assert both(one.gather, two.gather) == [True, True]
        one.begin_trials()
        two.begin_trials()
        assert both(lambda: one.exchange("a"), lambda: two.exchange("b")) == [["a", "b"]] * 2
    first, second = ranks(2)
    with first.suspicion(), second.suspicion():
        one = Rehearsal(first)
        assert one.gather()
        assert one.exchange("a") == []


@pytest.mark.parametrize("alone", [False, True])
def test_one_rank_tries_an_edit_by_itself_only_where_nothing_is_exchanged(alone: bool) -> None:
    ran = EditedRun(report())

    class Way:
        def trial(self, *edit: str) -> EditedRun:
            assert edit == ("net.py", "before", "after")
            return ran

    rerunner = JointRerunner(cast("Any", Way()), None, alone=alone)
    assert rerunner.trial("net.py", "before", "after") == (ran if alone else TOGETHER)


def test_calls_of_ranks_that_differ_are_not_made() -> None:
    store = Distributed.HashStore()

    def call(number: int, spelled: str) -> tuple[bool, bool]:
        made = Ensemble(store, Rank(number, 2), 10.0)
        group: Any = Distributed.ProcessGroup(number, 2)
        alike = made.is_alike("0", group, "all_reduce"), made.is_alike("0", group, spelled)
        made.close()
        return alike

    assert both(lambda: call(0, "all_reduce [3]"), lambda: call(1, "all_reduce [48]")) == [(True, False)] * 2


def test_a_replay_is_over_where_it_is_on_one_rank_or_one_is_gone() -> None:
    store, said = Distributed.HashStore(), threading.Event()

    def first() -> list[bool]:
        made = Ensemble(store, Rank(0, 2), 10.0)
        answers = [made.agree(over=False), made.agree(over=False)]
        said.set()
        return [*answers, made.agree(over=False)]

    def second() -> list[bool]:
        made = Ensemble(store, Rank(1, 2), 10.0)
        answers = [made.agree(over=False), made.agree(over=True)]
        said.wait(10)
        made.close()
        return answers

    assert both(first, second) == [[False, True, True], [False, True]]


def test_nothing_is_under_way_where_all_ranks_of_a_group_have_made_the_same_calls() -> None:
    assert is_quiet([{"0": 3, "1": 2}, {"0": 3}])
    assert not is_quiet([{"0": 3}, {"0": 2}])


def test_a_rank_makes_only_the_edits_of_its_own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whynan.fixes.candidates import Declined
    from whynan.fixes.python import candidates, patch
    from whynan.rules.catalogue import rules

    monkeypatch.chdir(tmp_path)
    text = "import torch\n\n\ndef length(x):\n    return x.sum().sqrt()\n"
    Path("net.py").write_text(text)
    site = Site(file="net.py", line=5, column=12, end_line=5, end_column=26, code="x.sum().sqrt()", function="length")
    born = found(rule="WN301", phase="backward", birth="pole", site=site, forward_op="aten.sqrt.default")
    fixes = next(rule.fixes for rule in rules() if rule.code == "WN301")
    made = [one for one in candidates(text, born, fixes) if not isinstance(one, Declined)]
    texts = {"net.py": text, "other.py": text}

    def anew(path: str, edited: str) -> object:
        return edits_anew({"patch": patch(path, text, edited), "mends": []}, [born], texts)

    assert anew("net.py", made[0].edited) == ((str(tmp_path / "net.py"), text, made[0].edited),)
    assert anew("net.py", text.replace("x.sum()", "__import__('os').getpid()")) is None
    # nor is a file edited that the program has not loaded
    assert anew("../net.py", made[0].edited) is None


def test_sums_of_an_ensemble_are_those_of_its_ranks() -> None:
    store = Distributed.HashStore()

    def add(number: int) -> float:
        made = Ensemble(store, Rank(number, 2), 10.0)
        held = torch.tensor([float(number + 1)])
        made.group("0", number, 2).allreduce([held]).wait()
        made.close()
        return float(held)

    assert both(lambda: add(0), lambda: add(1)) == [3.0, 3.0]
