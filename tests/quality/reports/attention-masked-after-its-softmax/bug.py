import torch
from torch import nn


class BahdanauAttention(nn.Module):
    """Additive attention; the encoder's padding is masked after the softmax, and the rest is normalised again."""

    def __init__(self, size):
        super().__init__()
        self.w_h, self.w_s = nn.Linear(size, size, bias=False), nn.Linear(size, size)
        self.v = nn.Linear(size, 1, bias=False)

    def masked_attention(self, e, enc_padding_mask):
        attn_dist = torch.softmax(e, dim=1)
        attn_dist = attn_dist * enc_padding_mask
        masked_sums = torch.sum(attn_dist, dim=1)
        return attn_dist / masked_sums.view(-1, 1)

    def forward(self, states, query, mask):
        e = self.v(torch.tanh(self.w_h(states) + self.w_s(query).unsqueeze(1))).squeeze(-1)
        attention = self.masked_attention(e, mask)
        return torch.einsum("bt,btd->bd", attention, states)


torch.manual_seed(0)
attention, out = BahdanauAttention(8), nn.Linear(8, 3)
states, query = torch.randn(4, 6, 8), torch.randn(4, 8)
lengths = torch.tensor([6, 3, 0, 5])  # an article that the filter left empty
mask = (torch.arange(6) < lengths.unsqueeze(1)).float()
labels = torch.tensor([0, 1, 2, 1])
optimizer = torch.optim.Adagrad([*attention.parameters(), *out.parameters()], lr=0.15)
for step in range(3):
    loss = nn.functional.cross_entropy(out(attention(states, query, mask)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
