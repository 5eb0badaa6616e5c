import math

import torch
from torch import nn


def box_iou(boxes1, boxes2):
    area1 = boxes1[..., 2] * boxes1[..., 3]
    area2 = boxes2[..., 2] * boxes2[..., 3]
    lo1, hi1 = boxes1[..., :2] - boxes1[..., 2:] * 0.5, boxes1[..., :2] + boxes1[..., 2:] * 0.5
    lo2, hi2 = boxes2[..., :2] - boxes2[..., 2:] * 0.5, boxes2[..., :2] + boxes2[..., 2:] * 0.5
    overlap = (torch.minimum(hi1, hi2) - torch.maximum(lo1, lo2)).clamp(min=0)
    inter = overlap[..., 0] * overlap[..., 1]
    iou = inter / (area1 + area2 - inter).clamp(min=1e-9)
    hull = torch.maximum(hi1, hi2) - torch.minimum(lo1, lo2)
    return iou, hull.square().sum(-1)


def bbox_ciou(boxes1, boxes2):
    iou, diagonal = box_iou(boxes1, boxes2)
    centre = (boxes1[..., :2] - boxes2[..., :2]).square().sum(-1)
    ar_gt = boxes2[..., 2] / boxes2[..., 3]
    ar_pred = boxes1[..., 2] / boxes1[..., 3]
    v = (4 / math.pi**2) * (torch.atan(ar_gt) - torch.atan(ar_pred)).square()
    alpha = v / (1 - iou + v).clamp(min=1e-9)
    return iou - centre / diagonal.clamp(min=1e-9) - alpha * v


class Head(nn.Module):
    def __init__(self, channels, anchors=3):
        super().__init__()
        self.anchors = anchors
        self.conv = nn.Conv2d(channels, anchors * 4, 1)

    def forward(self, features):
        n, _, h, w = features.shape
        raw = self.conv(features).view(n, self.anchors, 4, h, w).permute(0, 3, 4, 1, 2)
        return torch.cat([torch.sigmoid(raw[..., :2]) * 8, torch.exp(raw[..., 2:]) * 4], -1)


def main():
    torch.manual_seed(0)
    head = Head(16)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    label = torch.zeros(2, 4, 4, 3, 5)  # every cell without an object stays zero
    label[0, 1, 2, 0] = torch.tensor([5.0, 3.0, 4.0, 6.0, 1.0])
    label[1, 3, 0, 1] = torch.tensor([2.0, 6.0, 3.0, 2.0, 1.0])
    for _ in range(3):
        pred = head(torch.randn(2, 16, 4, 4))
        respond = label[..., 4]
        loss = (respond * (1 - bbox_ciou(pred, label[..., :4]))).sum((1, 2, 3)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(f"giou_loss: {main():.4f}")
