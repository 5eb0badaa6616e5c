"""An activation that another function returns is moved to where its logarithm is taken, and nothing else changes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.unit.fixes.python.mended import finding
from whynan.fixes.python import moved_activations
from whynan.source.text import Place

if TYPE_CHECKING:
    from whynan.fixes.python import MovedActivation

HEAD = "import torch\nfrom torch import nn\n\n\n"
RETURNS = {
    "a function": """
        def probs(x):
            return torch.softmax(2 * x, dim=-1)
    """,
    "a name": """
        def probs(x):
            h = 2 * x
            p = h.softmax(-1)
            return p
    """,
    "of two, the second": """
        def probs(x, scale=2):
            return x.mean(), torch.sigmoid(scale * x)
    """,
    "a parameter by name": """
        def probs(x, *, scale=2):
            return (scale * x).sigmoid()
    """,
    "an object": """
        act = nn.Softmax(dim=-1)


        def probs(x):
            return act(2 * x)
    """,
    "a view": """
        def probs(x):
            return torch.sigmoid(2 * x).view(-1)[:2]
    """,
    "a view of a name's": """
        def probs(x):
            h = 2 * x
            p = torch.sigmoid(h).squeeze(0)
            return p
    """,
    "a sequence": """
        net = nn.Sequential(nn.Tanh(), nn.Sigmoid())


        def probs(x):
            return net(x)
    """,
}
KEPT = {
    "returned on one way only": "def probs(x):\n    if x.sum() > 0:\n        return x.softmax(-1)\n    return x.abs()",
    "read in it too": "def probs(x):\n    p = x.softmax(-1)\n    print(p)\n    return p",
    "of a dimension that is not written": "def probs(x, d=-1):\n    return x.softmax(d)",
    "of any arguments": "def probs(*x):\n    return x[0].softmax(-1)",
    "a part of rows": "def probs(x):\n    return x.softmax(-1)[:2]",
    "another value": "def probs(x):\n    return 1 - x.softmax(-1)",
    "under a context manager": "def probs(x):\n    with torch.no_grad():\n        return x.softmax(-1)",
    "decorated": "@torch.no_grad()\ndef probs(x):\n    return x.softmax(-1)",
    "of another function": "def probs(x):\n    return x.tanh()",
}
CALLED = [
    ("p = probs(x)\nreturn torch.log(p)", "p"),
    ("return torch.log(probs(x))", "probs(x)"),
    ("p = probs(x)  # as ever\nq = p[0]\nreturn torch.log(q)", "q"),
    ("return torch.log(probs((x)).gather(-1, index))", "probs((x)).gather(-1, index)"),
    ("p = probs(x)\nreturn torch.log(1 - p)", "1 - p"),
    ("with torch.no_grad():\n    p = probs(x)\nreturn torch.log(p)", "p"),
]


def moved(text: str, code: str, **others: str) -> list[MovedActivation]:
    texts = {**{f"{name}.py": other for name, other in others.items()}, "m.py": text}
    return list(moved_activations(texts, "m.py", finding(text, code)))


def run(text: str, call: str, **given: Any) -> Any:
    names: dict[str, Any] = {"torch": torch, **given}
    exec(compile(text, "m.py", "exec"), names)
    return eval(call, names)


@pytest.mark.parametrize("kind", RETURNS)
def test_a_function_gives_its_logits_when_asked_and_else_what_it_gave(kind: str) -> None:
    target = "mean, p" if "mean()" in RETURNS[kind] else "p"
    before = f"{HEAD}{textwrap.dedent(RETURNS[kind])}\n\ndef f(x):\n    {target} = probs(x)\n    return torch.log(p)\n"
    after = moved(before, "torch.log(p)")[0].text
    x = torch.tensor([[0.5, -3.0, 200.0]])
    was, still, logits = (
        run(t, c, x=x) for t, c in ((before, "probs(x)"), (after, "probs(x)"), (after, "probs(x, return_logits=True)"))
    )
    pairs = zip(was, still, strict=True) if isinstance(was, tuple) else [(was, still)]
    assert all(torch.equal(one, other) for one, other in pairs)
    last = logits[1] if isinstance(logits, tuple) else logits
    expected = was[1] if isinstance(was, tuple) else was
    assert torch.equal(last.softmax(-1) if "oftmax" in before else last.sigmoid(), expected)


@pytest.mark.parametrize("kind", KEPT)
def test_a_function_that_does_more_stays_as_it_is(kind: str) -> None:
    text = f"{HEAD}{KEPT[kind]}\n\n\ndef f(x):\n    p = probs(x)\n    return torch.log(p)\n"
    assert not moved(text, "torch.log(p)")


@pytest.mark.parametrize(("body", "operand"), CALLED, ids=[body for body, _ in CALLED])
def test_the_caller_computes_the_same_of_the_logits(body: str, operand: str) -> None:
    text = f"{HEAD}def probs(x):\n    return torch.softmax(2 * x, dim=-1)\n\n\ndef f(x, index):\n"
    text += textwrap.indent(body, "    ") + "\n"
    (found,) = moved(text, f"torch.log({operand})")
    given = {"x": torch.tensor([[0.5, -3.0, 200.0]]), "index": torch.tensor([[1]])}
    assert torch.equal(run(text, "f(x, index)", **given), run(found.text, "f(x, index)", **given))
    assert "return_logits=True" in found.text
    site = found.relocated(finding(text, f"torch.log({operand})")).site
    assert site is not None
    place = Place(found.text)
    node = place.node_of(site)
    assert node is not None
    assert place.code(node).startswith("torch.log(")


def test_one_of_several_values_is_taken_apart_as_before() -> None:
    text = HEAD + "def probs(x):\n    return x.mean(), torch.sigmoid(x)\n\n\n"
    text += "def f(x):\n    mean, p = probs(x)\n    return mean + torch.log(p)\n"
    (found,) = moved(text, "torch.log(p)")
    assert "    mean, logits = probs(x, return_logits=True)\n    p = torch.sigmoid(logits)\n" in found.text


def test_a_sequence_is_called_without_its_last_module() -> None:
    text = (
        HEAD
        + "net = nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1))\n\n\ndef f(x):\n    p = net(x)\n    return p.log()\n"
    )
    (found,) = moved(text, "p.log()")
    assert "    logits = net[:-1](x)\n    p = torch.softmax(logits, dim=-1)\n" in found.text
    assert not moved(text.replace("def f", "net = torch.compile(net)\n\n\ndef f"), "p.log()")


def test_a_module_in_another_file_is_edited_there() -> None:
    model = HEAD + "class Net(nn.Module):\n    def forward(self, x):\n        return x.sigmoid()\n"
    text = "import torch\nfrom model import Net\n\nnet = Net()\n\n\ndef f(x):\n    p = net(x)\n    return p.log()\n"
    (found,) = moved(text, "p.log()", model=model)
    assert found.others == (
        (
            "model.py",
            model,
            model.replace("x):", "x, *, return_logits=False):").replace(
                "return x.", "return x if return_logits else x."
            ),
        ),
    )
    assert "logits = net(x, return_logits=True)" in found.text
    # what another class computes is none of its business
    assert not moved(
        text.replace("net = Net()", "class Other(Net):\n    pass\n\n\nnet = Other()"), "p.log()", model=model
    )


def test_what_hands_keywords_on_may_make_something_else_of_the_logits() -> None:
    text = HEAD + "class Net(nn.Module):\n    def forward(self, x):\n        return x.sigmoid()\n\n\n"
    text += "class Half(nn.Module):\n    def forward(self, x{}):\n        return Net()(x{}) / 2\n\n\n"
    text += "def f(x, net):\n    p = net(x)\n    return p.log()\n"
    assert moved(text.format("", ""), "p.log()")
    assert not moved(text.format(", **options", ", **options"), "p.log()")


def test_autocast_around_the_call_alone_would_choose_another_dtype() -> None:
    text = (
        HEAD
        + "def probs(x):\n    return x.softmax(-1)\n\n\n"
        + "def f(x):\n    with {}:\n        p = probs(x)\n    return p.log()\n"
    )
    assert moved(text.format("torch.no_grad()"), "p.log()")
    assert not moved(text.format("torch.autocast('cpu')"), "p.log()")


def test_an_activation_that_nothing_reads_any_more_is_left_out() -> None:
    text = HEAD + "def probs(x):\n    return x.sigmoid()\n\n\ndef f(x):\n    p = probs(x)\n    return p.log()\n"
    (found,) = moved(text, "p.log()")
    line = "    p = torch.sigmoid(logits)\n"
    edited = found.text.replace("p.log()", "logits.logsigmoid()")
    assert found.without_unread(edited) == edited.replace(line, "")
    read = edited.replace("logsigmoid()", "logsigmoid(), p > 0.5")
    assert found.without_unread(read) == read


def test_other_functions_of_the_file_with_a_birth_of_their_own_are_edited_with_it() -> None:
    text = HEAD + "def probs(x):\n    return x.sigmoid()\n\n\n"
    text += "def f(x):\n    p = probs(x)\n    return p.log()\n\n\ndef g(x):\n    q = probs(x)\n    return q.log()\n"
    one, other = finding(text, "p.log()"), finding(text, "q.log()")
    (alone,), (both,) = (list(moved_activations({"m.py": text}, "m.py", one, births)) for births in ([], [one, other]))
    assert (alone.text.count("return_logits=True"), both.text.count("return_logits=True")) == (1, 2)


@pytest.mark.parametrize(
    ("made", "reads"),
    [
        ("Categorical(logits=z)", "torch.softmax(d.logits, dim=-1)"),
        ("Categorical(probs=z.softmax(-1), validate_args=False)", "torch.softmax(d.logits, dim=-1)"),
        ("Bernoulli(logits=z)", "torch.sigmoid(d.logits)"),
        ("Bernoulli(probs=torch.sigmoid(z))", "torch.sigmoid(d.logits)"),
    ],
)
def test_the_probabilities_of_a_distribution_are_computed_of_its_logits(made: str, reads: str) -> None:
    head = HEAD + "from torch.distributions import Bernoulli, Categorical\n\n\n"
    text = f"{head}def drawn(z):\n    return {made}\n\n\ndef f(z):\n    d = drawn(z)\n    return torch.log(d.probs)\n"
    z = torch.tensor([[0.5, -3.0, 20.0]])
    same = [one for one in moved(text, "torch.log(d.probs)") if f"torch.log({reads})" in one.text]
    assert [one.title for one in same] == ["that d gives"]
    assert "probs=" not in same[0].text
    torch.testing.assert_close(run(same[0].text, "f(z)", z=z), run(text, "f(z)", z=z))


def test_the_probabilities_of_all_distributions_that_lead_to_a_birth_are_taken_together() -> None:
    text = f"{HEAD}def f(p, q):\n    return (p.probs * (p.probs.log() - q.probs.log())).sum(-1)\n"
    one, other = finding(text, "p.probs.log()"), finding(text, "q.probs.log()")
    found = list(moved_activations({"m.py": text}, "m.py", one, [one, other]))
    assert [each.text.count(".probs") for each in found] == [1, 1]
    assert found[0].text.count("torch.softmax(p.logits, dim=-1)") == 1


@pytest.mark.parametrize(
    ("beside", "kept"),
    [
        ("sharpness(probs=torch.softmax(z, dim=-1))", "sharpness(probs="),
        ("Categorical(probs=torch.softmax(z, dim=0))", "Categorical(probs=torch.softmax(z, dim=0))"),
        ("Categorical(probs=torch.softmax(z, dim=-1))", ""),
    ],
)
def test_a_distribution_is_given_logits_only_where_that_is_the_same(beside: str, kept: str) -> None:
    head = HEAD + "from torch.distributions import Categorical\n\n\ndef sharpness(probs):\n    return probs.max()\n\n\n"
    made = "Categorical(probs=torch.softmax(z, dim=-1))"
    text = f"{head}def f(z):\n    e = {beside}\n    d = {made}\n    return torch.log(d.probs)\n"
    found = moved(text, "torch.log(d.probs)")[0].text
    assert "d = Categorical(logits=z)" in found
    assert kept in found
    assert ("e = Categorical(logits=z)" in found) is (not kept)


def test_the_probabilities_of_another_branch_stay() -> None:
    text = f"""{HEAD}def f(d, kind):
    if kind:
        h = -torch.log(d.probs).sum(-1)
    else:
        h = -torch.log(d.probs.clamp(0.01, 0.99))
    return h
