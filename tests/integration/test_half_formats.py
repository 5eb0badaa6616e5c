"""Births that come from the range of a half format have a change that computes in float32, proved in the program."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import whynan
from whynan.fixes.candidates import Declined
from whynan.records import Fix
from whynan.run.fix.apply import regenerate_text

DICE = """import torch


def dice(pred, target, smooth=1e-6):
    intersection = (pred * target).sum()
    union = pred.sum() + target.sum()
    return (2.0 * intersection + smooth) / (union + smooth)
"""
POWER = """import torch


def power(x):
    level = (x * x).mean() * 0.5
    return level + 1
"""
LEAVING = """import torch


def energy(x):
    return (x * x).sum()


def target(x):
    return torch.log(energy(x))
"""
MARGIN = """import torch


def survival(p):
    return torch.log1p(-p.clamp(max=1.0 - 1e-6))


def target(p):
    survival(p).sum().backward()
"""
SCORES = """import torch


def scores(q, k):
    product = q @ k.transpose(-1, -2)
    return torch.softmax(product / 64, -1)
"""
HALF_MODEL = """import torch
from torch import nn


def target(x):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).half()
    net[0].weight.data.fill_(300.0)
    with torch.inference_mode():
        return net(x.to(net[0].weight.dtype))
"""

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Gives a module of a text, in a file of its own."""

    def loaded(text: str) -> ModuleType:
        path = tmp_path / "half_program.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


def added(fix: Fix) -> list[str]:
    """The lines of a fix, as the file has them then."""
    return [line[1:].strip() for line in (fix.patch or "").splitlines() if line[:1] == "+" and line[:3] != "+++"]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("text", "name", "given", "lines"),
    [
        (
            DICE,
            "dice",
            lambda: ((0.9 + 0.1 * noise(70_000).sigmoid()).half(), torch.ones(70_000).half()),
            [
                "intersection = (pred * target).float().sum()",
                "union = pred.float().sum() + target.float().sum()",
                "return ((2.0 * intersection + smooth) / (union + smooth)).to(pred.dtype)",
            ],
        ),
        (
            POWER,
            "power",
            lambda: ((200 * noise(64)).half(),),
            ["level = (x.float() * x.float()).mean().to(x.dtype) * 0.5"],
        ),
        (LEAVING, "target", lambda: ((60 * noise(32)).half(),), ["return (x * x).float().sum()"]),
        (
            MARGIN,
            "target",
            lambda: (torch.tensor([0.25, 1.0, 0.5, 0.125] * 4, dtype=torch.bfloat16, requires_grad=True),),
            ["return torch.log1p(-p.float().clamp(max=1.0 - 1e-6)).to(p.dtype)"],
        ),
        (
            SCORES,
            "scores",
            lambda: ((150 * noise(1, 4, 64)).half(), (150 * noise(1, 4, 64)).half() + 60),
            [
                "product = q.float() @ k.transpose(-1, -2).float()",
                "return torch.softmax((product / 64).to(q.dtype), -1)",
            ],
        ),
    ],
    ids=["sums", "a mean of squares", "what is returned", "a margin", "a product of matrices"],
)
def test_the_smallest_piece_in_float32_is_proved(
    text: str, name: str, given: Callable[[], tuple[Any, ...]], lines: list[str], load: Load
) -> None:
    module = load(text)
    report = whynan.explain(getattr(module, name), *given(), rerun=True)
    finding = report.findings[0]
    assert (finding.fixes[0].verdict.status, added(finding.fixes[0])) == ("verified", lines)
    assert "is not written as" not in str(report)
    path = Path(str(module.__file__))
    edited = regenerate_text(str(path), path.read_text(), finding, finding.fixes[0])
    assert not isinstance(edited, Declined)
    repaired = getattr(load(edited), name)
    assert whynan.explain(repaired, *given()).verdict == "clean"


@pytest.mark.proof
def test_a_value_that_stays_float32_is_said(load: Load) -> None:
    report = whynan.explain(load(LEAVING).target, (60 * noise(32)).half(), rerun=True)
    assert (
        "its value stays float32 from there on, for it does not fit float16" in report.findings[0].fixes[0].verdict.why
    )


@pytest.mark.proof
def test_a_half_precision_model_is_tried_in_bfloat16_and_nothing_is_proved(load: Load) -> None:
    report = whynan.explain(load(HALF_MODEL).target, torch.full((1, 2), 200.0), rerun=True)
    fix = report.findings[0].fixes[1]
    assert (fix.kind, fix.patch, fix.verdict.status) == ("setting", None, "unverified")
    assert fix.verdict.why.startswith("run with it, the program is finite to its end")
    once = whynan.explain(load(HALF_MODEL).target, torch.full((1, 2), 200.0)).findings[0].fixes[0]
    assert once.verdict.why.startswith("not tried: ")


@pytest.mark.proof
def test_a_half_precision_model_is_finite_in_float32(load: Load) -> None:
    module = load(HALF_MODEL)
    finding = whynan.explain(module.target, torch.full((1, 2), 200.0), rerun=True).findings[0]
    fix = finding.fixes[0]
    assert (fix.kind, fix.verdict.status) == ("source", "guarded")
    assert "takes twice the memory" in fix.verdict.why
    assert added(fix) == ["net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).float()"]
    path = Path(str(module.__file__))
    edited = regenerate_text(str(path), path.read_text(), finding, fix)
    assert not isinstance(edited, Declined)
    assert whynan.explain(load(edited).target, torch.full((1, 2), 200.0)).verdict == "clean"


