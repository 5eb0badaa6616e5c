"""Each operator of PyTorch's against PyTorch in float64, in value and gradient; a wrong adjoint is caught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.unit.verify.oracle.programs_of import program_of
from whynan.verify.oracle import exact, functions

if TYPE_CHECKING:
    from collections.abc import Callable


def agrees(function: Callable[..., Any], rtol: float = 1e-12, /, **inputs: torch.Tensor) -> bool:
    """Whether the oracle's value and gradients are those of PyTorch."""
    leaves = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in inputs.items()}
    out = function(*leaves.values())
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.is_floating_point()]
    behind = [torch.randn(o.shape, dtype=o.dtype) for o in outs]
    wanted = [name for name, value in inputs.items() if value.is_floating_point()]
    gradients = torch.autograd.grad(outs, [leaves[name] for name in wanted], behind, allow_unused=True)
    program = program_of(function, **inputs)
    floating = [name for name, o in zip(program.outputs, out if isinstance(out, tuple) else (out,), strict=True)
                if o.is_floating_point()]  # fmt: skip
    found = exact(program, inputs, dict(zip(floating, behind, strict=True)))
    pairs = [(found.outputs[name], o.detach()) for name, o in zip(floating, outs, strict=True)]
    pairs += [(found.gradients[n], g) for n, g in zip(wanted, gradients, strict=True) if g is not None]
    return all(
        np.allclose(balls.midpoint(), torch_.resolve_neg().numpy(), rtol=rtol, atol=1e-13) for balls, torch_ in pairs
    )


def drawn(*shape: int) -> torch.Tensor:
    """Numbers between 0.1 and 0.9: in the domain of every function here."""
    return 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same numbers each time."""
    torch.manual_seed(7)


ONE = """
exp expm1 exp2 log log1p log2 log10 sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh asinh atanh sigmoid
erf erfc erfinv lgamma digamma reciprocal neg abs sign floor ceil round trunc frac relu logit sinc nan_to_num
cumsum:0 cumprod:1 logcumsumexp:0 logsumexp:1 softmax:1 log_softmax:1 sum mean prod prod:1 var std var:1 std:1 norm
amax:1 amin:1 max min tril triu t flatten std_mean var_mean max:1 min:1 sort topk:2 diagonal cummax:0
""".split()


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_tensor(name: str) -> None:
    method, _, argument = name.partition(":")
    found = getattr(torch, method)

    def function(x: Any) -> Any:
        out = found(x, int(argument)) if argument else found(x)
        return out if isinstance(out, torch.Tensor) else tuple(out)

    # PyTorch's own trigamma is a short series
    assert agrees(function, 1e-9 if method == "digamma" else 1e-12, x=drawn(3, 4))


@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e", "ndtr", "entr"])
def test_special_functions(name: str) -> None:
    assert agrees(getattr(torch.special, name), 1e-12, x=drawn(3, 4))


def written_to_a_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The first columns with a product added, in place."""
    x[:, :2].addcmul_(y[:, :2], y[:, 1:3])
    return x


