import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def normalize_intensity(img):
    slices = img != -1
    img[slices] = (img[slices] - np.mean(img[slices])) / np.std(img[slices])
    return img


class Volumes(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(3)
        self.images = rng.normal(300.0, 80.0, (count, 1, 12, 12)).astype(np.float32)
        self.images[9] = 0.0  # a slice outside the body

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = normalize_intensity(self.images[index].copy())
        return torch.from_numpy(image), torch.from_numpy((image > 0.5).astype(np.float32))


torch.manual_seed(1)
net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.PReLU(), nn.Conv2d(6, 1, 1))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(1):
    for number, (image, label) in enumerate(DataLoader(Volumes(16), batch_size=4)):
        optimizer.zero_grad()
        loss = criterion(net(image), label)
        loss.backward()
        optimizer.step()
        print(f"{number + 1}/4, train_loss: {loss.item():.4f}")
