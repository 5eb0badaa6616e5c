"""A progress bar on the error stream, and a plot without a screen."""

import hashlib
import logging
import sys

import matplotlib
import torch
from tqdm import tqdm, trange

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
matplotlib.use("Agg")
import matplotlib.pyplot as plt

torch.manual_seed(0)
weight, losses = torch.zeros(3, requires_grad=True), []
target = torch.arange(3.0)
for _ in trange(4, ncols=60, bar_format="{desc}{n_fmt}/{total_fmt}{postfix}", mininterval=0, desc="fit "):
    loss = (weight - target).square().sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
    losses.append(loss.item())
    tqdm.write(losses[-1].hex())
figure, axes = plt.subplots(figsize=(2, 2))
axes.plot(losses)
axes.hist(weight.detach().numpy())
axes.imshow(torch.eye(3))
figure.canvas.draw()
print(hashlib.sha256(figure.canvas.buffer_rgba()).hexdigest(), plt.get_backend(), file=sys.stdout)
