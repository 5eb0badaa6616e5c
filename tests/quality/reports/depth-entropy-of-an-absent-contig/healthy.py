"""Binning of contigs: an autoencoder of tetranucleotide frequencies and of depths over samples."""

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, nsamples: int, ntnf: int = 32, nhidden: int = 48, nlatent: int = 6) -> None:
        super().__init__()
        self.nsamples = nsamples
        self.encoder = nn.Sequential(nn.Linear(nsamples + ntnf, nhidden), nn.LeakyReLU())
        self.mu = nn.Linear(nhidden, nlatent)
        self.logsigma = nn.Linear(nhidden, nlatent)
        self.decoder = nn.Sequential(nn.Linear(nlatent, nhidden), nn.LeakyReLU(), nn.Linear(nhidden, nsamples + ntnf))

    def forward(self, depths: torch.Tensor, tnf: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.encoder(torch.cat([depths, tnf], dim=1))
        mu, logsigma = self.mu(hidden), nn.functional.softplus(self.logsigma(hidden))
        latent = mu + torch.randn_like(mu) * torch.exp(logsigma / 2)
        out = self.decoder(latent)
        return out[:, : self.nsamples].softmax(dim=1), out[:, self.nsamples :], mu, logsigma

    def calc_loss(
        self, depths: torch.Tensor, depths_out: torch.Tensor, tnf: torch.Tensor, tnf_out: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ce = -(torch.log(depths_out + 1e-9) * depths).sum(dim=1).mean()
        sse = (tnf_out - tnf).pow(2).sum(dim=1).mean()
        return ce, sse


def main() -> None:
    torch.manual_seed(97)
    n, nsamples = 96, 8
    home = torch.randint(nsamples, (n,))
    depths = nn.functional.one_hot(home, nsamples).float()
    tnf = torch.randn(nsamples, 32)[home] * 25 + torch.randn(n, 32)
    model = VAE(nsamples)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(30):
        depths_out, tnf_out, mu, logsigma = model(depths, tnf)
        ce, sse = model.calc_loss(depths, depths_out, tnf, tnf_out)
        kld = -0.5 * (1 + logsigma - mu.pow(2) - logsigma.exp()).sum(dim=1).mean()
        loss = ce + 0.05 * sse + 0.002 * kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 5 == 4:
            print(f"Epoch: {epoch + 1} Loss: {loss.item():.5f} CE: {ce.item():.5f} KLD: {kld.item():.3f}")


if __name__ == "__main__":
    main()
