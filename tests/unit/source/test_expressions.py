"""The expressions of operands: what a real PyTorch dispatched, against what the source says that it was."""

from __future__ import annotations

import dis
import functools
import linecache
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from whynan.source import operand_expressions

PREAMBLE = """\
import math
import torch
import torch.nn.functional as F
import torch as th
from torch import nn
from torch.nn import functional
from torch import log as ln
"""


FUNCTIONS = "log softmax clamp addcdiv add mul matmul stack max square".split()


class Event(NamedTuple):
    """One operator that a line dispatched: its arguments by name, and the expressions that were found for them."""

    base: str
    arguments: dict[str, Any]
    expressions: dict[str, str]


def copied(value: Any) -> Any:
    """A value as it is now: in-place operators change their operand."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class Watch(TorchDispatchMode):
    """Asks for the expressions of every operator that code of one file dispatches."""

    def __init__(self, filename: str, told: bool) -> None:
        super().__init__()
        self.filename = filename
        self.told = told
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        assert frame is not None
        names = [argument.name for argument in func._schema.arguments]
        arguments = dict(zip(names, args, strict=False)) | (kwargs or {})
        numbers = [n for n, v in arguments.items() if isinstance(v, (int, float))] if self.told else None
        expressions = operand_expressions(frame.f_code, frame.f_lasti, str(func), names, numbers=numbers)
        self.events.append(Event(func._schema.name.split("::")[1], tree_map(copied, arguments), expressions))
        return func(*args, **(kwargs or {}))


def variables() -> dict[str, Any]:
    """Operands no two of which hold the same values."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) + 0.1

    held = SimpleNamespace(weight=random(3, 4), **{name: getattr(torch, name) for name in FUNCTIONS})
    return {
        "a": random(3, 4), "b": random(3, 4), "w": random(4, 5), "v": random(5), "t": random(2, 3, 4),
        "u": random(2, 4, 3), "row": random(4), "scalar": random(1)[0], "s": 1.5, "k": 2, "dim": 1,
        "n": torch.tensor([0, 2, 1]), "mask": random(3, 4) > 0.6, "held": held,
        "tall": random(6, 3).requires_grad_(), "deep": random(2, 3, 4).requires_grad_(),
        "pair": [random(3), random(3)],
    }  # fmt: skip


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))


def run(line: str, *, told: bool = True) -> list[Event]:
    """Run one line on fresh operands, as a file of its own."""
    text = PREAMBLE + line + "\n"
    filename = f"<cell {abs(hash(text))}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace = variables()
    watch = Watch(filename, told)
    code = compile(text, filename, "exec")
    with watch:
        exec(code, namespace)
    return watch.events


def shares(value: Any, meant: Any) -> bool:
    """Whether an argument holds the values of an expression, as they are or seen otherwise (transposed, repeated)."""
    if isinstance(value, (list, tuple)):
        return all(map(shares, value, meant))
    if isinstance(value, torch.Tensor) and isinstance(meant, torch.Tensor):
        return torch.equal(value.unique(), meant.detach().unique())
    return bool(value == meant)


def entry(arguments: dict[str, Any], name: str) -> Any:
    """An argument, or with ``tensors[0]`` an entry of one."""
    if name.endswith("]"):
        name, _, index = name[:-1].partition("[")
        return arguments[name][int(index)]
    return arguments[name]


