import torch
import torch.nn as nn
import torch.nn.functional as F

ANCHORS = torch.tensor([[1.2, 1.6], [2.4, 3.0], [4.5, 4.0]])


class YOLOLayer(nn.Module):
    def __init__(self, anchors, nc):
        super().__init__()
        self.anchors, self.na, self.no = anchors, len(anchors), nc + 5

    def forward(self, p):
        bs, _, ny, nx = p.shape
        return p.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()


def wh_iou(wh1, wh2):
    inter = torch.min(wh1, wh2).prod(1)
    return inter / (wh1.prod(1) + wh2.prod(1) - inter)


def compute_loss(p, targets, anchors):
    """targets: image, anchor, row, column, class, width, height"""
    b, a, gj, gi, tcls = targets[:, :5].long().T
    ps = p[b, a, gj, gi]
    tobj = torch.zeros_like(p[..., 4])
    tobj[b, a, gj, gi] = 1.0
    wh = torch.exp(ps[:, 2:4]) * anchors[a]
    lbox = (1.0 - wh_iou(wh, targets[:, 5:7])).mean() + F.mse_loss(
        torch.sigmoid(ps[:, 0:2]), torch.full_like(ps[:, 0:2], 0.5)
    )
    lobj = F.binary_cross_entropy_with_logits(p[..., 4], tobj)
    lcls = F.cross_entropy(ps[:, 5:], tcls)
    return 3.54 * lbox + 64.3 * lobj + 37.4 * lcls


def train(epochs):
    torch.manual_seed(0)
    nc = 5
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(16, 3 * (nc + 5), 1), YOLOLayer(ANCHORS, nc)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.97, nesterov=True)
    targets = torch.tensor([[0, 0, 2, 3, 1, 1.0, 1.9], [1, 2, 4, 1, 3, 5.0, 3.2], [1, 1, 0, 0, 0, 2.0, 2.0]])
    for epoch in range(epochs):
        imgs = 1023 * torch.rand(2, 8, 6, 6) - 512  # a camera of 10 bits
        loss = compute_loss(model(imgs), targets, ANCHORS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{epoch}/{epochs - 1} loss {loss.item():.3g}")


if __name__ == "__main__":
    train(4)
