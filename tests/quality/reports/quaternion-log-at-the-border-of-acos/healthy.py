import torch
import torch.nn.functional as F


def quaternion_exp_to_log(quaternion: torch.Tensor, eps: float = 1.0e-8) -> torch.Tensor:
    """Logarithm of unit quaternions (w, x, y, z): half the rotation vector."""
    scalar, vector = quaternion[..., :1], quaternion[..., 1:]
    norm_q = torch.norm(vector, p=2, dim=-1, keepdim=True).clamp(min=eps)
    sine = torch.norm(vector, p=2, dim=-1, keepdim=True)
    return vector * torch.atan2(sine, scalar) / norm_q


class PoseHead(torch.nn.Module):
    """Regresses translation and the log of a quaternion, as in MapNet."""

    def __init__(self, features: int):
        super().__init__()
        self.xyz = torch.nn.Linear(features, 3)
        self.wpqr = torch.nn.Linear(features, 4)
        torch.nn.init.zeros_(self.wpqr.weight)
        with torch.no_grad():
            self.wpqr.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, features: torch.Tensor):
        return self.xyz(features), quaternion_exp_to_log(F.normalize(self.wpqr(features), dim=-1))


torch.manual_seed(1)
head = PoseHead(24)
optimizer = torch.optim.AdamW(head.parameters(), lr=5e-4)
features, xyz = torch.randn(6, 24), torch.randn(6, 3)
log_q = 0.05 * torch.randn(6, 3)
for step in range(4):
    pred_xyz, pred_log_q = head(features)
    loss = F.l1_loss(pred_xyz, xyz) + 3.0 * F.l1_loss(pred_log_q, log_q)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
