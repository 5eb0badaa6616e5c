"""What a model is run on: files, test data sets, numbers from a seed, each checked against what the model takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.selection import examples
from tests.unit.models.onnx_models import info, model_of, taking, tensor, written
from whynan.errors import UsageError
from whynan.models.onnx.inputs import Case, generate_cases, read_inputs
from whynan.models.onnx.model import dtype_name
from whynan.models.onnx.opening import OnnxModel, open_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(*inputs: onnx.ValueInfoProto, **rest: Any) -> OnnxModel:
    return open_model(written(taking(*inputs, **rest), Path("m.onnx")))


def one(model: OnnxModel, *items: str, seed: int | None = None) -> Case:
    (case,) = read_inputs(model, items, seed=seed)
    return case


def masked() -> OnnxModel:
    return opened(info("x", ["N", 4]), info("mask", ["N"], TensorProto.BOOL))


X = np.arange(8, dtype=np.float32).reshape(2, 4)
MASK = np.array([True, False])


def told(case: Case) -> list[tuple[str, str, tuple[int, ...] | None, str]]:
    return [(fed.name, fed.dtype, fed.shape, fed.origin) for fed in case.told]


# Every way of giving.


def as_npz() -> list[str]:
    np.savez("a.npz", mask=MASK, x=X)
    return ["a.npz"]


def as_compressed_npz() -> list[str]:
    np.savez_compressed("a.npz", mask=MASK, x=X)
    return ["a.npz"]


def as_folder() -> list[str]:
    Path("d").mkdir()
    np.save("d/x.npy", X)
    np.save("d/mask.npy", MASK)
    return ["d"]


def as_two_npz() -> list[str]:
    np.savez("a.npz", x=X)
    np.savez("b.npz", mask=MASK)
    return ["a.npz", "b.npz"]


def as_files() -> list[str]:
    np.save("one.npy", X)
    Path("two.pb").write_bytes(tensor(MASK, "other"))
    return ["x=one.npy", "mask=two.pb"]


def as_single_npz() -> list[str]:
    np.savez("one.npz", anything=X)
    np.save("m.npy", MASK)
    return ["x=one.npz", "mask=m.npy"]


def as_test_data() -> list[str]:
    Path("test_data_set_0").mkdir()
    # by position, for a tensor need not have a name
    Path("test_data_set_0/input_0.pb").write_bytes(tensor(X, ""))
    Path("test_data_set_0/input_1.pb").write_bytes(tensor(MASK, ""))
    Path("test_data_set_0/output_0.pb").write_bytes(tensor(X, "y"))
    return ["test_data_set_0"]


def as_named_test_data() -> list[str]:
    Path("d").mkdir()
    Path("d/input_0.pb").write_bytes(tensor(MASK, "mask"))
    Path("d/input_1.pb").write_bytes(tensor(X, "x"))
    return ["d"]


def as_mixed() -> list[str]:
    Path("x.pb").write_bytes(tensor(X, "x"))
    np.save("m.npy", MASK)
    return ["x.pb", "mask=m.npy"]


def as_other_orders() -> list[str]:
    np.savez("a.npz", x=np.asfortranarray(X).astype(">f4"), mask=MASK)
    return ["a.npz"]


WAYS = [
    as_npz, as_compressed_npz, as_folder, as_two_npz, as_files, as_single_npz, as_test_data, as_named_test_data,
    as_mixed, as_other_orders,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_giving_gives_the_same(way: Callable[[], list[str]]) -> None:
    case = one(masked(), *way())
    assert list(case.values) == ["x", "mask"]
    assert case.values["x"].dtype == np.float32
    assert case.values["x"].flags.c_contiguous
    assert case.values["x"].tobytes() == X.tobytes()
    assert case.values["mask"].tolist() == MASK.tolist()
    assert case.name is None


def test_what_was_given_is_told() -> None:
    np.save("x.npy", X)
    assert told(one(masked(), "x=x.npy", "mask=randint(0,2)", seed=7)) == [
        ("x", "float32", (2, 4), "x.npy"),
        ("mask", "bool", (2,), "randint(0,2), seed 7"),
    ]


def test_a_single_file_is_for_the_only_input() -> None:
    model = opened(info("x", ["N", 4]))
    np.save("any.npy", X)
    Path("any.pb").write_bytes(tensor(X, "unheard of"))
    assert np.array_equal(one(model, "any.npy").values["x"], X)
    assert np.array_equal(one(model, "any.pb").values["x"], X)


def test_a_name_may_hold_an_equals_sign_and_a_slash() -> None:
    model = opened(info("a", [1]), info("a=b", [1]), info("gpu_0/data", [1]))
    np.savez("d.npz", **{"gpu_0/data": np.ones(1, np.float32)})
    case = one(model, "a=1", "a=b=2", "d.npz")
    assert [float(case.values[name][0]) for name in ("a", "a=b", "gpu_0/data")] == [1.0, 2.0, 1.0]


def test_a_default_may_be_overridden_and_is_not_asked_for() -> None:
    bias = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    model = open_model(
        written(
            model_of([helper.make_node("Add", ["x", "b"], ["y"])], [info("x", [4]), info("b", [4])], weights=[bias]),
            Path("m.onnx"),
        )
    )
    assert list(one(model, "x=1").values) == ["x"]
    assert list(one(model, "b=1", "x=1").values) == ["x", "b"]
    assert list(one(model, seed=0).values) == ["x"]


def test_a_model_that_takes_nothing_is_given_nothing() -> None:
    value = numpy_helper.from_array(np.ones(1, np.float32))
    model = open_model(written(model_of([helper.make_node("Constant", [], ["y"], value=value)], []), Path("m.onnx")))
    Path("test_data_set_0").mkdir()
    assert read_inputs(model, []) == [Case({}, ())]
    assert read_inputs(model, ["test_data_set_0"]) == [Case({}, ())]
    assert read_inputs(model, [], seed=3) == [Case({}, ())]


# Many cases.


def data_sets(n: int) -> None:
    for number in range(n):
        folder = Path(f"sets/test_data_set_{number}")
        folder.mkdir(parents=True)
        (folder / "input_0.pb").write_bytes(tensor(X + number, ""))


def test_a_folder_of_test_data_sets_is_many_cases_in_order() -> None:
    model = masked()
    data_sets(12)
    cases = read_inputs(model, ["sets", "mask=true"])
    assert [case.name for case in cases] == [f"test_data_set_{number}" for number in range(12)]
    assert [float(case.values["x"][0, 0]) for case in cases] == list(range(12))
    assert [case.values["mask"].tolist() for case in cases] == [[True, True]] * 12


def test_cases_are_generated_from_consecutive_seeds() -> None:
    model = masked()
    cases = list(generate_cases(model, ["mask=false"], 5, 3))
    assert [case.name for case in cases] == ["seed 5", "seed 6", "seed 7"]
    assert len({case.values["x"].tobytes() for case in cases}) == 3
    assert cases[1].values["x"].tobytes() == one(model, "mask=false", seed=6).values["x"].tobytes()
    assert not cases[2].values["mask"].any()


def test_one_case_of_what_is_given_is_that() -> None:
    np.save("x.npy", X)
    (case,) = generate_cases(masked(), ["x=x.npy", "mask=true"], 0, 1)
    assert np.array_equal(case.values["x"], X)


# Numbers from a seed.


def test_what_is_made_up_has_the_sizes_that_are_said() -> None:
    (case,) = read_inputs(masked(), [], seed=0, sizes={"N": 3})
    assert [value.shape for value in case.values.values()] == [(3, 4), (3,)]
    cases = generate_cases(masked(), ["x=ones"], 0, 2, sizes={"N": 5})
    assert [case.values["x"].shape for case in cases] == [(5, 4)] * 2


SIZED: dict[str, tuple[list[str], dict[str, int]]] = {
    "what is made up has another": (["x=ones[4,4]"], {"N": 3}),
    "what is read has another": (["x=x.npy"], {"N": 3}),
    "no such dimension": ([], {"M": 3}),
}


@pytest.mark.parametrize("kind", SIZED)
def test_a_size_that_does_not_fit_is_refused(kind: str, snapshot: SnapshotAssertion) -> None:
    np.save("x.npy", X)
    items, sizes = SIZED[kind]
    with pytest.raises(UsageError) as refused:
        read_inputs(masked(), items, seed=0, sizes=sizes)
    assert str(refused.value) == snapshot


def test_a_model_of_fixed_sizes_is_given_none() -> None:
    with pytest.raises(UsageError, match="none of its dimensions has a name"):
        list(generate_cases(opened(info("x", [2])), [], 0, 2, sizes={"N": 3}))


def test_what_is_generated_depends_on_seed_and_name_only() -> None:
    first = one(masked(), seed=1).values["x"]
    assert np.array_equal(first, one(opened(info("x", [1, 4])), seed=1).values["x"])
    assert not np.array_equal(first, one(masked(), seed=2).values["x"])
    other = opened(info("x", ["N", 4]), info("z", ["N", 4]))
    assert not np.array_equal(one(other, seed=1).values["x"], one(other, seed=1).values["z"])


def test_dimensions_are_as_given_then_as_shared_then_one() -> None:
    model = opened(info("x", ["N", "T", None]), info("z", ["T", 3]), info("w", ["N"]))
    values = one(model, "z=zeros[5,3]", seed=0).values
    assert {name: array.shape for name, array in values.items()} == {"x": (1, 5, 1), "z": (5, 3), "w": (1,)}
    np.save("w.npy", np.zeros(2, np.float32))
    values = one(model, "w=w.npy", "x=uniform(-1,1)[2, 6, 7]", seed=0).values
    assert {name: array.shape for name, array in values.items()} == {"x": (2, 6, 7), "z": (6, 3), "w": (2,)}


NUMBERS = [number for number in TensorProto.DataType.values() if number not in (0, TensorProto.STRING)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: TensorProto.DataType.Name(number))
def test_every_dtype_is_generated_and_read_again_bit_for_bit(number: int) -> None:
    model = opened(info("x", [2, 3], number))
    made = one(model, seed=0).values["x"]
    assert made.dtype.name == dtype_name(number)
    assert made.shape == (2, 3)
    assert np.isfinite(made.astype(np.complex128)).all()
    Path("x.pb").write_bytes(tensor(made))
    np.save("x.npy", made)
    for file in ("x.pb", "x.npy"):
        again = one(model, f"x={file}").values["x"]
        assert (again.dtype, again.tobytes()) == (made.dtype, made.tobytes())


@pytest.mark.parametrize(
    ("spec", "number", "expected"),
    [
        ("3.5", TensorProto.FLOAT, 3.5),
        ("3", TensorProto.FLOAT16, 3.0),
        (".5e-3", TensorProto.DOUBLE, 5e-4),
        ("-inf", TensorProto.FLOAT, -np.inf),
        ("nan", TensorProto.BFLOAT16, np.nan),
        ("-7", TensorProto.INT8, -7),
        ("18446744073709551615", TensorProto.UINT64, 18446744073709551615),
        ("true", TensorProto.BOOL, True),
        ("0", TensorProto.BOOL, False),
        ("zeros", TensorProto.INT64, 0),
        ("ones", TensorProto.INT4, 1),
        ("1", TensorProto.COMPLEX64, 1.0),
        ("0.1", TensorProto.FLOAT16, float(np.float16(0.1))),
    ],
)
def test_one_value_is_in_every_element(spec: str, number: int, expected: Any) -> None:
    made = one(opened(info("x", ["N", 2], number)), f"x={spec}[3,2]").values["x"]
    assert made.shape == (3, 2)
    wanted = np.full((3, 2), expected, made.dtype)
    assert made.tobytes() == wanted.tobytes()
    assert one(opened(info("x", [], number)), f"x={spec}").values["x"].shape == ()


def test_distributions_are_drawn_as_said() -> None:
    model = opened(info("x", [1000]), info("i", [1000], TensorProto.INT64), info("s", [1000]))
    values = one(model, "x=uniform(-3, -2)", "i=randint(-5,5)", "s=normal(100,0.1)").values
    assert -3 <= values["x"].min() < -2.9 < -2.1 < values["x"].max() <= -2
    assert set(values["i"].tolist()) == set(range(-5, 5))
    assert abs(values["s"].mean() - 100) < 0.1


def test_a_distribution_may_be_wider_than_any_number() -> None:
    model = opened(info("x", [1000], TensorProto.DOUBLE))
    drawn = one(model, "x=uniform(-1e308,1.5e308)").values["x"]
    assert -1e308 <= drawn.min() < -0.9e308
    assert 1.4e308 < drawn.max() <= 1.5e308
    assert abs(np.mean(drawn / 1e308) - 0.25) < 0.1


def test_strings_are_given_in_quotes_as_arrays_and_as_test_data() -> None:
    model = opened(info("x", [2], TensorProto.STRING))
    wanted = np.array(["héllo", ""], object)
    np.save("x.npy", wanted.astype(str))
    np.save("b.npy", np.array([b"h\xc3\xa9llo", b""]))
    Path("x.pb").write_bytes(tensor(wanted))
    for file in ("x.npy", "b.npy", "x.pb"):
        assert one(model, f"x={file}").values["x"].tolist() == wanted.tolist()
    assert one(model, "x='a b'").values["x"].tolist() == ["a b", "a b"]
    assert all(text in ("0", "1") for text in one(model, seed=0).values["x"])


SEQUENCE = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["N"])
OPTIONAL = helper.make_value_info(
    "o", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
)


def test_sequences_and_optionals_are_read_from_test_data() -> None:
    model = opened(SEQUENCE, OPTIONAL)
    arrays = [np.ones(1, np.float32), np.ones(3, np.float32)]
    Path("s.pb").write_bytes(numpy_helper.from_list(arrays, "s").SerializeToString())
    Path("o.pb").write_bytes(numpy_helper.from_optional(np.ones(2, np.float32), "o").SerializeToString())
    Path("none.pb").write_bytes(onnx.OptionalProto(name="o").SerializeToString())
    case = one(model, "s=s.pb", "o=o.pb")
    assert [array.tolist() for array in case.values["s"]] == [[1.0], [1.0, 1.0, 1.0]]
    assert case.values["o"].tolist() == [1.0, 1.0]
    assert told(case) == [("s", "float32", None, "s.pb"), ("o", "float32", (2,), "o.pb")]
    for nothing in ("o=none.pb", "o=none"):
        assert one(model, "s=s.pb", nothing).values["o"] is None
    made = one(model, seed=0).values
    assert [array.shape for array in made["s"]] == [(1,)]
    assert made["o"].shape == (2,)


# What does not fit.


def save(**arrays: Any) -> str:
    np.savez("given.npz", **arrays)
    return "given.npz"


def folder(**files: bytes) -> str:
    Path("given").mkdir()
    for name, data in files.items():
        Path("given", name.replace("__", ".")).write_bytes(data)
    return "given"


def two_sets() -> list[str]:
    data_sets(1)
    return ["sets", "sets"]


def of(*inputs: onnx.ValueInfoProto) -> Callable[[], OnnxModel]:
    return lambda: opened(*inputs)


INT8 = of(info("x", [2], TensorProto.INT8))
FLOAT = of(info("x", [2]))
HALF = of(info("x", [2], TensorProto.FLOAT16))
TEXT = of(info("x", [2], TensorProto.STRING))
BOOL = of(info("x", [2], TensorProto.BOOL))
UNSAID = of(info("x", None))

Refused = tuple[Callable[[], OnnxModel], Callable[[], Sequence[str]]]
REFUSED: dict[str, Refused] = {
    "a call of no generator": (FLOAT, lambda: ["x=gamma(1,2)"]),
    "a case for one of two": (masked, lambda: ["mask=true", save(mask=MASK)]),
    "a dtype that is wider": (masked, lambda: [save(x=X.astype(np.float64), mask=MASK)]),
    "a dtype of bytes": (masked, lambda: [save(x=X.view("V8"), mask=MASK)]),
    "a fixed dimension": (masked, lambda: [save(x=X[:, :3], mask=MASK)]),
    "a fixed dimension that is said": (FLOAT, lambda: ["x=zeros[3]"]),
    "a folder of nothing": (masked, lambda: [folder()]),
    "a folder of an array twice": (masked, lambda: [folder(x__npy=b"", x__pb=b"")]),
    "a folder of test data for more inputs": (FLOAT, lambda: [folder(input_0__pb=b"", input_9__pb=b"")]),
    "a number for text": (TEXT, lambda: ["x=3"]),
    "a number out of range": (INT8, lambda: ["x=300"]),
    "a number out of range of fp16": (HALF, lambda: ["x=1e6"]),
    "a whole number out of range of fp16": (HALF, lambda: ["x=70000"]),
    "a rank": (masked, lambda: [save(x=X[0], mask=MASK)]),
    "a real number for whole ones": (INT8, lambda: ["x=3.0"]),
    "a real number for bool": (BOOL, lambda: ["x=0.0"]),
    "a truth for numbers": (FLOAT, lambda: ["x=true"]),
    "a number for bool": (BOOL, lambda: ["x=2"]),
    "numbers for bool": (BOOL, lambda: ["x=randint(0,3)"]),
    "a sequence for a tensor": (of(SEQUENCE), lambda: [save(s=X)]),
    "a shared dimension": (masked, lambda: [save(x=X, mask=MASK[:1])]),
    "a shared dimension that is said": (masked, lambda: ["x=zeros[3,4]", "mask=true[2]"]),
    "a stranger's file": (FLOAT, lambda: ["m.onnx"]),
    "dimensions of words": (FLOAT, lambda: ["x=zeros[N,3]"]),
    "dimensions that nobody says": (UNSAID, list),
    "dimensions that nobody says of zeros": (UNSAID, lambda: ["x=zeros"]),
    "given twice": (masked, lambda: [save(x=X), "x=zeros"]),
    "hostile name": (FLOAT, lambda: ["\x1b[2J=3"]),
    "larger than memory": (UNSAID, lambda: ["x=zeros[1000000,1000000,1000000]"]),
    "more than numbers can count": (UNSAID, lambda: [f"x=zeros[{9 * 10**17},{9 * 10**17},0]"]),
    "no file": (masked, lambda: ["nowhere.npz"]),
    "no file of an input": (masked, lambda: ["x=nowhere.npy"]),
    "no file to guess at": (masked, lambda: ["nowhere"]),
    "no such input": (masked, lambda: ["w=zeros"]),
    "no such inputs": (masked, lambda: [save(a=X, b=X, c=X, d=X, e=X)]),
    "none for a tensor": (FLOAT, lambda: ["x=none"]),
    "normal for whole numbers": (INT8, lambda: ["x=normal(0,1)"]),
    "normal with a negative deviation": (FLOAT, lambda: ["x=normal(0,-1)"]),
    "one file for two inputs": (masked, lambda: [np.save("x.npy", X) or "x.npy"]),  # type: ignore[func-returns-value]
    "randint of an empty range": (INT8, lambda: ["x=randint(3,3)"]),
    "randint of real numbers": (INT8, lambda: ["x=randint(0.5,3)"]),
    "randint out of range": (INT8, lambda: ["x=randint(0,1000)"]),
    "several arrays for one input": (masked, lambda: [f"x={save(x=X, y=X)}"]),
    "some are missing": (masked, lambda: [save(x=X)]),
    "text for numbers": (FLOAT, lambda: ["x='a'"]),
    "test data sets twice": (masked, two_sets),
    "uniform backwards": (FLOAT, lambda: ["x=uniform(1,-1)"]),
    "uniform of three": (FLOAT, lambda: ["x=uniform(1,2,3)"]),
    "uniform out of range": (HALF, lambda: ["x=uniform(100000,200000)"]),
    "uniform to infinity": (FLOAT, lambda: ["x=uniform(0,inf)"]),
    "zeros of text": (TEXT, lambda: ["x=zeros"]),
    "zeros with arguments": (FLOAT, lambda: ["x=zeros(2)"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_refused_beside_what_the_model_takes(kind: str, snapshot: SnapshotAssertion) -> None:
    make, items = REFUSED[kind]
    model = make()
    with pytest.raises(UsageError) as caught:
        read_inputs(model, items(), seed=0 if "nobody says" in kind else None)
    assert caught.value.exit_status == 2
    assert str(caught.value) == snapshot


def test_nothing_given_tells_what_is_taken_and_how_to_give_it() -> None:
    with pytest.raises(UsageError) as caught:
        read_inputs(masked(), [])
    assert str(caught.value) == (
        "the model takes x: float32[N, 4], mask: bool[N], and was given nothing: give FILE.npz, a folder of .npy files "
        "or of test data (input_0.pb), name=FILE.npy, name=FILE.pb, name=uniform(-1,1)[1,3,224,224] (or normal, "
        "randint, zeros, ones), name=3.5, or --random SEED"
    )


def test_many_cases_of_the_same_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        list(generate_cases(masked(), ["x=zeros", "mask=true"], 0, 9))
    assert str(caught.value) == (
        "9 cases were asked for, and all inputs are given, so that they would be the same: leave an input out, or give "
        "it as name=normal(0,1)"
    )


def test_a_model_of_many_inputs_does_not_fill_the_screen() -> None:
    model = opened(*(info(f"past_key_values.{layer}.key", ["N", 8, "T", 64]) for layer in range(64)))
    with pytest.raises(UsageError) as caught:
        read_inputs(model, ["past_key_values.3.key=zeros"])
    assert "past_key_values.7.key" in str(caught.value)
    assert "and 52 more" in str(caught.value)


def test_a_seed_is_no_negative_number() -> None:
    with pytest.raises(
        UsageError, match=r"^a seed is a whole number from 0 on, and -1 was given: give one as in --random 0$"
    ):
        read_inputs(masked(), [], seed=-1)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8"), max_size=30) | st.from_regex(r"[a-z]+\([0-9e.,+-]*\)\[[0-9,]*\]"))
def test_whatever_is_written_is_a_value_or_is_refused(text: str) -> None:
    model = opened(info("x", ["N"]))
    try:
        case = one(model, f"x={text}")
    except UsageError:
        return
    assert case.values["x"].ndim == 1


def test_bytes_of_a_wider_dtype_are_not_taken_for_another() -> None:
    model = opened(info("x", [2], TensorProto.BFLOAT16))
    np.save("x.npy", np.ones(2, ml_dtypes.bfloat16))
    assert one(model, "x=x.npy").values["x"].dtype == ml_dtypes.bfloat16
    np.save("x.npy", np.ones(2, np.uint16))
    with pytest.raises(UsageError, match=r"x is uint16\[2\] \(x\.npy\), and the model takes bfloat16\[2\]"):
        one(model, "x=x.npy")
