import torch
from torch import nn


class ComplexModulus(torch.autograd.Function):
    """|z| with its derivative written out, as the project did before the framework had one."""

    @staticmethod
    def forward(ctx, z):
        answer = torch.sqrt(z.real.square() + z.imag.square())
        ctx.save_for_backward(z, answer)
        return answer

    @staticmethod
    def backward(ctx, grad):
        z, answer = ctx.saved_tensors
        return grad * z / answer


class CoilSensitivity(nn.Module):
    """Smooth complex maps of the receivers, from a few Fourier coefficients each."""

    def __init__(self, coils, size, order=2):
        super().__init__()
        self.size, self.order = size, order
        self.coefficients = nn.Parameter(torch.zeros(coils, 2 * order + 1, dtype=torch.complex64))
        with torch.no_grad():
            self.coefficients[:, order] = 1.0
            self.coefficients += 0.1 * torch.randn(coils, 2 * order + 1, dtype=torch.complex64)

    def forward(self):
        position = torch.arange(self.size) / self.size
        waves = torch.exp(2j * torch.pi * torch.arange(-self.order, self.order + 1)[:, None] * position)
        return self.coefficients @ waves


def acquire(signal, mask):
    return torch.fft.fft(signal, norm="ortho") * mask


def magnitude_loss(predicted, measured):
    return (ComplexModulus.apply(predicted) - measured).square().sum() / measured.square().sum()


def phantom(size):
    x = torch.linspace(-1, 1, size)
    return (x.abs() < 0.7).float() - 0.4 * ((x - 0.2).abs() < 0.15).float()


torch.manual_seed(0)
size, coils = 48, 4
tissue = phantom(size)
mask = (torch.rand(size) < 0.5).float()
mask[:4] = mask[-4:] = 1.0
true_maps = CoilSensitivity(coils, size)
with torch.no_grad():
    measured = acquire(true_maps() * tissue, mask).abs()  # a phase-less measurement of the sampled frequencies
image = nn.Parameter(torch.ones(size))
maps = CoilSensitivity(coils, size)
optimizer = torch.optim.Adam([{"params": [image], "lr": 0.05}, {"params": maps.parameters(), "lr": 0.01}])
for iteration in range(3):
    loss = magnitude_loss(acquire(maps() * image, mask), measured)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(iteration, loss.item(), "image finite:", image.isfinite().all().item())