# A line, and what must be found for the operator that it ends up with.
NAMED: list[tuple[str, str, dict[str, str]]] = [
    ("a / b", "div", {"self": "a", "other": "b"}),
    ("a / 2", "div", {"self": "a", "other": "2"}),
    ("(a + b) / (b)", "div", {"self": "a + b", "other": "b"}),
    ("s / a", "reciprocal", {"self": "a"}),
    ("s / a", "mul", {"other": "s"}),
    ("a - b", "sub", {"self": "a", "other": "b"}),
    ("s - a", "rsub", {"self": "a", "other": "s"}),
    ("a - s", "sub", {"self": "a", "other": "s"}),
    ("a * b", "mul", {"self": "a", "other": "b"}),
    ("a * 2", "mul", {"self": "a", "other": "2"}),
    ("2 * a", "mul", {"self": "a", "other": "2"}),
    ("-2e3 + a", "add", {"self": "a", "other": "-2e3"}),
    ("a * math.pi", "mul", {"self": "a", "other": "math.pi"}),
    ("math.sqrt(2) * a", "mul", {"self": "a", "other": "math.sqrt(2)"}),
    ("(1 / len('ab')) * a", "mul", {"self": "a", "other": "1 / len('ab')"}),
    ("a ** 2", "pow", {"self": "a", "exponent": "2"}),
    ("2 ** a", "pow", {"self": "2", "exponent": "a"}),
    ("a ** b", "pow", {"self": "a", "exponent": "b"}),
    ("a // s", "floor_divide", {"self": "a", "other": "s"}),
    ("s % a", "remainder", {"self": "s", "other": "a"}),
    ("a < b", "lt", {"self": "a", "other": "b"}),
    ("0 < a", "gt", {"self": "a", "other": "0"}),
    ("s >= a", "le", {"self": "a", "other": "s"}),
    ("0 == a", "eq", {"self": "a", "other": "0"}),
    ("mask & (a > 0)", "bitwise_and", {"self": "mask", "other": "a > 0"}),
    ("-a", "neg", {"self": "a"}),
    ("~mask", "bitwise_not", {"self": "mask"}),
    ("t @ u", "bmm", {"self": "t", "mat2": "u"}),
    ("a @ b.T", "mm", {"self": "a", "mat2": "b.T"}),
    ("torch.matmul(a, b.t())", "mm", {"self": "a", "mat2": "b.t()"}),
    ("row @ a[0]", "dot", {"self": "row", "tensor": "a[0]"}),
    ("a.mm(w)", "mm", {"self": "a", "mat2": "w"}),
    ("torch.bmm(t, mat2=u)", "bmm", {"self": "t", "mat2": "u"}),
    ("torch.addmm(v, a, w)", "addmm", {"self": "v", "mat1": "a", "mat2": "w"}),
    ("a /= b", "div_", {"self": "a", "other": "b"}),
    ("a *= s", "mul_", {"self": "a", "other": "s"}),
    ("s -= a", "rsub", {"self": "a", "other": "s"}),
    ("k **= a", "pow", {"self": "k", "exponent": "a"}),
    ("held.weight += b", "add_", {"self": "held.weight", "other": "b"}),
    ("a[0] /= row", "div_", {"self": "a[0]", "other": "row"}),
    ("a[1] = row", "copy_", {"self": "a[1]", "src": "row"}),
    ("a[mask] = s", "index_put_", {"self": "a", "values": "s"}),
    ("a[1] = row[0]", "fill_", {"self": "a[1]", "value": "row[0]"}),
    ("a[n]", "index", {"self": "a"}),
    ("a.log()", "log", {"self": "a"}),
    ("a.log_()", "log_", {"self": "a"}),
    ("held.weight.log()", "log", {"self": "held.weight"}),
    ("(a - b).abs().sqrt()", "sqrt", {"self": "(a - b).abs()"}),
    ("a.mul(b).log()", "mul", {"self": "a", "other": "b"}),
    ("torch.log(a)", "log", {"self": "a"}),
    ("torch.log(input=a)", "log", {"self": "a"}),
    ("th.log(a)", "log", {"self": "a"}),
    ("ln(a)", "log", {"self": "a"}),
    ("abs(a)", "abs", {"self": "a"}),
    ("a.softmax((-1))", "_softmax", {"self": "a"}),
    ("a.sum((0, 1), dtype=torch.float64)", "sum", {"self": "a"}),
    ("a.masked_fill(mask, 1.0)", "masked_fill", {"self": "a", "mask": "mask", "value": "1.0"}),
    ("a.lerp(b, s)", "lerp", {"self": "a", "end": "b", "weight": "s"}),
    ("a[:, :3].inverse()", "linalg_inv_ex", {"A": "a[:, :3]"}),
    ("pow(a, 2)", "pow", {"self": "a", "exponent": "2"}),
    ("a.addcdiv(b, a, value=2)", "addcdiv", {"self": "a", "tensor1": "b", "tensor2": "a", "value": "2"}),
    ("a.add(b, alpha=s)", "add", {"self": "a", "other": "b"}),
    ("torch.Tensor.sqrt(a)", "sqrt", {"self": "a"}),
    ("a.__truediv__(b)", "div", {"self": "a", "other": "b"}),
    ("torch.true_divide(a, other=b)", "div", {"self": "a", "other": "b"}),
    ("torch.atan2(a, b)", "atan2", {"self": "a", "other": "b"}),
    ("torch.arctan2(a, b)", "atan2", {"self": "a", "other": "b"}),
    ("torch.where(mask, a, b)", "where", {"condition": "mask", "self": "a", "other": "b"}),
    ("torch.where(mask, input=a, other=b)", "where", {"condition": "mask", "self": "a", "other": "b"}),
    (
        "torch.addcdiv(a, b, held.weight, value=2)",
        "addcdiv",
        {"self": "a", "tensor1": "b", "tensor2": "held.weight", "value": "2"},
    ),
    ("torch.clip(a, min=0.2)", "clamp", {"self": "a", "min": "0.2"}),
    ("a.clamp(0, 1)", "clamp", {"self": "a", "min": "0", "max": "1"}),
    ("a.square()", "pow", {"self": "a"}),
    ("torch.max(a, b)", "maximum", {"self": "a", "other": "b"}),
    ("a.max()", "max", {"self": "a"}),
    ("a.min(b)", "minimum", {"self": "a", "other": "b"}),
    ("a.sum(-1)", "sum", {"self": "a"}),
    ("a.mean(dim=(0, 1))", "mean", {"self": "a"}),
    ("a.softmax(dim)", "_softmax", {"self": "a"}),
    ("a.norm()", "linalg_vector_norm", {"self": "a"}),
    ("torch.linalg.vector_norm(a)", "linalg_vector_norm", {"self": "a"}),
    ("torch.special.xlogy(a, b)", "xlogy", {"self": "a", "other": "b"}),
    ("torch.stack([a, b])", "stack", {"tensors": "[a, b]", "tensors[0]": "a", "tensors[1]": "b"}),
    ("torch.cat(pair)", "cat", {"tensors": "pair"}),
    ("torch.cat([*pair])", "cat", {"tensors": "[*pair]"}),
    ("torch.add(*pair)", "add", {}),
    ("torch.outer(row, v)", "mul", {"self": "row", "other": "v"}),
    ("F.softmax(a, dim=-1)", "_softmax", {"self": "a"}),
    ("nn.functional.log_softmax(a, 1)", "_log_softmax", {"self": "a"}),
    ("functional.cross_entropy(a, n)", "_log_softmax", {"self": "a"}),
    ("F.cross_entropy(input=a, target=n)", "nll_loss_forward", {"target": "n"}),
    ("F.linear(a, w.t(), v)", "addmm", {"self": "v", "mat1": "a", "mat2": "w.t()"}),
    ("F.linear(a, w.t())", "mm", {"self": "a", "mat2": "w.t()"}),
    ("F.mse_loss(a, b)", "mse_loss", {"self": "a", "target": "b"}),
    ("F.l1_loss(a, b)", "sub", {"self": "a", "other": "b"}),
    ("F.normalize(a)", "linalg_vector_norm", {"self": "a"}),
    ("F.embedding(n, a)", "embedding", {"weight": "a", "indices": "n"}),
    ("F.layer_norm(a, (4,), row)", "native_layer_norm", {"input": "a", "weight": "row"}),
    ("F.group_norm(t, 1, t[0, 0, :3])", "native_group_norm", {"input": "t", "weight": "t[0, 0, :3]"}),
    ("F.batch_norm(a, None, None, row, training=True)", "native_batch_norm", {"input": "a", "weight": "row"}),
    ("F.binary_cross_entropy_with_logits(a, b)", "binary_cross_entropy_with_logits", {"self": "a", "target": "b"}),
    ("F.prelu(a, row)", "_prelu_kernel", {"self": "a", "weight": "row"}),
    ("F.logsigmoid(a)", "log_sigmoid_forward", {"self": "a"}),
    ("f'{a / b!r}'", "div", {"self": "a", "other": "b"}),
    ("[x / b for x in [a]]", "div", {"self": "x", "other": "b"}),
    ("torch.div(\n    a,  # above\n    b + # below\n    1)", "div", {"self": "a", "other": "b + 1"}),
]


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("line", "base", "expected"), NAMED, ids=[line for line, _, _ in NAMED])
def test_operands_are_named(line: str, base: str, expected: dict[str, str]) -> None:
    events = run(line)
    found = [event.expressions for event in events if event.base == base]
    assert found, [event.base for event in events]
    assert {name: text for name, text in found[-1].items() if text != "None"} == expected


