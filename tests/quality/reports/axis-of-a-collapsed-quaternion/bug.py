import torch
from torch import nn
from torch.nn import functional as F


def quat_mul(a, b):
    aw, av, bw, bv = a[..., 3:], a[..., :3], b[..., 3:], b[..., :3]
    w = aw * bw - (av * bv).sum(-1, keepdim=True)
    return torch.cat([aw * bv + bw * av + torch.linalg.cross(av, bv), w], -1)


def quat_conjugate(q):
    return torch.cat([-q[..., :3], q[..., 3:]], -1)


def quat_to_axis_angle(q):
    """Axis and angle of quaternions in xyzw order; identity rotations get the z axis."""
    length = torch.linalg.vector_norm(q[..., :3], dim=-1)
    angle = 2.0 * torch.atan2(length, q[..., 3])
    axis = q[..., :3] / length.unsqueeze(-1)
    default = torch.zeros_like(axis)
    default[..., 2] = 1.0
    small = (length <= 1e-5).unsqueeze(-1)
    return torch.where(small, default, axis), torch.where(small.squeeze(-1), torch.zeros_like(angle), angle)


def angular_velocity(frames, fps=30.0):
    step = quat_mul(frames[:, 1:], quat_conjugate(frames[:, :-1]))
    axis, angle = quat_to_axis_angle(step)
    return axis * angle.unsqueeze(-1) * fps


class Denoiser(nn.Module):
    def __init__(self, joints, hidden=64):
        super().__init__()
        self.joints = joints
        self.net = nn.Sequential(nn.Linear(joints * 4 + 1, hidden), nn.SiLU(), nn.Linear(hidden, joints * 4))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, noisy, t):
        x = torch.cat([noisy.flatten(2), t.view(-1, 1, 1).expand(-1, noisy.shape[1], 1)], -1)
        return self.net(x).unflatten(-1, (self.joints, 4))


torch.manual_seed(0)
joints, frames = 5, 8
clean = F.normalize(torch.randn(4, frames, joints, 4), dim=-1)
model = Denoiser(joints)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    t = torch.rand(4)
    noisy = clean + t.view(-1, 1, 1, 1) * torch.randn_like(clean)
    predicted = model(noisy, t)
    rotation = F.mse_loss(predicted, clean)
    velocity = F.mse_loss(angular_velocity(predicted), angular_velocity(clean))
    loss = rotation + 1e-3 * velocity
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, rotation.item(), velocity.item())
