import itertools

import torch
from torch import nn
from torch.nn import functional as F


def pair_wise_sigmoid_cross_entropy_loss(inputs, labels):
    """Cost of giving prediction i to mask j, summed over the points and divided by their number."""
    points = inputs.shape[1]
    positive = F.binary_cross_entropy_with_logits(inputs, torch.ones_like(inputs), reduction="none")
    negative = F.binary_cross_entropy_with_logits(inputs, torch.zeros_like(inputs), reduction="none")
    loss = torch.matmul(positive, labels.T) + torch.matmul(negative, (1 - labels).T)
    return loss / points


def pair_wise_dice_loss(inputs, labels):
    probabilities = inputs.float().sigmoid()
    overlap = (probabilities[:, None] * labels[None]).sum(-1)
    return 1 - (2 * overlap + 1) / (probabilities.sum(-1)[:, None] + labels.sum(-1)[None] + 1)


def linear_sum_assignment(cost):
    """The cheapest choice of a query for each target, by trial."""
    if not torch.isfinite(cost).all():
        raise ValueError("matrix contains invalid numeric entries")
    rows = cost.tolist()
    orders = itertools.permutations(range(len(rows)), len(rows[0]))
    return list(min(orders, key=lambda order: sum(rows[q][t] for t, q in enumerate(order))))


class MaskMatcher:
    cost_mask, cost_dice = 5.0, 5.0

    @torch.no_grad()
    def __call__(self, mask_logits, labels):
        cost = self.cost_mask * pair_wise_sigmoid_cross_entropy_loss(mask_logits, labels)
        cost = cost + self.cost_dice * pair_wise_dice_loss(mask_logits, labels)
        return linear_sum_assignment(cost)


class MaskHead(nn.Module):
    """Masks as products of query embeddings with the embedding of every pixel."""

    def __init__(self, queries=4, width=16):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.pixels = nn.Conv2d(3, width, 1)

    def forward(self, image):
        return torch.einsum("qc,chw->qhw", self.queries, self.pixels(image)[0]).flatten(1)


torch.manual_seed(0)
model, matcher = MaskHead(), MaskMatcher()
with torch.no_grad():
    model.queries.mul_(4.0)  # a bad initial state
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
image = torch.rand(1, 3, 192, 192)
labels = torch.zeros(2, 192 * 192)
labels[0, :25000], labels[1, 25000:] = 1.0, 1.0
for step in range(2):
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(image)
        order = matcher(logits, labels)
    loss = F.binary_cross_entropy_with_logits(logits[order].float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), "matched queries", order)
