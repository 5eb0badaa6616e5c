"""Programs as text, findings in them, and what they compute once they are mended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from whynan.fixes.candidates import Candidate, Declined
from whynan.fixes.python import candidates
from whynan.records import Element, Finding, Site
from whynan.records.intents import FixIntent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.fixes.candidates import Formula

LOG_SOFTMAX = FixIntent("log_softmax", "reformulation", "log(softmax(x, d))", "log_softmax(x, d)")
LOG_SIGMOID = FixIntent("logsigmoid", "reformulation", "log(sigmoid(x))", "logsigmoid(x)")
LOG_ONE_MINUS = FixIntent("logsigmoid", "reformulation", "log(1 - sigmoid(x))", "logsigmoid(-x)")
LOGSUMEXP = FixIntent("logsumexp", "reformulation", "log(sum(exp(x), d, k))", "logsumexp(x, d, k)")
SOFTMAX = FixIntent("softmax", "reformulation", "exp(x) / sum(exp(x), d, k)", "softmax(x, d)")
SIGMOID = FixIntent("sigmoid", "reformulation", "1 / (1 + exp(-x))", "sigmoid(x)")
XLOGX = FixIntent("xlogy", "reformulation", "x * log(x)", "xlogy(x, where(x == 0, 1, x))")
RATIO = FixIntent("xlogy", "reformulation", "x * log(x / y)", "xlogy(x, where(x == 0, 1, x / y))")
DIVISION = FixIntent("a denominator of 1", "guard", "a / b", "a / where(b == 0, 1, b)")
LOG = FixIntent("a smallest operand", "guard", "log(x)", "log(where(x == 0, finfo(x).tiny, x))")
NORM = FixIntent("vector_norm", "reformulation", "sqrt(sum(x**2, d, k))", "vector_norm(x, dim=d, keepdim=k)")
ROOT_EPSILON = FixIntent("a small number", "epsilon", "sqrt(x)", "sqrt(x + 1e-12)")
HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"


def function(body: str, parameters: str = "x") -> str:
    """A file with one function ``f``."""
    return f"{HEAD}def f({parameters}):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def finding(text: str, code: str, *, nth: int = 0, **changes: Any) -> Finding:
    """A finding whose site is the nth occurrence of an expression's text."""
    start = -1
    for _ in range(nth + 1):
        start = text.index(code, start + 1)
    end = start + len(code)

    def place(offset: int) -> tuple[int, int]:
        lines = re.split("\r\n|\r|\n", text[:offset])
        return len(lines), len(lines[-1]) + 1

    line, column = place(start)
    end_line, end_column = place(end)
    site = Site(file="m.py", line=line, column=column, end_line=end_line, end_column=end_column, code=code)
    element = Element(index=None, shape=(), dtype="float32", value=None, count=1, total=1)
    known: dict[str, Any] = {"fate": "escaped", "birth": "pole", "phase": "forward", "op": None}
    return Finding(severity="error", site=site, element=element, **{**known, **changes})


def all_of(text: str, code: str, *intents: FixIntent, **changes: Any) -> list[Candidate | Declined]:
    """Everything that is answered for a birth at an expression."""
    return candidates(text, finding(text, code, **changes), intents)


def mended(text: str, code: str, *intents: FixIntent, **changes: Any) -> Candidate:
    """The first candidate for a birth at an expression."""
    found = all_of(text, code, *intents, **changes)
    first = next((c for c in found if isinstance(c, Candidate)), None)
    assert first is not None, found
    return first


def declined(text: str, code: str, *intents: FixIntent, **changes: Any) -> list[str]:
    """Why there is no candidate at all."""
    found = all_of(text, code, *intents, **changes)
    assert not any(isinstance(c, Candidate) for c in found), found
    return [c.why for c in found if isinstance(c, Declined)]


def changed(before: str, after: str) -> list[str]:
    """The lines of the second text that the first does not have."""
    return [line.strip() for line in after.splitlines() if line not in before.splitlines()]


def executed(text: str) -> dict[str, Any]:
    """What a file defines."""
    namespace: dict[str, Any] = {"__name__": "mended"}
    exec(compile(text, "m.py", "exec"), namespace)
    return namespace


def computed(text: str, *operands: Any, name: str = "f") -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The result of a file's function, and its gradients."""
    return results(executed(text)[name], *operands)


def results(called: Any, *operands: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The result of a function, and its gradients with respect to its floating operands."""
    given = [_leaf(operand) for operand in operands]
    result = called(*given)
    leaves = [g for g in given if isinstance(g, torch.Tensor) and g.requires_grad]
    result.sum().backward()
    return result.detach(), [torch.zeros_like(g) if g.grad is None else g.grad for g in leaves]


def _leaf(operand: Any) -> Any:
    if not isinstance(operand, torch.Tensor):
        return operand
    return operand.detach().clone().requires_grad_(operand.is_floating_point())


def is_finite(found: tuple[torch.Tensor, list[torch.Tensor]]) -> bool:
    """Whether a result and its gradients are finite."""
    return all(bool(t.isfinite().all()) for t in (found[0], *found[1]))


def is_cured(text: str, edited: str, bad: Any, good: Any) -> bool:
    """Whether an edited file is finite where the other is not, and the same where that is healthy."""
    assert not is_finite(computed(text, *bad))
    before, after = computed(text, *good), computed(edited, *good)
    same = all(
        torch.allclose(a, b, rtol=1e-5, atol=1e-6)
        for a, b in zip((before[0], *before[1]), (after[0], *after[1]), strict=True)
    )
    return is_finite(computed(edited, *bad)) and same


def is_cured_forward(text: str, edited: str, bad: torch.Tensor, good: torch.Tensor) -> bool:
    """The same of the result alone, where the program as it is cannot be differentiated."""
    before, after = executed(text)["f"], executed(edited)["f"]
    assert not before(bad.clone()).isfinite().all()
    return bool(after(bad.clone()).isfinite().all()) and torch.allclose(before(good.clone()), after(good.clone()))


def called(formula: Formula, values: Mapping[str, Any]) -> torch.Tensor:
    """The value of a formula for values of what it reads."""
    head = "\n".join(formula.imports)
    body = "\n".join(f"    {line}" for line in formula.body.split("\n"))
    namespace = executed(f"{head}\ndef formula({', '.join(formula.parameters)}):\n{body}\n")
    given = {p: values[i] for p, i in zip(formula.parameters, formula.inputs, strict=True)}
    return namespace["formula"](**given)
