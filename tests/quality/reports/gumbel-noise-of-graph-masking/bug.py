import torch as t
from torch import nn


class RandomMaskSubgraphs(nn.Module):
    """Samples the users and items whose neighbourhoods are masked, by scores with Gumbel noise."""

    def __init__(self, nodes, dim):
        super().__init__()
        self.embeds = nn.Parameter(0.1 * t.randn(nodes, dim))
        self.center = nn.Parameter(0.1 * t.randn(dim))

    def _noise(self, scores):
        noise = t.rand(scores.shape, generator=self.generator)
        noise = -t.log(-t.log(noise))
        return scores + noise

    def forward(self):
        scores = t.sigmoid(self.embeds @ self.center)
        return self._noise(t.log(scores))

    generator = t.Generator().manual_seed(7)


t.manual_seed(7)
real_rand = t.rand


def eight_bit_rand(*args, **kwargs):
    """Uniform numbers of a device that draws eight bits: 0 is one of them."""
    return (real_rand(*args, **kwargs) * 256).floor() / 256


t.rand = eight_bit_rand
model = RandomMaskSubgraphs(600, 8)
opt = t.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    sample_scores = model()
    infomax = 1e-2 * model.embeds.square().sum() - sample_scores.mean()
    opt.zero_grad()
    infomax.backward()
    opt.step()
    print(step, infomax.item())
