"""Programs whose right mend is at several sites, and what would be wrong at one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.quality.verdicts.substituted import Wrong, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD: Final = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
NET: Final = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.act = nn.{}

    def forward(self, x):
        return self.act(self.weight * x * 2)


"""
SOFTMAX: Final = NET.format("Softmax(dim=-1)")
SIGMOID: Final = NET.format("Sigmoid()")

Values = tuple[Any, ...]

FORMS: Final = {
    "detached": "({}).detach()",
    "multiplied by 1.01": "(({}) * 1.01)",
    "a constant": "torch.zeros_like({})",
    "clamped in the healthy range": "torch.clamp({}, -0.1, 0.1)",
    "float16 on the way": "({}).half().float()",
    "half of its gradient": "((({}) + ({}).detach()) / 2)",
    "a where that hides the gradient": "torch.where(({}) < 0.9, ({}).detach(), {})",
    "the other sign": "(-({}))",
    "an epsilon": "(({}) + 1e-3 * ({}) ** 2)",
}
"""What is wrong at any site, by what stands there in place of a piece."""
_EACH: Final = 3
"""So many forms are tried at one site; others at the next."""


@dataclass(frozen=True)
class Program:
    """A program by its files, of which ``program`` has the ``target``; what it fails with, and what it does not.

    It differentiates by the first ``learnt`` of its values. ``sites`` are pieces of its mended text, the piece itself
    between « and »; ``others`` are further ones, each with what is wrong in its place.
    """

    name: str
    files: dict[str, str]
    failing: Values
    healthy: Values
    learnt: int
    sites: tuple[str, ...]
    others: tuple[tuple[str, str, str], ...]

    @property
    def wrong(self) -> Iterator[Wrong]:
        """The wrong mends."""
        start = next((number for number, one in enumerate(PROGRAMS) if one is self), len(self.name))
        forms = [*FORMS.items()]
        for number, site in enumerate(self.sites):
            for step in range(_EACH):
                how, form = forms[(start + number * _EACH + step) % len(forms)]
                yield wrapped(site, how, form)
        for one in self.others:
            yield Wrong(*one)


PROGRAMS: Final[list[Program]] = []

X: Final = [[0.5, -1.0, 0.25], [-90.0, 60.0, 1.0], [1.0, 0.5, -2.0], [80.0, 1.0, -70.0]]
MILD: Final = [[0.5, -1.0, 0.25], [-0.9, 0.6, 1.0], [1.0, 0.5, -2.0], [0.8, 1.0, -0.7]]
ROWS: Final = [[0], [0], [2], [2]]
LABELS: Final = [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]


