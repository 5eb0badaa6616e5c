import torch
import torch.nn.functional as F

EPS = 1e-15
MAX_LOGSTD = 10


class GCNConv(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = torch.nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x, adj):
        adj = adj + torch.eye(adj.size(0))
        deg = adj.sum(1).rsqrt()
        return deg[:, None] * (adj @ (deg[:, None] * self.lin(x)))


class Encoder(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, 2 * out_channels)
        self.conv_mu = GCNConv(2 * out_channels, out_channels)
        self.conv_logstd = GCNConv(2 * out_channels, out_channels)

    def forward(self, x, adj):
        x = F.relu(self.conv1(x, adj))
        return self.conv_mu(x, adj), self.conv_logstd(x, adj)


class VGAE(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def encode(self, x, adj):
        self.mu, self.logstd = self.encoder(x, adj)
        self.logstd = self.logstd.clamp(max=MAX_LOGSTD)
        std = torch.exp(self.logstd)
        return self.mu + torch.randn_like(std) * std

    def kl_loss(self):
        return -0.5 * torch.mean(torch.sum(1 + 2 * self.logstd - self.mu**2 - self.logstd.exp() ** 2, dim=1))

    def recon_loss(self, z, adj):
        prob = torch.sigmoid(z @ z.t())
        return -(adj * torch.log(prob + EPS) + (1 - adj) * torch.log(1 - prob + EPS)).mean()


torch.manual_seed(12345)
adj = (torch.rand(20, 20) < 0.2).float()
adj = ((adj + adj.t()) > 0).float()
x = torch.rand(20, 6) * torch.tensor([1.0, 1.0, 10.0, 100.0, 1.0, 1800.0])  # one column is an income
model = VGAE(Encoder(6, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    optimizer.zero_grad()
    z = model.encode(x, adj)
    loss = model.recon_loss(z, adj) + model.kl_loss() / x.size(0)
    loss.backward()
    optimizer.step()
print(f"Epoch: {epoch}, loss: {loss.item():.4f}")
