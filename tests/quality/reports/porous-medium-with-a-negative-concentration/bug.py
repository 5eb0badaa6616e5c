import torch
from torch import nn


def gradients(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(outputs, inputs, grad_outputs=torch.ones_like(outputs), create_graph=True)[0]


class DiffusionPINN(nn.Module):
    """u_t = (D u^1.2)_xx on [0, 1] x [0, 1]."""

    def __init__(self, width: int = 20, diffusivity: float = 0.11) -> None:
        super().__init__()
        self.diffusivity = diffusivity
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return self.net(g)

    def loss_interior(self, points: torch.Tensor) -> torch.Tensor:
        g = points.clone().requires_grad_()
        u = self(g)
        u_t = gradients(u, g)[:, [1]]
        flux = self.diffusivity * u**1.2
        flux_x = gradients(flux, g)[:, [0]]
        flux_xx = gradients(flux_x, g)[:, [0]]
        return (u_t - flux_xx).pow(2).mean()

    def loss_initial(self, x: torch.Tensor) -> torch.Tensor:
        start = torch.exp(-40 * (x - 0.5) ** 2)
        return (self(torch.cat([x, torch.zeros_like(x)], dim=1)) - start).pow(2).mean()


torch.manual_seed(61)
model = DiffusionPINN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for iteration in range(4):
    optimizer.zero_grad()
    loss = model.loss_interior(torch.rand(100, 2)) + model.loss_initial(torch.rand(50, 1))
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
