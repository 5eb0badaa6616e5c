"""A bag of words model with normalised embeddings, in the manner of nanoGPT: get_batch and while True."""
# step: 8
# element: [2, 0]
# birth: invalid

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, BLOCK, BATCH, MAX_STEPS = 24, 12, 6, 4, 16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        pooled = self.project(self.embedding(tokens).sum(dim=1))
        norm = torch.sqrt(pooled.pow(2).sum(dim=-1, keepdim=True))  # born
        return self.head(pooled / (norm + 1e-6))


def get_batch(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([data[i : i + BLOCK] for i in starts.tolist()])
    y = torch.stack([data[i + BLOCK] for i in starts.tolist()])
    return x, y


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    x, y = batch
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main() -> None:
    torch.manual_seed(1337)
    data = torch.randint(1, VOCABULARY, (400,))
    data[200:213] = 0  # a gap between two documents
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    while True:
        step += 1
        loss = train_step(model, optimizer, get_batch(data))
        print(step, repr(loss.item()))
        if step >= MAX_STEPS:
            break


if __name__ == "__main__":
    main()
