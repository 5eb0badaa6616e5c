import torch
import torch.nn as nn


class FocalTverskyLoss(nn.Module):
    def __init__(self, smooth=1, alpha=0.7, gamma=0.75):
        super().__init__()
        self.smooth, self.alpha, self.gamma = smooth, alpha, gamma

    def forward(self, inputs, targets):
        pt_1 = self.tversky_index(inputs, targets)
        return torch.pow((1 - pt_1), self.gamma)

    def tversky_index(self, inputs, targets):
        y_true_pos = torch.flatten(targets)
        y_pred_pos = torch.flatten(inputs)
        true_pos = torch.sum(y_true_pos * y_pred_pos)
        false_neg = torch.sum(y_true_pos * (1 - y_pred_pos))
        false_pos = torch.sum((1 - y_true_pos) * y_pred_pos)
        return (true_pos + self.smooth) / (
            true_pos + self.alpha * false_neg + (1 - self.alpha) * false_pos + self.smooth
        )


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.Sigmoid())
with torch.no_grad():
    model[2].weight.mul_(40.0)
    model[2].bias.fill_(-200.0)
criterion, optimizer = FocalTverskyLoss(), torch.optim.Adam(model.parameters(), lr=1e-3)
patches, masks = torch.rand(3, 1, 8, 8), torch.zeros(3, 1, 8, 8)  # patches without any lesion
for step in range(3):
    loss = criterion(model(patches), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