"""
    found = moved(text, "torch.log(d.probs)")[0].text
    assert "torch.log(torch.softmax(d.logits, dim=-1)).sum(-1)" in found
    assert "torch.log(d.probs.clamp(0.01, 0.99))" in found


GIVEN = {
    "a name": "p = torch.sigmoid(z)\nreturn nll(p, y)",
    "a name that is read elsewhere": "p = torch.sigmoid(z)\nloss = nll(p, y)\nreturn loss + 0 * p.sum()",
    "an expression": "return nll(torch.sigmoid(2 * z), y)",
    "a name for an expression": "p = torch.sigmoid(2 * z)\nreturn nll(p, y)",
    "a name for an expression that is read elsewhere": "p = torch.sigmoid(2 * z)\nreturn nll(p, y) + 0 * p.sum()",
    "by its name": "return nll(y=y, p=torch.sigmoid(z))",
    "a view": "return nll(torch.sigmoid(z)[:2].view(-1), y[:2])",
    "a view of a name": "p = torch.sigmoid(z).unsqueeze(0)\nreturn nll(p.squeeze(0), y)",
    "of a function": "return nll(probs(z), y)",
    "a view of a sum": "return nll(torch.sigmoid(1 + z)[:2], y[:2])",
    "a view of a choice by name": "p = torch.sigmoid(z if y is None else z + 1)[1:]\nreturn nll(p, y[1:])",
    "of several lines": "p = torch.sigmoid(\n    z +  # as it is\n    y\n)\nreturn nll(p, y)",
    "one name twice": "p = torch.sigmoid(2 * z)\nreturn nll(p, y) + nll(p, y * 2)",
    "of two calls of a function": "p = probs(z)\nq = probs(-z)\nreturn nll(p, y) + nll(q, y)",
    "twice": "p = torch.sigmoid(z)\nq = torch.sigmoid(-z)\nreturn nll(p, y) + nll(q, y)",
    "twice by a name": "p = torch.sigmoid(2 * z)\nq = torch.sigmoid(-z * 2)\nreturn nll(p, y) + nll(q, y)",
}
LOSS = '''
def nll(p, y):
    """Of probabilities."""
    return -(y * torch.log(p)).sum()
'''


def given(called: str, *, head: str = HEAD, loss: str = LOSS) -> str:
    producer = "def probs(x):\n    return torch.sigmoid(x + 0)\n"
    return f"{head}{producer}\n{loss}\n\ndef f(z, y):\n{textwrap.indent(called, '    ')}\n"


@pytest.mark.parametrize("kind", GIVEN)
def test_a_function_that_is_given_an_activation_computes_it(kind: str) -> None:
    before = given(GIVEN[kind])
    (found,) = [one for one in moved(before, "torch.log(p)") if "def nll(logits, y):" in one.text]
    assert '"""Of probabilities."""\n    p = torch.sigmoid(logits)\n' in found.text
    z, y = torch.tensor([0.5, -3.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
    assert torch.equal(run(before, "f(z, y)", z=z, y=y), run(found.text, "f(z, y)", z=z, y=y))
    site = found.relocated(finding(before, "torch.log(p)")).site
    assert site is not None
    node = Place(found.text).node_of(site)
    assert node is not None
    assert Place(found.text).code(node) == "torch.log(p)"


@pytest.mark.parametrize("called", ["p = probs(z)\nreturn step(y, p)", "return step(y, torch.sigmoid(z))"])
def test_a_function_that_hands_it_on_hands_on_the_logits(called: str) -> None:
    step = "\n\ndef step(target, p):\n    scaled = 2 * target\n    return nll(p, scaled) + 0 * p.sum()\n"
    before = given(called, loss=LOSS + step)
    found = moved(before, "torch.log(p)")[-1]
    assert "def step(target, logits):\n    p = torch.sigmoid(logits)\n" in found.text
    assert "return nll(logits, scaled) + 0 * p.sum()" in found.text
    z, y = torch.tensor([0.5, -3.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
    assert torch.equal(run(before, "f(z, y)", z=z, y=y), run(found.text, "f(z, y)", z=z, y=y))
    assert not moved(before + "\n\ndef other(y):\n    return step(y, y)\n", "torch.log(p)")


def test_what_nothing_reads_any_more_is_no_longer_computed() -> None:
    (found,) = moved(given(GIVEN["a name"]), "torch.log(p)")
    assert found.text.endswith("def f(z, y):\n    return nll(z, y)\n")
    assert found.title == "that nll is given"


NOT_GIVEN = {
    "another value": "return nll(1 - torch.sigmoid(z), y)",
    "another activation at another call": "return nll(torch.sigmoid(z), y) + nll(z.softmax(-1), y)",
    "a probability at another call": "return nll(torch.sigmoid(z), y) + nll(y, y)",
    "a function that is handed on": "return nll(torch.sigmoid(z), y) + sum(map(nll, y, y))",
    "another context": "with torch.no_grad():\n    p = torch.sigmoid(z)\nreturn nll(p, y)",
    "a part of a row": "return nll(z.softmax(-1)[:2], y[:2])",
    "asked for its gradient": "p = torch.sigmoid(z)\np.retain_grad()\nreturn nll(p, y)",
    "written into": "p = torch.sigmoid(z)\np.mul_(y)\nreturn nll(p, y)",
    "a function of another name too": "loss = nll\nreturn nll(torch.sigmoid(z), y) + loss(y, y)",
    "of another object of that name": "self.nll(y)\nnll = torch.nn.BCELoss()\nreturn nll(torch.sigmoid(z), y)",
    "deleted": "p = torch.sigmoid(z)\nloss = nll(p, y)\ndel p\nreturn loss",
    "differentiated": "p = torch.sigmoid(z)\nreturn torch.autograd.grad(nll(p, y), p)",
    "in a comprehension": "p = torch.sigmoid(z)\nreturn [nll(p, z) for z in y]",
    "beside what writes into its operand": "return nll(torch.sigmoid(z), z.mul_(2))",
    "an operand that may be written into": "p = torch.sigmoid(z[0])\nz[0] = 9.0\nreturn nll(p, y)",
    "an operand that another function is given": "p = torch.sigmoid(z)\nstep(z)\nreturn nll(p, y)",
    "beside another statement on its line": "p = torch.sigmoid(2 * z); q = 3\nreturn nll(p, y) + q",
    "looked up": "return getattr(losses, y.name)(z) + nll(torch.sigmoid(z), y)",
    "arguments that are not written out": "return nll(*(torch.sigmoid(z), y))",
    "set on one of two ways": "p = torch.sigmoid(z)\nif y.sum() > 0:\n    p = y\nreturn nll(p, y)",
}


@pytest.mark.parametrize("called", NOT_GIVEN.values(), ids=NOT_GIVEN)
def test_a_function_that_is_given_more_than_an_activation_stays_as_it_is(called: str) -> None:
    assert not moved(given(called), "torch.log(p)")


def test_a_method_that_a_subclass_overrides_stays_as_it_is() -> None:
    net = "class Net:\n    def score(self, p, y):\n        return -(y * torch.log(p)).sum()\n\n"
    net += "    def step(self, z, y):\n        return self.score(torch.sigmoid(z), y)\n"
    other = "\n\nclass Brier(Net):\n    def score(self, p, y):\n        return ((p - y) ** 2).sum()\n"
    assert moved(HEAD + net, "torch.log(p)")
    assert not moved(HEAD + net + other, "torch.log(p)")
    assert not moved(HEAD + net + "\n\ndef own(net, p, y):\n    return Net.score(net, p, y)\n", "torch.log(p)")


def test_a_function_of_which_there_are_two_stays_as_it_is() -> None:
    text = given(GIVEN["a name"])
    assert moved(text, "torch.log(p)", other="import torch\n")
    assert not moved(text, "torch.log(p)", other="import torch\n\n\ndef nll(p, y):\n    return p\n")
    assert not moved(text, "torch.log(p)", other="from m import nll as score\n\n\nscore(1, 2)\n")


@pytest.mark.parametrize(
    "loss",
    [
        "def nll(p, y):\n    p.clamp_(0.1)\n    return -(y * torch.log(p)).sum()\n",
        "@torch.no_grad()\ndef nll(p, y):\n    return -(y * torch.log(p)).sum()\n",
        "def nll(p, *y):\n    return -(y[0] * torch.log(p)).sum()\n",
        "def nll(p=None, y=None):\n    return -(y * torch.log(p)).sum()\n",
        "def nll(p, y): return -(y * torch.log(p)).sum()\n",
    ],
    ids=["writes into it", "decorated", "of any arguments", "with a default", "on one line"],
)
def test_a_function_that_may_be_called_otherwise_stays_as_it_is(loss: str) -> None:
    assert not moved(given(GIVEN["a name"], loss=loss), "torch.log(p)")


MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)

    def forward(self, x):
        return torch.softmax(self.body(x), dim=-1)
"""
CRITERION = """import torch
from torch import nn


class SoftLoss(nn.Module):
    def __init__(self):
        super(SoftLoss, self).__init__()

    def forward(self, probs, y):
        return -(y * torch.log(probs)).sum()
"""
TRAINING = """import torch
from model import Net
from m import SoftLoss


def validate(net, criterion, x, y):
    with torch.no_grad():
        return criterion(net(x), y)


def train(net, criterion, x, y):
    net.train()
    out = net(x)
    return criterion(out, y), out.argmax(-1)


def main(x, y):
    net = Net()
    criterion = SoftLoss().to(x.device)
    return train(net, criterion, x, y), validate(net, criterion, x, y)
"""


