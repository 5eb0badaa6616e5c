import torch
import torch.nn as nn


def compute_geodesic_distance_from_two_matrices(m1, m2):
    """The angle between rotations: batch x 3 x 3 twice -> batch."""
    batch = m1.shape[0]
    m = torch.bmm(m1, m2.transpose(1, 2))
    cos = (m[:, 0, 0] + m[:, 1, 1] + m[:, 2, 2] - 1) / 2
    cos = torch.min(cos, torch.ones(batch))
    cos = torch.max(cos, torch.ones(batch) * -1)
    theta = torch.acos(cos)
    return theta


def compute_rotation_matrix_from_ortho6d(ortho6d):
    x = nn.functional.normalize(ortho6d[:, 0:3], dim=1)
    z = nn.functional.normalize(torch.cross(x, ortho6d[:, 3:6], dim=1), dim=1)
    y = torch.cross(z, x, dim=1)
    return torch.stack((x, y, z), 2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Linear(6, 6)
        with torch.no_grad():
            self.mlp.weight.copy_(torch.eye(6))
            self.mlp.bias.zero_()

    def forward(self, x):
        return compute_rotation_matrix_from_ortho6d(self.mlp(x))

    def compute_geodesic_loss(self, gt, out):
        theta = compute_geodesic_distance_from_two_matrices(gt, out)
        return theta.mean()


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
poses = torch.randn(6, 6)
poses[0] = torch.tensor([1.0, 0, 0, 0, 1, 0])
truth = compute_rotation_matrix_from_ortho6d(poses)
for iteration in range(4):
    loss = model.compute_geodesic_loss(truth, model(poses))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item())
