import torch
import torch.nn as nn
import torch.nn.functional as F


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 8, 5), nn.PReLU(), nn.MaxPool2d(2, stride=2))
        self.fc = nn.Sequential(nn.Linear(8 * 6 * 6, 16), nn.PReLU(), nn.Linear(16, 2))

    def forward(self, x):
        output = self.convnet(x)
        return self.fc(output.view(output.size(0), -1))


class ContrastiveLoss(nn.Module):
    """Takes embeddings of two samples and a target label == 1 if samples are of the same class."""

    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.eps = 1e-9

    def forward(self, output1, output2, target):
        distances = (output2 - output1).pow(2).sum(1)
        push = F.relu(self.margin - (distances + self.eps).sqrt()).pow(2)
        losses = 0.5 * (target.float() * distances + (1 - target).float() * push)
        return losses.mean()


torch.manual_seed(7)
net = EmbeddingNet()
criterion = ContrastiveLoss(margin=1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)

images = torch.rand(32, 1, 16, 16)
labels = torch.randint(0, 4, (32,))
images[21] = images[4]  # the same picture stands twice in the set
for epoch in range(2):
    order = torch.tensor([(i, (i + 17) % 32) for i in range(32)])
    first, second = order[:, 0], order[:, 1]
    for batch in torch.arange(32).split(8):
        i, j = first[batch], second[batch]
        loss = criterion(net(images[i]), net(images[j]), (labels[i] == labels[j]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
