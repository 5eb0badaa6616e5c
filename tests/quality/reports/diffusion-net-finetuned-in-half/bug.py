import argparse

import torch
from torch import nn


class TinyUNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Embedding(100, width)
        self.down = nn.Linear(48, width)
        self.up = nn.Linear(width, 48)

    def forward(self, x, t):
        return self.up(torch.relu(self.down(x) + self.time(t)))


def make_optimizer(model, args):
    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
    )


def train_step(model, batch, generator):
    timesteps = torch.randint(0, 100, (len(batch),), generator=generator)
    noise = torch.randn(batch.shape, generator=generator).half()
    pred = model(batch * 0.7 + noise * 0.7, timesteps)
    return torch.nn.functional.mse_loss(pred.float(), noise.float())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    args = parser.parse_args()
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(8)
    model = TinyUNet(32).half()
    optimizer = make_optimizer(model, args)
    for step in range(4):
        optimizer.zero_grad()
        loss = train_step(model, torch.randn(8, 48, generator=generator).half(), generator)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
