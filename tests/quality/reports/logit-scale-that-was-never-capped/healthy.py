from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Output:
    logits_per_image: Tensor
    logits_per_text: Tensor
    loss: Tensor


class SigLip2Model(nn.Module):
    def __init__(self, vision_dim: int = 20, vocab: int = 40, dim: int = 8) -> None:
        super().__init__()
        self.vision_model = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 4 * 4, vision_dim), nn.GELU(), nn.Linear(vision_dim, dim)
        )
        self.text_model = nn.EmbeddingBag(vocab, dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.3))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> Output:
        image_embeds = F.normalize(self.vision_model(pixel_values), dim=-1)
        text_embeds = F.normalize(self.text_model(input_ids), dim=-1)
        logit_scale = self.logit_scale.clamp(max=math.log(100.0)).exp()
        logits_per_text = text_embeds @ image_embeds.t() * logit_scale + self.logit_bias
        labels = 2 * torch.eye(len(pixel_values)) - 1
        loss = -F.logsigmoid(labels * logits_per_text).sum(-1).mean()
        return Output(logits_per_text.t(), logits_per_text, loss)


torch.manual_seed(0)
model = SigLip2Model()
model.logit_scale.data.fill_(100.0)  # as a converted checkpoint has it: the scale itself, not its logarithm
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    pixel_values, input_ids = torch.randn(6, 3, 4, 4), torch.randint(0, 40, (6, 5))
    output = model(pixel_values, input_ids)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    print(f"step {step}: loss {output.loss.item():.3g}, logit_scale {model.logit_scale.item():.3g}")
