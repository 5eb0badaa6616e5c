import torch
import torch.nn.functional as F
from torch import nn


class CTCHead(nn.Module):
    def __init__(self, channels, classes, blank=0):
        super().__init__()
        self.decoder = nn.Linear(channels, classes)
        self.blank = blank

    def loss(self, feats, targets, target_lengths):
        outputs = self.decoder(feats.mean(2).permute(0, 2, 1))
        log_probs = F.log_softmax(outputs, dim=2).permute(1, 0, 2)
        input_lengths = torch.full((outputs.size(0),), outputs.size(1), dtype=torch.long)
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=self.blank)


torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, 2, 1), nn.ReLU())
head = CTCHead(12, 37)
params = [*backbone.parameters(), *head.parameters()]
optimizer = torch.optim.Adadelta(params, lr=1.0)
for iteration in range(3):
    images = torch.rand(4, 1, 32, 40)
    targets = torch.randint(1, 37, (4, 14))
    target_lengths = torch.tensor([4, 6, 5, 14 if iteration == 1 else 7])
    losses = head.loss(backbone(images), targets, target_lengths)
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(f"Iter [{iteration}] loss_ctc: {losses.item():.4f}")
