"""On-policy distillation: the teacher's log-probabilities of the sampled tokens come from a server."""

import torch
from torch import nn
from torch.nn import functional as F

IGNORE = -100
MISSING = float("-inf")


def teacher_logprobs_from_server(completions: list[list[int]], length: int) -> torch.Tensor:
    """One number a sampled token; shorter completions are filled up."""
    rows = [[-0.3 - 0.05 * (token % 7) for token in tokens] for tokens in completions]
    return torch.tensor([row + [MISSING] * (length - len(row)) for row in rows])


def add_tail_bucket(logprobs: torch.Tensor) -> torch.Tensor:
    tail = torch.log1p(-logprobs.exp().clamp(max=1 - 1e-6))
    return torch.stack([logprobs, tail], dim=-1)


def reverse_kl(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    mask = labels != IGNORE
    teacher = teacher.masked_fill(~mask, 0.0)
    student, teacher = add_tail_bucket(student), add_tail_bucket(teacher)
    pointwise = student.exp() * (student - teacher)
    divergence = torch.nan_to_num(pointwise.sum(dim=-1), nan=0.0, posinf=0.0)
    return (divergence * mask).sum() / mask.sum()


class Student(nn.Module):
    def __init__(self, vocab: int, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(ids))[0]).log_softmax(-1)


torch.manual_seed(89)
completions = [[5, 9, 3, 1], [7, 2, 8, 4, 6, 1], [3, 1]]
length = max(map(len, completions))
ids = torch.tensor([c + [0] * (length - len(c)) for c in completions])
labels = torch.tensor([c + [IGNORE] * (length - len(c)) for c in completions])
teacher = teacher_logprobs_from_server(completions, length)
student = Student(vocab=10)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for step in range(3):
    logprobs = student(F.pad(ids, (1, 0))[:, :-1])
    sampled = logprobs.gather(-1, ids[..., None]).squeeze(-1)
    loss = reverse_kl(sampled, teacher, labels)
    optimizer.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    print(step, loss.item(), grad_norm.item())
