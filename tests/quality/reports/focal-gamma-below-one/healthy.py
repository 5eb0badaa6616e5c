import torch
from torch import nn

EPSILON = 1e-7


def binary_focal_loss(gamma=2.0, alpha=0.25):
    """Focal loss for a sigmoid output, after Lin et al.; see section 3.2."""

    def loss(y_true, y_pred):
        pt_1 = torch.where(y_true == 1, y_pred, torch.ones_like(y_pred))
        pt_0 = torch.where(y_true == 0, y_pred, torch.zeros_like(y_pred))
        pt_1 = pt_1.clamp(EPSILON, 1.0 - EPSILON)
        pt_0 = pt_0.clamp(EPSILON, 1.0 - EPSILON)
        positive = alpha * torch.pow(1.0 - pt_1, gamma) * torch.log(pt_1 + EPSILON)
        negative = (1 - alpha) * torch.pow(pt_0, gamma) * torch.log(1.0 - pt_0 + EPSILON)
        return -positive.sum() - negative.sum()

    return loss


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        return self.layers(x).squeeze(1)


torch.manual_seed(2)
model = Classifier()
criterion = binary_focal_loss(gamma=0.5)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(2):
    for _ in range(3):
        x = 400 * torch.randn(32, 10)  # columns in their own units
        y = (x[:, 0] + 100 * torch.randn(32) > 400).float()
        loss = criterion(y, model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
