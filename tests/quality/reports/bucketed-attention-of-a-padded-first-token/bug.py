import torch
from torch import nn


class LocalEncoder(nn.Module):
    def __init__(self, width, heads, span, length):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        position = torch.arange(length)
        behind = position[:, None] - position[None, :]
        self.register_buffer("band", (behind < 0) | (behind >= span))

    def forward(self, x, padding):
        out, _ = self.attn(x, x, x, key_padding_mask=padding, attn_mask=self.band)
        return self.norm(x + out)


torch.manual_seed(0)
length = 10
embed = nn.Embedding(50, 16, padding_idx=0)
encoder = LocalEncoder(16, 2, 3, length)
head = nn.Linear(16, 50)
params = [*embed.parameters(), *encoder.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3)
for step in range(3):
    tokens = torch.randint(1, 50, (4, length))
    for row, pad in enumerate((0, 1, 2, 0)):  # padded on the left
        tokens[row, :pad] = 0
    padding = tokens == 0
    hidden = encoder(embed(tokens), padding)
    loss = nn.functional.cross_entropy(head(hidden)[~padding], tokens[~padding])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f} grad {embed.weight.grad.norm().item():.4f}")
