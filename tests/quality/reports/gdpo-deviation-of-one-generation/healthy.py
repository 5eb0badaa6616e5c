"""Group-relative advantages for several rewards, as a GRPO trainer computes them."""

from dataclasses import dataclass

import torch


@dataclass
class TrainingArgs:
    num_generations: int = 4
    scale_rewards: bool = True
    epsilon: float = 0.2
    std_epsilon: float = 1e-4
    learning_rate: float = 0.05


class GroupTrainer:
    def __init__(self, args: TrainingArgs, vocab: int = 16) -> None:
        self.args = args
        self.logits = torch.nn.Parameter(torch.randn(vocab) * 0.1)
        self.optimizer = torch.optim.SGD([self.logits], lr=args.learning_rate)

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        groups = rewards.unflatten(0, (-1, self.args.num_generations))
        advantages = groups - groups.mean(dim=1, keepdim=True)
        if self.args.scale_rewards:
            spread = groups.std(dim=1, keepdim=True) if groups.size(1) > 1 else torch.zeros(len(groups), 1)
            advantages = advantages / (spread + self.args.std_epsilon)
        return advantages.flatten()

    def step(self, prompts: int) -> float:
        policy = torch.distributions.Categorical(logits=self.logits)
        tokens = policy.sample((prompts * self.args.num_generations,))
        old = policy.log_prob(tokens).detach()
        rewards = (tokens % 3 == 0).float() + 0.1 * (tokens > 8).float()
        advantages = self.advantages(rewards)
        ratio = torch.exp(policy.log_prob(tokens) - old)
        clipped = ratio.clamp(1 - self.args.epsilon, 1 + self.args.epsilon)
        loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(11)
    trainer = GroupTrainer(TrainingArgs(num_generations=1))
    for i in range(3):
        print(i, trainer.step(prompts=6), trainer.logits.detach().norm().item())
