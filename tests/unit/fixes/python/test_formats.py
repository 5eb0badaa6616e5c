"""An edit is the smallest one, whatever the source around it looks like, and leaves all else as it was."""

from __future__ import annotations

import difflib

import pytest
import torch

from tests.unit.fixes.python.mended import (
    DIVISION,
    HEAD,
    LOG,
    LOG_SIGMOID,
    LOG_SOFTMAX,
    SIGMOID,
    changed,
    declined,
    executed,
    finding,
    function,
    is_cured,
    mended,
)
from whynan.fixes.candidates import Candidate
from whynan.fixes.python import candidates
from whynan.records import Operand
from whynan.rules.intents import POLE

GAP = torch.tensor([[0.0, 300.0]])
GOOD = torch.tensor([[0.5, 1.25]])

PROBES = {
    "CRLF": (function("p = x.softmax(-1)  # é\nreturn p.log()").replace("\n", "\r\n"), "p.log()", 1),
    "a carriage return alone": (function("p = x.softmax(-1)\nreturn p.log()").replace("\n", "\r"), "p.log()", 1),
    "letters of several bytes before it": (
        function('größe, wort = x, "ÄÖÜ😀"; p = größe.softmax(-1); return p.log()'),
        "p.log()",
        1,
    ),
    "tabs": (f"{HEAD}def f(x):\n\tif True:\n\t\tp = x.softmax(-1)\n\t\treturn p.log()\n", "p.log()", 1),
    "a comment in it": (
        function("return torch.log(\n    # of the classes\n    x.softmax(-1)  # rows\n)"),
        "torch.log(\n        # of the classes\n        x.softmax(-1)  # rows\n    )",
        4,
    ),
    "a chain over several lines": (
        function("return (\n    x\n    .softmax(-1)\n    .log()\n)"),
        "x\n        .softmax(-1)\n        .log()",
        3,
    ),
    "semicolons": (function("p = x.softmax(-1); q = p.log(); return q"), "p.log()", 1),
    "another name of torch": (
        "import torch as T\n\ndef f(x):\n    return T.log(T.softmax(x, -1))\n",
        "T.log(T.softmax(x, -1))",
        1,
    ),
    "imported functions": (
        "from torch import log, softmax\n\ndef f(x):\n    return log(softmax(x, -1))\n",
        "log(softmax(x, -1))",
        2,
    ),
    "no import of torch": ("def f(x):\n    return x.softmax(-1).log()\n", "x.softmax(-1).log()", 1),
    "a decorator": (
        f"{HEAD}@torch.enable_grad()\ndef f(x):\n    return x.softmax(-1).log()\n",
        "x.softmax(-1).log()",
        1,
    ),
    "a lambda": (f"{HEAD}f = lambda x: x.softmax(-1).log()\n", "x.softmax(-1).log()", 1),
    "a comprehension": (function("return torch.stack([r.softmax(-1).log() for r in x])"), "r.softmax(-1).log()", 1),
    "a walrus": (function("return (p := x.softmax(-1)).log() + 0 * 1"), "(p := x.softmax(-1)).log()", 1),
    "a tuple": (function("p, q = x.softmax(-1), 3\nreturn p.log() * q"), "p.log()", 1),
    "an attribute": (
        function("class Box: pass\nb = Box()\np = x.softmax(-1)\nb.v = p.log()\nreturn b.v"),
        "p.log()",
        1,
    ),
    "a loop": (function("t = 0\nfor r in x:\n    p = r.softmax(-1)\n    t = t + p.log()\nreturn t"), "p.log()", 1),
    "a with": (function("with torch.enable_grad():\n    p = x.softmax(-1)\n    y = p.log()\nreturn y"), "p.log()", 1),
    "a keyword": (function("def g(*, v):\n    return v\nreturn g(v=x.softmax(-1).log())"), "x.softmax(-1).log()", 1),
    "a subscript": (function("return x.softmax(-1).log()[:, 0]"), "x.softmax(-1).log()", 1),
    "no end of the last line": (function("return x.softmax(-1).log()").rstrip("\n"), "x.softmax(-1).log()", 1),
    "an async function": (
        f"{HEAD}async def g(x):\n    return x.softmax(-1).log()\n\n\ndef f(x):\n"
        "    try:\n        g(x).send(None)\n    except StopIteration as end:\n        return end.value\n",
        "x.softmax(-1).log()",
        1,
    ),
}