@pytest.mark.proof
def test_what_float32_has_no_room_for_either_is_not_mended_by_it(load: Load) -> None:
    text = HALF_MODEL.replace("fill_(300.0)", "fill_(300.0)\n    x = x * 1e37")
    finding = whynan.explain(load(text).target, torch.full((1, 2), 200.0), rerun=True).findings[0]
    assert not [fix for fix in finding.fixes if fix.verdict.status in ("verified", "guarded")]


AUTOCAST = """import torch


def scores(q, k):
    product = q @ k.transpose(-1, -2)
    return torch.softmax(product / 64, -1)


def target(q, k):
    with torch.autocast("cpu", dtype=torch.float16):
        return scores(q, k)
"""


@pytest.mark.proof
def test_under_autocast_the_statement_is_taken_out_of_it(load: Load) -> None:
    module = load(AUTOCAST)
    given = (150 * noise(1, 4, 64)).half(), (150 * noise(1, 4, 64)).half() + 60
    finding = whynan.explain(module.target, *given, rerun=True).findings[0]
    assert finding.fixes[0].verdict.status == "verified"
    assert added(finding.fixes[0])[:2] == [
        "with torch.autocast(q.device.type, enabled=False):",
        "product = q.float() @ k.transpose(-1, -2).float()",
    ]
    path = Path(str(module.__file__))
    edited = regenerate_text(str(path), path.read_text(), finding, finding.fixes[0])
    assert not isinstance(edited, Declined)
    assert whynan.explain(load(edited).target, *given).verdict == "clean"
    left_in = [fix for fix in finding.fixes if fix.title == finding.fixes[0].title.removesuffix(", outside autocast")]
    assert [fix.verdict.status for fix in left_in] == ["rejected"]


SINGLE = AUTOCAST.replace("def scores(q, k):", "def scores(q, k):\n    q, k = q.float(), k.float()")


@pytest.mark.proof
def test_what_autocast_casts_stays_float32_outside_it(load: Load) -> None:
    """What comes in is float32: it is the operation that autocast has no room for."""
    module = load(SINGLE)
    given = (150 * noise(1, 4, 64)).half(), (150 * noise(1, 4, 64)).half() + 60
    finding = whynan.explain(module.target, *given, rerun=True).findings[0]
    fix = finding.fixes[0]
    assert (fix.title, fix.verdict.status) == ("q @ k.transpose(-1, -2) in float32, outside autocast", "verified")
    assert added(fix) == ["with torch.autocast(q.device.type, enabled=False):", "product = q @ k.transpose(-1, -2)"]
    path = Path(str(module.__file__))
    edited = regenerate_text(str(path), path.read_text(), finding, fix)
    assert not isinstance(edited, Declined)
    assert whynan.explain(load(edited).target, *given).verdict == "clean"


@pytest.mark.proof
def test_what_is_too_large_without_autocast_too_stays_bad(load: Load) -> None:
    """The twin: a product that float32 has no room for either."""
    text = SINGLE.replace("q.float(), k.float()", "1e20 * q.float(), 1e20 * k.float()")
    given = (150 * noise(1, 4, 64)).half(), (150 * noise(1, 4, 64)).half() + 60
    finding = whynan.explain(load(text).target, *given, rerun=True).findings[0]
    assert not [f for f in finding.fixes if "in float32, outside" in f.title and f.verdict.status == "verified"]


LAYER = """import torch

layer = torch.nn.Linear(4, 3)


def scores(counts):
    return torch.log1p(layer(counts).relu())


def target(counts):
    with torch.autocast("cpu", dtype=torch.float16):
        return scores(counts)
"""


@pytest.mark.proof
def test_a_layer_that_autocast_has_no_room_for_is_taken_out_of_it(load: Load) -> None:
    module = load(LAYER)
    given = torch.tensor([[1.0, 2.0, 3.0, 4.0], [2.5e5, 1.0, 0.0, 3.0]])
    finding = whynan.explain(module.target, given, rerun=True).findings[0]
    fix = finding.fixes[0]
    assert (fix.title, fix.verdict.status) == ("layer(counts) in float32, outside autocast", "guarded")
    assert added(fix) == [
        "with torch.autocast(counts.device.type, enabled=False):",
        "return torch.log1p(layer(counts.float()).relu())",
    ]
    path = Path(str(module.__file__))
    edited = regenerate_text(str(path), path.read_text(), finding, fix)
    assert not isinstance(edited, Declined)
    assert whynan.explain(load(edited).target, given).verdict == "clean"


@pytest.mark.proof
def test_what_float32_has_no_room_for_either_stays_bad_outside_autocast(load: Load) -> None:
    """The twin: the layer's weights are as large as float32 has them."""
    text = LAYER.replace("Linear(4, 3)", "Linear(4, 3)\nlayer.weight.data.fill_(1e38)")
    finding = whynan.explain(load(text).target, torch.full((2, 4), 2.5e5), rerun=True).findings[0]
    assert not [fix for fix in finding.fixes if "outside autocast" in fix.title and fix.verdict.status == "guarded"]
