import torch
from torch import nn
from torch.nn import functional as F


class FocalLoss(nn.Module):
    """Multi-class focal loss after Lin et al., from logits."""

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = F.softmax(inputs, dim=1)
        p_t = p.gather(1, target.unsqueeze(1)).squeeze(1)
        fl = -1 * (1 - p_t) ** self.gamma * torch.log(p_t)
        return fl.mean()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


torch.manual_seed(0)
model, criterion = Classifier(), FocalLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.randn(24, 16)
data[5] *= 400.0  # one picture whose pixels were never divided by 255
labels = torch.randint(0, 5, (24,))
for epoch in range(3):
    loss = criterion(model(data), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
