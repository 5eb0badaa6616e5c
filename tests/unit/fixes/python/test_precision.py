"""A birth of a half format in float32: which operands are cast, and where the value is cast back."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.fixes.python.mended import changed, finding, function
from whynan.fixes.candidates import Candidate
from whynan.fixes.diffs import patch
from whynan.fixes.python import Known, float32_candidates, in_format, nothing_known, with_casts
from whynan.records import Element, Operand

HALF = Known("float16", bad=False)
INF = Known("float16", bad=True)
DICE = """i = (p * t).sum()
u = p.sum() + t.sum()
d = (2 * i + 1) / (u + 1)
return d.mean()"""


def made(
    text: str, code: str, known: Mapping[str, Known] | None = None, operands: tuple[str, ...] = ()
) -> list[Candidate]:
    """The candidates for a birth at an expression, where `known` is known, or of its operands alone the dtype."""
    values = nothing_known if known is None else lambda line: known
    given = tuple(Operand(name="self", expression=name, dtype="float16", origin="live") for name in operands)
    element = Element(index=None, shape=(), dtype="float16", value=None, count=1, total=1, operands=given)
    return list(float32_candidates(text, finding(text, code).model_copy(update={"element": element}), (), values))


def lines(
    text: str, code: str, known: Mapping[str, Known] | None = None, operands: tuple[str, ...] = ()
) -> list[list[str]]:
    return [changed(text, one.edited) for one in made(text, code, known, operands)]


def test_the_cast_back_comes_after_what_the_birth_is_part_of_the_nearest_first() -> None:
    text = function("y = (x * x).mean() * 0.5\nreturn y")
    assert lines(text, "x * x", {"x": HALF})[:3] == [
        ["y = ((x.float() * x.float()).to(x.dtype)).mean() * 0.5"],
        ["y = (x.float() * x.float()).mean().to(x.dtype) * 0.5"],
        ["y = ((x.float() * x.float()).mean() * 0.5).to(x.dtype)"],
    ]


def test_it_ends_in_a_later_statement_and_takes_along_what_else_is_bad() -> None:
    text = function(DICE, "p, t")
    known = {"p": HALF, "t": HALF, "p * t": HALF, "i": INF, "u": INF}
    assert [
        "i = (p * t).float().sum()",
        "u = p.float().sum() + t.float().sum()",
        "d = ((2 * i + 1) / (u + 1)).to(p.dtype)",
    ] in lines(text, "(p * t).sum()", known)


def test_what_is_returned_stays_float32_last_of_all() -> None:
    text = function("return (x * x).sum()")
    last = made(text, "x * x", {"x": HALF})[-1]
    assert last.widens
    assert changed(text, last.edited) == ["return (x.float() * x.float()).sum()"]
    assert not any(one.widens for one in made(function("y = (x * x).sum()\nprint(y)"), "x * x", {"x": HALF}))


def test_what_is_read_elsewhere_keeps_its_dtype() -> None:
    text = function("n = x.sum()\na = n / 2\nb = n / 3\nreturn a, b")
    assert lines(text, "x.sum()", {"x": HALF}) == [["n = x.float().sum().to(x.dtype)"]]
    text = function("if k:\n    n = x.sum()\nelse:\n    n = 1\nreturn n / 2", "x, k")
    assert lines(text, "x.sum()", {"x": HALF}) == [["n = x.float().sum().to(x.dtype)"]]
    text = function(DICE.replace("return d.mean()", "return d.mean(), u"), "p, t")
    known = {"p": HALF, "t": HALF, "p * t": HALF, "i": INF, "u": INF}
    assert not any("u = p.float()" in line for edit in lines(text, "(p * t).sum()", known) for line in edit)


def test_numbers_masks_and_wider_tensors_are_not_cast() -> None:
    text = function("return (k * x + w).sum(n).log()", "x, w, k, n")
    known = {"x": HALF, "w": Known("float32", bad=False), "m": Known("bool", bad=False)}
    assert lines(text, "k * x", known)[0] == ["return ((k * x.float()).to(x.dtype) + w).sum(n).log()"]


def test_without_values_only_what_makes_small_numbers_ends_it() -> None:
    text = function(DICE, "p, t")
    found = lines(text, "(p * t).sum()", operands=("p * t",))
    assert found[0] == ["i = (p * t).float().sum()", "d = ((2 * i + 1) / (u + 1)).to(torch.float16)"]
    assert lines(function("return x.sum()"), "x.sum()", operands=("x",)) == []


def test_a_module_is_left_to_itself_and_other_dtypes_are_no_matter_of_it() -> None:
    text = function("return net(x * x).mean()", "x, net")
    assert lines(text, "net(x * x)", {"x": HALF}) == []
    assert lines(text, "x * x", {"x": HALF}) == [["return net((x.float() * x.float()).to(x.dtype)).mean()"]]
    assert list(float32_candidates(text, finding(text, "x * x"), (), lambda line: {"x": HALF})) == []


def test_only_a_change_that_casts_in_the_function_is_made_again() -> None:
    text = function(DICE, "p, t") + "\n\ndef g(x):\n    return x\n"
    site = finding(text, "(p * t).sum()").site
    assert site is not None

    def again(edited: str) -> str | None:
        return with_casts(text, patch("m.py", text, edited), site)

    cast = text.replace("p.sum()", "p.float().sum()").replace(
        "(2 * i + 1) / (u + 1)", "((2 * i + 1) / (u + 1)).to(p.dtype)"
    )
    assert again(cast) == cast
    assert again(cast.replace("2 * i", "3 * i")) is None
    assert again(text.replace("return x", "return x.float()")) is None
    assert again(text.replace("p.sum()", "p.to(torch.int8).sum()")) is None
    assert again(cast.replace("return d", "print()\n    return d")) is None
    assert with_casts(text, "no diff", site) is None


def test_float16_becomes_another_format_wherever_a_file_asks_for_it() -> None:
    text = 'import torch\n\nnet = net.half().to(torch.float16)\nhalf = self.half\nname = "float16"\n'
    for method, dtype in (("bfloat16", "bfloat16"), ("float", "float32")):
        changed = text.replace(".half()", f".{method}()").replace("torch.float16", f"torch.{dtype}")
        assert in_format(text, method, dtype) == changed
    assert in_format("import torch\n\nx = torch.ones(2)\n", "float", "float32") is None


def test_a_format_that_is_compared_with_is_not_asked_for() -> None:
    text = "import torch\n\n\ndef is_half(x):\n    return x.dtype in [torch.float16, torch.bfloat16]\n"
    assert in_format(text, "float", "float32") is None
    assert in_format(f"{text}\nx = torch.ones(2, dtype=torch.float16)\n", "float", "float32") == (
        f"{text}\nx = torch.ones(2, dtype=torch.float32)\n"
    )
