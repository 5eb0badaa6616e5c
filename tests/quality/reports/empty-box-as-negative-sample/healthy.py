import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class BoxCoder:
    weights: tuple = (1.0, 1.0, 1.0, 1.0)
    bbox_xform_clip: float = math.log(1000.0 / 16)

    def encode(self, reference: Tensor, proposals: Tensor) -> Tensor:
        wx, wy, ww, wh = self.weights
        ex_size = proposals[:, 2:] - proposals[:, :2]
        ex_ctr = proposals[:, :2] + 0.5 * ex_size
        gt_size = reference[:, 2:] - reference[:, :2]
        gt_ctr = reference[:, :2] + 0.5 * gt_size
        shift = torch.tensor([wx, wy]) * (gt_ctr - ex_ctr) / ex_size
        stretch = torch.tensor([ww, wh]) * torch.log(gt_size / ex_size)
        return torch.cat([shift, stretch], dim=1)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    area = [(x[:, 2:] - x[:, :2]).prod(1) for x in (a, b)]
    return inter / (area[0][:, None] + area[1] - inter)


def assign(anchors: Tensor, gt_boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Each box keeps its best anchor, however bad it is (allow_low_quality_matches)."""
    if len(gt_boxes) == 0:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    return box_iou(gt_boxes, anchors).argmax(dim=1), torch.arange(len(gt_boxes))


class PedestrianDataset(torch.utils.data.Dataset):
    items = ([[4.0, 2.0, 11.0, 15.0]], None, [[1.0, 1.0, 6.0, 12.0], [9.0, 3.0, 15.0, 14.0]])

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int) -> tuple[Tensor, Tensor]:
        boxes = self.items[idx]
        if boxes is None:  # nobody on the street: a negative sample
            boxes = torch.zeros(0, 4)
        return torch.rand(3, 16, 16), torch.as_tensor(boxes)


torch.manual_seed(0)
anchors = torch.tensor([[0.0, 0.0, 8.0, 12.0], [8.0, 0.0, 16.0, 12.0], [2.0, 2.0, 14.0, 16.0]])
coder, head = BoxCoder(), nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 12))
optimizer = torch.optim.SGD(head.parameters(), lr=0.005, momentum=0.9)
for image, gt_boxes in PedestrianDataset():
    deltas = head(image[None]).view(3, 4)
    matched, index = assign(anchors, gt_boxes)
    targets = coder.encode(gt_boxes[index], anchors[matched])
    loss_rpn_box_reg = F.l1_loss(deltas[matched], targets, reduction="sum") / len(anchors)
    optimizer.zero_grad()
    loss_rpn_box_reg.backward()
    optimizer.step()
    print("loss_rpn_box_reg", loss_rpn_box_reg.item())
