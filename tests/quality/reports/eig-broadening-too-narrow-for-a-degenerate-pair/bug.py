import torch


class Eig(torch.autograd.Function):
    """Eigenvalues and vectors of a complex matrix; gaps between eigenvalues are broadened in the backward."""

    broadening_parameter = 1e-60

    @staticmethod
    def forward(ctx, matrix):
        values, vectors = torch.linalg.eig(matrix)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx, grad_values, grad_vectors):
        values, vectors = ctx.saved_tensors
        adjoint = vectors.transpose(-2, -1).conj()
        gap = values.unsqueeze(-2) - values.unsqueeze(-1)
        broadened = gap.abs().square() + Eig.broadening_parameter
        broadened.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        f = torch.conj(gap) / broadened
        inner = torch.diag_embed(grad_values) + torch.conj(f) * (adjoint @ grad_vectors)
        return torch.linalg.solve(adjoint, inner @ adjoint)


def convolution_matrix(epsilon, order):
    """Toeplitz matrix of the Fourier coefficients of a permittivity."""
    coefficients = torch.fft.fft(epsilon) / len(epsilon)
    index = torch.arange(-order, order + 1)
    return coefficients[(index[:, None] - index[None, :]) % len(epsilon)]


class Layer:
    def __init__(self, order=2, period=1.0, wavelength=0.8):
        orders = torch.arange(-order, order + 1)
        self.order = order
        self.kx = (orders * wavelength / period).to(torch.complex64)

    def diffracted(self, epsilon, thickness=0.3):
        e = convolution_matrix(epsilon, self.order)
        matrix = e - torch.diag(self.kx.square())
        kz2, modes = Eig.apply(matrix)
        kz = torch.sqrt(kz2 + 0j)
        phase = torch.exp(2j * torch.pi * kz * thickness)
        incident = torch.zeros(len(self.kx), dtype=torch.complex64)
        incident[self.order] = 1.0
        return modes @ (phase * torch.linalg.solve(modes, incident))


torch.manual_seed(0)
layer = Layer()
density = torch.full((32,), 0.5, requires_grad=True)  # a uniform slab to start from: orders +m and -m are degenerate
optimizer = torch.optim.Adam([density], lr=0.02)
for step in range(4):
    epsilon = 1.0 + 3.0 * density
    field = layer.diffracted(epsilon.to(torch.complex64))
    figure_of_merit = (field[layer.order + 1] - 0.6j).abs().square()
    optimizer.zero_grad()
    figure_of_merit.backward()
    optimizer.step()
    print(step, figure_of_merit.item(), "bad gradients:", (~density.grad.isfinite()).sum().item())
