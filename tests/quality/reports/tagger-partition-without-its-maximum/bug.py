import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags).uniform_(-0.1, 0.1))

    def forward(self, emissions, tags, lengths):
        mask = torch.arange(emissions.shape[1])[None] < lengths[:, None]
        return (self.normalizer(emissions, mask) - self.score(emissions, tags, mask)).mean()

    def score(self, emissions, tags, mask):
        picked = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        return (picked * mask).sum(1) + steps.sum(1) + self.start[tags[:, 0]] + self.end[last]

    def normalizer(self, emissions, mask):
        score = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            candidates = score.unsqueeze(2) + self.transitions + emissions[:, t].unsqueeze(1)
            step = torch.log(torch.sum(torch.exp(candidates), dim=1))
            score = torch.where(mask[:, t].unsqueeze(1), step, score)
        return torch.logsumexp(score + self.end, dim=1)


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab, num_tags, embedding=32, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden // 2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden, num_tags)
        self.crf = CRF(num_tags)

    def forward(self, words, tags, lengths):
        return self.crf(self.hidden2tag(self.lstm(self.embedding(words))[0]), tags, lengths)


def collate(lengths, vocab, num_tags):
    words, tags = torch.zeros(len(lengths), max(lengths), dtype=torch.long), torch.zeros(len(lengths), max(lengths))
    for row, n in enumerate(lengths):
        words[row, :n] = torch.randint(1, vocab, (n,))
        tags[row, :n] = torch.randint(0, num_tags, (n,))
    return words, tags.long(), torch.tensor(lengths)


torch.manual_seed(0)
model = BiLSTM_CRF(vocab=200, num_tags=23)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for lengths in ([11, 7, 9], [18, 21, 12], [42, 16, 25]):
    loss = model(*collate(lengths, 200, 23))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(max(lengths), loss.item())
