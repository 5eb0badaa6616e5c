"""A program beside files that are named like modules that others use."""

import sys

import click
import config
import errors
import numpy as np
import rich
import torch
import yaml

print(config.WHERE, rich.WHERE, click.WHERE, errors.WHERE, yaml.WHERE)
weight = torch.ones(3, requires_grad=True)
for _ in range(3):
    loss = (weight * weight).sum()
    loss.backward()
print(weight.grad.numpy().tobytes().hex(), float(np.float32(loss.item())).hex())
print([sys.modules[n].__file__ for n in ("rich", "click", "config", "errors", "yaml")])
import pydantic

print(pydantic.WHERE)
