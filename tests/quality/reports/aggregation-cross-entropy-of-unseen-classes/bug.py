import torch
import torch.nn as nn


class ACE(nn.Module):
    """Aggregation cross-entropy: characters are counted, not aligned."""

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, logits, label):
        batch, steps, _ = logits.shape
        input = torch.softmax(logits, -1)
        input = torch.sum(input, 1)
        input = input / steps
        label = label / steps
        loss = (-torch.sum(torch.log(input) * label)) / batch
        return loss


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Conv1d(4, 16, 3, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.cnn(x)).transpose(1, 2))


torch.manual_seed(0)
net, loss_layer = Recognizer(), ACE(10)
with torch.no_grad():
    net.fc.bias[8] = -130.0  # initialised from the log of a frequency of nearly nothing
images = torch.rand(4, 4, 12)
counts = torch.zeros(4, 10)
counts[:, 0] = 9.0
counts[torch.arange(4), torch.tensor([1, 4, 5, 2])] += 3.0
optimizer = torch.optim.Adadelta(net.parameters())
for i in range(3):
    loss = loss_layer(net(images), counts)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())
