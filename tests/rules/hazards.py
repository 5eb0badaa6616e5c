"""The hazards of docs/hazards.md as programs, by their number there; those that need no process of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INF = math.inf
HALF = torch.float16
PROGRAMS: dict[int, Callable[[], object]] = {}


def hazard(number: int) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Notes a program as that of a row."""

    def note(program: Callable[[], object]) -> Callable[[], object]:
        PROGRAMS[number] = program
        return program

    return note


def leaf(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """A parameter."""
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Data."""
    return torch.tensor(values, dtype=dtype)


def forward(number: int, function: Callable[..., Any], *inputs: Tensor) -> None:
    """A hazard whose result is bad."""
    PROGRAMS[number] = lambda: function(*[x.detach().clone() for x in inputs])


def backward(number: int, function: Callable[..., Any], *inputs: Tensor) -> None:
    """A hazard whose result is finite and whose gradient is bad."""

    def program() -> object:
        fresh = [x.detach().clone().requires_grad_() for x in inputs]
        loss = function(*fresh).sum()
        assert loss.isfinite()
        loss.backward()
        return fresh

    PROGRAMS[number] = program


def entropy(p: Tensor) -> Tensor:
    return -(p * torch.log(p)).sum()


def masked_entropy(x: Tensor) -> Tensor:
    x = x.masked_fill(torch.tensor([True, False]), -INF)
    return -(x.softmax(-1) * x.log_softmax(-1)).sum()


def dice(p: Tensor, t: Tensor) -> Tensor:
    return 2 * (p * t).sum() / (p.sum() + t.sum())


def binary_cross_entropy(p: Tensor, y: Tensor) -> Tensor:
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def infonce(s: Tensor) -> Tensor:
    e = torch.exp(s / 0.01)
    return -torch.log(e[0] / e.sum())


def ctc(log_probs: Tensor) -> Tensor:
    lengths = torch.tensor([2]), torch.tensor([3])
    return F.ctc_loss(log_probs.log_softmax(-1), torch.tensor([[1, 2, 1]]), *lengths)


def penalty() -> object:
    x = leaf(0.0, 0.0)
    (slope,) = torch.autograd.grad(x.norm(), x, create_graph=True)
    (slope.sum() + x.sum()).backward()
    return x.grad


def elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.exp(x) - 1)


def attention() -> object:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 1, batch_first=True)
    x = torch.randn(1, 2, 4)
    return layer(x, x, x, key_padding_mask=torch.tensor([[True, True]]), need_weights=True)[0]


def leaking() -> object:
    q = torch.ones(1, 1, 2, 4)
    v = q.clone()
    v[0, 0, 1] = torch.nan
    return F.scaled_dot_product_attention(q, q, v, attn_mask=torch.tensor([[True, False], [True, False]]))


def whitening(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x)
    return vectors @ torch.diag(values.rsqrt()) @ vectors.T


def vectors(x: Tensor) -> Tensor:
    return torch.linalg.eigh(x)[1][:, 0]


def stepping(make: Callable[[list[Tensor]], torch.optim.Optimizer], parameter: Tensor, slope: float) -> object:
    optimizer = make([parameter])
    parameter.grad = torch.full_like(parameter, slope)
    optimizer.step()
    return parameter


@hazard(96)
def infinite_gradient() -> object:
    w = leaf(1.0)
    optimizer = torch.optim.Adam([w])
    (w * 3e38 * 10).sum().backward()
    optimizer.step()
    return w


@hazard(97)
def clipped_by_infinity() -> object:
    w = leaf(1.0, 1.0)
    optimizer = torch.optim.SGD([w], lr=0.1)
    (w * tensor(3e38, 1.0) * 10).sum().backward()
    nn.utils.clip_grad_norm_([w], 1.0)
    optimizer.step()
    return w


@hazard(98)
def clipped_in_half() -> object:
    w = leaf(*[1.0] * 100, dtype=HALF)
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.backward(torch.full_like(w, 6e4))
    nn.utils.clip_grad_norm_([w], 1.0)
    optimizer.step()
    return w


@hazard(100)
def poisoned_statistics() -> object:
    layer = nn.BatchNorm1d(1)
    layer(torch.tensor([[3e38], [1.0]]) * 10)
    return layer.eval()(torch.ones(1, 1))


@hazard(101)
def update_that_rounds_away() -> object:
    w = leaf(*[1.0] * 8, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD([w], lr=1e-3)
    w.sum().backward()
    optimizer.step()
    return w


@hazard(104)
def opposite_infinities() -> object:
    x = leaf(0.0)
    (x.sqrt() - (x * 1).sqrt()).sum().backward()
    return x.grad


@hazard(105)
def unwritten() -> object:
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        return torch.empty(3) + 1
    finally:
        torch.use_deterministic_algorithms(mode=False)


@hazard(106)
def cast_to_an_index() -> object:
    weights = tensor(0.0, 0.0)
    rows = (weights / weights.sum() * 3).long().clamp(0, 2)
    return torch.arange(3.0)[rows]


forward(1, lambda x: torch.log(torch.softmax(x, -1)), tensor(0.0, 200.0))
forward(2, lambda x: torch.log(torch.sigmoid(x)), tensor(-200.0))
forward(3, lambda x: torch.log(1 - torch.sigmoid(x)), tensor(40.0))
forward(4, lambda x: torch.log(1 + torch.exp(x)), tensor(100.0))
forward(5, lambda x: torch.log(torch.sum(torch.exp(x))), tensor(100.0, 1.0))
forward(6, lambda x: torch.exp(x) / torch.exp(x).sum(), tensor(100.0, 1.0))
forward(7, lambda x: torch.exp(x) / (1 + torch.exp(x)), tensor(100.0, 1.0))
forward(8, lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()), tensor(100.0))
forward(9, lambda x: torch.log(torch.cosh(x)), tensor(100.0))
forward(10, lambda x: torch.log(1 - torch.tanh(x) ** 2), tensor(20.0))
forward(11, entropy, tensor(1.0, 0.0))
forward(12, masked_entropy, tensor(1.0, 2.0))
forward(13, lambda p, q: (p * (p.log() - q.log())).sum(), tensor(0.0, 1.0), tensor(0.5, 0.5))
forward(14, lambda x: F.kl_div(x, torch.zeros(2)), tensor(-INF, 0.0))
forward(15, binary_cross_entropy, tensor(0.0, 1.0), tensor(0.0, 1.0))
forward(16, lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(1)), tensor(INF))
forward(17, lambda x: F.cross_entropy(x, torch.tensor([-100, -100])), torch.ones(2, 3))
forward(18, lambda x: F.cross_entropy(x, torch.tensor([0, 0]), weight=tensor(0.0, 1.0)), torch.ones(2, 2))
forward(19, lambda x: F.cross_entropy(x, tensor(0.0, 1.0)), tensor(-INF, 1.0))
forward(20, lambda x: F.cross_entropy(x * 3e38 * 10, torch.tensor(0)), tensor(1.0, 0.0))
forward(21, ctc, torch.ones(2, 1, 3))
forward(22, lambda d, v: (v.log() + d**2 / v).sum(), tensor(0.0), tensor(0.0))
forward(23, lambda x: torch.exp(x), tensor(100.0))
forward(24, lambda new, old: torch.exp(new - old), tensor(-1.0), tensor(-200.0))
forward(25, infonce, tensor(1.0, 0.5))
forward(26, lambda p: ((1 - p) ** 2 * torch.log(p)).sum(), tensor(0.0))
forward(27, dice, torch.zeros(3), torch.zeros(3))
backward(28, lambda x: torch.sqrt(torch.mean((x - 1) ** 2)), torch.ones(3))
forward(29, lambda y, x: ((y - x) / y).abs().mean(), tensor(0.0, 1.0), tensor(1.0, 1.0))
forward(30, lambda p: torch.log(1 + p), tensor(-2.0))
backward(31, lambda x: torch.sqrt(x), tensor(0.0))
forward(32, lambda x: torch.sqrt(x), tensor(-1e-7))
backward(33, lambda x: torch.sign(x) * torch.sqrt(x.abs()), tensor(0.0))
backward(34, lambda x: torch.sqrt((x**2).sum()), tensor(0.0, 0.0))
PROGRAMS[35] = penalty
backward(36, lambda a, b: torch.hypot(a, b), tensor(0.0), tensor(0.0))
forward(37, lambda x: x / x.norm(), tensor(0.0, 0.0))
forward(38, lambda x: F.normalize(x, dim=0), tensor(0.0, 0.0, dtype=HALF))
forward(39, lambda a, b: (a * b).sum() / (a.norm() * b.norm()), tensor(0.0, 0.0), tensor(1.0, 1.0))
forward(40, lambda x: torch.rsqrt(x), tensor(0.0))
forward(41, lambda x: torch.reciprocal(x), tensor(1e-39))
backward(42, lambda p: torch.pow(tensor(-2.0), p), tensor(2.0))
forward(43, lambda x: torch.pow(x, 0.3), tensor(-2.0))
backward(44, lambda x: torch.pow(torch.mean(torch.pow(x, 3.0)), 1 / 3), torch.zeros(3))
backward(45, lambda x: torch.exp(torch.log(x).sum()), tensor(0.0, 2.0))
forward(46, lambda x: x.std(), tensor(1.0))
forward(47, lambda x: (x - x.mean()) / x.std(), torch.ones(3))
backward(48, lambda x: x.var().sqrt(), torch.ones(3))
forward(49, lambda x: torch.sqrt((x**2).mean() - x.mean() ** 2), torch.full((3,), 2000.3))
forward(50, lambda x: x[:0].mean(), torch.ones(3))
forward(51, lambda x: F.layer_norm(x, (3,), eps=0.0), torch.ones(1, 3))
forward(52, lambda x: x * torch.rsqrt((x * x).mean() + 1e-6), tensor(300.0, 300.0, dtype=HALF))
forward(53, lambda x: 1 / (x + 1e-8), tensor(0.0, dtype=HALF))
forward(54, lambda p: torch.log(1 - p.clamp(1e-8, 1 - 1e-8)), tensor(1.0))
backward(55, lambda x: torch.acos(x), tensor(1.0))
backward(56, lambda x: torch.acos((torch.trace(x) - 1) / 2), torch.eye(3))
backward(57, lambda a: torch.asin(torch.sqrt(a)), tensor(0.0))
forward(58, lambda x: torch.atanh(x), tensor(1.0))
backward(59, lambda x: torch.acosh(x), tensor(1.0))
forward(60, lambda x: torch.logit(x), tensor(1.0))
forward(61, lambda x: torch.erfinv(x), tensor(1.0))
forward(62, lambda x: torch.lgamma(x), tensor(0.0))
forward(63, lambda x: torch.sin(x) / x, tensor(0.0))
forward(64, lambda x: torch.fmod(x, 0.0), tensor(1.0))
backward(65, lambda x: torch.where(x > 0, torch.log(x), torch.zeros(())), tensor(0.0, 1.0))
backward(66, lambda x: torch.nan_to_num(torch.log(x), neginf=0.0), tensor(0.0))
backward(67, elu, tensor(100.0))
backward(68, lambda z: torch.where(z.abs() > 1e-8, 1 / z, torch.ones(())), tensor(0.0))
forward(69, lambda x: x.masked_fill(torch.ones(2, dtype=torch.bool), -INF).softmax(-1), tensor(1.0, 2.0))
PROGRAMS[70] = attention
PROGRAMS[71] = leaking
forward(72, lambda s, m: (s + m + m).softmax(-1), torch.ones(2), torch.full((2,), torch.finfo(torch.float32).min))
forward(73, lambda s, m: s + m * -1e9, torch.ones(2, dtype=HALF), torch.ones(2, dtype=HALF))
forward(74, lambda m: (1 - m) * -INF, tensor(1.0, 0.0))
forward(75, lambda q: q @ q.T / 8, torch.full((2, 64), 40.0, dtype=HALF))
forward(76, lambda x: (x * 2) * 2, tensor(3e4, dtype=HALF))
forward(77, lambda x: x.sum(), torch.full((4,), 3e4, dtype=HALF))
forward(78, lambda x: x.half(), tensor(1e5))
forward(79, lambda x: torch.softmax(x / 0.0, -1), tensor(1.0, 2.0))
forward(80, lambda x: torch.logsumexp(x, -1) ** 2, tensor(300.0, 1.0, dtype=HALF))
backward(81, lambda x: torch.logsumexp(x - INF, -1).clamp_min(-5.0), tensor(1.0, 2.0))
forward(82, lambda s: s.fill_diagonal_(-INF) * (1 - torch.eye(2)), torch.ones(2, 2))
forward(83, lambda x: F.silu(torch.log(x)), tensor(0.0))
forward(84, lambda x: torch.exp(x) * tensor(0.0, 2.0), tensor(100.0, 100.0))
forward(85, lambda x: torch.linalg.inv_ex(x)[0], torch.ones(2, 2))
forward(86, lambda x: torch.logdet(x), torch.ones(2, 2))
backward(87, vectors, torch.eye(3))
backward(88, lambda x: torch.linalg.qr(x)[0], torch.ones(2, 2))
forward(89, whitening, torch.zeros(2, 2))
forward(90, lambda d: d.cumprod(0)[1:] / d.cumprod(0)[:-1], torch.full((9,), 1e-8))
backward(91, lambda a, b: torch.sqrt(a**2 + b**2), tensor(0.0), tensor(0.0))
forward(92, lambda x: torch.distributions.Normal(0.0, x, validate_args=False).log_prob(tensor(0.0)), tensor(0.0))
forward(93, lambda w: w / w.sum(), torch.zeros(3))
PROGRAMS[94] = lambda: stepping(torch.optim.Adam, leaf(1.0, dtype=HALF), 0.0)
PROGRAMS[95] = lambda: stepping(lambda p: torch.optim.Adam(p, eps=0.0), leaf(1.0), 0.0)
forward(107, lambda x: x.clamp(0, 1), tensor(math.nan))
forward(
    108, lambda g: F.grid_sample(torch.ones(1, 1, 2, 2), g, align_corners=False), torch.full((1, 1, 1, 2), math.nan)
)
forward(109, lambda w, h: torch.atan(w / h), tensor(0.0), tensor(0.0))
forward(112, lambda w: w / w.sum(), tensor(INF, 1.0))
forward(113, lambda x: x * 5.4e39, tensor(0.0, 1e-20))
forward(114, lambda x: x.log_softmax(-1), tensor(3e38, -3e38))
