"""Automatic mixed precision on the CPU: bfloat16 autocast, a float16 loss scaler that skips a step, EMA weights."""

import copy
import hashlib

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 3))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)

for step in range(6):
    for _ in range(2):  # two batches make one step
        images, labels = torch.randn(4, 1, 8, 8), torch.randint(3, (4,))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=0.1) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    schedule.step()
    with torch.no_grad():
        for mean, p in zip(average.parameters(), model.parameters()):
            mean.lerp_(p, 0.1)
    print(step, logits.dtype, loss.item().hex(), norm.item().hex(), scaler.get_scale(), schedule.get_last_lr()[0].hex())

for net in (model, average):
    net.eval()
    with torch.inference_mode():
        print(net(torch.ones(1, 1, 8, 8)).numpy().tobytes().hex())
    print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in net.state_dict().values())).hexdigest())
