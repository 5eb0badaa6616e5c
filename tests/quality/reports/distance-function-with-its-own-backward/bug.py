import torch
from torch import nn


class EuclideanDistance(torch.autograd.Function):
    """All distances between the rows of two matrices, without keeping the differences for the backward."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        squared = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
        distance = squared.clamp(min=0.0).sqrt()
        ctx.save_for_backward(x, y, distance)
        return distance

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y, distance = ctx.saved_tensors
        ratio = grad / distance
        grad_x = ratio.sum(1, keepdim=True) * x - ratio @ y
        grad_y = ratio.sum(0)[:, None] * y - ratio.T @ x
        return grad_x, grad_y


def batch_hard_triplet_loss(embeddings: torch.Tensor, labels: torch.Tensor, margin: float) -> torch.Tensor:
    distances = EuclideanDistance.apply(embeddings, embeddings)
    same = labels[:, None] == labels
    hardest_positive = distances.masked_fill(~same, 0.0).amax(dim=1)
    hardest_negative = distances.masked_fill(same, 1e9).amin(dim=1)
    return torch.relu(hardest_positive - hardest_negative + margin).mean()


def main() -> None:
    torch.manual_seed(157)
    encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    centers = torch.randn(4, 10)
    for step in range(3):
        labels = torch.arange(4).repeat_interleave(3)
        inputs = (centers[labels] + 0.3 * torch.randn(12, 10)).round()
        inputs[1] = inputs[0]
        loss = batch_hard_triplet_loss(encoder(inputs), labels, margin=0.3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
