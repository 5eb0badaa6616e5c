import torch
import torch.nn as nn
import torch.nn.functional as F


class DigitCaps(nn.Module):
    def __init__(self, capsules=4, routes=9, inner=4, outer=6, iterations=2):
        super().__init__()
        self.iterations = iterations
        self.W = nn.Parameter(0.3 * torch.randn(1, routes, capsules, outer, inner))

    def forward(self, x):
        x = torch.stack([x] * self.W.size(2), dim=2).unsqueeze(4)
        u_hat = torch.matmul(self.W, x)
        b_ij = torch.zeros(1, self.W.size(1), self.W.size(2), 1)
        for iteration in range(self.iterations):
            c_ij = F.softmax(b_ij, dim=1).unsqueeze(4)
            s_j = (c_ij * u_hat).sum(dim=1, keepdim=True)
            v_j = self.squash(s_j)
            if iteration < self.iterations - 1:
                a_ij = torch.matmul(u_hat.transpose(3, 4), torch.cat([v_j] * self.W.size(1), dim=1))
                b_ij = b_ij + a_ij.squeeze(4).mean(dim=0, keepdim=True)
        return v_j.squeeze(1)

    def squash(self, input_tensor):
        squared_norm = (input_tensor**2).sum(-2, keepdim=True)
        output_tensor = squared_norm * input_tensor / ((1.0 + squared_norm) * torch.sqrt(squared_norm))
        return output_tensor


torch.manual_seed(0)
caps = DigitCaps()
primary = torch.randn(5, 9, 4)
primary[3] = 0.0  # a blank picture, through a ReLU
optimizer = torch.optim.Adam(caps.parameters())
labels = torch.eye(4)[torch.tensor([0, 1, 2, 3, 0])]
for step in range(3):
    lengths = (caps(primary) ** 2).sum(2).squeeze(-1)
    loss = (labels * F.relu(0.81 - lengths) + 0.5 * (1 - labels) * F.relu(lengths - 0.01)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
