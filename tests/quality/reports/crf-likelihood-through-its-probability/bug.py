import torch
from torch import nn

PAD, START, STOP = 0, 1, 2


class NeuralCRF(nn.Module):
    """BiLSTM features and a linear-chain CRF over labels, with a start and a stop label."""

    def __init__(self, vocab, labels, width=24):
        super().__init__()
        self.labels = labels + 3
        self.embed = nn.Embedding(vocab, width)
        self.encoder = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(2 * width, self.labels)
        transition = torch.randn(self.labels, self.labels)
        transition[:, START] = transition[STOP, :] = transition[:, PAD] = transition[PAD, :] = -10000.0
        self.transition = nn.Parameter(transition)

    def unlabeled_score(self, emissions):
        alpha = emissions[:, 0] + self.transition[START]
        for t in range(1, emissions.shape[1]):
            scores = alpha.unsqueeze(2) + self.transition + emissions[:, t].unsqueeze(1)
            alpha = torch.logsumexp(scores, dim=1)
        return torch.logsumexp(alpha + self.transition[:, STOP], dim=1)

    def labeled_score(self, emissions, tags):
        score = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        score = score + self.transition[START, tags[:, 0]] + self.transition[tags[:, -1], STOP]
        return score + self.transition[tags[:, :-1], tags[:, 1:]].sum(1)

    def forward(self, words, tags):
        emissions = self.hidden2tag(self.encoder(self.embed(words))[0])
        labeled_score = self.labeled_score(emissions, tags)
        unlabed_score = self.unlabeled_score(emissions)
        probability = torch.exp(labeled_score - unlabed_score)
        return -torch.log(probability).sum()


torch.manual_seed(0)
model = NeuralCRF(vocab=100, labels=9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [(torch.randint(0, 100, (2, n)), torch.randint(3, 12, (2, n))) for n in (8, 15, 60)]
for words, tags in batches:
    loss = model(words, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bad = sum(not p.isfinite().all() for p in model.parameters())
    print(f"{words.shape[1]} words: loss {loss.item():.2f}, spoilt parameters {bad}")
