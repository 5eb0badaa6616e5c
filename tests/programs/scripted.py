"""Graphs taken from programs: torch.jit, torch.fx, torch.export; run, saved and loaded."""

import io
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", message="no signature found")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return torch.tanh(self.layer(x)) if x.dim() == 2 else x


def repeated(x, n: int):
    for _ in range(n):
        x = x * x + 0.5
    return x


model, x = Net(), torch.randn(2, 3)
file = io.BytesIO()
torch.jit.save(torch.jit.script(repeated), file)
file.seek(0)
print([v.hex() for v in torch.jit.load(file)(x, 3)[0].tolist()])
scripted = torch.jit.script(model)
scripted(x).sum().backward()
print(scripted.count.item(), model.layer.weight.grad.sum().item().hex())
graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
print(graph.code, graph(x).sum().item().hex())
exported = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
print([str(n.target) for n in exported.graph.nodes], exported.module()(torch.ones(5, 3)).sum().item().hex())
file = io.BytesIO()
torch.export.save(exported, file)
file.seek(0)
print(torch.export.load(file).module()(x).sum().item().hex())
with torch.no_grad():
    for _ in range(3):
        model(x)
    model.eval()
    recorded = torch.jit.trace(nn.Sequential(model, nn.Softmax(-1)), x)
print(recorded.inlined_graph, recorded(x).sum().item().hex())
scaled = torch.jit.trace(lambda v: (v * 2 + 1) ** 2 / 3, x)
print(scaled.graph, scaled(x).sum().item().hex())
file = io.BytesIO()
torch.onnx.export(scaled, (x,), file, dynamo=False, opset_version=17)
print(len(file.getvalue()))
