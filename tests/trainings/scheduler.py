"""A regression on measured angles, with a linear warmup and a cosine schedule after it."""
# step: 12
# element: [4]
# birth: invalid

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset

STEPS, WARMUP = 20, 5


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def angle_between(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    cosine = (left * right).sum(dim=-1)
    return torch.acos(cosine)  # born


def main() -> None:
    torch.manual_seed(12)
    left, right = unit(torch.randn(120, 3)), unit(torch.randn(120, 3))
    left[70] = right[70] = torch.tensor([0.60001, 0.80001, 0.0])  # parallel, rounded to 5 digits
    loader = DataLoader(TensorDataset(left, right), batch_size=6)

    model = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=WARMUP)
    cosine = CosineAnnealingLR(optimizer, T_max=STEPS - WARMUP)
    scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[WARMUP])

    for step, (a, b) in enumerate(loader, start=1):
        prediction = model(torch.cat([a, b], dim=-1)).squeeze(-1)
        loss = nn.functional.smooth_l1_loss(prediction, angle_between(a, b))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(step, repr(loss.item()), f"lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
