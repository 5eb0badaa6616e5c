"""torch.compile, with graph breaks, several shapes, a mode and a backend of the program's own."""

import sys

import torch

torch.manual_seed(0)
backend = sys.argv[1]
graphs = []


def counting(module, inputs):
    graphs.append(sorted({n.op for n in module.graph.nodes}))
    return module.forward


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        hidden = torch.relu(self.one(x))
        if hidden.sum() > 1e9:  # depends on data: the graph breaks
            hidden = hidden * 0
        return self.two(hidden)


model = Net()
fast = torch.compile(model, backend=counting if backend == "counting" else backend)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for rows in (3, 3, 5):
    optimizer.zero_grad()
    loss = fast(torch.randn(rows, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(rows, loss.item().hex())


@torch.compile(backend="eager", fullgraph=True)
def doubled(x):
    return x * 2


print(doubled(torch.arange(3.0)).tolist(), type(fast).__name__, len(graphs), graphs[:1])
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], sorted(torch._dynamo.utils.counters["graph_break"]))
