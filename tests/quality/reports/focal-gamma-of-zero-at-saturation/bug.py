import torch
from torch import nn

eps = 0.0


def focal_loss(y_pred, y_true, gamma=0.0):
    """Binary focal loss of probabilities that a sigmoid has made."""
    loss = torch.sum(
        y_true * torch.pow(1 - y_pred, gamma) * torch.log(y_pred)
        + (1 - y_true) * torch.pow(y_pred, gamma) * torch.log(1 - y_pred),
        dim=1,
    )
    return -1.0 * loss.sum() / y_pred.size(0)


torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1), nn.Sigmoid())
features = torch.randn(32, 6)
features[9] *= 300.0
with torch.no_grad():
    model[2].bias.fill_(1.0)
    labels = (model(features) > 0.6).float().squeeze(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    loss = focal_loss(model(features), labels.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
