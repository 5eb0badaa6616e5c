import torch
from torch import Tensor, nn


def quaternion_to_axis_angle(quaternion: Tensor) -> Tensor:
    r"""Convert quaternions (w, x, y, z) of shape :math:`(*, 4)` to axis angles of shape :math:`(*, 3)`."""
    cos_theta, q1, q2, q3 = quaternion.unbind(dim=-1)
    sin_squared_theta: Tensor = q1 * q1 + q2 * q2 + q3 * q3
    turned: Tensor = sin_squared_theta > 0.0
    safe: Tensor = torch.where(turned, sin_squared_theta, torch.ones_like(sin_squared_theta))
    sin_theta: Tensor = torch.where(turned, torch.sqrt(safe), torch.zeros_like(safe))
    two_theta: Tensor = 2.0 * torch.where(
        cos_theta < 0.0, torch.atan2(-sin_theta, -cos_theta), torch.atan2(sin_theta, cos_theta)
    )
    k_pos: Tensor = two_theta / sin_theta.clamp(min=1e-12)
    k_neg: Tensor = 2.0 * torch.ones_like(sin_theta)
    k: Tensor = torch.where(sin_squared_theta > 0.0, k_pos, k_neg)
    return torch.stack((q1 * k, q2 * k, q3 * k), dim=-1)


class JointRotations(nn.Module):
    """Learnable rotations of a skeleton, which starts in its rest pose."""

    def __init__(self, joints: int) -> None:
        super().__init__()
        rest = torch.zeros(joints, 4)
        rest[:, 0] = 1.0
        self.delta = nn.Parameter(rest)

    def forward(self) -> Tensor:
        return quaternion_to_axis_angle(nn.functional.normalize(self.delta, dim=-1))


if __name__ == "__main__":
    torch.manual_seed(3)
    skeleton = JointRotations(5)
    observed = 0.2 * torch.randn(5, 3)
    optimizer = torch.optim.Adam(skeleton.parameters(), lr=1e-2)
    for _ in range(3):
        loss = (skeleton() - observed).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(skeleton().detach())
