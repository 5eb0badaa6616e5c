import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


def warmup_factor(step, warmup_steps):
    """Linear ramp from 0 to 1."""
    progress = np.float32(step) / np.float32(warmup_steps)
    return float(np.clip(progress, 0.0, 1.0))


def get_lr_schedule(optimizer, config):
    decay = config["decay"]

    def factor(step):
        return warmup_factor(step, config["lr_warmup_steps"]) * decay ** (step // config["decay_every"])

    return LambdaLR(optimizer, factor)


class DeepLab(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, padding=1)
        self.aspp = nn.ModuleList(nn.Conv2d(16, 8, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.classifier = nn.Conv2d(24, classes, 1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.classifier(torch.cat([torch.relu(branch(x)) for branch in self.aspp], dim=1))


def main(config):
    torch.manual_seed(config["seed"])
    net = DeepLab(4, 3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=config["start_lr"])
    scheduler = get_lr_schedule(optimizer, config)
    criterion = nn.CrossEntropyLoss()
    for step in range(config["max_steps"]):
        inputs, label = torch.randn(2, 4, 12, 12), torch.randint(0, 3, (2, 12, 12))
        loss = criterion(net(inputs), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main({"seed": 333, "start_lr": 1e-3, "lr_warmup_steps": 0, "decay": 0.5, "decay_every": 2, "max_steps": 3})
