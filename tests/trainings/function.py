"""A softmax classifier on soft labels, whose whole training is one function."""
# step: 11
# element: [1, 0]
# birth: pole

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_dataset() -> TensorDataset:
    inputs = torch.randn(64, 5)
    inputs[41] *= 400  # recorded in millivolts, not in volts
    targets = torch.softmax(inputs[:, :3], dim=1) * 0.9 + 0.1 / 3
    return TensorDataset(inputs, targets)


def soft_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    probabilities = torch.softmax(logits, dim=-1)
    log_probabilities = torch.log(probabilities)  # born
    return -(targets * log_probabilities).sum(dim=-1).mean()


def train(epochs: int = 2, batch_size: int = 4) -> nn.Module:
    torch.manual_seed(0)
    loader = DataLoader(make_dataset(), batch_size=batch_size, num_workers=0)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        for index, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad(set_to_none=True)
            loss = soft_cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            print(epoch * len(loader) + index + 1, repr(loss.item()))
    return model


if __name__ == "__main__":
    train(epochs=1)
