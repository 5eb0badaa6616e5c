"""Healthy programs full of infinities and NaN that they mean: masks, scores, distances, padding, metrics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS: dict[str, Callable[[], None]] = {}
INF = float("inf")
NAN = float("nan")


def program(function: Callable[[], None]) -> Callable[[], None]:
    """Register a healthy program under its name."""
    PROGRAMS[function.__name__] = function
    return function


def fit(module: nn.Module, loss: Callable[[], torch.Tensor], steps: int = 2) -> None:
    """A few steps of Adam on what `loss` computes."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@program
def quantisation_observers() -> None:
    from torch.ao.quantization import (
        HistogramObserver,
        MinMaxObserver,
        MovingAverageMinMaxObserver,
        PerChannelMinMaxObserver,
    )

    for observer in (
        MinMaxObserver(),
        MovingAverageMinMaxObserver(),
        PerChannelMinMaxObserver(),
        HistogramObserver(bins=16),
    ):
        for _ in range(2):
            observer(torch.randn(4, 8))
        observer.calculate_qparams()


@program
def quantisation_aware_step() -> None:
    from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver

    fake = FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
    model = nn.Sequential(nn.Linear(8, 8), fake, nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(4, 8)
    fit(model, lambda: model(x).square().mean())


@program
def metrics_that_are_nan_by_design() -> None:
    import torchmetrics
    from torchmetrics.classification import MulticlassAveragePrecision

    model = nn.Linear(4, 3)
    x, y = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    absent = MulticlassAveragePrecision(num_classes=3, average=None)
    least, greatest, mean = (
        torchmetrics.MinMetric(),
        torchmetrics.MaxMetric(),
        torchmetrics.MeanMetric(nan_strategy="ignore"),
    )
    correlation = torchmetrics.PearsonCorrCoef()

    def loss() -> torch.Tensor:
        logits = model(x)
        value = F.cross_entropy(logits, y)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            absent.update(logits, y)
            assert bool(torch.isnan(absent.compute()[2]))
            least.update(value)
            greatest.update(value)
            mean.update(torch.tensor([1.0, NAN]))
            correlation.update(torch.ones(4), torch.arange(4.0))
            [m.compute() for m in (least, greatest, mean, correlation)]
        return value

    fit(model, loss)


@program
def distances_to_unreachable_nodes() -> None:
    edges = {(0, 1): 1.0, (1, 2): 2.0, (0, 2): 5.0}
    distance = torch.full((5,), INF)
    distance[0] = 0
    for _ in range(4):
        for (a, b), length in edges.items():
            distance[b] = torch.minimum(distance[b], distance[a] + length)
    assert distance.tolist() == [0, 1, 3, INF, INF]


@program
def missing_values_and_nanmean() -> None:
    model = nn.Linear(3, 1)
    x = torch.randn(6, 3)
    x[0, 1] = x[4, 2] = NAN
    means = x.nanmean(0)
    filled = torch.where(torch.isnan(x), means, x)
    fit(model, lambda: model(filled).square().mean())


@program
def missing_labels() -> None:
    model = nn.Linear(3, 2)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    y[1, 0] = y[3, 1] = NAN

    def loss() -> torch.Tensor:
        known = ~torch.isnan(y)
        return ((model(x) - torch.nan_to_num(y)).square() * known).sum() / known.sum()

    fit(model, loss)


@program
def labels_selected_by_index() -> None:
    model = nn.Linear(3, 1)
    x, y = torch.randn(5, 3), torch.tensor([[1.0], [NAN], [0.5], [NAN], [2.0]])
    known = ~torch.isnan(y)
    fit(model, lambda: F.mse_loss(model(x)[known], y[known]))


@program
def gumbel_softmax_with_masked_logits() -> None:
    model = nn.Linear(4, 6)
    x = torch.randn(3, 4)
    mask = torch.tensor([False, False, True, False, True, False])

    def loss() -> torch.Tensor:
        logits = model(x).masked_fill(mask, -INF)
        sample = F.gumbel_softmax(logits, tau=0.5, hard=True)
        return (sample * torch.arange(6.0)).sum()

    fit(model, loss)


@program
def masked_log_softmax() -> None:
    model = nn.Linear(4, 6)
    x, target = torch.randn(3, 4), torch.tensor([0, 1, 3])
    mask = torch.tensor([[False] * 4 + [True] * 2])
    fit(model, lambda: F.nll_loss(torch.log_softmax(model(x).masked_fill(mask, -INF), -1), target))


@program
def ctc_with_infeasible_rows() -> None:
    model = nn.Linear(4, 5)
    x = torch.randn(4, 2, 4)
    targets, lengths = torch.tensor([[1, 1, 1, 1], [2, 3, 0, 0]]), torch.tensor([4, 2])
    fit(model, lambda: F.ctc_loss(model(x).log_softmax(-1), targets, torch.tensor([4, 4]), lengths, zero_infinity=True))


@program
def conditional_random_field() -> None:
    model = nn.Linear(4, 3)
    x = torch.randn(5, 4)
    allowed = torch.zeros(3, 3)
    allowed[0, 2] = -INF
    tags = [0, 1, 2, 1, 0]

    def loss() -> torch.Tensor:
        emissions = model(x)
        alpha = emissions[0]
        for row in emissions[1:]:
            alpha = torch.logsumexp(alpha[:, None] + allowed, 0) + row
        gold = sum((emissions[i, t] for i, t in enumerate(tags)), torch.zeros(()))
        return torch.logsumexp(alpha, 0) - gold

    fit(model, loss)


@program
def viterbi_decoding() -> None:
    emissions, allowed = torch.randn(6, 3), torch.zeros(3, 3)
    allowed[2, 0] = -INF
    score = torch.tensor([0.0, -INF, -INF]) + emissions[0]
    back = []
    for row in emissions[1:]:
        score, best = (score[:, None] + allowed).max(0)
        score = score + row
        back.append(best)
    assert math.isfinite(score.max().item())


@program
def online_softmax() -> None:
    model = nn.Linear(4, 8)
    x = torch.randn(3, 4)

    def loss() -> torch.Tensor:
        scores = model(x)
        greatest = torch.full((3, 1), -INF)
        total = torch.zeros(3, 1)
        for block in scores.split(4, 1):
            new = torch.maximum(greatest, block.amax(1, keepdim=True))
            total = total * torch.exp(greatest - new) + torch.exp(block - new).sum(1, keepdim=True)
            greatest = new
        return (greatest + total.log()).sum()

    fit(model, loss)


@program
def running_extremes_and_early_stopping() -> None:
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    low, high, best = torch.full((1,), INF), torch.full((1,), -INF), torch.tensor(INF)
    patience = 0
    for _ in range(3):
        out = model(x)
        low, high = torch.minimum(low, out.detach().min()), torch.maximum(high, out.detach().max())
        loss = out.square().mean()
        patience = 0 if bool(loss < best) else patience + 1
        best = torch.minimum(best, loss.detach())
        loss.backward()
    assert bool(low < high)


@program
def double_where() -> None:
    model = nn.Linear(3, 4)
    x = torch.randn(5, 3)

    def loss() -> torch.Tensor:
        z = model(x)
        positive = z > 0
        safe = torch.where(positive, z, 1.0)
        return torch.where(positive, safe.log(), 0.0).sum()

    fit(model, loss)


@program
def selected_away_in_evaluation() -> None:
    x = torch.tensor([0.0, 1.0, 4.0])
    assert torch.where(x > 0, 1 / x, torch.zeros(())).tolist() == [0.0, 1.0, 0.25]


@program
def policy_with_masked_actions() -> None:
    model = nn.Linear(4, 5)
    x = torch.randn(6, 4)
    illegal = torch.tensor([False, True, False, False, True])
    reward = torch.randn(6)

    def loss() -> torch.Tensor:
        policy = torch.distributions.Categorical(logits=model(x).masked_fill(illegal, -INF))
        return -(policy.log_prob(policy.sample()) * reward).mean()

    fit(model, loss)


@program
def mixture_of_experts_routing() -> None:
    router = nn.Linear(4, 4)
    x = torch.randn(6, 4)

    def loss() -> torch.Tensor:
        logits = router(x)
        top = logits.topk(2, -1)
        masked = torch.full_like(logits, -INF).scatter(-1, top.indices, top.values)
        return (masked.softmax(-1) * torch.arange(4.0)).sum()

    fit(router, loss)


@program
def linear_biases_and_causal_mask() -> None:
    projection = nn.Linear(8, 24)
    x = torch.randn(2, 6, 8)
    bias = -(torch.arange(6)[:, None] - torch.arange(6)[None]).abs().float() * 0.25
    mask = torch.full((6, 6), -INF).triu(1) + bias

    def loss() -> torch.Tensor:
        q, k, v = projection(x).chunk(3, -1)
        return ((q @ k.transpose(1, 2) / 8**0.5 + mask).softmax(-1) @ v).square().mean()

    fit(projection, loss)


@program
def padded_rows_zeroed_after_attention() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    fit(attention, lambda: attention(x, x, x, key_padding_mask=padding)[0][~padding].square().mean())


@program
def transformer_encoder_with_nested_padding() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    with torch.no_grad():
        encoder(torch.randn(2, 5, 8), src_key_padding_mask=padding)


@program
def contrastive_without_the_diagonal() -> None:
    encoder = nn.Linear(4, 4)
    x = torch.randn(6, 4)

    def loss() -> torch.Tensor:
        z = F.normalize(encoder(x), dim=1)
        similarity = (z @ z.T / 0.5).masked_fill(torch.eye(6, dtype=torch.bool), -INF)
        return F.cross_entropy(similarity, torch.tensor([1, 0, 3, 2, 5, 4]))

    fit(encoder, loss)


@program
def max_pooling_of_padded_points() -> None:
    model = nn.Linear(3, 4)
    x = torch.randn(2, 5, 3)
    valid = torch.tensor([[True] * 5, [True, True, False, False, False]])
    fit(model, lambda: model(x).masked_fill(~valid[..., None], -INF).amax(1).square().mean())


@program
def box_matching_with_infinite_cost() -> None:
    cost = torch.rand(4, 3)
    cost[1, 2] = INF
    assignment = []
    for column in range(3):
        row = int(cost[:, column].argmin())
        assignment.append(row)
        cost[row] = INF
    assert len(set(assignment)) == 3
