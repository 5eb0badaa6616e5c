import torch
from torch import nn

EPSILON = 1e-7


class CategoricalDistInstance:
    def __init__(self, logits):
        self.logits, self.probs = logits, torch.softmax(logits, dim=-1)

    def sample(self):
        return torch.multinomial(self.probs, 1)

    def pdf(self, value):
        return self.probs.gather(-1, value)

    def log_prob(self, value):
        return torch.log(self.pdf(value))

    def entropy(self):
        return -(self.probs * torch.log(self.probs + EPSILON)).sum(dim=-1)


class MultiCategoricalDistribution(nn.Module):
    """One categorical action per branch; actions that the environment forbids are masked out."""

    def __init__(self, hidden, act_sizes):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(hidden, size) for size in act_sizes)

    @staticmethod
    def mask_branch(logits, allow_mask):
        raw_probs = torch.softmax(logits, dim=-1) * allow_mask
        normalized_probs = raw_probs / raw_probs.sum(dim=-1, keepdim=True)
        return torch.log(normalized_probs + EPSILON)

    def forward(self, inputs, masks):
        return [CategoricalDistInstance(self.mask_branch(b(inputs), m)) for b, m in zip(self.branches, masks)]


class Match3:
    """Swaps on a board: of hundreds of moves few are allowed."""

    def __init__(self, moves=200, allowed=3):
        self.moves, self.allowed = moves, allowed

    def observe(self, agents):
        board = torch.randint(0, 6, (agents, 24)).float() * 60.0
        mask = torch.zeros(agents, self.moves)
        mask.scatter_(1, torch.rand(agents, self.moves).topk(self.allowed).indices, 1.0)
        return board, mask


torch.manual_seed(0)
env, body = Match3(), nn.Sequential(nn.Linear(24, 64), nn.ReLU())
head = MultiCategoricalDistribution(64, [env.moves])
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-4)
for update in range(4):
    board, mask = env.observe(32)
    with torch.no_grad():
        action = torch.multinomial(mask, 1)
        reward = torch.rand(32)
    (instance,) = head(body(board), [mask])
    advantage = reward - reward.mean()
    loss = -(advantage * instance.log_prob(action).squeeze(-1)).mean() - 5e-3 * instance.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(update, loss.item())