# Lines whose operators must not be named by what stands there.
UNSURE: list[tuple[str, str]] = [
    ("a * s", "mul"),  # the tensor is named first whichever stands first
    ("s * a", "mul"),
    ("s *= a", "mul"),
    ("s == a", "eq"),
    ("a @ w", "mm"),
    ("tall @ deep", "mm"),  # computed as the product of the transposed, swapped
    ("torch.einsum('ij,ik->jk', a, b)", "bmm"),
    ("F.cosine_similarity(a, b)", "div"),
    ("F.kl_div(a, b)", "mul"),
    ("torch.nanmean(a)", "div"),
    ("sum([a, b])", "add"),
    ("a.std()", "sqrt"),
    ("a[0, 1]", "select"),
    ("a.T", "permute"),
    ("(lambda log: log(a))(torch.log)", "log"),
    ("F = a; F.log()", "log"),
    ("torch.log(**dict(input=a))", "log"),
    ("row[0] in a", "eq"),
    ("th = a; th.atan2(b)", "atan2"),
    ("a.where(mask, b)", "where"),
    ("not row[0]", "_local_scalar_dense"),
    ("row[0] < row[1] < row[2]", "lt"),
    ("a.sum(int(1))", "sum"),
    ("a.add(b) // s", "add_"),
    *((f"held.{name}(a)", name) for name in ("log", "square")),
    *((f"held.{name}(a, b)", name) for name in ("add", "mul", "max")),
    ("held.matmul(t, u)", "bmm"),
    ("held.softmax(a, 1)", "_softmax"),
    ("held.clamp(a, 0)", "clamp"),
    ("held.addcdiv(a, b, b)", "addcdiv"),
    ("held.stack([a, b])", "stack"),
]


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("line", "base"), UNSURE, ids=[line for line, _ in UNSURE])
def test_operands_are_not_guessed(line: str, base: str) -> None:
    events = run(line)
    assert [event.expressions for event in events if event.base == base and event.expressions] == []


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize("line", ["a * b", "b + s", "a == b"])
def test_without_knowing_the_numbers_commutative_operators_stay_silent(line: str) -> None:
    events = run(line, told=False)
    assert [event.expressions for event in events] == [{}]


