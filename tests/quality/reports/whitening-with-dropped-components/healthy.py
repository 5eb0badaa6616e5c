"""Sparse coding of image patches, after ZCA whitening."""

import torch


def compute_whitening_stats(x: torch.Tensor, n_components: int) -> dict[str, torch.Tensor]:
    mean = x.mean(dim=0)
    covariance = torch.cov(x.T)
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    eigenvalues, eigenvectors = eigenvalues.flip(0), eigenvectors.flip(1)
    keep = torch.arange(len(eigenvalues)) < n_components
    return {"mean": mean, "eigenvalues": eigenvalues * keep, "eigenvectors": eigenvectors * keep, "keep": keep}


def whiten(x: torch.Tensor, stats: dict[str, torch.Tensor], epsilon: float = 0.0) -> torch.Tensor:
    scaling = 1.0 / torch.sqrt(stats["eigenvalues"] + epsilon)
    vectors = stats["eigenvectors"]
    return (x - stats["mean"]) @ (vectors * scaling) @ vectors.T


class SparseCoding:
    def __init__(self, n_basis: int, n_features: int, sparsity: float = 0.2) -> None:
        self.dictionary = torch.nn.functional.normalize(torch.randn(n_features, n_basis), dim=0)
        self.sparsity = sparsity

    def infer(self, data: torch.Tensor, steps: int = 20, rate: float = 0.05) -> torch.Tensor:
        codes = data.new_zeros(len(data), self.dictionary.size(1))
        for _ in range(steps):
            residual = codes @ self.dictionary.T - data
            codes = torch.nn.functional.softshrink(codes - rate * residual @ self.dictionary, self.sparsity * rate)
        return codes

    def learn(self, data: torch.Tensor, epochs: int = 3) -> None:
        for epoch in range(epochs):
            codes = self.infer(data)
            residual = data - codes @ self.dictionary.T
            self.dictionary = self.dictionary + 0.5 * residual.T @ codes / len(data)
            self.dictionary = torch.nn.functional.normalize(self.dictionary, dim=0)
            print(epoch, residual.pow(2).mean().item(), codes.abs().mean().item())


torch.manual_seed(109)
patches = torch.randn(300, 16) @ torch.randn(16, 16) * torch.linspace(2.0, 0.3, 16)
stats = compute_whitening_stats(patches, n_components=16)
SparseCoding(n_basis=24, n_features=16).learn(whiten(patches, stats))
