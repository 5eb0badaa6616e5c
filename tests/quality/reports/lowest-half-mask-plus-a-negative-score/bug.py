import math

import torch
from torch import nn


class OPTAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scaling = heads, 1 / math.sqrt(width // heads)
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, hidden, attention_mask):
        query = self.split(self.q_proj(hidden) * self.scaling)
        key, value = self.split(self.k_proj(hidden)), self.split(self.v_proj(hidden))
        attn_weights = query @ key.transpose(-1, -2) + attention_mask
        attn_weights = torch.softmax(attn_weights, dim=-1)
        return self.out_proj((attn_weights @ value).transpose(1, 2).flatten(2))


class OPTDecoder(nn.Module):
    def __init__(self, vocab=40, width=32, heads=2, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(OPTAttention(width, heads) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab, bias=False)

    @staticmethod
    def extended_mask(attention_mask, dtype):
        length = attention_mask.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal[None] & attention_mask[:, None, :].bool()
        return (1.0 - allowed[:, None].to(dtype)) * torch.finfo(dtype).min

    def forward(self, input_ids, attention_mask):
        hidden = self.embed(input_ids)
        mask = self.extended_mask(attention_mask, hidden.dtype)
        for norm, layer in zip(self.norms, self.layers):
            hidden = hidden + layer(norm(hidden), mask)
        return self.head(hidden)


torch.manual_seed(0)
model = OPTDecoder().half().eval()
with torch.no_grad():
    for layer in model.layers:  # a trained head: queries and keys point away from each other
        layer.q_proj.bias.fill_(6.0)
        layer.k_proj.bias.fill_(-6.0)
    input_ids = torch.tensor([[5, 17, 8, 29], [1, 1, 23, 11]])
    attention_mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])  # [pad, pad, token, token]
    logits = model(input_ids, attention_mask)
print("next tokens", logits[:, -1].argmax(-1).tolist(), "logits that are NaN", logits.isnan().sum().item())
