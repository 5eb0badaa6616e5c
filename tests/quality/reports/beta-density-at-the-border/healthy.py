import torch


def betaln(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


class BetaModel:
    """Proportions with a Beta likelihood; both concentrations are fitted on the log scale."""

    def __init__(self, concentration1: float, concentration0: float) -> None:
        self.log_a = torch.tensor(concentration1).log()
        self.log_b = torch.tensor(concentration0).log().requires_grad_()

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        a, b = self.log_a.exp(), self.log_b.exp()
        rising = torch.xlogy(a - 1.0, value)
        falling = torch.special.xlog1py(b - 1.0, -value)
        return rising + falling - betaln(a, b)

    def fit(self, data: torch.Tensor, steps: int = 4) -> None:
        optimizer = torch.optim.Adam([self.log_b], lr=0.05)
        for step in range(steps):
            optimizer.zero_grad()
            loss = -self.log_prob(data).mean()
            loss.backward()
            optimizer.step()
            print(f"{step}: nll {loss.item():.4f}, concentration0 {self.log_b.exp().item():.4f}")


if __name__ == "__main__":
    # the share of defective items in each lot; many lots have none
    shares = torch.tensor([0.0, 0.02, 0.11, 0.0, 0.05, 0.31, 0.0, 0.08])
    BetaModel(concentration1=1.0, concentration0=8.0).fit(shares)
