import torch


def convergence_shape(x: torch.Tensor) -> torch.Tensor:
    """The dimensionless convergence of a projected NFW halo, at radius x in units of the scale radius."""
    f = torch.zeros_like(x)
    big, small = x[x > 1], x[x < 1]
    f[x > 1] = 1 - 2 / torch.sqrt(big**2 - 1) * torch.arctan(torch.sqrt((big - 1) / (1 + big)))
    f[x < 1] = 1 - 2 / torch.sqrt(1 - small**2) * torch.arctanh(torch.sqrt((1 - small) / (1 + small)))
    return f / (x**2 - 1)


class NFW(torch.nn.Module):
    def __init__(self, x0: float, y0: float, scale_radius: float) -> None:
        super().__init__()
        self.center = torch.nn.Parameter(torch.tensor([x0, y0]))
        self.log_scale = torch.nn.Parameter(torch.tensor(scale_radius).log())
        self.amplitude = torch.nn.Parameter(torch.tensor(0.4))

    def convergence(self, grid: torch.Tensor) -> torch.Tensor:
        offset = grid - self.center
        radius = torch.sqrt((offset**2).sum(-1) + 1e-6) / self.log_scale.exp()
        return self.amplitude * 2 * convergence_shape(radius)


def main() -> None:
    torch.manual_seed(0)
    axis = torch.linspace(-2.45, 2.45, 24)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1)
    with torch.no_grad():
        observed = NFW(0.1, -0.2, 1.0).convergence(grid) + 0.01 * torch.randn(24, 24)
    lens = NFW(0.0, 0.0, 1.3)
    optimizer = torch.optim.Adam(lens.parameters(), lr=0.02)
    for step in range(4):
        optimizer.zero_grad()
        loss = (lens.convergence(grid) - observed).pow(2).sum() / 0.01**2
        loss.backward()
        optimizer.step()
        print(step, loss.item(), lens.center.tolist())


if __name__ == "__main__":
    main()
