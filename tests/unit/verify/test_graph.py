"""A repaired model is judged by the part that was changed: wrong repairs are rejected with the first reason."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests import defects
from tests.defects import Defect, N, model_of
from whynan.verify.onnx_program import judge_graph
from whynan.verify.onnx_program.regions import changed_region, inline_functions
from whynan.verify.onnx_program.run import Engines, OpenModel

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from whynan.records import FixVerdict
    from whynan.records.intents import FixKind

F32 = np.float32


def _with(defect: Defect, nodes: list[Any], held: dict[str, Any] | None = None) -> onnx.ModelProto:
    """The model of a defect with other nodes, and more constants."""
    model = onnx.ModelProto()
    model.CopyFrom(defect.model)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in (held or {}).items())
    return model


def _judged(defect: Defect, repaired: onnx.ModelProto, kind: FixKind = "reformulation") -> FixVerdict:
    feeds = [defect.failing, defect.healthy]
    return judge_graph(defect.model, repaired, feeds, kind=kind, engines=Engines(defect.engine))  # type: ignore[arg-type]


WRONG: dict[str, tuple[Any, list[Any], dict[str, Any], FixKind]] = {
    "the axis is another": (
        defects.log_softmax, [N("LogSoftmax", ["x"], ["y"], axis=0)], {}, "reformulation",
    ),
    "a constant": (
        defects.log_softmax,
        [N("Mul", ["x", "zero"], ["z"]), N("Add", ["z", "one"], ["y"])],
        {"zero": F32(0), "one": F32(1)},
        "reformulation",
    ),
    "a small number is added": (
        defects.log_softmax,
        [N("Softmax", ["x"], ["p"], axis=-1), N("Add", ["p", "eps"], ["q"]), N("Log", ["q"], ["y"])],
        {"eps": F32(1e-3)},
        "epsilon",
    ),
    "bad numbers are set to 0": (
        defects.logsumexp,
        [
            N("Exp", ["x"], ["e"]), N("ReduceSum", ["e", "axes"], ["s"], keepdims=0), N("Log", ["s"], ["l"]),
            N("IsInf", ["l"], ["bad"]), N("Where", ["bad", "zero", "l"], ["y"]),
        ],
        {"zero": F32(0)},
        "guard",
    ),
    "the exponent is limited": (
        defects.logsumexp,
        [
            N("Min", ["x", "most"], ["m"]), N("Exp", ["m"], ["e"]),
            N("ReduceSum", ["e", "axes"], ["s"], keepdims=0), N("Log", ["s"], ["y"]),
        ],
        {"most": F32(80)},
        "reformulation",
    ),
    "the sign is lost": (
        defects.log_sigmoid, [N("Neg", ["x"], ["n"]), N("Softplus", ["n"], ["y"])], {}, "reformulation",
    ),
    "it fails still": (
        defects.norm,
        [
            N("Mul", ["x", "x"], ["q"]), N("ReduceSum", ["q", "axes"], ["s"], keepdims=1), N("Sqrt", ["s"], ["n"]),
            N("Add", ["n", "eps"], ["m"]), N("Div", ["x", "m"], ["y"]),
        ],
        {"eps": F32(0)},
        "epsilon",
    ),
    "another shape": (
        defects.logsumexp,
        [N("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=1)],
        {},
        "reformulation",
    ),
    "it cannot run": (
        defects.log_softmax,
        [N("Reshape", ["x", "shape"], ["z"]), N("LogSoftmax", ["z"], ["y"])],
        {"shape": np.array([7])},
        "reformulation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_repair_is_rejected(name: str, snapshot: SnapshotAssertion) -> None:
    make, nodes, held, kind = WRONG[name]
    defect = make()
    verdict = _judged(defect, _with(defect, nodes, held), kind)
    assert verdict.status == "rejected"
    assert verdict.why == snapshot


def _clobbered(limit: str) -> tuple[Defect, onnx.ModelProto]:
    """A quotient whose denominator is set to 1 below a limit."""
    nodes = [N("Div", ["a", "b"], ["y"], name="div")]
    random = np.random.default_rng(0)
    bad = {"a": random.standard_normal((2, 8)).astype(F32), "b": random.standard_normal((2, 8)).astype(F32)}
    good = {name: value.copy() for name, value in bad.items()}
    bad["b"][0, 3] = 0
    defect = Defect(model_of(nodes, bad, ["y"]), bad, good)
    asked = {
        "below": [N("Less", ["b", "eps"], ["low"])],
        "near": [N("Abs", ["b"], ["m"]), N("Less", ["m", "eps"], ["low"])],
    }
    repaired = [*asked[limit], N("Where", ["low", "one", "b"], ["c"]), N("Div", ["a", "c"], ["y"])]
    return defect, _with(defect, repaired, {"eps": F32(1e-6), "one": F32(1)})


def test_a_guard_that_overwrites_negative_numbers_is_rejected_with_the_share(snapshot: SnapshotAssertion) -> None:
    verdict = _judged(*_clobbered("below"), kind="guard")
    assert verdict.status == "rejected"
    assert verdict.why == snapshot


def test_a_guard_that_moves_only_what_the_run_has_not_is_distorting(snapshot: SnapshotAssertion) -> None:
    verdict = _judged(*_clobbered("near"), kind="guard")
    assert verdict.status == "distorting"
    assert verdict.why == snapshot


def test_no_two_whole_models_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[weakref.ref[OpenModel]] = []
    known = Engines.open_model

    def opened(engines: Engines, model: onnx.ModelProto, *, optimised: bool = False) -> OpenModel:
        if model.graph.name == "part":
            return known(engines, model, optimised=optimised)
        assert not any(session() for session in sessions)
        found = known(engines, model, optimised=optimised)
        sessions.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Engines, "open_model", opened)
    defect = defects.log_softmax()
    assert _judged(defect, _with(defect, [N("LogSoftmax", ["x"], ["y"], axis=-1)])).status == "verified"
    # the original, the repaired model as written and optimised and on what was healthy, and what the part reads
    assert len(sessions) >= 5


def test_an_infinity_that_was_never_an_error_is_kept() -> None:
    """atan(1 / 0) is pi / 2: a guard of the quotient would make it pi / 4."""
    nodes = [N("Div", ["a", "b"], ["q"], name="div"), N("Atan", ["q"], ["y"], name="atan")]
    bad, good = {"a": np.array([0, 1], F32), "b": np.array([0, 0], F32)}, {"a": np.ones(2, F32), "b": np.ones(2, F32)}
    defect = Defect(model_of(nodes, bad, ["y"]), bad, good)
    guarded = [
        N("Equal", ["b", "zero"], ["at"]), N("Where", ["at", "one", "b"], ["c"]), N("Div", ["a", "c"], ["q"]), nodes[1],
    ]  # fmt: skip
    verdict = _judged(defect, _with(defect, guarded, {"zero": F32(0), "one": F32(1)}), kind="guard")
    assert verdict.status == "rejected"
    assert verdict.healthy_worse


@pytest.mark.parametrize(("given", "status"), [(1, "verified"), (7, "rejected"), (1.5, "rejected"), (0, "rejected")])
def test_at_a_removable_pole_only_the_limit_is_right(given: float, status: str) -> None:
    """sin(x) / x comes to 1 at 0."""
    nodes = [N("Sin", ["x"], ["s"], name="sin"), N("Div", ["s", "x"], ["y"], name="div")]
    bad, good = {"x": np.array([0, 1, 2], F32)}, {"x": np.array([0.5, 1, 2], F32)}
    defect = Defect(model_of(nodes, bad, ["y"]), bad, good)
    guarded = [
        nodes[0], N("Div", ["s", "x"], ["q"]), N("Equal", ["x", "zero"], ["at"]), N("Where", ["at", "one", "q"], ["y"]),
    ]  # fmt: skip
    verdict = _judged(defect, _with(defect, guarded, {"zero": F32(0), "one": F32(given)}), kind="guard")
    assert verdict.status == status, verdict


@pytest.mark.parametrize(("given", "status"), [(-100, "guarded"), (100, "rejected")])
def test_at_a_pole_a_number_of_the_other_sign_is_wrong(given: float, status: str) -> None:
    nodes = [N("Log", ["x"], ["y"], name="log")]
    bad, good = {"x": np.array([0, 1, 2], F32)}, {"x": np.array([0.5, 1, 2], F32)}
    defect = Defect(model_of(nodes, bad, ["y"]), bad, good)
    guarded = [
        N("Log", ["x"], ["l"]), N("Equal", ["x", "zero"], ["at"]), N("Where", ["at", "low", "l"], ["y"]),
    ]  # fmt: skip
    verdict = _judged(defect, _with(defect, guarded, {"zero": F32(0), "low": F32(given)}), kind="guard")
    assert verdict.status == status, verdict


def test_what_does_not_fail_by_itself_is_not_judged(snapshot: SnapshotAssertion) -> None:
    defect = defects.log_softmax()
    repaired = _with(defect, [N("LogSoftmax", ["x"], ["y"], axis=-1)])
    verdict = judge_graph(defect.model, repaired, [defect.healthy], kind="reformulation")
    assert (verdict.status, verdict.why) == ("unverified", snapshot)


def test_the_right_one_is_verified_whoever_wrote_it(snapshot: SnapshotAssertion) -> None:
    defect = defects.log_softmax()
    verdict = _judged(defect, _with(defect, [N("LogSoftmax", ["x"], ["y"], axis=-1)]))
    assert verdict.status == "verified"
    assert verdict.why == snapshot
    assert verdict.backward_finite is None


def test_what_remains_of_another_birth_is_said() -> None:
    nodes = [N("Log", ["a"], ["y"], name="one"), N("Log", ["b"], ["z"], name="two")]
    bad = {"a": np.array([0, 1], F32), "b": np.array([0, 1], F32)}
    good = {"a": np.ones(2, F32), "b": np.ones(2, F32)}
    defect = Defect(model_of(nodes, bad, ["y", "z"]), bad, good)
    repaired = _with(defect, [N("Max", ["a", "tiny"], ["c"]), N("Log", ["c"], ["y"]), nodes[1]], {"tiny": F32(1e-45)})
    both = judge_graph(defect.model, repaired, [bad], kind="guard")
    assert both.status == "rejected"
    alone = judge_graph(defect.model, repaired, [bad], kind="guard", others=1)
    assert alone.status == "guarded"
    assert [(s.lack, s.count, s.total) for s in alone.stand_ins] == [("infinite", 1, 2)]
    assert "1 elements of the outputs remain bad for another reason" in alone.why


@pytest.mark.parametrize("name", defects.DEFECTS)
def test_the_same_model_has_no_changed_part(name: str) -> None:
    model = inline_functions(defects.DEFECTS[name]().model)
    assert changed_region(model, model) is None


def test_the_changed_part_of_a_body_is_found_in_the_body() -> None:
    defect = defects.in_loop()
    other = onnx.ModelProto()
    other.CopyFrom(defect.model)
    body = next(a.g for a in other.graph.node[0].attribute if a.name == "body")
    body.node[1].op_type = "Mul"
    region = changed_region(defect.model, other)
    assert region is not None
    assert region.way == (("last", "body"),)
    assert (region.inputs, region.outputs) == (("x", "less"), ("part",))


def test_changes_in_two_bodies_have_no_verdict() -> None:
    defect = defects.in_branch()
    other = onnx.ModelProto()
    other.CopyFrom(defect.model)
    for attribute in other.graph.node[0].attribute:
        attribute.g.node[-1].op_type = "Abs"
    assert changed_region(defect.model, other) is None
