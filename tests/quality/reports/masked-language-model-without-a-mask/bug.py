"""Masked language modelling, one text a batch, with a small BERT from scratch."""

import torch
from transformers import BertConfig, BertForMaskedLM

MASK, CLS, SEP = 4, 2, 3


def mask_tokens(input_ids: torch.Tensor, probability: float = 0.15) -> dict[str, torch.Tensor]:
    labels = input_ids.clone()
    chance = torch.full(labels.shape, probability)
    chance[(input_ids == CLS) | (input_ids == SEP)] = 0.0
    masked = torch.bernoulli(chance).bool()
    labels[~masked] = -100
    return {
        "input_ids": torch.where(masked, MASK, input_ids),
        "attention_mask": torch.ones_like(input_ids),
        "labels": labels,
    }


def corpus() -> list[torch.Tensor]:
    lengths = [22, 4, 15, 3, 30, 5]
    return [torch.cat([torch.tensor([CLS]), torch.randint(5, 120, (n,)), torch.tensor([SEP])]) for n in lengths]


torch.manual_seed(167)
config = BertConfig(
    vocab_size=120,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
)
model = BertForMaskedLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
running = 0.0
for step, text in enumerate(corpus()):
    batch = mask_tokens(text[None])
    outputs = model(**batch)
    optimizer.zero_grad()
    outputs.loss.backward()
    optimizer.step()
    running += outputs.loss.item()
    print(f"step {step}: {int((batch['labels'] != -100).sum())} masked, mean loss {running / (step + 1):.4f}")
