from typing import Tuple

import torch
import torch.nn.functional as F


class CTC(torch.nn.Module):
    """CTC module"""

    def __init__(self, odim: int, encoder_output_size: int, dropout_rate: float = 0.0, blank_id: int = 0):
        super().__init__()
        self.dropout_rate = dropout_rate
        self.ctc_lo = torch.nn.Linear(encoder_output_size, odim)
        self.ctc_loss = torch.nn.CTCLoss(blank=blank_id, reduction="sum", zero_infinity=True)

    def forward(
        self, hs_pad: torch.Tensor, hlens: torch.Tensor, ys_pad: torch.Tensor, ys_lens: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        ys_hat = self.ctc_lo(F.dropout(hs_pad, p=self.dropout_rate))
        ys_hat = ys_hat.transpose(0, 1).log_softmax(2)
        loss = self.ctc_loss(ys_hat, ys_pad, hlens, ys_lens)
        return loss / ys_hat.size(1), ys_hat


class Subsampling(torch.nn.Module):
    """A quarter of the frames, as in conv2d4"""

    def __init__(self, idim: int, odim: int):
        super().__init__()
        self.conv = torch.nn.Sequential(
            torch.nn.Conv1d(idim, odim, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv1d(odim, odim, 3, 2, 1), torch.nn.ReLU()
        )

    def forward(self, xs: torch.Tensor, lens: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        return self.conv(xs.transpose(1, 2)).transpose(1, 2), torch.div(lens + 3, 4, rounding_mode="floor")


torch.manual_seed(777)
encoder, ctc = Subsampling(20, 32), CTC(30, 32)
params = [*encoder.parameters(), *ctc.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3)
feats_lengths = torch.tensor([64, 52, 20])  # the third speaker is fast: 5 frames, 8 characters
target_lengths = torch.tensor([9, 7, 8])
for batch in range(3):
    feats = torch.randn(3, 64, 20)
    target = torch.randint(1, 30, (3, 9))
    hs, hlens = encoder(feats, feats_lengths)
    loss, _ = ctc(hs, hlens, target, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 5.0)
    optimizer.step()
    print(f"batch {batch} loss_ctc {loss.item():.3f}")
