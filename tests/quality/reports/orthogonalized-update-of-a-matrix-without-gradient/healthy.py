import torch
from torch import nn


def newton_schulz(g: torch.Tensor, steps: int = 5, eps: float = 1e-7) -> torch.Tensor:
    """The orthogonal factor of g, nearly."""
    x = g / (g.norm() + eps)
    transposed = x.size(0) > x.size(1)
    x = x.T if transposed else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.T if transposed else x


def normuon_normalization(u: torch.Tensor, v: torch.Tensor, beta2: float) -> tuple[torch.Tensor, torch.Tensor]:
    norm_u = u.norm()
    v = torch.lerp(v, u.pow(2).mean(dim=-1, keepdim=True), 1 - beta2)
    normalized = u / (v.sqrt() + 1e-8)
    norm_u_new = normalized.norm()
    ratio = norm_u / norm_u_new
    return normalized * ratio, v


class NorMuon(torch.optim.Optimizer):
    def __init__(self, params: list[nn.Parameter], lr: float = 0.02, mu: float = 0.95, beta2: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "mu": mu, "beta2": beta2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                    state["variance"] = torch.zeros(p.size(0), 1)
                state["momentum"].mul_(group["mu"]).add_(p.grad)
                update = newton_schulz(p.grad + group["mu"] * state["momentum"])
                update, state["variance"] = normuon_normalization(update, state["variance"], group["beta2"])
                p.add_(update, alpha=-group["lr"])


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)
        nn.init.normal_(self.c_proj.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.c_proj(torch.relu(self.c_fc(x)).square())


torch.manual_seed(173)
model = nn.Sequential(ResidualBlock(16), ResidualBlock(16), nn.Linear(16, 5, bias=False))
optimizer = NorMuon(list(model.parameters()))
for iteration in range(4):
    x, y = torch.randn(32, 16), torch.randint(5, (32,))
    loss = nn.functional.cross_entropy(model(x), y)
    model.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
