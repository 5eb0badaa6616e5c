"""Recurrent, attending and convolving networks on sequences of unequal length, with masks."""

import hashlib

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)
lengths = [5, 3, 2]
padded = pad_sequence([torch.randn(n, 6) for n in lengths], batch_first=True)
padding = torch.arange(5)[None] >= torch.tensor(lengths)[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 6, num_layers=2, dropout=0.1, batch_first=True, bidirectional=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), 2)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(12, 4, 3, padding=1))

    def forward(self, x):
        out, _ = pad_packed_sequence(self.rnn(pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True)
        out = self.encoder(out, src_key_padding_mask=padding)
        out = self.conv(out.transpose(1, 2)).masked_fill(padding[:, None], float("-inf"))
        return out.amax(-1)


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(padded), torch.tensor([0, 1, 3]))
    loss.backward()
    optimizer.step()
    schedule.step()
    print(loss.item().hex(), schedule.get_last_lr()[0].hex())
model.eval()
print([v.hex() for v in model(padded)[0].tolist()])
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
