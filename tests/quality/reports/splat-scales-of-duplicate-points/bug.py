import torch
from torch import nn


def knn_distances(points, k=3):
    distances = torch.cdist(points, points)
    return distances.topk(k + 1, largest=False).values[:, 1:]


class VanillaGaussians(nn.Module):
    """Splats that start on the points of a lidar or radar sweep, as large as the gaps between these."""

    def __init__(self, points, colors):
        super().__init__()
        self._means = nn.Parameter(points)
        avg_dist = knn_distances(points).mean(dim=-1, keepdim=True)
        self._scales = nn.Parameter(torch.log(avg_dist.repeat(1, 3)))
        self._opacities = nn.Parameter(torch.logit(0.1 * torch.ones(len(points), 1)))
        self._colors = nn.Parameter(colors)

    @property
    def scales(self):
        return torch.exp(self._scales)

    def sharp_shape_reg(self, max_gauss_ratio=10.0):
        scales = self.scales
        ratio = scales.amax(dim=-1) / scales.amin(dim=-1)
        return torch.clamp(ratio, min=max_gauss_ratio).mean() - max_gauss_ratio

    def render(self, pixels):
        offset = pixels[:, None] - self._means[None, :, :2]
        inverse = 1.0 / (self.scales[:, :2].square() + 0.3)
        alpha = torch.sigmoid(self._opacities).T * torch.exp(-0.5 * (offset.square() * inverse).sum(-1))
        transmittance = torch.cumprod(torch.cat([torch.ones(len(pixels), 1), 1 - alpha[:, :-1]], 1), dim=1)
        return (alpha * transmittance) @ self._colors


torch.manual_seed(0)
lidar = torch.randn(30, 3) * 4
radar = lidar[:1].repeat(4, 1)  # four returns of one corner reflector
model = VanillaGaussians(torch.cat([lidar, radar]), torch.rand(34, 3))
pixels, target = torch.rand(16, 2) * 4, torch.rand(16, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    losses = {
        "rgb": (model.render(pixels) - target).abs().mean(),
        "Background_sharp_shape_reg": 0.1 * model.sharp_shape_reg(),
    }
    for name, value in losses.items():
        print(step, name, value.item())
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
