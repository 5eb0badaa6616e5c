"""``whynan diff``: equal pairs are clean, one planted change is found at its node, the exporter's hazards are named."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn, tensor
from torch.nn import functional as F

import whynan
from tests.quality.conftest import Tally
from tests.quality.diffs.models import EXPORTS, MODELS, exported
from tests.quality.diffs.operators import exports
from tests.quality.diffs.planting import planted, set_attribute
from tests.selection import sampled

INF = float("inf")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all models and their exports."""
    made = tmp_path_factory.mktemp("models")
    exported(made)
    return made


# -- Equal pairs -------------------------------------------------------------------------------------------------------


PAIRS = [
    *(pytest.param(one, other, {}, id=f"{one}-{other}") for one, other in itertools.permutations(EXPORTS, 2)),
    *(pytest.param("program", other, {}, id=f"program-{other}") for other in EXPORTS),
    *(
        pytest.param(one, None, {setting: value}, id=f"{one}-{value}")
        for one in ("d20", "t17")
        for setting, value in (
            ("b_opt_level", "none"),
            ("b_opt_level", "basic"),
            ("b_opt_level", "extended"),
            ("b_dtype", "fp64"),
            ("b_dtype", "fp16"),
            ("b_dtype", "bf16"),
            ("b_engine", "reference"),
        )
    ),
    pytest.param("program", None, {"b_dtype": "fp64"}, id="program-fp64"),
]


def file_of(folder: Path, name: str, form: str | None) -> str | None:
    """The file of a model in one form."""
    if form is None:
        return None
    return str(folder / (f"{name}.pt2" if form == "program" else f"{name}-{form}.onnx"))


@pytest.mark.parametrize("name", sampled(MODELS, 4))
@pytest.mark.parametrize(("a", "b", "setting"), PAIRS)
def test_two_forms_of_one_model_agree(
    name: str, a: str, b: str | None, setting: dict[str, Any], folder: Path, tally: Tally
) -> None:
    report = whynan.diff(file_of(folder, name, a), file_of(folder, name, b), exported(folder)[name], **setting)
    tally.count("diff: equal pairs that are clean", report.verdict == "clean", 1)
    assert report.verdict == "clean", str(report)
    assert report.coverage.aligned is not None
    assert report.coverage.aligned.values > 0


# -- Planted changes ---------------------------------------------------------------------------------------------------


WAYS = ("plain", "renamed", "exporter", "exporter-renamed", "program")
SEEDS = range(40)


class Plan(NamedTuple):
    """Which model is changed in which export, and with which other form it is compared, in which disguise."""

    name: str
    form: str
    other: str
    way: str


def drawn(draw: random.Random) -> Plan:
    name, form, way = draw.choice(MODELS), draw.choice(list(EXPORTS)), draw.choice(WAYS)
    if way == "program" and name in ("recurrent", "wave", "loop"):
        # one operator of torch is many nodes there, of which no value but the last is known
        way = "exporter-renamed"
    # two exporters count the iterations of a loop in other ways
    others = [one for one in EXPORTS if one != form and (name != "loop" or one[0] == form[0])]
    return Plan(name, form, form if way in ("plain", "renamed") else draw.choice(others), way)


def test_thirty_of_forty_changes_are_disguised_and_each_model_has_some() -> None:
    plans = [drawn(random.Random(seed)) for seed in SEEDS]
    assert sum(plan.way != "plain" for plan in plans) >= 30
    assert {plan.name for plan in plans} == {*MODELS}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_change_is_found_at_its_node(seed: int, folder: Path, tmp_path: Path, tally: Tally) -> None:
    draw = random.Random(seed)
    plan = drawn(draw)
    a = file_of(folder, plan.name, "program" if plan.way == "program" else plan.other)
    feeds = exported(folder)[plan.name]
    model = onnx.load(str(file_of(folder, plan.name, plan.form)))
    found = planted(model, feeds, draw, disguise=plan.way.endswith("renamed"))
    assert found is not None
    path = tmp_path / "planted.onnx"
    onnx.save(found.model, path)
    report = whynan.diff(a, path, feeds)
    # of a node in a body the name stands behind that of the body and the iteration
    hit = any({str(one.node).rpartition("]/")[2], one.value} & found.names for one in report.findings)
    tally.count("diff: planted changes found at their node", hit, 1)
    assert report.verdict == "divergent", (*plan, found.kind)
    assert hit, (*plan, found.kind, found.names, str(report))


