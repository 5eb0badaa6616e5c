import math

import torch
from torch import nn


def prepare_decoder_attention_mask(attention_mask, dtype):
    """Left-padded batches: a query of the padding has no key that it may see."""
    length = attention_mask.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool).tril()[None] & attention_mask[:, None, :].bool()
    return torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)[:, None]


def scaled_dot_product_attention(query, key, value, attn_mask):
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]))
    scores = scores + attn_mask.to(query.dtype)
    return torch.softmax(scores, dim=-1) @ value


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.W_pack, self.o_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.norm, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width))

    def forward(self, hidden, attention_mask):
        query, key, value = self.W_pack(self.norm(hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = scaled_dot_product_attention(query, key, value, attention_mask)
        hidden = hidden + self.o_proj(out.transpose(1, 2).flatten(2))
        return hidden + self.mlp(hidden)


class Model(nn.Module):
    def __init__(self, vocab=60, width=32, heads=4, depth=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)  # stays in float32
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depth)).to(torch.float16)
        self.lm_head = nn.Linear(width, vocab, bias=False).to(torch.float16)

    @torch.no_grad()
    def score(self, input_ids, attention_mask):
        embedded = self.embed_tokens(input_ids)
        mask = prepare_decoder_attention_mask(attention_mask, embedded.dtype)
        hidden = embedded.to(torch.float16)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        log_probs = torch.log_softmax(self.lm_head(hidden).float(), -1)[:, :-1]
        return log_probs.gather(-1, input_ids[:, 1:, None]).squeeze(-1)


torch.manual_seed(0)
model = Model()
input_ids = torch.randint(3, 60, (3, 8))
attention_mask = torch.ones(3, 8, dtype=torch.long)
attention_mask[1, :3], attention_mask[2, :5] = 0, 0
scores = model.score(input_ids, attention_mask)
for sentence, tokens in enumerate(scores):
    print("sentence", sentence, "mean score", tokens.mean().item())
