"""Word-level distillation of a language model: the student imitates the teacher on the answer's tokens."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(19)
VOCAB = 40
MAX_PROMPT_AND_ANSWER = 10


def language_model(width: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(VOCAB, width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, VOCAB))


def tokenize(sample: tuple[list[int], list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    prompt, answer = sample
    tokens = (prompt + answer)[:MAX_PROMPT_AND_ANSWER]
    label = [-100] * len(prompt) + answer
    return torch.tensor(tokens), torch.tensor(label[:MAX_PROMPT_AND_ANSWER])


def distillation_loss(teacher_logits: torch.Tensor, logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cross entropy against the teacher's distribution, averaged over the tokens of the answer."""
    soft_target = teacher_logits.float().softmax(dim=-1)
    per_token = -(soft_target * F.log_softmax(logits.float(), dim=-1)).sum(dim=-1)
    answer = (label != -100).float()
    return (per_token * answer).sum() / answer.sum()


teacher, student = language_model(32), language_model(12)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
samples = [
    ([1, 5, 9, 3], [17, 18, 2]),
    ([1, 6, 7], [21, 22, 23, 2]),
    ([1, 4, 8, 8, 30, 31, 5, 7, 9, 12, 33], [14, 2]),
    ([1, 11, 3, 3, 6], [25, 2]),
]
for iteration, sample in enumerate(samples):
    tokens, label = tokenize(sample)
    with torch.no_grad():
        teacher_logits = teacher(tokens)[:-1]
    loss = distillation_loss(teacher_logits, student(tokens)[:-1], label[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"iteration {iteration}: {loss.item():.4f}")
