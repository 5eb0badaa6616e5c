"""What the source writes for what a call is given: the numbers, where they are sure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whynan.ops.spelling import spells_nonfinite
from whynan.source.definitions import Numbers, argument_numbers


def given(lines: str, folder: Path) -> Numbers | None:
    """What a program's first call of ``take`` is given, as its source says it."""
    found: list[Numbers | None] = []

    def take(*_: object, **__: object) -> None:
        frame = sys._getframe(1)
        found.append(argument_numbers(frame.f_code, frame.f_lasti))

    path = folder / "program.py"
    path.write_text(lines)
    exec(compile(lines, str(path), "exec"), {"take": take, "x": 1.0})
    return found[0]


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        ("take(1e39)", 1e39),
        ("take(data=-2)", -2.0),
        ("take([0.0, -1e39])", [0.0, -1e39]),
        ("take([[1, 2], (3, 4)])", [[1.0, 2.0], [3.0, 4.0]]),
        ("big = 3e38\ntake([0, big * 10 + 2**3 - 1 / 2])", [0.0, 3e39]),
        ("a = 1e39\nb = a\ntake(b)", 1e39),
        ("take([x, 1e39])", [None, 1e39]),
        ("BIG = -1e9\ndef f():\n    take([BIG, 1])\nf()", [-1e9, 1.0]),
        ("BIG: float = 2 * 1e39\nclass A:\n    def f(self):\n        take(BIG)\nA().f()", 2e39),
        ("class A:\n    BIG = -1e9\n    def f(self):\n        take(self.BIG)\nA().f()", -1e9),
        ("class A:\n    BIG = 1e39\n    def f(self):\n        take(self.BIG)\nA.BIG = 1.0\nA().f()", None),
        (
            "class A:\n    BIG = 1e39\nclass B(A):\n    BIG = 2.0\n    def f(self):\n        take(self.BIG)\nB().f()",
            None,
        ),
        ("class A:\n    BIG = 1e39\n    def f(self, other):\n        take(other.BIG)\nA().f(A())", None),
        ("BIG = 1e39\nBIG = 1.0\ndef f():\n    take(BIG)\nf()", None),
        ("BIG = 1e39\ndef f():\n    take(BIG)\ndef g(BIG):\n    pass\nf()", None),
        ("BIG = 1e39\ndef g():\n    global BIG\n    BIG = 1.0\ng()\ndef f():\n    take(BIG)\nf()", None),
        ("BIG = [1e39]\ndef f():\n    take(BIG)\nf()", None),
        ("if x:\n    BIG = 1e39\ndef f():\n    take(BIG)\nf()", None),
        ("from math import inf as BIG\ndef f():\n    take(BIG)\nf()", None),
        ("take(x)", None),
        ("take('1e39')", None),
        ("take(True)", None),
        ("take((-2) ** 0.5)", None),
        ("take(10.0 ** 300 * 2 if x else 1)", None),
        ("take(1" + "0" * 400 + ")", None),
        ("take(7 % 2)", None),
        ("take(-x)", None),
        ("take(2 * x)", None),
        ("take()", None),
        ("take(other=1.0)", None),
        ("for big in (1e39, 1.0):\n    take(big)", None),
        ("big = 1e39\nif x:\n    big = 1.0\ntake(big)", None),
    ],
)
def test_the_numbers_that_a_call_is_given(lines: str, numbers: Numbers | None, tmp_path: Path) -> None:
    assert given(lines, tmp_path) == numbers


@pytest.mark.parametrize(
    "text",
    ["float('inf')", 'float("-Inf")', "math.nan", "np.NINF", "-torch.inf", "NEG_INF", "minus_inf", 'float("infinity")'],
)
def test_an_expression_that_names_an_infinity(text: str) -> None:
    assert spells_nonfinite(text)


@pytest.mark.parametrize(
    "text", ["info['scale']", "torch.nan_to_num(x)", "x.isnan()", "finfo.max", "nan_count", "banana"]
)
def test_an_expression_that_has_only_the_letters(text: str) -> None:
    assert not spells_nonfinite(text)
