"""Gamma correction with a learned gain; the batch is rescaled in place."""
# step: 12
# element: [1, 3]
# birth: pole

import torch
from torch import nn


class Gamma(nn.Module):
    """Multiplies each channel by a gain of its own, then corrects for gamma 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.readout = nn.Linear(channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bright = (x * self.gain).pow(0.5)  # born
        return self.readout(bright)


torch.manual_seed(6)
pictures = [torch.rand(4, 5) * 0.4 + 0.1 for _ in range(15)]
pictures[11][1, 3] = 0.0  # a dead pixel
brightness = [picture.mean(dim=1, keepdim=True) for picture in pictures]

model = Gamma(5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for i in range(len(pictures)):
    x, y = pictures[i], brightness[i]
    x.mul_(2)
    prediction = model(x)
    loss = nn.functional.mse_loss(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    y.sub_(y.mean())
    x.zero_()
    print(i + 1, repr(loss.item()))
