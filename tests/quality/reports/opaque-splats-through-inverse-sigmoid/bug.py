import torch
from torch import nn


def inverse_sigmoid(x):
    return torch.log(x / (1 - x))


class GaussianModel(nn.Module):
    def __init__(self, points, colors):
        super().__init__()
        self._xyz, self._color = nn.Parameter(points), nn.Parameter(colors)
        self._opacity = nn.Parameter(inverse_sigmoid(0.1 * torch.ones(len(points), 1)))
        self._scaling = nn.Parameter(torch.full((len(points), 1), -1.0))

    def training_setup(self):
        groups = [
            {"params": [self._xyz], "lr": 1e-3, "name": "xyz"},
            {"params": [self._color], "lr": 1e-2, "name": "color"},
            {"params": [self._opacity], "lr": 5e-2, "name": "opacity"},
            {"params": [self._scaling], "lr": 5e-3, "name": "scaling"},
        ]
        self.optimizer = torch.optim.Adam(groups, eps=1e-15)

    def densify_from_depth_propagation(self, points, colors):
        new = {
            "_xyz": points,
            "_color": colors,
            "_opacity": inverse_sigmoid(1.0 * torch.ones(len(points), 1)),
            "_scaling": torch.full((len(points), 1), -2.0),
        }
        for name, rows in new.items():
            setattr(self, name, nn.Parameter(torch.cat([getattr(self, name).detach(), rows])))
        self.training_setup()

    def render(self, pixels):
        order = self._xyz[:, 2].argsort()
        offset = (pixels[:, None] - self._xyz[order][None, :, :2]) / self._scaling[order].exp().T[..., None]
        opacity = torch.sigmoid(self._opacity[order]).T
        alpha = (opacity * torch.exp(-0.5 * offset.square().sum(-1))).clamp(max=0.99)
        transmittance = torch.cumprod(torch.cat([torch.ones(len(pixels), 1), 1 - alpha[:, :-1]], 1), dim=1)
        return (alpha * transmittance) @ self._color

    def opacity_regularizer(self):
        """Pulls the raw opacities of neighbours in depth together."""
        return self._opacity[self._xyz[:, 2].argsort()].diff(dim=0).square().mean()


torch.manual_seed(0)
model = GaussianModel(torch.randn(24, 3), torch.rand(24, 3))
model.training_setup()
pixels, image = torch.randn(64, 2), torch.rand(64, 3)
for iteration in range(1, 7):
    loss = (model.render(pixels) - image).abs().mean() + 1e-3 * model.opacity_regularizer()
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    if iteration == 3:
        model.densify_from_depth_propagation(torch.randn(6, 3), torch.rand(6, 3))
    print(iteration, loss.item())
