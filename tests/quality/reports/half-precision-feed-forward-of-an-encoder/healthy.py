"""Text embeddings from a T5-like encoder in half precision."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(self.weight.dtype)


class DenseReluDense(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.wi = nn.Linear(width, inner, bias=False)
        self.wo = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.wo(torch.relu(self.wi(hidden)))


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.dense = DenseReluDense(width, inner)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.dense(self.norm(hidden))


class Encoder(nn.Module):
    def __init__(self, vocab: int = 100, width: int = 32, inner: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, inner) for _ in range(depth))
        self.final = RMSNorm(width)
        for i, block in enumerate(self.blocks):  # pretrained weights grow with depth
            nn.init.normal_(block.dense.wi.weight, std=1.5 * (i + 1))
            nn.init.normal_(block.dense.wo.weight, std=12.0 * (i + 1) ** 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return self.final(hidden)


@torch.inference_mode()
def main() -> None:
    torch.manual_seed(103)
    encoder = Encoder().bfloat16().eval()
    ids = torch.randint(100, (4, 12))
    pooled = encoder(ids).mean(dim=1)
    print(pooled.dtype, pooled.norm(dim=-1))


if __name__ == "__main__":
    main()
