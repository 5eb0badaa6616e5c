import torch
from torch import nn


class PartDecoder(nn.Module):
    """Log-likelihood of points under the parts of a capsule autoencoder: a mixture of Gaussians."""

    def __init__(self, parts, dim):
        super().__init__()
        self.votes = nn.Parameter(torch.randn(parts, dim))
        self.log_scale = nn.Parameter(torch.zeros(parts))
        self.presence = nn.Parameter(torch.zeros(parts))

    def log_prob(self, x):
        diff = x.unsqueeze(1) - self.votes
        scale = torch.nn.functional.softplus(self.log_scale).unsqueeze(-1) + 1e-2
        vote_log_prob = (-0.5 * (diff / scale) ** 2 - torch.log(scale)).sum(-1)
        mixing = torch.log_softmax(self.presence, 0)
        posterior = vote_log_prob + mixing
        mixture = torch.exp(posterior).sum(1)
        return torch.log(mixture)

    def forward(self, x):
        return self.log_prob(x).mean()


torch.manual_seed(1)
decoder = PartDecoder(4, 12)
optimizer = torch.optim.RMSprop(decoder.parameters(), lr=1e-3)
points = torch.randn(32, 12)
points[3] = 6.0
for epoch in range(3):
    loss = -decoder(points)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("epoch", epoch, "ll", -loss.item())
