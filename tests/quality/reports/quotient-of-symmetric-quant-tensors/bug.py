from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class QuantTensor:
    """A value together with the scale and the zero point that it was quantised with."""

    value: Tensor
    scale: Tensor
    zero_point: Tensor
    bit_width: Tensor

    @property
    def tensor(self) -> Tensor:
        return self.value

    def int(self) -> Tensor:
        return torch.round(self.value / self.scale + self.zero_point)

    def requant(self) -> Tensor:
        return (self.int() - self.zero_point) * self.scale

    def __mul__(self, other: QuantTensor) -> QuantTensor:
        return QuantTensor(
            self.value * other.value,
            self.scale * other.scale,
            self.zero_point * other.zero_point,
            self.bit_width + other.bit_width,
        )

    def __truediv__(self, other: QuantTensor) -> QuantTensor:
        output_tensor = self.value / other.value
        output_scale = self.scale / other.scale
        output_bit_width = self.bit_width - other.bit_width
        output_zero_point = self.zero_point / other.zero_point
        return QuantTensor(output_tensor, output_scale, output_zero_point, output_bit_width)


def int_quant(x: Tensor, bit_width: float) -> QuantTensor:
    scale = x.abs().max() / (2 ** (bit_width - 1) - 1)
    value = torch.round(x / scale) * scale
    return QuantTensor(value, scale, torch.tensor(0.0), torch.tensor(float(bit_width)))


torch.manual_seed(0)
weights = int_quant(torch.randn(6, 8), 8)
pooled = int_quant(torch.full((6, 1), 4.0), 4)
gates = int_quant(torch.rand(6, 8) + 0.5, 8)

average = (weights * gates) / pooled
print("mean of the requantised quotient:", average.requant().mean().item())