# -- The exporter's hazards --------------------------------------------------------------------------------------------


class Function(nn.Module):
    """A function of one or two tensors as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.function(x) if y is None else self.function(x, y)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


MASK = [[True, True, False], [False, False, False], [True, True, True]]
HAZARDS: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...], tuple[Tensor, ...]]] = {
    "atan2": (
        "WNX01",
        torch.atan2,
        (tensor([0.0, 1.0]), tensor([-1.0, 2.0])),
        (tensor([0.1, 1.0]), tensor([1.0, 2.0])),
    ),
    "logsigmoid": ("WNX02", F.logsigmoid, (tensor([-20.0, 1.0]),), (tensor([-1.0, 3.0]),)),
    "logaddexp": (
        "WNX03",
        torch.logaddexp,
        (tensor([100.0, 1.0]), tensor([100.0, 2.0])),
        (tensor([0.5, 1.0]), tensor([3.0, 2.0])),
    ),
    "bce": (
        "WNX04",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
        (tensor([-20.0, 1.0]), tensor([1.0, 0.0])),
        (tensor([-0.5, 1.0]), tensor([1.0, 0.0])),
    ),
    "log1p": ("WNX05", torch.log1p, (tensor([1e-8, 0.5]),), (tensor([2.0, 0.5]),)),
    "expm1": ("WNX06", torch.expm1, (tensor([1e-8, 0.5]),), (tensor([2.0, 1.5]),)),
    "floor": (
        "WNX07",
        torch.floor_divide,
        (tensor([1.0, 0.7]), tensor([0.1, 0.1])),
        (tensor([7.0, 1.5]), tensor([2.0, 0.4])),
    ),
    "remainder": (
        "WNX08",
        torch.remainder,
        (tensor([1.0, 5.0]), tensor([INF, 3.0])),
        (tensor([1.0, 5.0]), tensor([2.0, 3.0])),
    ),
    "pool": (
        "WNX09",
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        (torch.arange(16.0).view(1, 1, 4, 4),),
        (torch.zeros(1, 1, 4, 4),),
    ),
    "scatter": (
        "WNX10",
        lambda x, y: torch.zeros(3).scatter_reduce(0, y, x, "mean", include_self=False),
        (tensor([1.0, 2.0, 3.0]), tensor([0, 0, 1])),
        (tensor([1.0, 2.0, 3.0]), tensor([0, 2, 1])),
    ),
    "smoothing": (
        "WNX11",
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        (normal(4, 5), tensor([0, 1, 2, 3])),
        (torch.zeros(4, 5), tensor([0, 1, 2, 3])),
    ),
    "attention": (
        "WNX12",
        lambda x, y: F.scaled_dot_product_attention(x, x, x, attn_mask=y),
        (normal(1, 1, 3, 4), tensor(MASK)),
        (normal(1, 1, 3, 4), torch.ones(3, 3, dtype=torch.bool)),
    ),
    "attention-of-infinity": (
        "WNX12",
        lambda x, y: F.scaled_dot_product_attention(x, x, x, attn_mask=y),
        (normal(1, 1, 3, 4), torch.zeros(3, 3).masked_fill(~tensor(MASK), -INF)),
        (normal(1, 1, 3, 4), torch.zeros(3, 3)),
    ),
    "topk": (
        "WNX13",
        lambda x: torch.topk(x, 3),
        (tensor([[1.0, 2.0, 2.0, 2.0, 0.0, 2.0]]),),
        (tensor([[1.0, 5.0, 4.0, 2.0, 0.0, 3.0]]),),
    ),
    "elu": ("WNX14", F.elu, (tensor([-1e-8, 1.0]),), (tensor([-1.0, 1.0]),)),
    "maximum": ("WNX15", lambda x: x.amax(-1), (tensor([[1.0, float("nan"), 2.0]]),), (tensor([[1.0, 3.0, 2.0]]),)),
    "sign": ("WNX16", torch.sign, (tensor([float("nan"), 1.0]),), (tensor([-1.0, 1.0]),)),
}
"""The rule, a function, operands at which its export is wrong, and operands at which it is right."""


def export_diff(function: Callable[..., Any], operands: tuple[Tensor, ...], path: Path) -> whynan.Report:
    """A function beside its export."""
    module = Function(function).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, operands, str(path), dynamo=True, verbose=False, external_data=False)
    return whynan.diff(module, path, list(operands))


@pytest.mark.parametrize("name", HAZARDS)
def test_a_hazard_of_the_exporter_is_named(name: str, tmp_path: Path) -> None:
    rule, function, wrong, _ = HAZARDS[name]
    report = export_diff(function, wrong, tmp_path / "wrong.onnx")
    assert report.verdict == "divergent", str(report)
    assert report.findings[0].rule == rule


CHANGED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str, str, Any]] = {
    "pool": (lambda x: F.avg_pool2d(x, 3, 1, 1), (normal(1, 1, 4, 4),), "AveragePool", "count_include_pad", 0),
    "attention": (
        lambda x, y: F.scaled_dot_product_attention(x, x, x, attn_mask=y),
        (normal(1, 2, 3, 4), torch.zeros(3, 3)),
        "Softmax",
        "axis",
        1,
    ),
}
"""A function, operands at which its export is right, and an attribute of a node of it that is given another value."""


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_the_model_is_no_hazard_of_the_exporter(name: str, tmp_path: Path) -> None:
    function, operands, op, attribute, value = CHANGED[name]
    path = tmp_path / "changed.onnx"
    assert export_diff(function, operands, path).verdict == "clean"
    changed = onnx.load(path)
    node = next(node for node in changed.graph.node if node.op_type == op)
    set_attribute(node, attribute, value)
    onnx.save(changed, path)
    report = whynan.diff(Function(function).eval(), path, list(operands))
    assert (report.verdict, report.findings[0].rule, report.findings[0].node) == ("divergent", "WN000", node.name)


@pytest.mark.parametrize("name", HAZARDS)
def test_where_the_export_is_right_nothing_is_said(name: str, tmp_path: Path) -> None:
    _, function, _, right = HAZARDS[name]
    assert export_diff(function, right, tmp_path / "right.onnx").verdict == "clean"


def test_nan_against_zero_is_a_divergence_and_nan_against_nan_no_agreement(tmp_path: Path) -> None:
    x = tensor([1.0, float("nan"), 2.0])
    hidden = export_diff(lambda x: x.amax(-1, keepdim=True), (x[None],), tmp_path / "hidden.onnx")
    assert hidden.verdict == "divergent"
    assert hidden.outputs[0].nan_mismatch == 1
    both = export_diff(lambda x: x + 1, (x,), tmp_path / "both.onnx")
    assert both.verdict == "nonfinite"
    assert np.isnan(float(both.findings[0].element.value or 0))


# -- PyTorch's own operator samples ------------------------------------------------------------------------------------


PARTS, LEAST = 12, 150


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_of_each_operator_a_divergence_is_told_where_its_export_is_wrong(
    part: int, tmp_path: Path, tally: Tally
) -> None:
    path, wrong, count = tmp_path / "operator.onnx", list[str](), 0
    for one in exports(part, PARTS, path):
        report = whynan.diff(one.module, path, one.inputs)
        # what is right for the size of all may be wrong for an element, and whether that is rounding is for diff to say
        shapes = any(note.startswith("the output") and " has the shape " in note for note in report.coverage.notes)
        agrees = (report.verdict == "divergent" or shapes) is not one.right or (one.right and not one.exact)
        named = all(f.divergence is not None and f.divergence.other_op in one.operators() for f in report.findings)
        tally.count("diff: operators whose export is judged as a direct comparison does", agrees and named, 1)
        count += 1
        if not (agrees and named):
            wrong.append(f"{one.name}: {report.verdict}")
    assert wrong == []
    assert count >= LEAST / PARTS
