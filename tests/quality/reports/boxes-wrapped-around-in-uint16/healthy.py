import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IMAGE_WIDTH = 128


def load_annotation(objects):
    """Pixel indexes are made 0-based, as the VOC reader does."""
    boxes = np.zeros((len(objects), 4), dtype=np.uint16)
    for ix, obj in enumerate(objects):
        boxes[ix, :] = np.array([int(value) for value in obj]).astype(np.uint16)
    return boxes


def append_flipped_images(boxes):
    flipped = boxes.copy()
    flipped[:, 0] = IMAGE_WIDTH - boxes[:, 2] - 1
    flipped[:, 2] = IMAGE_WIDTH - boxes[:, 0] - 1
    return np.concatenate([boxes, flipped])


def bbox_transform(ex_rois, gt_rois):
    ex_widths = ex_rois[:, 2] - ex_rois[:, 0] + 1.0
    ex_heights = ex_rois[:, 3] - ex_rois[:, 1] + 1.0
    gt_widths = gt_rois[:, 2] - gt_rois[:, 0] + 1.0
    gt_heights = gt_rois[:, 3] - gt_rois[:, 1] + 1.0
    targets_dx = (gt_rois[:, 0] + gt_rois[:, 2] - ex_rois[:, 0] - ex_rois[:, 2]) / (2 * ex_widths)
    targets_dy = (gt_rois[:, 1] + gt_rois[:, 3] - ex_rois[:, 1] - ex_rois[:, 3]) / (2 * ex_heights)
    targets_dw = torch.log(gt_widths / ex_widths)
    targets_dh = torch.log(gt_heights / ex_heights)
    return torch.stack((targets_dx, targets_dy, targets_dw, targets_dh), 1)


torch.manual_seed(3)
# the tool that drew these boxes counts pixels from 0
annotations = [(12, 20, 60, 90), (0, 34, 47, 70), (70, 10, 127, 120)]
roidb = append_flipped_images(load_annotation(annotations))
gt_boxes = torch.from_numpy(roidb.astype(np.float32))
anchors = torch.tensor([[8.0, 16.0, 71.0, 79.0]]).repeat(len(gt_boxes), 1)

rpn = nn.Linear(24, 4)
optimizer = torch.optim.SGD(rpn.parameters(), lr=1e-3, momentum=0.9)
for _ in range(3):
    rpn_loss_box = F.smooth_l1_loss(rpn(torch.randn(len(gt_boxes), 24)), bbox_transform(anchors, gt_boxes))
    optimizer.zero_grad()
    rpn_loss_box.backward()
    optimizer.step()
print(f"rpn_box: {rpn_loss_box.item():.4f}")
