"""Class activation maps by Grad-CAM++, with hooks on the last convolution."""

import torch
from torch import nn


class GradCAMpp:
    def __init__(self, model: nn.Module, target_layer: nn.Module) -> None:
        self.model = model
        self.handles = [target_layer.register_forward_hook(self._hook_activation)]

    def _hook_activation(self, module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        self.activation = output.detach()
        output.register_hook(self._hook_gradient)

    def _hook_gradient(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient.detach()

    def _get_weights(self) -> torch.Tensor:
        grad_2 = self.gradient.pow(2)
        grad_3 = grad_2 * self.gradient
        denominator = 2 * grad_2 + (grad_3 * self.activation).sum(dim=(2, 3), keepdim=True)
        alpha = grad_2 / denominator
        return (alpha * torch.relu(self.gradient)).sum(dim=(2, 3))

    def __call__(self, class_idx: int, scores: torch.Tensor) -> torch.Tensor:
        self.model.zero_grad()
        scores[:, class_idx].sum().backward()
        weights = self._get_weights()
        cam = torch.relu((weights[:, :, None, None] * self.activation).sum(dim=1))
        low = cam.amin(dim=(1, 2), keepdim=True)
        high = cam.amax(dim=(1, 2), keepdim=True)
        return (cam - low) / (high - low + 1e-8)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def build(classes: int) -> nn.Sequential:
    features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1))
    return nn.Sequential(features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, classes))


if __name__ == "__main__":
    torch.manual_seed(67)
    model = build(5).eval()
    extractor = GradCAMpp(model, model[0])
    images = torch.rand(2, 3, 16, 16)
    scores = model(images)
    cam = extractor(int(scores[0].argmax()), scores)
    extractor.remove()
    print("heat:", cam.mean(dim=(1, 2)))
