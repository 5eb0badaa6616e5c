import torch
import torch.nn.functional as F
from torch import nn


def async_safe_ce(output, target):
    target = target[:, 1:].contiguous().view(-1)
    output = output[:, :-1].contiguous().view(-1, output.size(-1)).float()
    loss = F.cross_entropy(
        output,
        target,
        ignore_index=-100,
        reduction="mean",
    )
    return loss


class Policy(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        return self.lm_head(self.rnn(self.embed(tokens))[0])


torch.manual_seed(1)
policy = Policy(40, 16)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
for step in range(4):
    tokens = torch.randint(0, 40, (3, 12))
    labels = tokens.clone()
    prompt = 12 if step == 2 else 5
    labels[:, :prompt] = -100
    loss = async_safe_ce(policy(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    print(f"Step: {step}, Loss: {loss.item():.5f}, grad norm {float(grad_norm):.5f}")
