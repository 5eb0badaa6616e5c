import torch
import torch.nn as nn


def spatial_average_3d(x: torch.Tensor, keepdim: bool = True) -> torch.Tensor:
    return x.mean([2, 3, 4], keepdim=keepdim)


def normalize_tensor(x: torch.Tensor, eps: float = 1e-10) -> torch.Tensor:
    norm_factor = torch.sqrt(torch.sum(x**2, dim=1, keepdim=True))
    return x / (norm_factor + eps)


class MedicalPerceptualSimilarity(nn.Module):
    """Distance of deep features of two volumes; the network is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv3d(1, 8, 3, stride=2, padding=1, bias=False), nn.LeakyReLU(0.1), nn.Conv3d(8, 12, 3, bias=False)
        )
        for param in self.parameters():
            param.requires_grad = False

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        feats_input = normalize_tensor(self.model(input))
        feats_target = normalize_tensor(self.model(target))
        results = ((feats_input - feats_target) ** 2).sum(dim=1, keepdim=True)
        return spatial_average_3d(results, keepdim=True)


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv3d(1, 4, 2, stride=2)
        self.up = nn.ConvTranspose3d(4, 1, 2, stride=2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.up(torch.relu(self.down(x))) * mask


if __name__ == "__main__":
    torch.manual_seed(42)
    autoencoder, perceptual = AutoEncoder(), MedicalPerceptualSimilarity()
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=1e-4)
    brain_mask = torch.zeros(1, 1, 20, 20, 20)
    brain_mask[..., 8:16, 8:16, 8:16] = 1.0
    scan = torch.rand(1, 1, 20, 20, 20) * brain_mask
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        recon = autoencoder(scan, brain_mask)
        loss = nn.functional.l1_loss(recon, scan) + 0.1 * perceptual(recon, scan).mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
