"""Every model that ONNX ships as a test is opened, and its inputs are read bit for bit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from whynan.errors import UsageError
from whynan.models.onnx.inputs import read_inputs
from whynan.models.onnx.opening import OnnxModel, open_model

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
SHIPPED = sorted(DATA.rglob("*.onnx"))
pytestmark = pytest.mark.filterwarnings("ignore")  # NumPy's, about how the cases are made


@cache
def cases() -> list[Any]:
    return list(collect_testcases(None))  # type: ignore[arg-type]


def message(value: Any, info: onnx.ValueInfoProto) -> bytes:
    """A value as a test data set holds it."""
    match info.type.WhichOneof("value"):
        case _ if isinstance(value, onnx.TensorProto):
            return value.SerializeToString()
        case "sequence_type":
            return numpy_helper.from_list(value, info.name).SerializeToString()
        case "optional_type":
            return numpy_helper.from_optional(value, info.name).SerializeToString()
        case _:
            return numpy_helper.from_array(np.asarray(value), info.name).SerializeToString()


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same to the bit."""
    if isinstance(expected, onnx.TensorProto):
        expected = numpy_helper.to_array(expected)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if found is None or expected is None:
        return found is expected
    expected = np.asarray(expected)
    if found.dtype.kind == "O":
        return found.tolist() == expected.tolist()
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def written(case: Any, folder: Path) -> OnnxModel:
    """The model of a case with its data sets, in a folder of its own."""
    home = folder / case.name
    home.mkdir()
    (home / "model.onnx").write_bytes(case.model.SerializeToString())
    for number, (inputs, _) in enumerate(case.data_sets):
        data = home / f"test_data_set_{number}"
        data.mkdir()
        for place, (value, info) in enumerate(zip(inputs, case.model.graph.input, strict=False)):
            (data / f"input_{place}.pb").write_bytes(message(value, info))
    return open_model(home / "model.onnx")


def outcomes(chosen: Iterable[Any], folder: Path) -> Iterator[tuple[str, str]]:
    """What became of each case."""
    for case in chosen:
        try:
            model = written(case, folder)
            read = read_inputs(model, [model.folder])
        except UsageError as error:
            yield case.name, f"refused: {error}"
            continue
        expected = [inputs for inputs, _ in case.data_sets]
        names = [info.name for info in case.model.graph.input]
        equal = len(read) == len(expected) and all(
            same(made.values[name], value)
            for made, inputs in zip(read, expected, strict=True)
            for name, value in zip(names, inputs, strict=False)
        )
        yield case.name, "same" if equal else "different"


def test_every_test_case_is_read_bit_for_bit(tmp_path: Path) -> None:
    assert len(cases()) >= 1884
    found = dict(outcomes(cases(), tmp_path))
    totals = Counter(found.values())
    print(f"{len(cases())} test cases: {dict(totals)}")
    assert totals == {"same": len(cases())}, [name for name, outcome in found.items() if outcome != "same"]


def test_a_value_that_was_read_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison, of inputs of which one has another sign."""
    right = read_inputs
    chosen = [case for case in cases() if case.name in ("test_abs", "test_relu")]

    def spoilt(model: OnnxModel, given: list[str]) -> Any:
        found = right(model, given)
        found[0].values["x"].flat[0] = -found[0].values["x"].flat[0]
        return found

    monkeypatch.setitem(outcomes.__globals__, "read_inputs", spoilt)
    assert set(dict(outcomes(chosen, tmp_path)).values()) == {"different"}


def test_every_model_that_is_shipped_is_opened_and_fed() -> None:
    assert len(SHIPPED) >= 149
    for path in SHIPPED:
        model = open_model(path)
        sets = len(list(path.parent.glob("test_data_set_*")))
        given = [os.fspath(path.parent)] if sets else []
        read = read_inputs(model, given, seed=None if sets else 0)
        assert len(read) == max(sets, 1)
        assert all(list(case.values) == [held.name for held in model.inputs] for case in read)
        assert len(read_inputs(model, [], seed=1)) == 1
    print(f"{len(SHIPPED)} models opened and fed")
