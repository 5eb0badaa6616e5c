import torch
import torch.nn as nn
import torch.nn.functional as F


class PointerDecoder(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.generate = nn.Linear(hidden, vocab)
        self.copy = nn.Linear(hidden, vocab)
        self.switch = nn.Linear(hidden, 1)

    def forward(self, h):
        p = torch.sigmoid(self.switch(h))
        x1 = self.generate(h)
        x2 = self.copy(h)
        return torch.log(p * F.softmax(x1, dim=-1) + (1 - p) * F.softmax(x2, dim=-1))


torch.manual_seed(0)
decoder = PointerDecoder(8, 20)
states = torch.randn(12, 8)
states[7] *= 250  # a state that exploded
words = torch.randint(0, 20, (12,))
optimizer = torch.optim.SGD(decoder.parameters(), lr=0.01)
for i in range(3):
    loss = F.nll_loss(decoder(states), words)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())
