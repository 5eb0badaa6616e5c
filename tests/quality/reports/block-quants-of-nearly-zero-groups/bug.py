"""Quantises a checkpoint to blocks of 32 signed 8 bit numbers that share a scale."""

import torch

BLOCK = 32


def quantize_row_q8(x):
    blocks = x.reshape(-1, BLOCK)
    amax = blocks.abs().amax(dim=1, keepdim=True)
    d = amax / 127
    inverse = torch.where(amax > 0, 1.0 / d, torch.zeros_like(d))
    q = torch.round(blocks * inverse)
    return d, q


def dequantize_row_q8(d, q, shape):
    return (d * q).reshape(shape)


def quantize_state(state):
    out = {}
    for name, tensor in state.items():
        if tensor.ndim < 2 or tensor.numel() % BLOCK:
            out[name] = tensor.clone()
            continue
        out[name] = dequantize_row_q8(*quantize_row_q8(tensor), tensor.shape)
    return out


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(48, 32), torch.nn.Linear(32, 48))
    with torch.no_grad():
        # weight decay has all but removed the tokens that never occurred
        model[0].weight[40:44] *= 1e-38
        model[0].weight[40:44, ::4] = 0.0
        model[0].weight[44:] = 0.0
    reference = model(torch.arange(48))
    model.load_state_dict(quantize_state(model.state_dict()))
    quantized = model(torch.arange(48))
    error = (reference - quantized).pow(2).mean().sqrt()
    return error.item()


print(f"rms error of the quantized model: {main():.5f}")