PLACES = torch.tensor([[0, 2], [1, 1], [3, 0]])
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: torch.add(x, y, alpha=0.3),
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: torch.rsub(x, y),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "scalar power": lambda x, y: 2.5**x * y**3,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clamp": lambda x, y: torch.clamp(x, 0.3, 0.6) + torch.clamp(y, min=x),
    "where": lambda x, y: torch.where(x > y, x * y, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0.5, 2.0),
    "remainder": lambda x, y: torch.remainder(x * 5, y),
    "fmod": lambda x, y: torch.fmod(x * 5, y),
    "copysign": lambda x, y: torch.copysign(x, y - 0.5),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2),
    "cat": lambda x, y: torch.cat([x, y], 1) * 2,
    "stack": lambda x, y: torch.stack([x, y]).exp(),
    "matmul": lambda x, y: x @ y.t(),
    "dot": lambda x, y: torch.dot(x.flatten(), y.flatten()),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "gather": lambda x, y: x.gather(1, torch.tensor([[0, 2], [1, 1], [3, 0]])) * y[:, :2],
    "index": lambda x, y: x[torch.tensor([2, 0, 2])] * y[:, [1]],
    "scatter_add": lambda x, y: x.scatter_add(1, torch.tensor([[0, 2], [1, 1], [3, 0]]), y[:, :2]),
    "scatter_reduce, sum": lambda x, y: x.scatter_reduce(1, PLACES, y[:, :2], "sum", include_self=False),
    "scatter_reduce, mean": lambda x, y: x.scatter_reduce(1, PLACES, y[:, :2], "mean"),
    "scatter_reduce, mean of others": lambda x, y: x.scatter_reduce(1, PLACES, y[:, :2], "mean", include_self=False),
    "scatter": lambda x, y: x.scatter(1, torch.tensor([[0, 2], [1, 0], [3, 0]]), y[:, :2]),
    "pad": lambda x, y: F.pad(x, (1, 2), value=0.5).sum() * y,
    "roll": lambda x, y: x.roll(1, 0) * y.flip(1),
    "expand": lambda x, y: x[:, :1].expand(3, 4) * y.repeat(1, 2)[:, 2:6],
    "detach": lambda x, y: x * y.detach(),
    "lerp in place": lambda x, y: (x * 1).lerp_(y, 0.3),
    "addcdiv in place": lambda x, y: (x * 1).addcdiv_(x, y, value=2),
    "addcmul in place, of a view": lambda x, y: written_to_a_view(x * 1, y) * y,
    "celu in place": lambda x, y: F.celu((x - 0.5) * y, inplace=True),
    "threshold in place": lambda x, y: F.threshold(x * y, 0.3, 0.1, inplace=True),
    "index_add in place": lambda x, y: (x * 1).index_add_(0, torch.tensor([0, 2]), y[:2]),
    "quantile": lambda x, y: torch.quantile(x * y, 0.3),
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.2),
    "smooth l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.2),
    "cross entropy of probabilities": F.binary_cross_entropy,
    "cross entropy of logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=y[0].detach()),
    "kl": lambda x, y: F.kl_div(x.log(), y, reduction="batchmean"),
    "cosine": lambda x, y: F.cosine_similarity(x, y),
    "layer norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[1]),
    "batch norm": lambda x, y: F.batch_norm(x, None, None, y[0], y[1], training=True),
    "group norm": lambda x, y: F.group_norm(x, 2, y[0], y[1]),
    "rms norm": lambda x, y: F.rms_norm(x, (4,), y[0]),
    "linear": lambda x, y: F.linear(x, y, y[:, 0]),
    "cdist": torch.cdist,
    "ctc": lambda x, y: F.ctc_loss(x.log_softmax(-1)[:, None], torch.tensor([[1, 1]]), [3], [2]) * y,
    "ctc of a batch": lambda x, y: F.ctc_loss(
        torch.stack([x, y], 1).log_softmax(-1), torch.tensor([1, 2, 3]), [3, 2], [2, 1], blank=0, reduction="none"
    ),
    "negative log likelihood": lambda x, y: F.nll_loss(x.log(), torch.tensor([1, -100, 2]), y[0].detach()),
    "convolution": lambda x, y: F.conv1d(x[None], y[:2, None, :3].expand(2, 3, 3), padding=1, stride=2),
    "inverse": lambda x, y: torch.linalg.inv(x[:, :3] + 2 * torch.eye(3, dtype=torch.float64)) * y[:, :3],
    "determinant": lambda x, y: torch.logdet(x[:, :3] @ x[:, :3].t() + torch.eye(3, dtype=torch.float64)) * y,
    "norms": lambda x, y: torch.linalg.vector_norm(x, 3, dim=1) + y.norm(1, dim=1) + y.norm(float("inf"), dim=1),
}


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_tensors(name: str) -> None:
    assert agrees(TWO[name], x=drawn(3, 4), y=drawn(3, 4))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "leaky relu": F.leaky_relu,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 0.5),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardtanh": F.hardtanh,
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "softplus": lambda x: F.softplus(x, beta=2),
    "log sigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "glu": F.glu,
    "prelu": lambda x: F.prelu(x, torch.tensor([0.2], dtype=torch.float64)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    assert agrees(ACTIVATIONS[name], x=3 * torch.randn(3, 4, dtype=torch.float64))


def test_a_wrong_adjoint_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert agrees(torch.sin, x=drawn(3))
    monkeypatch.setitem(functions._FACTORS, "sin", lambda f, x, y: f.elementwise("sin", x))
    assert not agrees(torch.sin, x=drawn(3))


def joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of complex numbers as one of their parts."""

    def of_parts(a: Any, b: Any, c: Any, d: Any) -> Any:
        found = function(torch.complex(a, b), torch.complex(c, d))
        return torch.view_as_real(found.resolve_conj()) if found.is_complex() else found

    return of_parts


COMPLEX: dict[str, Callable[..., Any]] = {
    "mul": lambda z, w: z * w,
    "div": lambda z, w: z / w,
    "div by real": lambda z, w: z / w.real,
    "abs": lambda z, w: z.abs() ** 0.3 + w.abs(),
    "angle": lambda z, w: (z * w.conj()).angle(),
    "sgn": lambda z, w: torch.sgn(z) - w,
    "exp and log": lambda z, w: torch.exp(z) + torch.log(w),
    "polar": lambda z, w: torch.polar(z.abs(), w.real),
    "moved": lambda z, w: torch.cat([z, w], 1).t().mean(0),
    "chosen": lambda z, w: torch.where(z.abs() > w.abs(), z, 0) + 2 * w,
    "squared": lambda z, w: z**2 - 1 + torch.reciprocal(w),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str) -> None:
    parts = {part: drawn(3, 4) - 0.5 for part in "abcd"}
    assert agrees(joined(COMPLEX[name]), **parts)


@pytest.mark.parametrize("function", [torch.sgn, torch.angle, torch.abs])
def test_a_complex_number_that_is_0_has_the_gradient_that_pytorch_gives_it(function: Callable[..., Any]) -> None:
    parts = {part: drawn(3, 4) - 0.5 for part in "abcd"}
    for part in "ab":
        parts[part][1] = 0.0
    assert agrees(joined(lambda z, w: function(z) + w), **parts)
