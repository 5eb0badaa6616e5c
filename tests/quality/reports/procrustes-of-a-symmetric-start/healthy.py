import torch


class _Procrustes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, M, gradient_eps):
        U, D, Vh = torch.linalg.svd(M)
        flip = torch.ones_like(D)
        flip[..., -1] = torch.linalg.det(U @ Vh).sign()
        ctx.save_for_backward(U, D * flip, Vh * flip.unsqueeze(-1))
        ctx.gradient_eps = gradient_eps
        return U @ (flip.unsqueeze(-1) * Vh)

    @staticmethod
    def backward(ctx, grad):
        U, D, Vh = ctx.saved_tensors
        total = D.unsqueeze(-1) + D.unsqueeze(-2)
        total = torch.where(total.abs() < ctx.gradient_eps, torch.full_like(total, ctx.gradient_eps), total)
        inner = U.transpose(-2, -1) @ grad @ Vh.transpose(-2, -1)
        return U @ ((inner - inner.transpose(-2, -1)) / total) @ Vh, None


def special_procrustes(M, gradient_eps=1e-2):
    """Nearest rotation in the Frobenius norm: R = U diag(1, 1, det) V^T."""
    return _Procrustes.apply(M, gradient_eps)


class RotationHead(torch.nn.Module):
    """Nine numbers are projected onto SO(3); the network starts at the identity."""

    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 9)
        torch.nn.init.zeros_(self.linear.weight)
        with torch.no_grad():
            self.linear.bias.copy_(torch.eye(3).flatten())

    def forward(self, x):
        return special_procrustes(self.linear(x).view(-1, 3, 3))


def rotvec_to_rotmat(rotvec):
    K = torch.zeros(len(rotvec), 3, 3)
    K[:, 2, 1], K[:, 0, 2], K[:, 1, 0] = rotvec.unbind(1)
    return torch.linalg.matrix_exp(K - K.transpose(1, 2))


torch.manual_seed(0)
head = RotationHead(12)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
features, target = torch.randn(8, 12), rotvec_to_rotmat(0.5 * torch.randn(8, 3))
loss = (head(features) - target).square().sum((1, 2)).mean()
loss.backward()
optimizer.step()
print("loss", loss.item(), "bias after a step", head.linear.bias.tolist())
