"""A program that uses whynan itself."""

import torch

import whynan

weight = torch.ones(3, requires_grad=True)
(weight * 2).sum().backward()
report = whynan.explain(lambda x: (x * weight).sum(), torch.ones(3))
print(report.verdict, report.coverage.events)
with whynan.trace() as trace:
    torch.zeros(2).log().sum().item()
print(trace.report.verdict, trace.report.run.command)
with whynan.allow("WN5", reason="meant"):
    print(weight.grad.tolist())
