"""Train a classifier of wines on the numbers as they were measured, and export it to ONNX in float32 and in float16.

Its first layer brings each wine to zero mean and unit variance, with the variance as a difference of two sums.
``python export.py`` shows what a person sees and writes the models, ``python export.py --fixed`` with the mend.
"""

from __future__ import annotations

import argparse
import copy
import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.nn import functional as F

MODELS = Path(__file__).parent / "models"


class Standardise(nn.Module):
    """The measurements of one wine, less their mean and over their deviation."""

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()
        self.fixed = fixed

    def forward(self, wines: Tensor) -> Tensor:
        n = wines.shape[-1]
        total = wines.sum(-1, keepdim=True)
        centred = wines - total / n
        if self.fixed:
            centred = centred / centred.abs().amax(-1, keepdim=True)
            return centred / centred.square().mean(-1, keepdim=True).sqrt()
        squares = n * wines.square().sum(-1, keepdim=True)
        variance = (squares - total.square()) / (n * n)
        return centred / variance.sqrt()


class Classifier(nn.Module):
    """Which of three growers a wine is from."""

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()
        self.standardise = Standardise(fixed)
        self.layers = nn.Sequential(nn.Linear(13, 32), nn.GELU(), nn.Linear(32, 3))

    def forward(self, wines: Tensor) -> Tensor:
        return self.layers(self.standardise(wines))


def trained(wines: Tensor, growers: Tensor, fixed: bool, steps: int = 500) -> Classifier:
    """A classifier after some steps on all wines, in float64: so that it is the same on every machine."""
    torch.manual_seed(0)
    model = Classifier(fixed).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = F.cross_entropy(model(wines.double()), growers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.float().eval()


def told(scores: np.ndarray, growers: Tensor) -> str:
    """What one sees of a result."""
    bad = int((~np.isfinite(scores).all(-1)).sum())
    right = float((scores.argmax(-1) == growers.numpy()).mean())
    return f"NaN for {bad} of {len(scores)} wines" if bad else f"{right:.1%} right"


def main() -> None:
    """Parse the options, train, export, and run what was exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--fixed",
        action="store_true",
        help="take the mean away, and divide by the greatest, before anything is squared",
    )
    parser.add_argument("--to", type=Path, default=MODELS, help="the folder to write the models to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    data = load_wine()
    wines, growers = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    model = trained(wines, growers, options.fixed)
    options.to.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        print("PyTorch, float32             ", told(model(wines).numpy(), growers))
    for name, dtype in (("float32", torch.float32), ("float16", torch.float16)):
        file = options.to / f"{name}.onnx"
        given = wines.to(dtype)
        torch.onnx.export(
            copy.deepcopy(model).to(dtype),
            (given,),
            str(file),
            input_names=["wines"],
            output_names=["scores"],
            dynamo=True,
            verbose=False,
            external_data=False,
        )
        feeds = {"wines": given.numpy()}
        np.savez(options.to / f"{name}.npz", **feeds)
        (scores,) = onnxruntime.InferenceSession(str(file)).run(None, feeds)
        print(f"ONNX Runtime on a CPU, {name}", told(np.asarray(scores), growers))
    with np.errstate(all="ignore"):
        (scores,) = ReferenceEvaluator(onnx.load(file)).run(None, feeds)
    print("the arithmetic of float16    ", told(np.asarray(scores), growers))


if __name__ == "__main__":
    main()
