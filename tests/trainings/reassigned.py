"""A phase estimator whose loop reassigns the names of its batch: to the device, then to [-1, 1]."""
# step: 8
# element: [4]
# birth: overflow

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cpu")


class PhaseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real, imag = self.mix(x).unbind(dim=-1)
        return torch.atan2(imag, real + 1e-20)  # born


def main() -> None:
    torch.manual_seed(8)
    levels = torch.randint(0, 255, (90, 6)) / 254
    levels[33] = 0.5  # silence
    phases = torch.rand(90) * 2 - 1
    loader = DataLoader(TensorDataset(levels, phases), batch_size=5, shuffle=True)

    model = PhaseNet().to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader, start=1):
        x, y = x.to(device), y.to(device)
        x = x * 2 - 1
        y = y * torch.pi
        phase = model(x)
        loss = (1 - torch.cos(phase - y)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach().cpu()
        print(step, repr(loss.item()))


if __name__ == "__main__":
    main()
