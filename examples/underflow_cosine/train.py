"""Train two encoders of token sequences to find each other's half of a text, in float16 as autocast has it.

The loss is NaN from the first step, although no vector is zero. The loss scaler skips such steps and halves its scale:
the weights stay finite, and nothing is learned.
``python train.py --fixed`` measures the similarity in float32.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, LENGTH, WIDTH = 200, 512, 32


class Encoder(nn.Module):
    """A text as the mean of its words' embeddings, projected."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.words.weight.data.mul_(0.02)  # as BERT begins
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.project(self.words(tokens).mean(dim=1))


def cosine(queries: Tensor, documents: Tensor) -> Tensor:
    """The cosine of each query with each document."""
    a, b = queries[:, None], documents[None]
    return (a * b).sum(-1) / ((a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt())


def halves(count: int) -> tuple[Tensor, Tensor]:
    """Two halves of each of some short texts that share their words, padded with 0 to the length of the longest."""
    topics = torch.randint(1, WORDS, (count, 4))
    drawn = topics.gather(1, torch.randint(0, 4, (count, 16)))
    padded = F.pad(drawn.view(count, 2, 8), (0, LENGTH - 8))
    return padded[:, 0], padded[:, 1]


def train(steps: int, fixed: bool) -> None:
    """Some steps, each fifth printed with the scale of its loss."""
    torch.manual_seed(0)
    left, right = Encoder(), Encoder()
    optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(1, steps + 1):
        queries, documents = halves(16)
        with torch.autocast("cpu", dtype=torch.float16):
            a, b = left(queries), right(documents)
            scores = cosine(a.float(), b.float()) if fixed else cosine(a, b)
            loss = F.cross_entropy(scores * 20, torch.arange(len(scores)))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="measure the similarity in float32")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    train(options.steps, options.fixed)
