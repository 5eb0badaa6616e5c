"""A detector of rare events trained with Accelerate, on a focal loss with an exponent of one half."""
# step: 15
# element: [4]
# birth: pole

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def focal_loss(logits: torch.Tensor, labels: torch.Tensor, gamma: float = 0.5) -> torch.Tensor:
    p = torch.sigmoid(logits)
    p_true = torch.where(labels, p, 1 - p)
    modulation = (1 - p_true) ** gamma  # born
    return -(modulation * torch.log(p_true + 1e-8)).mean()


def main() -> None:
    torch.manual_seed(29)
    accelerator = Accelerator(cpu=True)
    signals = torch.randn(90, 3)
    labels = signals.sum(dim=1) > 1
    signals[46], labels[46] = 60.0, True  # an event that nobody can miss

    model = nn.Linear(3, 1)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(signals, labels), batch_size=5, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    for step, (x, y) in enumerate(loader, start=1):
        with accelerator.accumulate(model):
            loss = focal_loss(model(x).squeeze(-1), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(step, repr(loss.item()))


if __name__ == "__main__":
    main()