def wrongly_named(events: list[Event]) -> Iterator[str]:
    """Every expression that does not hold what the operator was given."""
    for event in events:
        for name, text in event.expressions.items():
            before = variables()
            exec(PREAMBLE, before)
            meant = eval(text, {**before, "x": before["a"]})
            if not shares(entry(event.arguments, name), meant):
                yield f"{event.base}: {name} is not {text}"


MORE = """\
F.kl_div(a, b)
F.softmin(a, 1)
F.pairwise_distance(a, b)
F.rms_norm(a, (4,), row)
F.huber_loss(a, b)
F.gaussian_nll_loss(a, b, held.weight)
F.scaled_dot_product_attention(t, t, t)
torch.cdist(a, b)
torch.dist(a, b)
torch.float_power(a, 2)
torch.logaddexp(a, b)
torch.lerp(a, b, 0.3)
a.std(0)
a.var(dim)
a.nansum()
torch.trapz(a)
deep @ row
deep @ w
row @ u
v @ w.T @ a.T
F.linear(deep, w.t())
F.linear(t, w.t(), v)
F.conv1d(u, u[:, :, :2])
F.dropout(a)
torch.masked_fill(a, mask, 1.0)
a.masked_fill_(mask, 2.0)
torch.index_select(a, 0, n)
a.gather(1, n[:, None])
a.index_add(0, n, b)
torch.einsum('ij,ij->i', a, b)
scalar * a - s * scalar
nn.Softmax(dim=-1)(a)
nn.CrossEntropyLoss()(a, n)
torch.prod(torch.cat((a, b)), 0)
a.pow_(2).add_(b).sqrt_()
torch.sub(a, b, alpha=2)
torch.rsub(a, b)
torch.inner(a, b)
a.logsumexp(1, keepdim=True)
""".splitlines()


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(
    "line", [*(line for line, _, _ in NAMED), *(line for line, _ in UNSURE if "bad" not in line), *MORE]
)
def test_no_operand_is_named_by_what_it_is_not(line: str) -> None:
    assert list(wrongly_named(run(line))) == []


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize("line", ["a / b", "torch.where(mask, a, b)", "torch.stack([a, b])"])
def test_a_wrong_name_would_be_seen(line: str) -> None:
    events = run(line)
    swap = {"a": "b", "b": "a"}
    spoilt = [event._replace(expressions={n: swap.get(t, t) for n, t in event.expressions.items()}) for event in events]
    assert list(wrongly_named(spoilt)) != []


