"""A recurrent network on unit vectors, its gradients clipped before each step."""
# step: 5
# element: [2, 3, 0]
# birth: invalid

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Direction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 8, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, moves: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(moves, dim=-1, keepdim=True)
        directions = moves / length  # born
        _, hidden = self.rnn(directions)
        return self.out(hidden[-1]).squeeze(-1)


def main() -> None:
    torch.manual_seed(21)
    moves = torch.randn(72, 5, 3)
    moves[50, 3] = 0.0  # it stood still
    labels = (moves.sum(dim=(1, 2)) > 0).float()
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(moves, labels), 6, shuffle=True, generator=generator)

    model = Direction()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    criterion = nn.BCEWithLogitsLoss()
    for step, (batch, target) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = criterion(model(batch), target)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        print(step, repr(loss.item()), f"norm {norm:.3f}")


if __name__ == "__main__":
    main()
