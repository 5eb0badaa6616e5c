import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MIN_DEPTH, MAX_DEPTH = 1.0, 20.0


def depth_norm(x, max_depth):
    return max_depth / x


class CloseRangeDepth(Dataset):
    """Pictures of a table top with the depth of a structured-light camera, in centimetres."""

    def __init__(self, count, size, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
        ramp = np.linspace(4.0, 18.0, size, dtype=np.float32)
        self.depths = np.repeat(ramp[None, :, None], count, 0) + rng.random((count, size, size), dtype=np.float32)
        shadow = rng.random(self.depths.shape) < 0.002
        self.depths[shadow] = 0.0  # the projector did not reach these

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype(np.float32).transpose(2, 0, 1) / 255.0
        depth = np.minimum(self.depths[index], MAX_DEPTH)
        with np.errstate(divide="ignore"):
            target = depth_norm(depth, MAX_DEPTH)
        return torch.from_numpy(image), torch.from_numpy(target[None])


class DepthNet(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.encode = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.decode = nn.Conv2d(channels, channels, 3, padding=1)
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x):
        y = nn.functional.leaky_relu(self.encode(x), 0.2)
        y = nn.functional.interpolate(y, scale_factor=2, mode="bilinear")
        return self.out(nn.functional.leaky_relu(self.decode(y), 0.2))


def depth_loss(target, predicted, theta=0.1):
    l_depth = (predicted - target).abs().mean()
    dy = (predicted - target).diff(dim=-2).abs().mean()
    dx = (predicted - target).diff(dim=-1).abs().mean()
    return theta * l_depth + dy + dx


torch.manual_seed(0)
model = DepthNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, amsgrad=True)
for image, target in DataLoader(CloseRangeDepth(12, 32), batch_size=4):
    loss = depth_loss(target, model(image))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
