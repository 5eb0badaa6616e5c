"""Which optimizers changed a graph, and which of them make a bad number come or go."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.unit.capture.onnx.written_models import parsed
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.optimisers import RULES, decisive, modified_by, responsible

SCALED = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)
<float[1, 1, 1, 1] w = {1e20}, float[1, 1, 1] s = {1e-20}> {
  c = Conv(x, w)
  y = Mul(c, s)
}
"""
"""The convolution overflows where it is by itself; with the factor folded into its weight it does not."""
CLIPPED = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[4, 4] x) => (float[4, 4] y) {
  two = Constant<value = float {2.0}>()
  m = MatMul(x, x)
  a = Mul(m, two)
  y = Relu(a)
}
"""


@dataclass(frozen=True)
class Settings:
    """What is read of the engine's settings."""

    path: str
    level: str | None = "all"
    providers: tuple[str | tuple[str, dict[str, str]], ...] = ("CPUExecutionProvider",)
    session_config: dict[str, str] = field(default_factory=dict)
    custom_ops: tuple[str, ...] = ()
    disabled_optimizers: tuple[str, ...] = ()
    free_dimensions: dict[str, int] = field(default_factory=dict)


def saved(text: str, folder: Path) -> Settings:
    onnx.save(parsed(text), folder / "model.onnx")
    return Settings(str(folder / "model.onnx"))


def ran(settings: Settings, disabled: tuple[str, ...]) -> bytes:
    """Which elements of the output are bad."""
    session = ort.InferenceSession(
        settings.path, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled) or None
    )
    (found,) = session.run(None, {"x": np.full((1, 1, 2, 2), 1e20, np.float32)})
    return np.isfinite(found).tobytes()


def test_the_optimizers_that_changed_the_graph_are_named(tmp_path: Path) -> None:
    assert "Level1_RuleBasedTransformer" in modified_by(saved(SCALED, tmp_path))
    assert "MatMulScaleFusion" in modified_by(saved(CLIPPED, tmp_path))


def test_nothing_is_named_where_nothing_is_optimised(tmp_path: Path) -> None:
    settings = saved(CLIPPED, tmp_path)
    assert modified_by(Settings(settings.path, level="disabled")) == ()
    without = Settings(settings.path, disabled_optimizers=("MatMulScaleFusion",))
    assert "MatMulScaleFusion" not in modified_by(without)


def test_a_model_that_cannot_be_built_is_an_error_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(RunError, match=r"model\.onnx could not be built again"):
        modified_by(Settings(str(tmp_path / "model.onnx")))


def test_the_rule_that_takes_an_overflow_away_is_named(tmp_path: Path) -> None:
    settings = saved(SCALED, tmp_path)
    found = ran(settings, ())
    assert found == b"\1" * 4
    assert ran(settings, ("ConvMulFusion",)) == b"\0" * 4
    assert responsible(settings, lambda disabled: ran(settings, disabled), found) == ("ConvMulFusion",)


class Made:
    """A verdict that hangs on which optimizers are left out, and counts how often it is asked."""

    def __init__(self, *sets: frozenset[str]) -> None:
        self.sets = sets
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, disabled: tuple[str, ...]) -> Hashable:
        self.asked.append(disabled)
        return any(needed <= set(disabled) for needed in self.sets)


def test_each_that_makes_the_difference_alone_is_named() -> None:
    verdict = Made(frozenset({"A"}), frozenset({"C"}))
    assert decisive(["A", "B", "C"], verdict, False) == ("A", "C")
    assert verdict.asked == [("A",), ("B",), ("C",)]


def test_those_that_make_it_only_together_are_named() -> None:
    verdict = Made(frozenset({"B", "D"}))
    assert decisive(["A", "B", "C", "D"], verdict, False) == ("B", "D")


def test_none_is_named_where_the_difference_remains() -> None:
    assert decisive(["A", "B"], Made(), False) == ()
    assert decisive([], Made(), False) == ()


def test_an_optimizer_of_rules_is_taken_apart() -> None:
    rules = "Level1_RuleBasedTransformer"
    assert decisive([rules], Made(frozenset({rules}), frozenset({"Pad_Fusion"})), False) == ("Pad_Fusion",)
    assert decisive([rules], Made(frozenset({rules})), False) == (rules,)
    assert "Pad_Fusion" in RULES[rules]


def test_an_optimizer_without_which_nothing_runs_is_passed_over() -> None:
    def verdict(disabled: tuple[str, ...]) -> bool:
        if "A" in disabled:
            raise RunError("no kernel", 0)
        return "B" in disabled

    assert decisive(["A", "B"], verdict, False) == ("B",)


def test_what_inserts_casts_is_no_optimizer() -> None:
    verdict = Made(frozenset({"CastFloat16Transformer"}))
    assert decisive(["CastFloat16Transformer"], verdict, False) == ()
    assert verdict.asked == []
