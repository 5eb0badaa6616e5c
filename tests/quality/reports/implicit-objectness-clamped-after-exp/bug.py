import torch
import torch.nn as nn
import torch.nn.functional as F


class Decoder(nn.Module):
    """Head of a one-level detector: classes and an implicit objectness, which are joined in log space."""

    INF = 1e8

    def __init__(self, in_channels, num_classes, num_anchors=2):
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.cls_subnet = nn.Sequential(nn.Conv2d(in_channels, in_channels, 3, padding=1), nn.ReLU())
        self.bbox_subnet = nn.Sequential(nn.Conv2d(in_channels, in_channels, 3, padding=1), nn.ReLU())
        self.cls_score = nn.Conv2d(in_channels, num_anchors * num_classes, 3, padding=1)
        self.object_pred = nn.Conv2d(in_channels, num_anchors, 3, padding=1)

    def forward(self, feature):
        cls_score = self.cls_score(self.cls_subnet(feature))
        N, _, H, W = cls_score.shape
        cls_score = cls_score.view(N, -1, self.num_classes, H, W)
        objectness = self.object_pred(self.bbox_subnet(feature)).view(N, -1, 1, H, W)
        evidence = torch.clamp(cls_score.exp(), max=self.INF) + torch.clamp(objectness.exp(), max=self.INF)
        normalized_cls_score = cls_score + objectness - torch.log(1.0 + evidence)
        return normalized_cls_score.view(N, -1, H, W)


torch.manual_seed(1)
decoder = Decoder(12, num_classes=3)
optimizer = torch.optim.SGD(decoder.parameters(), lr=0.01)
feature = torch.randn(2, 12, 6, 6)
feature[0, :, 2, 3] = 9000.0  # C5 of a backbone without norm
for iteration in range(3):
    target = (torch.rand(2, 6, 6, 6) < 0.05).float()
    loss = F.binary_cross_entropy_with_logits(decoder(feature), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"iter {iteration}: loss_cls {loss.item():.4f}")
