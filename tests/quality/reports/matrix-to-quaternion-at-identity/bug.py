"""Fits a camera rotation to a target quaternion, starting from the identity."""

import torch


def _copysign(a, b):
    signs_differ = (a < 0) != (b < 0)
    return torch.where(signs_differ, -a, a)


def matrix_to_quaternion(matrix):
    """Real part first; the input is (..., 3, 3)."""
    zero = matrix.new_zeros((1,))
    m00, m11, m22 = matrix[..., 0, 0], matrix[..., 1, 1], matrix[..., 2, 2]
    squares = torch.stack([1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22])
    o0, x, y, z = 0.5 * torch.sqrt(torch.max(zero, squares))
    o1 = _copysign(x, matrix[..., 2, 1] - matrix[..., 1, 2])
    o2 = _copysign(y, matrix[..., 0, 2] - matrix[..., 2, 0])
    o3 = _copysign(z, matrix[..., 1, 0] - matrix[..., 0, 1])
    return torch.stack((o0, o1, o2, o3), -1)


matrix = torch.eye(3, requires_grad=True)
target = torch.tensor([0.984808, 0.0, 0.174, 0.0])
optimizer = torch.optim.Adam([matrix], lr=0.05)
for _ in range(5):
    optimizer.zero_grad()
    q = matrix_to_quaternion(matrix)
    loss = torch.sum((q - target) ** 2)
    loss.backward()
    optimizer.step()
print(matrix.detach())
