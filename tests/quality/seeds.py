"""The fixes that the seed documents publish, each as an edit of a small program with the hazard, and what to say of it.

The table "From the seed documents" of docs/hazards.md has the measurements. Each program has a function ``once`` that
fails as the document's did: most of its values are healthy and normally distributed, a few are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["verified", "guarded", "distorting", "rejected", "unverified"]


@dataclass(frozen=True)
class Published:
    """A fix: what it takes away from a program, what it puts there, and the verdicts that are right."""

    program: str
    old: str
    new: str
    right: tuple[Status, ...]
    why: str

    @property
    def edited(self) -> str:
        """The program with the fix."""
        assert self.program.count(self.old) == 1
        return self.program.replace(self.old, self.new)


PHASE = """\
import torch


def phase(real, imag):
    return torch.atan2(imag, real)


def once():
    generator = torch.Generator().manual_seed(0)
    real, imag = torch.randn(2, 512, generator=generator)
    real[7] = imag[7] = 1e-20
    real.requires_grad_()
    imag.requires_grad_()
    phase(real, imag).sum().backward()
"""
ATAN2 = "    return torch.atan2(imag, real)\n"

SIMILARITY = """\
import torch


def similarity(one, other):
    cosine = (one * other).sum(-1) / (one.norm(dim=-1) * other.norm(dim=-1))
    return cosine


def once():
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 64, 8, generator=generator)
    one[3] = 0
    one.requires_grad_()
    other.requires_grad_()
    similarity(one, other).sum().backward()
"""

POOLING = """\
import torch


def pooled(hidden, p):
    powers = hidden.pow(p)
    return powers.mean(1).pow(1.0 / p)


def once():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(16, 8, 32, generator=generator)
    hidden[4, :, 2] = 0
    hidden.requires_grad_()
    pooled(hidden, 2).sum().backward()
"""

ENTROPY = """\
import torch


def entropy(scores, target):
    weights = scores.softmax(-1)
    return -(target * weights.log()).sum()


def once():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(32, 8, generator=generator)
    scores[5, 2] = -200
    scores.requires_grad_()
    entropy(scores, torch.full((32, 8), 0.125)).backward()
"""

FIXES: dict[str, Published] = {
    "000: an eps where the operand is 0": Published(
        PHASE,
        ATAN2,
        f"    real = real + 1e-7 * (real == 0)\n    imag = imag + 1e-7 * (imag == 0)\n{ATAN2}",
        ("rejected",),
        "1e-20 is not 0: the replay still ends in Inf",
    ),
    "001: the accepted answer": Published(
        PHASE,
        ATAN2,
        f"    near = real < 1e-7\n    real = real * ~near + near * 1e-7\n{ATAN2}",
        ("rejected",),
        "every negative element is overwritten",
    ),
    "001: its corrected form": Published(
        PHASE,
        ATAN2,
        f"    near = real.abs() < 1e-7\n    real = real * ~near + near * 1e-7\n{ATAN2}",
        ("rejected", "distorting"),
        "healthy elements below the eps move, in the dtype's range and not among values of order one",
    ),
    "000: an eps in the denominator": Published(
        PHASE,
        ATAN2,
        "    return torch.atan2(imag, real + 1e-7)\n",
        ("distorting",),
        "5% of normally distributed elements move by more than 2 ulp",
    ),
    "003: zero_filtering of powers": Published(
        POOLING,
        "    powers = hidden.pow(p)\n    return powers.mean(1).pow(1.0 / p)\n",
        "    powers = hidden.pow(p)\n    powers = powers.clone()\n    powers[powers <= 1e-4] = 1e-4\n"
        "    return powers.mean(1).pow(1.0 / p)\n",
        ("rejected",),
        "elements of at most 0.01 are overwritten, and their gradients become 0",
    ),
    "003: zero_filtering and nan_filtering of similarities": Published(
        SIMILARITY,
        "    return cosine\n",
        "    cosine = cosine.clone()\n    cosine[cosine <= 1e-4] = 1e-4\n    cosine[cosine.isnan()] = 1e-4\n"
        "    return cosine\n",
        ("rejected",),
        "half of the similarities change, and what is behind the NaN stays",
    ),
    "003: zero_filtering of similarities": Published(
        SIMILARITY,
        "    return cosine\n",
        "    cosine = cosine.clone()\n    cosine[cosine <= 1e-7] = 1e-7\n    return cosine\n",
        ("rejected",),
        "half of the similarities change, and their gradients become 0",
    ),
}
"""The fixes of the documents: none of them is right."""

RIGHT: dict[str, Published] = {
    "the logarithm of a softmax, whose line is left": Published(
        ENTROPY,
        "    return -(target * weights.log()).sum()\n",
        "    return -(target * scores.log_softmax(-1)).sum()\n",
        ("verified",),
        "what only one version reads varies with what the other does",
    ),
    "the logarithm of a softmax": Published(
        ENTROPY,
        "    weights = scores.softmax(-1)\n    return -(target * weights.log()).sum()\n",
        "    return -(target * scores.log_softmax(-1)).sum()\n",
        ("verified",),
        "it is the same function",
    ),
}
"""What must be verified by the same way, or the check would hold for whatever rejects everything."""