@pytest.mark.parametrize("name", PROBES)
def test_an_edit_fits_into_its_surroundings(name: str) -> None:
    text, site, lines = PROBES[name]
    found = mended(text, site, LOG_SOFTMAX)
    assert is_cured(text, found.edited, [GAP], [GOOD])
    old, new = text.splitlines(keepends=True), found.edited.splitlines(keepends=True)
    touched = [line for line in difflib.ndiff(old, new) if line.startswith("+ ")]
    assert len(touched) <= lines, touched


def test_line_ends_stay() -> None:
    text, site, _ = PROBES["CRLF"]
    edited = mended(text, site, LOG_SOFTMAX).edited
    assert edited.count("\r\n") == text.count("\r\n")
    assert "\n" not in edited.replace("\r\n", "")


def test_an_import_is_added_where_the_replacement_needs_one() -> None:
    text = '"""A module."""\n\nfrom __future__ import annotations\n\n\ndef f(x):\n    return x / x.sum()\n'
    edited = mended(text, "x / x.sum()", DIVISION).edited
    assert "import torch\n" in edited
    assert edited.startswith('"""A module."""\n\nfrom __future__ import annotations\n')
    assert executed(edited)["f"](torch.zeros(3)).isfinite().all()


@pytest.mark.parametrize(
    "head",
    [
        "",
        "#!/usr/bin/env python\n# A licence.\n\n",
        "import os; K = 3\n",
        "import os\n\nK = 3\nimport sys\n",
        '"""Text."""\n@property\n',
    ],
)
def test_an_import_is_added_to_any_head(head: str) -> None:
    text = f"{head}def g(x):\n    return x\n\n\ndef f(x):\n    return x / x.sum()\n"
    edited = mended(text, "x / x.sum()", DIVISION).edited
    assert executed(edited)["f"](torch.zeros(3)).isfinite().all()
    assert edited.count("\n") - text.count("\n") <= 2


def test_numbers_are_not_guarded() -> None:
    text = function("return (x * 10).sum() + y / 4", "x, y")
    assert declined(text, "x * 10", DIVISION) == ["x * 10 is not written as a / b"]
    assert declined(text, "y / 4", DIVISION) == ["b is a number there"]


@pytest.mark.parametrize(("code", "size"), [("x.sum() / n", 3), ("x.sum().div(n)", 3), ("x / (n * 2)", 2)])
def test_a_number_of_python_chooses_by_a_condition(code: str, size: int) -> None:
    text = function(f"return {code}", "x, n")
    found = finding(text, code)
    denominator = "n * 2" if "*" in code else "n"
    operand = Operand(name="other", expression=denominator, index=None, value=0, dtype=None, origin="live")
    found = found.model_copy(update={"element": found.element.model_copy(update={"operands": (operand,)})})
    (candidate,) = candidates(text, found, [POLE[0]])
    assert isinstance(candidate, Candidate)
    before, after = executed(text)["f"], executed(candidate.edited)["f"]
    x = torch.ones(size, requires_grad=True)
    assert after(x, 4).equal(before(x, 4))
    nothing = after(x, 0)
    nothing.sum().backward()
    assert (nothing.dtype, nothing.shape) == (torch.float32, before(x, 4).shape)
    assert not nothing.any()
    assert x.grad is not None
    assert not x.grad.any()
    whole = torch.ones(size, dtype=torch.int64)
    assert after(whole, 0).dtype == before(whole, 4).dtype == torch.float32


def test_a_name_that_torch_is_not_makes_it_decline() -> None:
    text = "torch = None\n\n\ndef f(x):\n    return x / x.sum()\n"
    (found,) = candidates(text, finding(text, "x / x.sum()"), [DIVISION])
    assert found.why == "the name torch is something else there"


