"""The hazards again, in further spellings: what one rule should know however it is written."""

from __future__ import annotations

import math

from tests.quality.variants.hazards import (
    ALIKE,
    INF,
    MASKED,
    SEEN,
    SIZES,
    P,
    Q,
    X,
    Y,
    flat,
    gap,
    given,
    hazard,
    narrow,
    rounded,
    slope,
    steep,
    vanishing,
    zeros,
)

hazard("WN109", "x * torch.pow(torch.sum(x ** 2, -1, keepdim=True), -0.5)", zeros("x"), x=X)
hazard("WN109", "x / torch.sqrt(torch.einsum('...i,...i->...', x, x)).unsqueeze(-1)", zeros("x"), x=X)
hazard("WN109", "torch.div(x, torch.linalg.norm(x, dim=-1, keepdim=True))", zeros("x"), x=X)
hazard("WN109", "x / torch.sqrt(torch.matmul(x, x))", zeros("x"), x=X)
hazard(
    "WN110", "torch.dot(x, y) / (torch.linalg.norm(x) * torch.linalg.norm(y))", given(x=[0.0, 0.0, 0.0], y=Y), x=X, y=Y
)
hazard(
    "WN110", "torch.sum(x * y, -1) / torch.norm(x, dim=-1) / torch.norm(y, dim=-1)", given(x=[0.0] * 3, y=Y), x=X, y=Y
)
hazard(
    "WN109",
    "torch.sum(x / torch.norm(x, dim=-1, keepdim=True) * (y / torch.norm(y, dim=-1, keepdim=True)), -1)",
    given(x=[0.0] * 3, y=Y),
    x=X,
    y=Y,
)
hazard(
    "WN111",
    "(x - torch.mean(x, -1, keepdim=True)) / torch.sqrt(torch.mean((x - torch.mean(x, -1, keepdim=True)) ** 2, -1, keepdim=True))",
    ALIKE,
    x=X,
)
hazard("WN111", "torch.sub(x, torch.mean(x, -1, keepdim=True)).div(torch.std(x, -1, keepdim=True))", ALIKE, x=X)
hazard("WN111", "(x - torch.mean(x)) / torch.std(x, correction=0)", ALIKE, x=X)
hazard("WN112", "(x - torch.min(x)) / (torch.max(x) - torch.min(x))", ALIKE, x=X)
hazard(
    "WN112",
    "(x - torch.min(x, -1, keepdim=True)[0]) / (torch.max(x, -1, keepdim=True)[0] - torch.min(x, -1, keepdim=True)[0])",
    ALIKE,
    x=X,
)
hazard("WN113", f"torch.mean(2 * torch.sum(x * y, -1) / ({SIZES}))", zeros("x", "y"), x=X, y=Y)
hazard(
    "WN113", "1 - 2 * torch.sum(x * y, -1) / (torch.sum(x ** 2, -1) + torch.sum(y ** 2, -1))", zeros("x", "y"), x=X, y=Y
)
hazard("WN113", "torch.sum(x * y, -1) / torch.sum(x + y - x * y, -1)", zeros("x", "y"), x=X, y=Y)
hazard(
    "WN113",
    "torch.sum(x * y, -1) / (torch.sum(x * y, -1) + 0.5 * torch.sum(x * (1 - y), -1) + 0.5 * torch.sum((1 - x) * y, -1))",
    zeros("x", "y"),
    x=X,
    y=Y,
)
hazard("WN114", "100 * torch.mean(torch.abs((x - y) / y), -1)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2])
hazard("WN114", "torch.mean(((x - y) / y) ** 2, -1)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2])
hazard("WN114", "torch.mean(torch.abs(1 - x / y), -1)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2])
hazard("WN201", "torch.sum(torch.log(torch.prod(x, -1, keepdim=True)), -1)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN206", "torch.log2(F.softmax(x, dim=-1))", lambda f: {"x": [0.0, gap(f)]}, x=[0.5, 1.0])
hazard("WN206", "torch.mean(-torch.log(torch.softmax(x, -1)[..., 0]))", lambda f: {"x": [0.0, gap(f)]}, x=[0.5, 1.0])
hazard(
    "WN206",
    "F.nll_loss(torch.log(torch.softmax(x, -1)), t)",
    lambda f: {"x": [[0.0, gap(f)]], "t": [0]},
    x=[[0.5, 1.0]],
    t=[0],
)
hazard(
    "WN206",
    "torch.sum(torch.xlogy(y, torch.softmax(x, -1)), -1)",
    lambda f: {"x": [0.0, gap(f)], "y": [1.0, 0.5]},
    x=[0.5, 1.0],
    y=[1.0, 0.5],
)
hazard("WN207", "torch.log(0.5 * (1 + torch.tanh(x / 2)))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, 1.0])
hazard("WN208", "torch.log(torch.rsub(torch.sigmoid(x), 1.0))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
hazard(
    "WN208",
    "y * torch.log(1 - torch.sigmoid(x))",
    lambda f: {"x": [flat(f), 0.0], "y": [1.0, 1.0]},
    x=[0.5, 1.0],
    y=[1.0, 1.0],
)
hazard(
    "WN209",
    "torch.sum(z - torch.log(1 - torch.tanh(x).pow(2)), -1)",
    lambda f: {"x": [flat(f), 0.0], "z": [1.0, 1.0]},
    x=[0.5, 1.0],
    z=[1.0, 1.0],
)
hazard("WN209", "torch.log1p(-torch.tanh(x) ** 2)", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
hazard("WN209", "torch.log((1 - torch.tanh(x)) * (1 + torch.tanh(x)))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
hazard("WN210", "torch.sum(x * -torch.log(x), -1)", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN210", "-torch.einsum('...i,...i->...', x, torch.log(x))", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN210", "torch.log(x).mul(x).mean()", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN211", "torch.log(torch.exp(x) + 1)", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard(
    "WN211",
    "torch.mean(torch.log1p(torch.exp(-x * y)))",
    lambda f: {"x": [-steep(f), 1.0], "y": [1.0, 1.0]},
    x=[0.5, 1.0],
    y=[1.0, 1.0],
)
hazard("WN211", "torch.log2(1 + torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN212", "torch.exp(x).sum(-1).log()", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard(
    "WN212", "torch.log(torch.matmul(torch.exp(x), torch.ones_like(x)))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0]
)
hazard(
    "WN212", "torch.sum(x, -1) - torch.log(torch.sum(torch.exp(x), -1))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0]
)
hazard("WN213", "torch.reciprocal(1 + torch.exp(-x)) * torch.exp(-x)", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
hazard(
    "WN213",
    "y * torch.exp(x) / (torch.exp(x) + 1)",
    lambda f: {"x": [steep(f), 1.0], "y": [1.0, 2.0]},
    x=[0.5, 1.0],
    y=[1.0, 2.0],
)
slope("WN213", "torch.reciprocal(1 + torch.exp(-x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
slope("WN213", "x / (1 + torch.exp(-x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN214", "(1 - torch.exp(-2 * x)) / (1 + torch.exp(-2 * x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN214", "torch.sinh(x) / torch.cosh(x)", lambda f: {"x": [1.5 * steep(f), 1.0]}, x=[0.5, 1.0])
hazard(
    "WN215",
    "torch.mean(torch.log(torch.cosh(x - y)))",
    lambda f: {"x": [1.5 * steep(f), 1.0], "y": [0.0, 1.0]},
    x=X[:2],
    y=Y[:2],
)
hazard("WN215", "torch.log(0.5 * torch.exp(x) + 0.5 * torch.exp(-x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN216", "torch.sum(x * torch.log(x / y), -1)", given(x=[0.0, 1.0], y=[0.5, 0.5]), x=P[:2], y=Q[:2])
hazard(
    "WN210", "torch.sum(x * torch.log(x) - x * torch.log(y), -1)", given(x=[0.0, 1.0], y=[0.5, 0.5]), x=P[:2], y=Q[:2]
)
hazard(
    "WN217",
    "torch.where(y > 0.5, -torch.log(x), -torch.log(1 - x))",
    given(x=[0.0, 0.5], y=[1.0, 1.0]),
    x=P[:2],
    y=Q[:2],
)
hazard("WN217", "-y * torch.log(x) - (1 - y) * torch.log1p(-x)", given(x=[0.0, 0.5], y=[0.0, 1.0]), x=P[:2], y=Q[:2])
hazard(
    "WN217",
    "-torch.sum(torch.addcmul(y * torch.log(x), 1 - y, torch.log(1 - x)), -1)",
    given(x=[0.0, 0.5], y=[0.0, 1.0]),
    x=P[:2],
    y=Q[:2],
)
hazard("WN218", "20 * torch.log10(1 / torch.sqrt(torch.mean((x - y) ** 2, -1)))", given(x=X, y=X), x=X, y=Y)
hazard("WN218", "10 * torch.log10(torch.sum(x ** 2, -1) / torch.sum((x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
hazard("WN218", "torch.log(torch.matmul(y, x ** 2))", given(x=[0.0] * 3, y=Y), x=X, y=Y)
slope("WN306", "torch.mean((x - y) ** 2, -1) ** 0.5", given(x=X, y=X), x=X, y=Y)
slope("WN306", "torch.sqrt(torch.sum((x - y) ** 2, -1) / 3)", given(x=X, y=X), x=X, y=Y)
slope("WN306", "torch.sqrt(torch.mean(torch.abs(x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
slope("WN307", "torch.sqrt(torch.abs(x)) * torch.sign(x)", given(x=[0.0, 1.0]), x=[-0.5, 1.0])
slope("WN308", "torch.sqrt(torch.einsum('...i,...i->...', x, x))", zeros("x"), x=X)
slope("WN308", "torch.sqrt(torch.dot(x, x))", zeros("x"), x=X)
slope("WN308", "torch.sqrt(torch.sum(torch.pow(torch.abs(x), 2), -1))", zeros("x"), x=X)
slope("WN309", "torch.pow(torch.mean(torch.pow(torch.clamp(x, min=0.0), 3), -1), 1 / 3)", zeros("x"), x=X)
slope("WN309", "torch.pow(F.avg_pool1d(torch.pow(x, 3).unsqueeze(0), 3), 1 / 3)", zeros("x"), x=X)
slope("WN310", "torch.pow(torch.var(x, -1, correction=0), 0.5)", ALIKE, x=X)
slope("WN310", "torch.sqrt(torch.sum((x - torch.mean(x, -1, keepdim=True)) ** 2, -1) / 2)", ALIKE, x=X)
slope("WN310", "torch.sqrt(torch.mean(x ** 2, -1) - torch.mean(x, -1) ** 2)", ALIKE, x=X)
slope("WN311", "torch.pow(torch.pow(x, 2) + torch.pow(y, 2), 0.5)", zeros("x", "y"), x=X, y=Y)
slope("WN311", "torch.sqrt(torch.addcmul(x * x, y, y))", zeros("x", "y"), x=X, y=Y)
hazard("WN503", "torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard(
    "WN503",
    "torch.exp(x) * torch.reciprocal(torch.sum(torch.exp(x), -1, keepdim=True))",
    lambda f: {"x": [steep(f), 1.0]},
    x=[0.5, 1.0],
)
hazard(
    "WN503",
    "torch.matmul(torch.exp(x) / torch.sum(torch.exp(x), -1, keepdim=True), y)",
    lambda f: {"x": [steep(f), 1.0], "y": [1.0, 2.0]},
    x=[0.5, 1.0],
    y=[1.0, 2.0],
)
hazard(
    "WN504",
    f"torch.sum(-torch.exp(torch.log_softmax({MASKED}, -1)) * torch.log_softmax({MASKED}, -1), -1)",
    given(x=X, m=SEEN),
    x=X,
    m=[False] * 3,
)
hazard(
    "WN504",
    f"torch.einsum('...i,...i->...', torch.softmax({MASKED}, -1), torch.log_softmax({MASKED}, -1))",
    given(x=X, m=SEEN),
    x=X,
    m=[False] * 3,
)
hazard(
    "WN506",
    "torch.softmax(x + (y - 1) * {high}, -1)",
    lambda _: {"x": X, "y": [1.0, 0.0, 1.0], "high": INF},
    x=X,
    y=[1.0, 0.0, 1.0],
    high=1000.0,
)
hazard(
    "WN507",
    "torch.softmax(x + (y + z), -1)",
    lambda f: {"x": X, "y": [f.min] * 3, "z": [f.min] * 3},
    x=X,
    y=[-8.0] * 3,
    z=[-8.0] * 3,
)
hazard("WN509", "torch.softmax(x * (1 / y), -1)", given(x=X, y=[0.0]), x=X, y=[0.5])
hazard("WN601", "torch.sum(x * y, -1) / torch.sum(y, -1)", given(x=X, y=[0.0, 0.0, 0.0]), x=X, y=[1.0, 0.0, 1.0])
hazard("WN601", "torch.sum(torch.where(m, x, 0.0), -1) / torch.sum(m, -1)", given(x=X, m=[False] * 3), x=X, m=SEEN)
hazard(
    "WN601", "torch.sum(torch.masked_fill(x, ~m, 0.0), -1) / torch.sum(m, -1)", given(x=X, m=[False] * 3), x=X, m=SEEN
)
hazard(
    "WN602",
    "torch.sum(torch.where(t != -100, x, 0.0), -1) / torch.sum(t != -100, -1)",
    given(x=X, t=[-100] * 3),
    x=X,
    t=[1, -100, 2],
)
hazard(
    "WN702",
    "torch.bmm(x, y) / math.sqrt(64)",
    lambda f: {"x": [[[narrow(f)] * 2] * 2], "y": [[[narrow(f)] * 2] * 2]},
    x=[[X[:2]] * 2],
    y=[[Y[:2]] * 2],
)
hazard(
    "WN702",
    "torch.softmax(torch.einsum('ij,jk->ik', x, y) / 8 + z, -1)",
    lambda f: {"x": [[narrow(f)] * 2] * 2, "y": [[narrow(f)] * 2] * 2, "z": [0.0, 1.0]},
    x=[X[:2]] * 2,
    y=[Y[:2]] * 2,
    z=[0.0, 1.0],
)
hazard(
    "WN704",
    "x / torch.clamp(torch.norm(x, dim=-1, keepdim=True), min={eps})",
    lambda f: {"x": [0.0, 0.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
hazard(
    "WN704",
    "x / torch.sqrt(torch.sum(x ** 2, -1, keepdim=True) + {eps})",
    lambda f: {"x": [0.0, 0.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
hazard(
    "WN704",
    "(x - torch.mean(x, -1, keepdim=True)) / (torch.std(x, -1, keepdim=True) + {eps})",
    lambda f: {"x": [1.0, 1.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
hazard("WN705", "torch.log1p(-torch.clamp(x, max={top}))", rounded, x=[0.25, 0.5], top=0.875)
slope("WN705", "torch.acos(torch.clamp(x, -{top}, {top}))", rounded, x=[0.25, 0.5], top=0.875)
hazard("WN119", "x / torch.sum(x, -1, keepdim=True)", given(x=[INF, 1.0, 2.0]), x=X)
hazard("WN219", "torch.xlogy(x, x) - x * y", given(x=[0.0, 1.0], y=[-INF, 1.0]), x=[0.5, 1.0], y=[-2.0, 1.0])
slope("WN108", "torch.nansum((x - y) ** 2, -1)", given(x=X, y=[1.0, math.nan, 1.0]), x=X, y=Y)
