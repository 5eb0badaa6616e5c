"""What cannot be mended safely is declined, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.fixes.python.mended import (
    DIVISION,
    LOG,
    LOG_SOFTMAX,
    all_of,
    declined,
    finding,
    function,
)
from whynan.fixes.python import candidates
from whynan.records.intents import FixIntent

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

CASES = {
    "a branch": "if len(x):\n    p = x.softmax(-1)\nelse:\n    p = x.sigmoid()\nreturn p.log()",
    "a branch that may not be taken": "p = x\nif len(x):\n    p = x.softmax(-1)\nreturn p.log()",
    "a loop that may not be entered": "p = x\nwhile len(x) > 3:\n    p = x.softmax(-1)\nreturn p.log()",
    "a try": "try:\n    p = x.softmax(-1)\nexcept ValueError:\n    p = x\nreturn p.log()",
    "written into": "p = x.softmax(-1)\np -= 1e-9\nreturn p.log()",
    "an element written": "p = x.softmax(-1)\np[0] = 1\nreturn p.log()",
    "a view written": "p = x.softmax(-1)\nv = p.view(-1)\nv.add_(1)\nreturn p.log()",
    "the operand written": "p = x.softmax(-1)\nx.add_(1)\nreturn p.log()",
    "deleted": "p = x.softmax(-1)\ndel p\nreturn p.log()",
    "global": "global p\np = x.softmax(-1)\ng()\nreturn p.log()",
    "nonlocal": "p = x.softmax(-1)\ndef g():\n    nonlocal p\n    p = x\ng()\nreturn p.log()",
    "read later": "p = x.softmax(-1)\ng = lambda: p.log()\nreturn g()",
    "another's function": "p = numpy.softmax(x)\nreturn p.log()",
    "a result held elsewhere": "p = x.softmax(-1)\nq = p\np.log_()\nreturn q",
    "a result in a list": "p = x.softmax(-1)\nkept = [p]\np.log_()\nreturn kept",
    "an attribute's value": "self.p = x.softmax(-1)\nreturn self.p.log()",
    "a name that is needed": "y = torch.log(p := x.softmax(-1))\nreturn y + p",
}


@pytest.mark.parametrize("name", CASES)
def test_an_unsafe_rewrite_is_declined(name: str, snapshot: SnapshotAssertion) -> None:
    text = function(CASES[name])
    site = next(s for s in ("p.log()", "p.log_()", "torch.log(p := x.softmax(-1))") if s in text)
    if name == "another's function":
        text = f"import numpy\n{text}"
    assert declined(text, site, LOG_SOFTMAX) == snapshot


def test_an_unsafe_rewrite_leaves_the_guard() -> None:
    text = function(CASES["a branch"])
    rewrite, guard = all_of(text, "p.log()", LOG_SOFTMAX, LOG)
    assert not hasattr(rewrite, "edited")
    assert hasattr(guard, "edited")


def test_a_shared_helper_is_not_changed_for_one_of_its_callers() -> None:
    text = function("def lg(t):\n    return t.log()\nreturn lg(x.softmax(-1)) + lg(x)")
    assert declined(text, "t.log()", LOG_SOFTMAX) == ["t.log() is not written as log(softmax(x, d))"]


def test_what_was_absorbed_is_not_mended() -> None:
    text = function("return x / x.sum()")
    assert candidates(text, finding(text, "x / x.sum()", fate="absorbed"), [DIVISION]) == []


def test_a_setting_is_no_edit() -> None:
    text = function("return x / x.sum()")
    assert all_of(text, "x / x.sum()", FixIntent("eps=1e-8", "setting")) == []


@pytest.mark.parametrize(
    ("text", "site"), [("def f(:\n", None), (function("return x"), "x / y"), (function("return x.log()"), "x.lo")]
)
def test_what_is_not_the_source_of_the_run_is_declined(
    text: str, site: str | None, snapshot: SnapshotAssertion
) -> None:
    other = function("return x / y + x.log()")
    found = finding(other if site is None or site not in text else text, site or "x / y")
    assert [c.why for c in candidates(text, found, [DIVISION])] == snapshot


def test_a_birth_without_a_site_is_declined(snapshot: SnapshotAssertion) -> None:
    text = function("return x / x.sum()")
    found = finding(text, "x / x.sum()").model_copy(update={"site": None})
    assert [c.why for c in candidates(text, found, [DIVISION])] == snapshot