@pytest.mark.usefixtures("cells")
def test_a_cell_may_use_what_another_cell_imported() -> None:
    line = "F.log_softmax(torch.log(a), -1)"
    text = f"{line}\n"
    filename = "<ipython-input-9-abc>"
    linecache.cache[filename] = (len(text), None, [text], filename)
    namespace = {**variables(), "torch": torch, "F": torch.nn.functional}
    with Watch(filename, told=True) as watch:
        exec(compile(text, filename, "exec"), namespace)
    assert [event.expressions for event in watch.events] == [{"self": "a"}, {"self": "torch.log(a)"}]


LABELS = torch.tensor([0, 1, 0])


class Layers(torch.nn.Module):
    """Modules named as operators are."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = torch.nn.Softmax(dim=-1)
        self.relu = torch.nn.ReLU()
        self.inner = torch.nn.ModuleDict({"tanh": torch.nn.Tanh()})
        self.outer = torch.nn.Module()
        self.outer.softmax = torch.nn.Softmax(dim=-1)
        self.outer.prelu = torch.nn.PReLU()
        self.outer.conv1d = torch.nn.Conv1d(3, 3, 1)
        self.outer.layer_norm = torch.nn.LayerNorm(4)
        self.outer.nll_loss = torch.nn.NLLLoss()
        self.outer.linear = torch.nn.Linear(4, 2)
        self.mul = functools.partial(torch.mul, torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner, outer = self.inner, self.outer
        x = outer.layer_norm(outer.conv1d(outer.prelu(self.mul(x))))
        x = outer.linear(inner.tanh(self.relu(self.softmax(outer.softmax(x)))))
        return outer.nll_loss(x, LABELS)


def test_a_module_named_as_an_operator_is_no_operand() -> None:
    layers = Layers()
    operand = variables()["a"]
    with Watch(__file__, told=True) as watch:
        layers(operand)
    assert {event.base for event in watch.events} >= {
        *("_softmax", "relu", "tanh", "addmm", "mul", "_prelu_kernel", "native_layer_norm"),
        *("convolution", "nll_loss_forward"),
    }
    assert [event for event in watch.events if event.expressions] == []


class Logged(torch.Tensor):
    """A tensor that has its own idea of a logarithm."""

    def log(self) -> torch.Tensor:
        return super().log()


def test_what_super_stands_for_is_not_named() -> None:
    operand = torch.ones(2).as_subclass(Logged)
    with Watch(__file__, told=True) as watch:
        operand.log()
    assert [event.expressions for event in watch.events if event.base == "log"] == [{}]


@pytest.mark.parametrize("op", "aten.mul.Tensor aten._to_copy.default aten._foreach_add.List aten.rsub.Scalar".split())
def test_an_operator_that_the_expression_does_not_spell_is_not_named(op: str, cells: None) -> None:
    code = compile("a + b", "<cell sum>", "eval")
    linecache.cache["<cell sum>"] = (5, None, ["a + b"], "<cell sum>")
    (lasti,) = (i.offset for i in dis.get_instructions(code) if i.opname == "BINARY_OP")
    names = ["self", "other", "alpha"]
    assert operand_expressions(code, lasti, "aten.add.Tensor", names, numbers=()) == {"self": "a", "other": "b"}
    assert operand_expressions(code, lasti, op, names, numbers=()) == {}


def test_without_source_nothing_is_named() -> None:
    code = compile("a / b", "<string>", "eval")
    assert operand_expressions(code, 6, "aten.div.Tensor", ["self", "other"]) == {}
