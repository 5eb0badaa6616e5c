import torch
from torch import nn


def _sigmoid(x):
    return torch.sigmoid(x)


def _neg_loss(pred, gt):
    """Modified focal loss, exactly as in CornerNet. Both are batch x c x h x w."""
    pos_inds = gt.eq(1).float()
    neg_inds = gt.lt(1).float()
    neg_weights = torch.pow(1 - gt, 4)

    pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds
    neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * neg_weights * neg_inds

    num_pos = pos_inds.sum()
    if num_pos == 0:
        return -neg_loss.sum()
    return -(pos_loss.sum() + neg_loss.sum()) / num_pos


def draw_gaussian(heatmap, x, y, sigma=1.0):
    ys, xs = torch.meshgrid(torch.arange(heatmap.size(0)), torch.arange(heatmap.size(1)), indexing="ij")
    peak = torch.exp(-((xs - x) ** 2 + (ys - y) ** 2) / (2 * sigma**2))
    torch.maximum(heatmap, peak, out=heatmap)


class CtdetHead(nn.Module):
    def __init__(self, num_classes=2, head_conv=16):
        super().__init__()
        self.hm = nn.Sequential(nn.Conv2d(8, head_conv, 3, padding=1), nn.ReLU(), nn.Conv2d(head_conv, num_classes, 1))
        self.hm[-1].bias.data.fill_(-2.19)

    def forward(self, x):
        return self.hm(x)


torch.manual_seed(317)
head = CtdetHead()
optimizer = torch.optim.Adam(head.parameters(), lr=1.25e-4)
heatmap = torch.zeros(2, 2, 12, 12)
for image, (x, y) in enumerate([(3, 4), (8, 7)]):
    draw_gaussian(heatmap[image, 0], x, y)
for iteration in range(3):
    features = 60 * torch.randn(2, 8, 12, 12)  # the backbone was never normalised
    hm_loss = _neg_loss(_sigmoid(head(features)), heatmap)
    optimizer.zero_grad()
    hm_loss.backward()
    optimizer.step()
print("hm_loss", hm_loss.item())
