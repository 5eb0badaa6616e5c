"""An encoder and a head, whose two optimizers step in turn."""
# step: 15
# element: [2, 0]
# birth: invalid

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def standardise(hidden: torch.Tensor) -> torch.Tensor:
    centred = hidden - hidden.mean(dim=1, keepdim=True)
    deviation = centred.square().mean(dim=1, keepdim=True).sqrt()  # born
    return centred / (deviation + 1e-5)


def encode(encoder: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return standardise(torch.tanh(encoder(x)))


torch.manual_seed(2)
inputs = torch.rand(100, 4) + 0.5
inputs[58] = 0.0  # an empty record
targets = inputs.sum(dim=1, keepdim=True).sin()
loader = DataLoader(TensorDataset(inputs, targets), batch_size=4)

encoder = nn.Linear(4, 10, bias=False)
head = nn.Linear(10, 1)
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=5e-3)
head_optimizer = torch.optim.SGD(head.parameters(), lr=5e-2)

for step, (x, y) in enumerate(loader, start=1):
    # The head moves first, on features that stand still; then the encoder.
    features = encode(encoder, x).detach()
    head_loss = (head(features) - y).square().mean()
    head_optimizer.zero_grad()
    head_loss.backward()
    head_optimizer.step()

    loss = (head(encode(encoder, x)) - y).square().mean()
    encoder_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    print(step, repr(loss.item()))
