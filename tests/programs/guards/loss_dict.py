import math
import sys

import torch
from torch import nn

torch.manual_seed(0)


class Crit(nn.Module):
    weight_dict = {"loss_ce": 1.0, "loss_giou": 2.0}

    def forward(self, out, box, cls):
        a = out["box"].sigmoid()
        lt = torch.max(a[:, :2], box[:, :2])
        rb = torch.min(a[:, 2:], box[:, 2:])
        inter = (rb - lt).clamp(min=0).prod(1)
        area = (a[:, 2:] - a[:, :2]).clamp(min=0).prod(1) + (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1)
        iou = inter / (area - inter)  # born
        return {"loss_ce": nn.functional.cross_entropy(out["cls"], cls), "loss_giou": (1 - iou).mean()}


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.b = nn.Linear(4, 4)
        s.c = nn.Linear(4, 3)

    def forward(s, x):
        return {"box": s.b(x), "cls": s.c(x)}


def reduce_dict(d):
    return d


def train_one_epoch(model, criterion, loader, optimizer, max_norm=0.1):
    model.train()
    criterion.train()
    for x, box, cls in loader:
        outputs = model(x)
        loss_dict = criterion(outputs, box, cls)
        weight_dict = criterion.weight_dict
        losses = sum(loss_dict[k] * weight_dict[k] for k in loss_dict.keys() if k in weight_dict)
        loss_dict_reduced = reduce_dict(loss_dict)
        loss_dict_reduced_scaled = {k: v * weight_dict[k] for k, v in loss_dict_reduced.items() if k in weight_dict}
        losses_reduced_scaled = sum(loss_dict_reduced_scaled.values())
        loss_value = losses_reduced_scaled.item()
        if not math.isfinite(loss_value):
            print("Loss is {}, stopping training".format(loss_value))
            print(loss_dict_reduced)
            sys.exit(1)
        optimizer.zero_grad()
        losses.backward()
        if max_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        print(loss_value)


def batch(bad):
    x = torch.randn(4, 4)
    lo = torch.rand(4, 2) * 0.5
    box = torch.cat([lo, lo + 0.4], 1)
    if bad:
        box[1] = torch.tensor([0.5, 0.5, 0.5, 0.5])
    return x, box, torch.randint(0, 3, (4,))


net = Net()
with torch.no_grad():
    net.b.bias.copy_(torch.tensor([-1.0, -1, 1, 1]))
    net.b.weight.mul_(0.1)


def loader():
    for i in range(6):
        b = batch(i == 3)
        if i == 3:
            with torch.no_grad():
                net.b.bias.copy_(torch.tensor([1.0, 1, -1, -1]))
        yield b


train_one_epoch(net, Crit(), loader(), torch.optim.AdamW(net.parameters(), lr=1e-4))
