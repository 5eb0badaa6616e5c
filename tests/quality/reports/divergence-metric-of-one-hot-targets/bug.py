"""A divergence of one-hot annotations from predictions, as a metric beside the training loss."""

import torch
from torch import nn
from torchmetrics import MeanMetric, Metric


class KLDivergence(Metric):
    higher_is_better = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("measures", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, p: torch.Tensor, q: torch.Tensor) -> None:
        p = p / p.sum(dim=-1, keepdim=True)
        q = q / q.sum(dim=-1, keepdim=True)
        measures = torch.sum(p * torch.log(p / q), dim=-1)
        self.measures += measures.sum()
        self.total += p.shape[0]

    def compute(self) -> torch.Tensor:
        return self.measures / self.total


def main() -> None:
    torch.manual_seed(83)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    divergence, running_loss = KLDivergence(), MeanMetric()
    for epoch in range(2):
        divergence.reset()
        running_loss.reset()
        for _ in range(4):
            inputs, labels = torch.randn(16, 6), torch.randint(4, (16,))
            logits = model(inputs)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            annotations = nn.functional.one_hot(labels, 4).float()
            divergence.update(annotations, logits.detach().softmax(-1))
            running_loss.update(loss.detach())
        print(epoch, running_loss.compute().item(), divergence.compute().item())


if __name__ == "__main__":
    main()
