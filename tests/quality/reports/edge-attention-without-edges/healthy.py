import torch
import torch.nn as nn
import torch.nn.functional as F


def target_to_edge_mask(target, kernel_size=3):
    """1 where a window sees more than one class."""
    x = target.unsqueeze(1).float()
    pad = kernel_size // 2
    dilated = F.max_pool2d(x, kernel_size, 1, pad)
    eroded = -F.max_pool2d(-x, kernel_size, 1, pad)
    return (dilated != eroded).float()


class MaskAttentionLoss(nn.Module):
    """Pixel mask attention loss: only pixels under the mask count in the second term."""

    def __init__(self, criterion, loss_weights=(1.0, 1.0)):
        super().__init__()
        self.criterion = criterion
        self.loss_weights = loss_weights

    def forward(self, predict, target, mask):
        criterion_loss = self.criterion(predict, target)
        mask = mask.view_as(criterion_loss)
        mask_loss = criterion_loss * mask
        mask_loss = mask_loss[mask == 1]
        if mask_loss.numel() == 0:
            mask_loss = criterion_loss.new_zeros(1)
        return self.loss_weights[0] * criterion_loss.mean() + self.loss_weights[1] * mask_loss.mean()


class CEEdgeLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.masked = MaskAttentionLoss(nn.CrossEntropyLoss(reduction="none"), (0.5, 0.5))

    def forward(self, logits, target):
        return self.masked(logits, target, target_to_edge_mask(target))


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
criterion, optimizer = CEEdgeLoss(), torch.optim.SGD(net.parameters(), lr=1e-2)
road = torch.zeros(1, 16, 16, dtype=torch.long)
scene = road.clone()
scene[:, 8:] = 2
for image, target in ((torch.rand(1, 3, 16, 16), scene), (torch.rand(1, 3, 16, 16), road)):
    loss = criterion(net(image), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
