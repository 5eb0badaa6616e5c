import torch
import torch.nn as nn


class FocalLoss(nn.Module):
    def __init__(self, alpha=0.25, gamma=2.0):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, classifications, targets):
        losses = []
        for classification, target in zip(classifications, targets):
            classification = torch.clamp(classification, 1e-4, 1.0 - 1e-4)
            alpha_factor = torch.where(target == 1.0, self.alpha, 1.0 - self.alpha)
            focal_weight = torch.where(target == 1.0, 1.0 - classification, classification)
            focal_weight = alpha_factor * torch.pow(focal_weight, self.gamma)
            bce = -(target * torch.log(classification) + (1.0 - target) * torch.log(1.0 - classification))
            losses.append((focal_weight * bce).sum() / target.sum().clamp(min=1.0))
        return torch.stack(losses).mean()


class Classifier(nn.Module):
    """Class head over the levels of a BiFPN."""

    def __init__(self, channels=16, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.header = nn.Conv2d(channels, classes, 1)

    def forward(self, levels):
        out = [self.header(nn.functional.silu(self.conv(x))).permute(0, 2, 3, 1).flatten(1, 2) for x in levels]
        return torch.cat(out, dim=1).sigmoid()


torch.manual_seed(0)
head, criterion = Classifier(), FocalLoss()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
history = []
for step in range(6):
    levels = [20 * torch.randn(2, 16, size, size) for size in (8, 4)]
    targets = (torch.rand(2, 80, 4) < 0.02).float()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = criterion(head(levels), targets)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    history.append(loss.item())
print("losses", history, "scale", scaler.get_scale())
