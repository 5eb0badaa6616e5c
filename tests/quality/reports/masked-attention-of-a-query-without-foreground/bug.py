"""A query decoder whose cross attention sees only the pixels of the query's last predicted mask."""

import torch
from torch import nn


class MaskedDecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, queries: torch.Tensor, pixels: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        attended, self.last_weights = self.cross(queries, pixels, pixels, attn_mask=attn_mask)
        return self.norm(queries + attended)


class MaskDecoder(nn.Module):
    def __init__(self, n_queries: int = 5, width: int = 16, heads: int = 2, depth: int = 3, classes: int = 4) -> None:
        super().__init__()
        self.queries = nn.Embedding(n_queries, width)
        self.layers = nn.ModuleList(MaskedDecoderLayer(width, heads) for _ in range(depth))
        self.class_head = nn.Linear(width, classes)
        self.mask_head = nn.Linear(width, width)

    def masks(self, queries: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        return self.mask_head(queries) @ pixels.transpose(1, 2)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        queries = self.queries.weight.expand(len(pixels), -1, -1)
        for layer in self.layers:
            attn_mask = (self.masks(queries, pixels).sigmoid() < 0.5).detach()
            attn_mask = attn_mask.repeat_interleave(layer.heads, dim=0)
            queries = layer(queries, pixels, attn_mask)
        return self.class_head(queries), self.masks(queries, pixels)


torch.manual_seed(113)
decoder = MaskDecoder()
optimizer = torch.optim.AdamW(decoder.parameters(), lr=1e-4)
for iteration in range(3):
    features = torch.randn(2, 1, 16) + 0.4 * torch.randn(2, 36, 16)
    classes, masks = decoder(features)
    target = (features.mean(-1) > 0).float()[:, None].expand_as(masks)
    loss = nn.functional.binary_cross_entropy_with_logits(masks, target)
    loss = loss + nn.functional.cross_entropy(classes.flatten(0, 1), torch.randint(4, (10,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("iter", iteration, "total_loss", loss.item())