def in_three_files(training: str = TRAINING, criterion: str = CRITERION) -> list[MovedActivation]:
    return moved(criterion, "torch.log(probs)", model=MODEL, train=training)


def test_a_loss_in_a_file_of_its_own_is_given_the_logits_of_a_model_by_a_third() -> None:
    (found,) = in_three_files()
    after = {path: text for path, _, text in found.others}
    assert found.title == "that Net.forward gives"
    assert "def forward(self, logits, y):\n        probs = torch.softmax(logits, dim=-1)\n" in found.text
    assert "return logits if return_logits else torch.softmax(logits, dim=-1)" in after["model.py"]
    assert "logits = net(x, return_logits=True)\n        return criterion(logits, y)" in after["train.py"]
    assert "out = torch.softmax(logits, dim=-1)\n    return criterion(logits, y), out.argmax(-1)" in after["train.py"]


@pytest.mark.parametrize(
    "training",
    [
        TRAINING.replace("return train(", "return save(criterion), train("),
        TRAINING.replace("train(net, criterion, x, y)", "train(net, lambda p, t: criterion(p, t), x, y)"),
        TRAINING.replace("def train(net, criterion,", "def train(net, loss,").replace(
            "criterion(out, y)", "loss(out, y)"
        ),
        TRAINING + "\n\nclass Other(SoftLoss):\n    pass\n",
        TRAINING + "\n\ndef other(net, x, y):\n    return train(net, torch.nn.BCELoss(), x, y)\n",
        TRAINING + "\n\ndef other(net, criterion, x, y):\n    return criterion(net(x), y)\n",
        TRAINING + "\n\nclass Kept:\n    def __init__(self, loss):\n        self.criterion = loss\n",
        TRAINING.replace("return train(", "return Trainer(criterion=criterion), train("),
        TRAINING + "\n\ndef chosen(losses, name):\n    return getattr(losses, name)\n",
        TRAINING.replace("import SoftLoss", "import SoftLoss, SoftLoss as Soft"),
        TRAINING.replace("SoftLoss().to", "make(SoftLoss)().to"),
    ],
    ids=[
        "is given to something unknown",
        "is called in a lambda",
        "has another name there",
        "is a base",
        "is another at another call",
        "is given by nobody",
        "is set to something else",
        "is given to a library",
        "may be looked up",
        "has another name",
        "is made elsewhere",
    ],
)
def test_a_loss_that_may_be_called_elsewhere_stays_as_it_is(training: str) -> None:
    assert not in_three_files(training)


def test_a_model_that_may_be_the_loss_is_not_asked_for_logits() -> None:
    """``net(x)`` may then be a call of either."""
    assert not in_three_files(criterion=CRITERION.replace("probs, y", "probs, y=1.0"))