FUNCTIONAL = "import torch.nn.functional as F\n"
BODY = "def f(x):\n    return torch.log(torch.sigmoid(x))\n"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (f"import torch\n{FUNCTIONAL}\n\n{BODY}", True),
        (f"import torch\nfrom torch.nn import functional as F\n\n\n{BODY}", True),
        (BODY.replace("    return", f"    import torch\n    {FUNCTIONAL}    return"), True),
        (f"import torch\n\n\n{BODY}\n\nf(torch.ones(1))\n{FUNCTIONAL}", False),
        (f"import torch\n\n\ndef g():\n    {FUNCTIONAL}    return F\n\n\n{BODY}", False),
        (f"import torch\n\n\nclass G:\n    {FUNCTIONAL}\n\n{BODY}", False),
        (f"import torch\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    {FUNCTIONAL}\n\n{BODY}", False),
        (
            f"import torch\n\ntry:\n    import absent\n    {FUNCTIONAL}except ImportError:\n    pass\n\n\n{BODY}",
            False,
        ),
        (f"import torch\n{FUNCTIONAL}\n\n{BODY.replace('(x)', '(x, F=3)', 1)}", False),
        (f"import torch\n{FUNCTIONAL}\n\n{BODY.replace('    return', '    F = 3' + chr(10) + '    return')}", False),
        (f"import torch\n{FUNCTIONAL}del F\n\n\n{BODY}", False),
        (f"import torch\n{FUNCTIONAL}try:\n    1 / 0\nexcept ZeroDivisionError as F:\n    pass\n\n\n{BODY}", False),
        (f"import torch\n{FUNCTIONAL}import torch.nn.init as F\n\n\n{BODY}", False),
        (
            f"import torch\n{FUNCTIONAL}\n\n{BODY.replace('return', 'p =')}    {FUNCTIONAL}    return F.relu(p)\n",
            False,
        ),
        (f"def g():\n    import torch\n    return torch\n\n\n{BODY}", False),
    ],
)
def test_a_name_is_used_only_where_its_import_has_run(text: str, known: bool) -> None:
    (line,) = changed(text, mended(text, "torch.log(torch.sigmoid(x))", LOG_SIGMOID).edited)[-1:]
    assert ("F.logsigmoid(x)" if known else "torch.nn.functional.logsigmoid(x)") in line
    ready = text.replace("\nf(torch.ones(1))\n", "\n")
    edited = mended(ready, "torch.log(torch.sigmoid(x))", LOG_SIGMOID).edited
    assert executed(edited)["f"](torch.tensor([-300.0])) == -300.0 or "F.relu" in text


def test_an_import_that_comes_later_in_the_function_takes_the_name_of_torch() -> None:
    text = "def f(x):\n    y = x.sigmoid().log()\n    import torch\n    return torch.relu(y)\n"
    assert declined(text, "x.sigmoid().log()", LOG_SIGMOID) == ["the name torch is something else there"]


def test_an_import_inside_another_function_does_not_serve() -> None:
    text = "def g():\n    import torch\n    return torch\n\n\ndef f(x):\n    return x / x.sum()\n"
    edited = mended(text, "x / x.sum()", DIVISION).edited
    assert executed(edited)["f"](torch.zeros(3)).isfinite().all()


@pytest.mark.parametrize(
    ("expression", "site", "expected"),
    [
        ("y ** (1 / (1 + torch.exp(-x)))", "1 / (1 + torch.exp(-x))", "y ** torch.sigmoid(x)"),
        ("-(1 / (1 + (-x).exp()))", "1 / (1 + (-x).exp())", "-x.sigmoid()"),
        ("y - 3 / (1 + torch.exp(-x))", "3 / (1 + torch.exp(-x))", "y - 3 * torch.sigmoid(x)"),
        ("y / (3 / (1 + torch.exp(-x)))", "3 / (1 + torch.exp(-x))", "y / (3 * torch.sigmoid(x))"),
        ("(1 / (1 + torch.exp(-x - y))).sum()", "1 / (1 + torch.exp(-x - y))", "torch.sigmoid(x + y).sum()"),
    ],
)
def test_parentheses_stand_where_they_are_needed(expression: str, site: str, expected: str) -> None:
    text = function(f"return {expression}", "x, y")
    found = mended(text, site, SIGMOID)
    assert changed(text, found.edited) == [f"return {expected}"]


def test_an_operand_that_is_read_twice_is_named_where_that_can_be() -> None:
    text = function("return torch.log((x * 2).sum(-1))")
    found = mended(text, "torch.log((x * 2).sum(-1))", LOG)
    assert changed(text, found.edited) == [
        "operand = (x * 2).sum(-1)",
        "return torch.log(torch.where(operand == 0, torch.finfo(operand.dtype).tiny, operand))",
    ]


def test_an_operand_that_cannot_be_named_is_written_twice() -> None:
    text = function("return torch.stack([r for r in torch.log(x + 1)])")
    found = mended(text, "torch.log(x + 1)", LOG)
    assert ":=" not in found.edited
    assert found.edited.count("x + 1") == 3
