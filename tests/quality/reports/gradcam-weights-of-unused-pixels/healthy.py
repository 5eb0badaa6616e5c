import torch
from torch import nn
from torch.nn import functional as F


class _GradCAM:
    """Keeps the activation of a layer and the gradient that comes back to it."""

    def __init__(self, model, target_layer):
        self.model = model
        self.hook_a, self.hook_g = None, None
        self.handle = target_layer.register_forward_hook(self._hook)

    def _hook(self, module, inputs, output):
        self.hook_a = output.detach()
        output.register_hook(self._store_grad)

    def _store_grad(self, grad):
        self.hook_g = grad.detach()

    def _backprop(self, scores, class_idx):
        self.model.zero_grad()
        scores[:, class_idx].sum().backward(retain_graph=True)

    @staticmethod
    def _normalize(cams):
        flat = cams.flatten(1)
        low, high = flat.min(1).values[:, None, None], flat.max(1).values[:, None, None]
        return (cams - low) / (high - low + 1e-8)

    def __call__(self, class_idx, scores):
        weights = self._get_weights(class_idx, scores)
        return self._normalize(F.relu((weights[..., None, None] * self.hook_a).sum(1)))


class GradCAMpp(_GradCAM):
    def _get_weights(self, class_idx, scores):
        self._backprop(scores, class_idx)
        grad_2 = self.hook_g.pow(2)
        grad_3 = grad_2 * self.hook_g
        denom = 2 * grad_2 + (grad_3 * self.hook_a).flatten(2).sum(-1)[..., None, None]
        alpha = grad_2 / (denom + 1e-8)
        return (alpha * F.relu(self.hook_g)).flatten(2).sum(-1)


torch.manual_seed(0)
features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU())
model = nn.Sequential(features, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(12, 4)).eval()
with torch.no_grad():
    features[2].bias[5] = -20.0  # a feature that this picture does not have
    model[3].weight[1, 2] = 0.0  # and one that class 1 does not use
extractor = GradCAMpp(model, features)
scores = model(torch.rand(1, 3, 12, 12))
activation_map = extractor(1, scores)
print("activation map in", activation_map.min().item(), activation_map.max().item())
