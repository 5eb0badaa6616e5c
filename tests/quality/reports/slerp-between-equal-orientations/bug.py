import numpy as np
import torch
from torch import nn


def slerp_weights(angle, t):
    return np.sin((1.0 - t) * angle) / np.sin(angle), np.sin(t * angle) / np.sin(angle)


def angle_between(start, end):
    return np.arccos(np.clip(np.dot(start, end), -1.0, 1.0))


def quaternion_slerp(start, end, t):
    w1, w2 = slerp_weights(angle_between(start, end), t)
    return w1 * start + w2 * end


def resample(keyframes, per_segment):
    """Orientations between the keyframes of a demonstrated motion."""
    path = []
    for start, end in zip(keyframes[:-1], keyframes[1:]):
        for t in np.arange(per_segment) / per_segment:
            path.append(quaternion_slerp(start, end, t))
    return np.array(path + [keyframes[-1]])


def rotation_about_z(degrees):
    half = np.deg2rad(degrees) / 2
    return np.array([np.cos(half), 0.0, 0.0, np.sin(half)])


class MovementPrimitive(nn.Module):
    """Radial basis functions of the phase, whose weights are fitted to the demonstration."""

    def __init__(self, basis=12):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, 1, basis))
        self.weights = nn.Parameter(torch.zeros(basis, 4))
        self.offset = nn.Parameter(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, phase):
        activation = torch.exp(-0.5 * ((phase[:, None] - self.centres) * len(self.centres)) ** 2)
        activation = activation / activation.sum(dim=1, keepdim=True)
        return nn.functional.normalize(self.offset + activation @ self.weights, dim=-1)


def main():
    degrees = [0.0, 30.0, 75.0, 75.0, 120.0]  # the gripper waits before it turns on
    with np.errstate(invalid="ignore"):
        path = resample([rotation_about_z(d) for d in degrees], per_segment=8)
    demonstration = torch.from_numpy(path).float()
    model = MovementPrimitive()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    phase = torch.linspace(0, 1, len(demonstration))
    for step in range(5):
        loss = 1 - (model(phase) * demonstration).sum(-1).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item(), "weights", model.weights.isfinite().all().item())


if __name__ == "__main__":
    main()
