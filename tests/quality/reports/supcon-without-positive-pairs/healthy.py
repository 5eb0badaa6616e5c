import torch
import torch.nn as nn
import torch.nn.functional as F


class SupConLoss(nn.Module):
    """Supervised contrastive learning, https://arxiv.org/pdf/2004.11362.pdf"""

    def __init__(self, temperature=0.07, base_temperature=0.07):
        super().__init__()
        self.temperature = temperature
        self.base_temperature = base_temperature

    def forward(self, features, labels):
        batch_size, n_views = features.shape[:2]
        labels = labels.contiguous().view(-1, 1)
        mask = torch.eq(labels, labels.T).float().repeat(n_views, n_views)
        contrast_feature = torch.cat(torch.unbind(features, dim=1), dim=0)

        anchor_dot_contrast = contrast_feature @ contrast_feature.T / self.temperature
        logits = anchor_dot_contrast - anchor_dot_contrast.max(dim=1, keepdim=True).values.detach()

        logits_mask = 1 - torch.eye(batch_size * n_views)
        mask = mask * logits_mask

        exp_logits = torch.exp(logits) * logits_mask
        log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
        mask_pos_pairs = mask.sum(1)
        mask_pos_pairs = torch.where(mask_pos_pairs < 1e-6, 1, mask_pos_pairs)
        mean_log_prob_pos = (mask * log_prob).sum(1) / mask_pos_pairs
        return -(self.temperature / self.base_temperature) * mean_log_prob_pos.mean()


class Encoder(nn.Module):
    def __init__(self, dim_in=32, feat_dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim_in, 64), nn.ReLU(inplace=True))
        self.head = nn.Linear(64, feat_dim)

    def forward(self, x):
        return F.normalize(self.head(self.encoder(x)), dim=1)


torch.manual_seed(0)
model = Encoder()
criterion = SupConLoss(temperature=0.8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for step in range(3):
    images = torch.randn(4, 32)
    labels = torch.tensor([0, 1, 1, 3])  # one view of each image
    loss = criterion(model(images).unsqueeze(1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f}")