def called(head: str, body: str, *given: str) -> str:
    """A program's main file: what stands above its target, and what the target computes."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{HEAD}{head}def target({', '.join(('x', *given))}):\n{lines}    loss.backward()\n    return loss\n"


def of_rows(
    name: str, head: str, body: str, sites: tuple[str, ...], *wrong: tuple[str, str, str], **parts: str
) -> None:
    """A program that is given numbers and the index of one of each row."""
    files = {"program.py": called(head, body, "rows"), **{f"{part}.py": text for part, text in parts.items()}}
    PROGRAMS.append(Program(name, files, (X, ROWS), (MILD, ROWS), 1, sites, wrong))


def of_labels(
    name: str, head: str, body: str, sites: tuple[str, ...], *wrong: tuple[str, str, str], **parts: str
) -> None:
    """A program that is given numbers and a label of each."""
    files = {"program.py": called(head, body, "y"), **{f"{part}.py": text for part, text in parts.items()}}
    PROGRAMS.append(Program(name, files, (X, LABELS), (MILD, LABELS), 1, sites, wrong))


# -- An activation in one function, its logarithm in another one -------------------------------------------------------

LOGITS: Final = "return «logits» if return_logits"
LOG_SOFTMAX: Final = "«F.log_softmax(logits, -1)»"
BOTH: Final = ("(y * «F.logsigmoid(logits)» +", "(1 - y) * «F.logsigmoid(-logits)»")
ASKED: Final = "model(x, return_logits=True)"
CALLS: Final = (
    ("its argument detached", ASKED, "model(x.detach(), return_logits=True)"),
    ("another argument", ASKED, "model(x * 0.99, return_logits=True)"),
)
OF_SOFTMAX: Final = (
    ("the site as it was", "F.log_softmax(logits, -1)", "torch.log(torch.softmax(logits, -1))"),
    ("nan_to_num", "F.log_softmax(logits, -1)", "torch.nan_to_num(torch.log(torch.softmax(logits, -1)))"),
    ("the wrong dimension", "F.log_softmax(logits, -1)", "F.log_softmax(logits, 0)"),
    ("softmax twice", "F.log_softmax(logits, -1)", "F.log_softmax(torch.softmax(logits, -1), -1)"),
    ("an epsilon inside", "F.log_softmax(logits, -1)", "torch.log(torch.softmax(logits, -1) + 1e-4)"),
)
OF_SIGMOID: Final = (
    ("one term as it was", "(1 - y) * F.logsigmoid(-logits)", "(1 - y) * torch.log(1 - torch.sigmoid(logits))"),
    ("nan_to_num", "(y * F.logsigmoid(logits)", "(y * torch.nan_to_num(torch.log(torch.sigmoid(logits)))"),
    ("the same term twice", "(1 - y) * F.logsigmoid(-logits)", "(1 - y) * F.logsigmoid(logits)"),
)

of_rows(
    "a module of another file",
    "from part import Net\n\nmodel = Net()\n\n\n",
    "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean()",
    (LOGITS, LOG_SOFTMAX),
    *OF_SOFTMAX,
    *CALLS,
    ("the activation in any case", "return logits if return_logits else self.act(logits)", "return self.act(logits)"),
    ("the sum in place of the mean", "(logits, -1).gather(1, rows).mean()", "(logits, -1).gather(1, rows).sum()"),
    part=HEAD + SOFTMAX,
)
of_labels(
    "cross entropy of a sigmoid",
    SIGMOID + "model = Net()\n\n\n",
    "p = model(x)\nloss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()",
    (LOGITS, *BOTH),
    *OF_SIGMOID,
    *CALLS,
)
of_rows(
    "the loss of likelihoods",
    "net = nn.Linear(3, 3, bias=False)\nnn.init.eye_(net.weight.requires_grad_(False))\n\n\n"
    "def model(x):\n    h = net(x)\n    return torch.softmax(h * 2, dim=-1)\n\n\n",
    "loss = F.nll_loss(torch.log(model(x)), rows[:, 0])",
    (LOGITS, LOG_SOFTMAX),
    *OF_SOFTMAX,
    *CALLS,
    ("another class", "F.log_softmax(logits, -1), rows[:, 0])", "F.log_softmax(logits, -1), 2 - rows[:, 0])"),
)
of_rows(
    "a loss object that is given probabilities",
    SOFTMAX + "model = Net()\n\n\nclass Loss(nn.Module):\n    def forward(self, p, rows):\n"
    "        return -p.gather(1, rows).log().mean()\n\n\ncriterion = Loss()\n\n\n",
    "loss = criterion(model(x), rows)",
    (LOGITS, "return -«logits.log_softmax(-1)».gather"),
    *CALLS,
    ("the site as it was", "logits.log_softmax(-1)", "torch.log(torch.softmax(logits, -1))"),
    ("the wrong dimension", "logits.log_softmax(-1)", "logits.log_softmax(0)"),
    ("the caller as it was", "criterion(logits, rows)", "criterion(torch.softmax(logits, -1), rows)"),
)
of_labels(
    "a focal loss of its own",
    "def focal(p, y):\n"
    "    return -(y * (1 - p) ** 2 * torch.log(p) + (1 - y) * p ** 2 * torch.log(1 - p)).mean()\n\n\n",
    "loss = focal(torch.sigmoid(2 * x), y)",
    ("focal(«2 * x», y)", "p = «torch.sigmoid(logits)»", "** 2 * «F.logsigmoid(logits)» +"),
    ("one term as it was", "F.logsigmoid(-logits)", "torch.log(1 - p)"),
    ("the caller as it was", "focal(2 * x, y)", "focal(torch.sigmoid(2 * x), y)"),
    ("another weight", "y * (1 - p) ** 2 * F", "y * (1 - p) * F"),
)
of_rows(
    "a sequence of modules",
    "model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Softmax(dim=-1))\nnn.init.eye_(model[0].weight)\n\n\n",
    "p = model(x * 2)\nloss = -torch.log(p.gather(1, rows)).mean()",
    ("«model[:-1](x * 2)»", LOG_SOFTMAX),
    *OF_SOFTMAX,
    ("the whole sequence", "model[:-1](x * 2)", "model(x * 2)"),
)
of_labels(
    "the two terms of an adversarial loss",
    SIGMOID + "model = Net()\n\n\n",
    "real = model(x)\nfake = model(-x * y)\nloss = -(real.log() + (1 - fake).log()).mean()",
    (LOGITS, "-(«F.logsigmoid(real_logits)»", "+ «F.logsigmoid(-fake_logits)»)"),
    ("one call as it was", "fake_logits = model(-x * y, return_logits=True)", "fake_logits = model(-x * y)"),
    ("the same logits twice", "F.logsigmoid(-fake_logits)", "F.logsigmoid(-real_logits)"),
    ("one term as it was", "F.logsigmoid(-fake_logits)", "torch.log(1 - torch.sigmoid(fake_logits))"),
)
of_rows(
    "an entropy beside a value",
    SOFTMAX.replace("return self.act(self.weight * x * 2)", "return self.act(self.weight * x * 2), x.mean()")
    + "model = Net()\n\n\n",
    "p, value = model(x)\nloss = value - (p * torch.log(p)).sum(-1).mean()",
    (LOGITS, "«(p * F.log_softmax(logits, -1)).sum(-1).mean()»", "p = «torch.softmax(logits, dim=-1)»"),
    *OF_SOFTMAX,
    ("its value twice", "else self.act(logits), x.mean()", "else self.act(logits), 2 * x.mean()"),
)
of_rows(
    "a likelihood and an entropy in two functions",
    SOFTMAX
    + "model = Net()\n\n\ndef entropy(x):\n    p = model(x)\n    return -(p * torch.log(p)).sum(-1).mean()\n\n\n",
    "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean() - entropy(x)",
    (LOGITS, "-«(p * F.log_softmax(logits, -1)).sum(-1).mean()»", "-«F.log_softmax(logits, -1)».gather"),
    (
        "an entropy of 0",
        "-(p * F.log_softmax(logits, -1)).sum(-1).mean()",
        "-(0 * p * F.log_softmax(logits, -1)).sum(-1).mean()",
    ),
    ("its probabilities detached", "p = torch.softmax(logits, dim=-1)", "p = torch.softmax(logits, dim=-1).detach()"),
)
of_rows(
    "the probabilities of a distribution",
    "from torch.distributions import Categorical\n\n\ndef policy(x):\n"
    "    return Categorical(probs=torch.softmax(2 * x, dim=-1), validate_args=False)\n\n\n",
    "pi = policy(x)\nloss = -torch.log(pi.probs).gather(1, rows).mean()",
    ("logits=«2 * x», validate", "«F.log_softmax(pi.logits, -1)»"),
    ("the site as it was", "F.log_softmax(pi.logits, -1)", "torch.log(torch.softmax(pi.logits, -1))"),
    ("softmax twice", "F.log_softmax(pi.logits, -1)", "F.log_softmax(torch.softmax(pi.logits, -1), -1)"),
    ("the wrong dimension", "F.log_softmax(pi.logits, -1)", "F.log_softmax(pi.logits, 0)"),
)
of_labels(
    "a loss that hands on what it is given",
    "def nll(p, y):\n"
    "    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n\n\n"
    "def step(p, y):\n    return nll(p, y) + 0.1 * (p - y).abs().mean()\n\n\n",
    "loss = step(torch.sigmoid(2 * x), y)",
    ("step(«2 * x», y)", "nll(«logits», y) + 0.1", "+ 0.1 * «(p - y).abs().mean()»"),
    *OF_SIGMOID,
    ("the caller as it was", "step(2 * x, y)", "step(torch.sigmoid(2 * x), y)"),
    ("probabilities handed on", "nll(logits, y)", "nll(p, y)"),
)
of_labels(
    "a module and a loss in two files",
    "from losses import nll\nfrom part import Net\n\nmodel = Net()\n\n\n",
    "loss = nll(model(x), y)",
    (LOGITS, *BOTH),
    *OF_SIGMOID,
    *CALLS,
    ("the caller as it was", "nll(logits, y)", "nll(torch.sigmoid(logits), y)"),
    part=HEAD + SIGMOID,
    losses=HEAD + "def nll(p, y):\n    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n",
)

# -- Two hazards, each with an edit of its own -------------------------------------------------------------------------

ZEROS: Final = [[0.0, 0.0, 0.0], [0.5, -1.0, 2.0], [1.5, 0.25, -0.5], [0.75, -0.25, 1.0]]
FULL: Final = [[0.3, 0.4, -0.2], *ZEROS[1:]]
GAPS: Final = [[0.0, 300.0, 1.0], *MILD[1:]]


def of_two(
    name: str,
    functions: str,
    body: str,
    failing: Values,
    healthy: Values,
    sites: tuple[str, ...],
    *wrong: tuple[str, str, str],
    learnt: int | None = None,
) -> None:
    """A program of two hazards in one file."""
    files = {"program.py": called(functions, body, *"yz"[: len(failing) - 1])}
    PROGRAMS.append(Program(name, files, failing, healthy, learnt or len(failing), sites, wrong))


of_two(
    "a logarithm and a root in two functions",
    "def first(x):\n    return torch.log(torch.softmax(x, -1)).mean()\n\n\n"
    "def second(y):\n    return torch.sqrt((y * y).sum(-1)).sum()\n\n\n",
    "loss = first(x) + second(y)",
    (GAPS, ZEROS),
    (MILD, FULL),
    ("«F.log_softmax(x, -1)»", "«torch.sqrt(torch.where(operand == 0, 1, operand))»"),
    ("the first as it was", "F.log_softmax(x, -1)", "torch.log(torch.softmax(x, -1))"),
    ("nan_to_num", "F.log_softmax(x, -1)", "torch.nan_to_num(torch.log(torch.softmax(x, -1)))"),
    ("a gradient at 0", "torch.where(operand == 0, 1, operand)", "operand"),
    ("an epsilon under the root", "torch.where(operand == 0, 1, operand)", "operand + 1e-3"),
    ("a constant under the root", "torch.where(operand == 0, 1, operand)", "torch.ones_like(operand)"),
)
of_two(
    "a direction and its weight",
    "def directions(rows):\n    return rows / rows.norm(dim=1, keepdim=True)\n\n\n"
    "def weighted(rows):\n    total = rows.abs().sum(1, keepdim=True)\n"
    "    return rows * torch.tanh(total) / total\n\n\n",
    "loss = weighted(directions(x)).sum()",
    (ZEROS,),
    (FULL,),
    ("where(norm == 0, 0, «scaled / torch.where(norm == 0, 1, norm)»)", "«torch.where(total == 0, 1, total)»"),
    ("the wrong dimension", "vector_norm(scaled, dim=1, keepdim=True)", "vector_norm(scaled, dim=0, keepdim=True)"),
    ("the sum in place of the norm", "torch.linalg.vector_norm(scaled, dim=1", "torch.sum(scaled, dim=1"),
    ("the second as it was", "torch.where(total == 0, 1, total)", "total"),
    ("a least denominator", "torch.where(total == 0, 1, total)", "total.clamp(min=1.5)"),
)
of_two(
    "a correlation",
    "def correlation(x, y):\n"
    "    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)\n"
    "    return (x * y).sum(1) / (torch.sqrt((x**2).sum(1)) * torch.sqrt((y**2).sum(1)))\n\n\n",
    "loss = 1 - correlation(torch.relu(x), y).mean()",
    ([[-1.0, -1.0, -1.0], *FULL[1:]], FULL),
    (FULL, FULL),
    ("return «(x * y).sum(1)» /", "«torch.where(denominator == 0, 1, denominator)»"),
    ("the denominator as it was", "torch.where(denominator == 0, 1, denominator)", "denominator"),
    ("an epsilon in the denominator", "torch.where(denominator == 0, 1, denominator)", "(denominator + 1e-3)"),
    ("an epsilon under the root", "torch.where(operand == 0, 1, operand)", "(operand + 1e-3)"),
    ("the mean in place of the sum", "(x * y).sum(1) / torch.where", "(x * y).mean(1) / torch.where"),
)
of_two(
    "a quotient of exponentials and its logarithm",
    "def probabilities(x):\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)\n\n\n",
    "p = probabilities(x)\nloss = (p * p * p).sum(-1).mean() - torch.log(p).mean()",
    (GAPS,),
    (MILD,),
    ("return «x.softmax(-1)»", "- «F.log_softmax(x, -1)».mean()"),
    ("the logarithm as it was", "- F.log_softmax(x, -1).mean()", "- torch.log(p).mean()"),
    ("nan_to_num", "- F.log_softmax(x, -1).mean()", "- torch.nan_to_num(torch.log(p)).mean()"),
    ("the wrong dimension", "- F.log_softmax(x, -1).mean()", "- F.log_softmax(x, 0).mean()"),
    ("softmax twice", "- F.log_softmax(x, -1).mean()", "- F.log_softmax(p, -1).mean()"),
    ("the sum in place of the mean", "- F.log_softmax(x, -1).mean()", "- F.log_softmax(x, -1).sum()"),
)
of_two(
    "a sigmoid by hand and a root",
    "def gate(x):\n    return torch.exp(x) / (1 + torch.exp(x))\n\n\n"
    "def length(y):\n    return (y * y).sum(-1).sqrt()\n\n\n",
    "loss = (gate(x).sum(-1) + length(y)).mean()",
    (GAPS, ZEROS),
    (MILD, FULL),
    ("return «torch.sigmoid(x)»", "«torch.where(operand == 0, 1, operand).sqrt()»"),
    ("nan_to_num", "torch.sigmoid(x)", "torch.nan_to_num(torch.exp(x) / (1 + torch.exp(x)))"),
    ("another function", "torch.sigmoid(x)", "torch.softmax(x, -1)"),
    ("a gradient at 0", "torch.where(operand == 0, 1, operand)", "operand"),
    ("an epsilon under the root", "torch.where(operand == 0, 1, operand)", "operand + 1e-3"),
    ("a constant under the root", "torch.where(operand == 0, 1, operand)", "torch.ones_like(operand)"),
)
of_two(
    "softplus by hand and an entropy",
    "def softplus(x):\n    return torch.log(1 + torch.exp(x))\n\n\n"
    "def entropy(y):\n    q = torch.softmax(y, -1)\n    return -(q * torch.log(q)).sum(-1)\n\n\n",
    "loss = softplus(x).mean() + entropy(y).mean()",
    (GAPS, GAPS),
    (MILD, MILD),
    ("return «F.softplus(x)»", "-«(q * F.log_softmax(y, -1)).sum(-1)»"),
    ("the second as it was", "F.log_softmax(y, -1)", "torch.log(q)"),
    ("nan_to_num", "F.log_softmax(y, -1)", "torch.nan_to_num(torch.log(q))"),
    ("a line above 2", "F.softplus(x)", "F.softplus(x, threshold=0.9)"),
    ("a rectifier", "F.softplus(x)", "torch.relu(x)"),
    ("the loss of another sign", "-(q * F.log_softmax(y, -1))", "(q * F.log_softmax(y, -1))"),
)
of_two(
    "a sum of exponentials and a length",
    "def free_energy(x):\n    return torch.log(torch.exp(x).sum(-1))\n\n\n"
    "def penalty(y):\n    return torch.sqrt((y * y).sum(-1))\n\n\n",
    "loss = (free_energy(x) + penalty(y)).mean()",
    (GAPS, ZEROS),
    (MILD, FULL),
    ("return «torch.logsumexp(x, -1)»", "«torch.sqrt(torch.where(operand == 0, 1, operand))»"),
    ("nan_to_num", "torch.logsumexp(x, -1)", "torch.nan_to_num(torch.log(torch.exp(x).sum(-1)))"),
    ("the greatest in its place", "torch.logsumexp(x, -1)", "torch.amax(x, -1)"),
    ("the mean in place of the sum", "torch.logsumexp(x, -1)", "(torch.logsumexp(x, -1) - 1.0986)"),
    ("a gradient at 0", "torch.where(operand == 0, 1, operand)", "operand"),
    ("an epsilon under the root", "torch.where(operand == 0, 1, operand)", "operand + 1e-3"),
    ("a constant under the root", "torch.where(operand == 0, 1, operand)", "torch.ones_like(operand)"),
)
of_two(
    "a normalised row and a mean over a mask",
    "def scaled(x):\n    return x / torch.sqrt((x * x).sum(-1, keepdim=True))\n\n\n"
    "def masked_mean(y, z):\n    return (y * z).sum(-1) / z.sum(-1)\n\n\n",
    "loss = scaled(x).sum() + masked_mean(y, z).sum()",
    (ZEROS, MILD, [[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]),
    (FULL, MILD, [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]),
    (
        "where(norm == 0, 0, «scaled_2 / torch.where(norm == 0, 1, norm)»)",
        "return «(y * z).sum(-1)» /",
    ),
    ("the second as it was", "torch.where(denominator == 0, 1, denominator)", "denominator"),
    ("an epsilon", "torch.where(denominator == 0, 1, denominator)", "(denominator + 1e-3)"),
    ("a least denominator", "torch.where(denominator == 0, 1, denominator)", "denominator.clamp(min=2)"),
    ("the mean in place of the sum", "(y * z).sum(-1) / torch.where", "(y * z).mean(-1) / torch.where"),
    learnt=2,
)
of_two(
    "a softmax of a large row and the loss of certainty",
    "def attention(x):\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)\n\n\n"
    "def likelihood(y):\n    return torch.log(torch.sigmoid(y))\n\n\n",
    "loss = (attention(x) * likelihood(y)).mean()",
    (GAPS, X),
    (MILD, MILD),
    ("return «x.softmax(-1)»", "return «F.logsigmoid(y)»"),
    ("the second as it was", "F.logsigmoid(y)", "torch.log(torch.sigmoid(y))"),
    ("nan_to_num", "F.logsigmoid(y)", "torch.nan_to_num(torch.log(torch.sigmoid(y)))"),
    ("an epsilon inside", "F.logsigmoid(y)", "torch.log(torch.sigmoid(y) + 1e-4)"),
    ("the wrong dimension", "x.softmax(-1)", "x.softmax(0)"),
    ("a sigmoid of each", "x.softmax(-1)", "x.sigmoid()"),
)
