import torch
from torch import nn
from torch.distributions import Normal


class MoE(nn.Module):
    """Sparsely gated experts with noisy top-k gating."""

    def __init__(self, inputs, outputs, num_experts=4, k=2, hidden=16):
        super().__init__()
        self.num_experts, self.k = num_experts, k
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)) for _ in range(num_experts)
        )
        self.w_gate = nn.Parameter(torch.zeros(inputs, num_experts))
        self.w_noise = nn.Parameter(torch.zeros(inputs, num_experts))

    @staticmethod
    def cv_squared(x):
        return x.float().var() / (x.float().mean() ** 2 + 1e-10)

    def prob_in_top_k(self, clean, noisy, stddev, top):
        above, below = top[:, self.k, None], top[:, self.k - 1, None]
        normal = Normal(0.0, 1.0)
        prob_if_in = normal.cdf((clean - above) / stddev)
        prob_if_out = normal.cdf((clean - below) / stddev)
        return torch.where(noisy > above, prob_if_in, prob_if_out)

    def noisy_top_k_gating(self, x, train, epsilon=1e-2):
        clean = x @ self.w_gate
        stddev = (nn.functional.softplus(x @ self.w_noise) + epsilon) * train
        noisy = clean + torch.randn_like(clean) * stddev
        top, chosen = noisy.topk(self.k + 1, dim=1)
        weights = torch.softmax(top[:, : self.k], dim=1)
        gates = torch.zeros_like(noisy).scatter(1, chosen[:, : self.k], weights)
        load = self.prob_in_top_k(clean, noisy, stddev, top).sum(0)
        return gates, load

    def forward(self, x, loss_coef=1e-2):
        gates, load = self.noisy_top_k_gating(x, self.training)
        loss = loss_coef * (self.cv_squared(gates.sum(0)) + self.cv_squared(load))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (gates.unsqueeze(-1) * outputs).sum(1), loss


def run_epoch(model, x, y, optimizer=None):
    model.train(optimizer is not None)
    output, aux_loss = model(x)
    total = nn.functional.mse_loss(output, y) + aux_loss
    if optimizer is not None:
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return total.item()


torch.manual_seed(0)
x, y = torch.randn(96, 8), torch.randn(96, 3)
model = MoE(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    trained = run_epoch(model, x[:64], y[:64], optimizer)
    with torch.no_grad():
        print(epoch, "train", trained, "valid", run_epoch(model, x[64:], y[64:]))
