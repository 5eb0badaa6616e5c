"""Two versions of a file are compared where they differ, as formulas of the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.unit.fixes.python.mended import HEAD, called
from whynan.fixes.candidates import Declined
from whynan.fixes.python import compare_versions

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from whynan.fixes.candidates import Formula

TEXT = f"""{HEAD}LIMIT = 0.5


def near(t):
    return t < LIMIT


class Net:
    def forward(self, x, m):
        y = x * self.scale
        y += 1
        near_zero = near(y)
        if m:
            z = y.log()
            z[z < 0] = 0.0
        else:
            z = y
        for _ in range(2):
            z = z * 2
        return z.sum() + near_zero.sum()
"""
LINE = TEXT[: TEXT.index("z = y.log()")].count("\n") + 1
X = torch.tensor([0.5, 2.0])


def pair(old: str, new: str, line: int = LINE):  # noqa: ANN201 - two formulas, or why not
    assert old in TEXT
    return compare_versions(TEXT, TEXT.replace(old, new), "m.py", line)


def test_one_statement_in_a_branch() -> None:
    before, after = pair("z = y.log()", "z = y.clamp_min(1e-6).log()")
    assert (before.inputs, before.line, before.body) == (("y",), LINE, "z = y.log()\nreturn z")
    assert torch.equal(called(before, {"y": X}), X.log())
    assert torch.equal(called(after, {"y": X * 0}), torch.full_like(X, 1e-6).log())


def test_all_between_the_change_and_the_birth() -> None:
    before, after = pair("y += 1", "y = y + 2")
    values = {"y": X, "m": True, "LIMIT": 0.5}
    kept = X.clone()
    is_near, z = called(before, values)
    assert torch.equal(z, (X + 1).log())
    assert torch.equal(is_near, X + 1 < 0.5)
    assert torch.equal(called(after, values)[1], (X + 2).log())
    assert torch.equal(X, kept)


def test_a_write_into_an_input_is_made_into_a_copy() -> None:
    before, _ = pair("z[z < 0] = 0.0", "z[z <= 0] = 0.0", LINE + 1)
    value = torch.tensor([-1.0, 1.0])
    assert torch.equal(called(before, {"z": value}), torch.tensor([0.0, 1.0]))
    assert value[0] == -1


def test_a_helper_of_the_file_comes_with_it() -> None:
    before, after = pair("near(y)", "near(y.abs())", LINE - 2)
    assert torch.equal(called(before, {"y": X, "LIMIT": 1.0}), X < 1)
    assert torch.equal(called(after, {"y": -X, "LIMIT": 1.0}), X < 1)


def test_what_is_returned() -> None:
    before, after = pair("return z.sum()", "return z.mean()", LINE + 6)
    values = {"z": X, "near_zero": X}
    assert called(before, values) - called(after, values) == X.sum() - X.mean()


def test_an_added_statement_and_its_import() -> None:
    new = TEXT.replace("import torch\n", "import torch\nimport math\n").replace(
        "            z = y.log()", "            y = y + math.exp(-3)\n            z = y.log()"
    )
    before, after = compare_versions(TEXT, new, "m.py", LINE)
    assert after.imports == ("import math",)
    assert called(after, {"y": X * 0}).isfinite().all()
    assert not called(before, {"y": X * 0}).isfinite().all()


CHAIN = f"""{HEAD}def f(x, w):
    h = x * 2
    k = w.exp()
    p = h.softmax(-1)
    q = p.log()
    return q.sum() * k
"""


@pytest.mark.parametrize(
    ("new", "inputs", "lines"),
    [
        ("h.log_softmax(-1)", ("h",), ["p = h.softmax(-1)"]),
        ("(x * 2).log_softmax(-1)", ("x", "w"), ["h = x * 2", "k = w.exp()", "p = h.softmax(-1)"]),
        ("p.clamp_min(1e-30).log()", ("p",), []),
        ("torch.log(p + w)", ("p", "w"), []),
    ],
)
def test_what_relates_the_inputs_of_two_versions_is_compared_too(
    new: str, inputs: tuple[str, ...], lines: list[str]
) -> None:
    line = CHAIN[: CHAIN.index("q = ")].count("\n") + 1
    before, after = compare_versions(CHAIN, CHAIN.replace("p.log()", new), "m.py", line)
    assert before.inputs == after.inputs == inputs
    assert before.body.split("\n")[:-2] == lines
    assert before.line == line - len(lines)
    values = {"x": X, "h": X * 2, "w": X * 0, "p": (X * 2).softmax(-1)}
    assert all(torch.allclose(*pair) for pair in zip(_all(before, values), _all(after, values), strict=True))


def _all(formula: Formula, values: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    found = called(formula, values)
    return found if isinstance(found, tuple) else (found,)


REFUSED = {
    "nothing": ("z * 2", "(z * 2)"),
    "elsewhere": ("t < LIMIT", "t <= LIMIT"),
    "the signature": ("self, x, m", "self, x, m, k"),
    "a method": ("z = y.log()", "z = self.log(y)"),
    "a function that nobody knows": ("z = y.log()", "z = m(y).log()"),
    "a way out": ("z = y.log()", "z = y.log()\n            if m: return z"),
    "a yield": ("z = y.log()", "z = yield y"),
    "an attribute": ("z = y.log()", "self.z = z = y.log()"),
    "another name": ("            z = y.log()\n            z[z < 0] = 0.0", "            w = y.log()"),
    "no Python": ("z = y.log()", "z = y.log("),
    "gone": ("def forward", "def backward"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_declined(name: str, snapshot: SnapshotAssertion) -> None:
    found = pair(*REFUSED[name])
    assert isinstance(found, Declined)
    assert found.why == snapshot
