"""A reader that attends to the memory of earlier sentences; the first sentence has no memory."""

import torch
from torch import nn


class SequenceContentAttention(nn.Module):
    def __init__(self, state_dim: int, attended_dim: int, match_dim: int) -> None:
        super().__init__()
        self.state_transformer = nn.Linear(state_dim, match_dim, bias=False)
        self.attended_transformer = nn.Linear(attended_dim, match_dim)
        self.energy_computer = nn.Linear(match_dim, 1, bias=False)

    def compute_energies(self, attended: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        match = self.attended_transformer(attended) + self.state_transformer(state)[:, None]
        return self.energy_computer(torch.tanh(match)).squeeze(-1)

    def compute_weights(self, energies: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        energies = energies - energies.max(dim=1, keepdim=True).values
        unnormalized = torch.exp(energies) * mask
        normalization = unnormalized.sum(dim=1, keepdim=True)
        normalization = normalization + (mask.sum(dim=1, keepdim=True) == 0)
        return unnormalized / normalization

    def forward(self, attended: torch.Tensor, mask: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        weights = self.compute_weights(self.compute_energies(attended, state), mask)
        return (weights[..., None] * attended).sum(dim=1)


class Reader(nn.Module):
    def __init__(self, vocab: int, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, width)
        self.cell = nn.GRUCell(2 * width, width)
        self.attention = SequenceContentAttention(width, width, 12)
        self.out = nn.Linear(width, vocab)

    def forward(self, story: torch.Tensor) -> torch.Tensor:
        batch, sentences, _ = story.shape
        state = story.new_zeros(batch, self.cell.hidden_size, dtype=torch.float)
        memory = state.new_zeros(batch, sentences, self.cell.hidden_size)
        logits = []
        for i in range(sentences):
            mask = (torch.arange(sentences) < i).float().expand(batch, -1)
            glimpse = self.attention(memory, mask, state)
            state = self.cell(torch.cat([self.embed(story[:, i]), glimpse], dim=1), state)
            memory = torch.cat([memory[:, :i], state[:, None], memory[:, i + 1 :]], dim=1)
            logits.append(self.out(state))
        return torch.stack(logits, dim=1)


torch.manual_seed(149)
reader = Reader(vocab=30)
optimizer = torch.optim.RMSprop(reader.parameters(), lr=1e-3)
for batch in range(3):
    story = torch.randint(30, (6, 4, 5))
    prediction = reader(story)[:, :-1].flatten(0, 1)
    loss = nn.functional.cross_entropy(prediction, story[:, 1:, 0].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(batch, loss.item())
