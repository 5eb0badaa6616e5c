"""Gauss-Newton refinement of a camera position from projected 3D points."""

import torch


class Camera:
    eps = 1e-4

    def __init__(self, f, c):
        self.f, self.c = torch.tensor(f), torch.tensor(c)

    def project(self, p3d):
        z = p3d[..., -1]
        valid = z > self.eps
        z = z.clamp(min=self.eps)
        return p3d[..., :-1] / z.unsqueeze(-1), valid

    def J_project(self, p3d):
        x, y, z = p3d[..., 0], p3d[..., 1], p3d[..., 2]
        z = z.clamp(min=self.eps)
        zero = torch.zeros_like(z)
        J = torch.stack([1 / z, zero, -x / z**2, zero, 1 / z, -y / z**2], dim=-1)
        return J.reshape(p3d.shape[:-1] + (2, 3))

    def world2image(self, p3d):
        p2d, valid = self.project(p3d)
        return p2d * self.f + self.c, valid

    def J_world2image(self, p3d):
        return torch.diag(self.f) @ self.J_project(p3d)


class DirectOptimizer(torch.nn.Module):
    def __init__(self, num_iters=4, damping=1e-3):
        super().__init__()
        self.num_iters = num_iters
        self.log_damping = torch.nn.Parameter(torch.full((3,), damping).log())

    def forward(self, points, observed, camera, t):
        for _ in range(self.num_iters):
            p3d = points + t
            p2d, valid = camera.world2image(p3d)
            weight = valid.float()
            error = (p2d - observed) * weight[:, None]
            J = camera.J_world2image(p3d)
            grad = torch.einsum("nji,nj,n->i", J, error, weight)
            Hess = torch.einsum("nji,njk,n->ik", J, J, weight)
            Hess = Hess + torch.diag(self.log_damping.exp() * Hess.diagonal())
            t = t - torch.linalg.solve(Hess, grad)
        return t


torch.manual_seed(0)
camera = Camera((200.0, 200.0), (64.0, 64.0))
points = torch.rand(20, 3) + torch.tensor([-0.5, -0.5, 2.0])
points[7] = 0.0  # a padded point: it is not valid, and has no weight
truth = torch.tensor([0.05, -0.02, 0.0])
observed, _ = camera.world2image(points + truth)

optimizer = DirectOptimizer()
estimate = optimizer(points, observed, camera, torch.zeros(3))
loss = (estimate - truth).abs().sum()
loss.backward()
print("estimate:", estimate.tolist(), "loss:", loss.item())
