import torch
from torch import nn


class GradientCumulativeOptimizerHook:
    """Steps once in so many iterations; those that are left over at the end share a smaller divisor."""

    def __init__(self, cumulative_iters, grad_clip=35.0):
        self.cumulative_iters, self.grad_clip = cumulative_iters, grad_clip
        self.divisible_iters = self.remainder_iters = 0
        self.initialized = False

    def _init(self, runner):
        residual_iters = runner.max_iters - runner.iter
        self.divisible_iters = residual_iters // self.cumulative_iters * self.cumulative_iters
        self.remainder_iters = residual_iters - self.divisible_iters
        self.initialized = True

    def after_train_iter(self, runner):
        if not self.initialized:
            self._init(runner)
        if runner.iter < self.divisible_iters:
            loss_factor = self.cumulative_iters
        else:
            loss_factor = self.remainder_iters
        loss = runner.outputs["loss"] / loss_factor
        loss.backward()
        runner.log.append(loss.item())
        if (runner.iter + 1) % self.cumulative_iters == 0 or runner.iter + 1 == runner.max_iters:
            nn.utils.clip_grad_norm_(runner.model.parameters(), self.grad_clip)
            runner.optimizer.step()
            runner.optimizer.zero_grad()


class IterBasedRunner:
    def __init__(self, model, max_iters, hook):
        self.model, self.max_iters, self.hook = model, max_iters, hook
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        self.iter, self.outputs, self.log = 0, {}, []

    def resume(self, checkpoint):
        self.model.load_state_dict(checkpoint["state_dict"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.iter = checkpoint["iter"]

    def checkpoint(self):
        return {"state_dict": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "iter": self.iter}

    def run(self, batches, until):
        while self.iter < until:
            images, targets = batches[self.iter % len(batches)]
            self.outputs["loss"] = nn.functional.cross_entropy(self.model(images), targets)
            self.hook.after_train_iter(self)
            self.iter += 1
        return self.log[-1]


def build_model():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


torch.manual_seed(0)
batches = [(torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))) for _ in range(5)]
runner = IterBasedRunner(build_model(), max_iters=20, hook=GradientCumulativeOptimizerHook(2))
print("before the interruption", runner.run(batches, until=6))
resumed = IterBasedRunner(build_model(), max_iters=20, hook=GradientCumulativeOptimizerHook(2))
resumed.resume(runner.checkpoint())
print("after it", resumed.run(batches, until=20))
