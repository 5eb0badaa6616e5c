"""Fixes are shown with a verdict that the program itself has given."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import whynan
from tests.made_anew import check
from whynan.capsule import open_capsule
from whynan.fixes.candidates import Candidate, Formula
from whynan.fixes.diffs import apply_diff, read_diff
from whynan.records import APPLICABLE, FixVerdict, Report
from whynan.report.notes import sentence
from whynan.run.fix import user_fix as trial
from whynan.run.proof import local_proof
from whynan.run.proof.local_proof import judge_edit
from whynan.run.proof.proving import prove_fixes
from whynan.run.proof.reruns import NoRerun
from whynan.run.proof.trials import RankedCandidate
from whynan.verify.in_place import visits as visiting_module
from whynan.verify.in_place.visits import Visit, Visits, record_visits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records.intents import FixKind

ENTROPY = """import torch


def loss(x, y):
    p = torch.softmax(x, dim=-1)
    return -(y * torch.log(p)).sum(dim=-1).mean()


def target(x, y):
    out = loss(x, y)
    out.backward()
    return out
"""
STEPWISE = """import torch


def target(x):
    p = torch.softmax(x, dim=-1)
    q = torch.log(p)
    return q
"""
MODULE = """import torch

net = torch.nn.Linear(2, 1, bias=False)
net.weight.data.fill_(1.0)


def target(x):
    p = torch.sigmoid(net(x))
    return torch.log(p)
"""
TRAINING = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = self.lin(x)
        return torch.sqrt((h * h).sum(-1))


torch.manual_seed(0)
net = Net()
net.lin.bias.data.zero_()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
for step in range(4):
    x = torch.randn(5, 3)
    if step == BAD:
        x[1] = 0
    optimizer.zero_grad()
    loss = net(x).mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), torch.rand(1).item())
"""
RECURRENCE = """import torch

lse = lambda t, dim: torch.log(torch.exp(t).sum(dim))


def target(emissions, transitions):
    alpha = START
    for emitted in emissions:
        alpha = lse(alpha[:, None] + transitions + emitted, 0)
    alpha.sum().backward()
    return alpha
"""
TWOFOLD = TRAINING.replace(
    "        return torch.sqrt((h * h).sum(-1))",
    "        length = torch.sqrt((h * h).sum(-1))\n        return torch.log(length)",
)
LOOP = TRAINING.replace("loss = net(x).mean()", "loss = torch.sqrt(net.lin(x).pow(2).sum(-1)).mean()")


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.tensor([[0.0, 200.0, 1.0], [1.0, 2.0, 3.0]], requires_grad=True)
    return x, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@pytest.mark.proof
def test_a_second_run_proves_the_fix_and_leaves_everything_as_it_was(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(ENTROPY)
    x, y = inputs()
    code, state = module.loss.__code__, torch.get_rng_state()
    report = whynan.explain(module.target, x, y, rerun=True)
    best = report.findings[0].fixes[0]
    assert best.verdict.status == "verified"
    assert best.patch is not None
    assert "+    return -(y * torch.log_softmax(x, -1)).sum(dim=-1).mean()" in best.patch
    assert module.loss.__code__ == code
    assert torch.equal(torch.get_rng_state(), state)
    assert Path(str(module.__file__)).read_text() == ENTROPY
    assert all(finding.around is None for finding in report.findings)


def test_without_a_second_run_a_fix_is_unverified_and_the_report_says_why(
    loaded: Callable[[str], ModuleType],
) -> None:
    report = whynan.explain(loaded(ENTROPY).target, *inputs())
    verdicts = {(fix.verdict.status, fix.verdict.why) for finding in report.findings for fix in finding.fixes}
    assert verdicts == {("unverified", "the target was called once: explain(..., rerun=True) proves fixes")}


def test_a_proof_that_has_no_time_left_says_so_and_which_option_gives_it_more(
    loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYNAN_PROOF_SECONDS", "1e-9")
    report = whynan.explain(loaded(ENTROPY).target, *inputs(), rerun=True)
    assert not any(fix.verdict.status in APPLICABLE for finding in report.findings for fix in finding.fixes)
    (note,) = report.coverage.notes_of("proof_ended")
    assert sentence(note).endswith("(--proof-seconds)")


def test_an_absorbed_birth_has_no_fix(loaded: Callable[[str], ModuleType]) -> None:
    text = "import torch\n\n\ndef target(x):\n    return torch.where(x > 0, x.log(), 0.0)\n"
    report = whynan.explain(loaded(text).target, torch.tensor([0.0, 1.0]), rerun=True)
    assert report.findings == ()
    assert all(finding.fixes == () for finding in report.absorbed)


@pytest.mark.proof
@pytest.mark.parametrize(("start", "steps"), [("torch.zeros(4)", 160), ("torch.tensor([0.0, *[-torch.inf] * 3])", 60)])
def test_what_a_recurrence_has_made_of_a_failure_is_no_failure_of_its_own(
    start: str, steps: int, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(RECURRENCE.replace("START", start))
    torch.manual_seed(0)
    emissions = (torch.randn(steps, 4) * 2 + 1).requires_grad_()
    report = whynan.explain(module.target, emissions, torch.zeros(4, 4, requires_grad=True), rerun=True)
    told = [(fix.verdict.status, fix.title) for fix in report.findings[0].fixes]
    assert told[0] == ("verified", "logsumexp(x) instead of log(sum(exp(x)))"), told


@pytest.mark.proof
@pytest.mark.parametrize("names", [("input", "target"), ("max", "min"), ("range", "F")])
def test_names_that_hide_builtins_are_the_functions_own(
    names: tuple[str, str], loaded: Callable[[str], ModuleType]
) -> None:
    one, other = names
    text = f"import torch\nimport torch.nn.functional as F\n\n\ndef target({one}, {other}):\n"
    text += f"    return ({one} - {other}).square().mean().sqrt()\n"

    def program(given: torch.Tensor) -> None:
        module.target(given, torch.ones(3)).backward()

    module = loaded(text)
    report = whynan.explain(program, torch.ones(3, requires_grad=True), rerun=True)
    assert report.findings[0].fixes[0].verdict.status == "verified", report.findings[0].fixes


def test_a_file_that_has_changed_has_no_fix(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(ENTROPY)
    report = whynan.explain(module.target, *inputs())
    bare = report.model_copy(update={"findings": tuple(f.model_copy(update={"fixes": ()}) for f in report.findings)})
    with open(str(module.__file__), "a") as file:
        file.write("\n")
    assert all(finding.fixes == () for finding in prove_fixes(bare, NoRerun("never")).findings)


@pytest.mark.proof
@pytest.mark.parametrize("rerun", [True, False])
def test_a_capsule_of_a_call_that_is_made_again_holds_what_its_function_read(
    loaded: Callable[[str], ModuleType], tmp_path: Path, *, rerun: bool
) -> None:
    module = loaded(STEPWISE)
    x, _ = inputs()
    whynan.explain(module.target, x, rerun=rerun, capsule=tmp_path / "c")
    held = open_capsule(tmp_path / "c")
    if not rerun:
        assert held.visits is None
        return
    assert held.visits is not None
    assert held.visits.function == "target"
    after = STEPWISE.replace("q = torch.log(p)", "q = torch.log_softmax(x, dim=-1)")
    assert judge_edit(STEPWISE, after, str(module.__file__), held.finding, held.visits).status == "verified"


def test_a_capsule_holds_what_was_read_where_no_fix_can_be_written(
    loaded: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> list[Candidate]:
        return []

    monkeypatch.setattr("whynan.fixes.python.candidates", none)
    module = loaded("import torch\n\n\ndef target(x):\n    return torch.log(x)\n")
    report = whynan.explain(module.target, torch.zeros(3), rerun=True, capsule=tmp_path / "c")
    assert not any(fix.patch for fix in report.findings[0].fixes)
    held = open_capsule(tmp_path / "c")
    assert held.visits is not None
    assert torch.equal(held.visits.visits[-1].values["x"], torch.zeros(3))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("edit", "status"),
    [
        ("torch.log_softmax(x, dim=-1)", "verified"),
        ("torch.log(p + 1e-3)", "rejected"),
        ("torch.log(p.detach() + 0 * x)", "rejected"),
        ("torch.log(p)", "unverified"),
        ("torch.nan_to_num(torch.log(p))", "rejected"),
    ],
)
def test_somebodys_own_edit_is_judged_on_the_visits(
    loaded: Callable[[str], ModuleType], edit: str, status: str
) -> None:
    module = loaded(STEPWISE)
    x, _ = inputs()
    report = whynan.explain(module.target, x)
    path = str(module.__file__)
    with record_visits(path, STEPWISE, 6) as (recorder, _):
        module.target(x)
    after = STEPWISE.replace("q = torch.log(p)", f"q = {edit}  # mended")
    assert judge_edit(STEPWISE, after, path, report.findings[0], recorder.visits).status == status


@pytest.mark.proof
def test_what_a_module_gives_is_known_where_the_root_stands_behind_it(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(MODULE)
    report = whynan.explain(module.target, torch.tensor([[-300.0, 100.0], [0.5, 0.25]]), rerun=True)
    best = report.findings[0].fixes[0]
    assert best.verdict.status == "verified", best
    assert "sigmoid(" in str(best.patch)
    assert "torch.log(p)" not in [line[1:].strip() for line in str(best.patch).splitlines() if line[:1] == "+"]


MODULE_GIVES = """import torch


class Discriminator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 1)
        with torch.no_grad():
            self.lin.weight.fill_(10.0)

    def forward(self, x):
        return torch.sigmoid(self.lin(x))


judge = Discriminator()


def target(x):
    return torch.log(1 - judge(x))
"""


@pytest.mark.full
def test_a_guard_behind_what_a_module_has_rounded_is_not_verified(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.tensor([[1.0, 1.0], [0.1, 0.05]])
    report = whynan.explain(loaded(MODULE_GIVES).target, x, rerun=True)
    best, least, *guards = report.findings[0].fixes
    # what is taken of the logits is no guard
    assert best.verdict.status == "verified", best
    assert "logsigmoid(-judge(x, return_logits=True))" in str(best.patch) or "logsigmoid(-logits)" in str(best.patch)
    assert {guard.verdict.status for guard in guards} == {"unverified"}
    assert all(guard.verdict.why.startswith("what comes in was rounded on its way") for guard in guards)
    # the least that 1 - p can be is as near as what came in tells, and is stated
    assert least.verdict.status == "guarded"
    assert [given.lack for given in least.verdict.stand_ins] == ["unknown"]


CORRELATION = """import torch


def correlation(x, y):
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return (x * y).sum(1) / (torch.sqrt((x**2).sum(1)) * torch.sqrt((y**2).sum(1)))


def target(x, y):
    loss = 1 - correlation(torch.relu(x), y).mean()
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_a_derivative_that_the_program_leaves_out_is_mended_too(loaded: Callable[[str], ModuleType]) -> None:
    drawn = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, 5, generator=drawn) for _ in range(2))
    x[3] = -1.0
    report = whynan.explain(loaded(CORRELATION).target, x.requires_grad_(), y, rerun=True)
    best = report.findings[0].fixes[0]
    assert (best.verdict.status, len(best.further)) == ("guarded", 1)


POSES = """import torch
import whynan

torch.manual_seed(0)
goal = torch.randn(5, 3) * 0.1
turns = torch.nn.Parameter(torch.tensor([[1.0, 0.0, 0.0, 0.0]]).repeat(5, 1))
optimizer = torch.optim.Adam([turns], lr=1e-2)


def logarithm(q):
    w, v = q[:, :1], q[:, 1:]
    size = v.norm(dim=-1, keepdim=True).clamp(min=1e-8)
    return v * torch.acos(w.clamp(-1, 1)) / size


def train():
    with whynan.watch(optimizer, quiet=True) as watched:
        for _ in range(4):
            optimizer.zero_grad()
            ((logarithm(turns) - goal) ** 2).mean().backward()
            optimizer.step()
    return watched.report
"""


@pytest.mark.full
def test_where_a_selection_is_not_all_that_is_wrong_the_operation_itself_is_mended(
    loaded: Callable[[str], ModuleType],
) -> None:
    (finding,) = loaded(POSES).train().findings
    assert (finding.rule, "WN402" in finding.matched) == ("WN510", True)
    patches = [fix.patch for fix in finding.fixes]
    assert len({*patches}) == len(patches)
    known = {fix.title: fix.verdict.status for fix in finding.fixes}
    assert known["a gradient of 0 at the ends of the domain and beyond"] == "guarded"


DISTANCES = """import torch


def distances(image, h=0.35):
    near = torch.nn.functional.conv2d(image, torch.full((1, 1, 3, 3), 0.5), padding=1)
    far = -h * torch.log(near)
    return far.nan_to_num(posinf=0.0)


def target(x):
    loss = distances(x).mean()
    loss.backward()
    return loss
"""


@pytest.mark.proof
@pytest.mark.parametrize(("instead", "status"), [(0.0, "verified"), (3.0, "rejected")])
def test_what_nan_to_num_leaves_out_is_judged_with_it(
    loaded: Callable[[str], ModuleType], instead: float, status: str
) -> None:
    drawn = torch.Generator().manual_seed(0)
    x = torch.rand(1, 1, 6, 6, generator=drawn)
    x[..., 3:, 3:] = 0.0
    code = DISTANCES.replace("posinf=0.0", f"posinf={instead}")
    (finding,) = whynan.explain(loaded(code).target, x.requires_grad_(), rerun=True).findings
    assert finding.rule == "WN510"
    known = {fix.title: fix.verdict.status for fix in finding.fixes}
    assert known["1 instead of 0 in the logarithm"] == status
    # the negative of a number is no mask
    assert not [title for title in known if "-h leaves" in title]


@pytest.mark.proof
def test_what_is_chosen_by_rounded_numbers_is_exact(loaded: Callable[[str], ModuleType]) -> None:
    chosen = "p = torch.sigmoid(self.lin(x))\n        return torch.zeros_like(p).index_fill_(0, p.argmax(0), 1.0)"
    code = MODULE_GIVES.replace("return torch.sigmoid(self.lin(x))", chosen)
    x = torch.tensor([[1.0, 1.0], [0.1, 0.05]])
    report = whynan.explain(loaded(code).target, x, rerun=True)
    assert "guarded" in {fix.verdict.status for fix in report.findings[0].fixes}
    assert not [fix for fix in report.findings[0].fixes if fix.verdict.why.startswith("what comes in was rounded")]


@pytest.mark.full
def test_so_is_a_guard_of_the_users_own_on_what_a_capsule_holds(
    loaded: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    last = "    d = judge(x)\n    return torch.log(1 - d)"
    program = MODULE_GIVES.replace("    return torch.log(1 - judge(x))", last)
    after = program.replace("torch.log(1 - d)", "torch.log((1 - d).clamp(min=1e-37))")
    module, x = loaded(program), torch.tensor([[1.0, 1.0], [0.1, 0.05]])
    report = whynan.explain(module.target, x, rerun=True, capsule="c")
    name = Path(str(module.__file__)).name
    diff = difflib.unified_diff(program.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    Path("my.diff").write_text("".join(diff))
    verdict = trial.judge_diff(Report.from_json(report.to_json()), "my.diff", "c").verdict
    assert verdict.status == "unverified"
    assert verdict.why.startswith("what comes in was rounded on its way")


SOFTMAX = """import torch


def target(x):
    e = torch.exp(x)
    s = e.sum(-1, keepdim=True)
    p = e / s
    return p
"""
LARGE = {
    "exp": torch.tensor([[100.0, 88.5, 1.0], [1.0, 2.0, 3.0]]),
    "sum": torch.tensor([[88.0, 88.5, 1.0], [1.0, 2.0, 3.0]]),
    "sum of float16": torch.tensor([[11.0, 10.9, 1.0], [1.0, 2.0, 3.0]], dtype=torch.float16),
    "division": torch.tensor([[-200.0, -250.0, -200.0], [1.0, 2.0, 3.0]]),
}


@pytest.mark.proof
@pytest.mark.parametrize("born", LARGE)
def test_a_softmax_by_hand_is_mended_wherever_its_root_is(loaded: Callable[[str], ModuleType], born: str) -> None:
    report = whynan.explain(loaded(SOFTMAX).target, LARGE[born], rerun=True)
    harmful = [*report.findings, *report.damaging]
    best = harmful[0].fixes[0]
    assert best.verdict.status == "verified", best
    assert "softmax(" in str(best.patch)


@pytest.mark.proof
def test_an_edit_whose_own_overflow_makes_a_finite_number_wrong_is_rejected(
    loaded: Callable[[str], ModuleType],
) -> None:
    # the row of two greatest numbers sums to Inf, and its shares would be 0 where they are 0.5
    x = torch.tensor([[100.0, 100.0, 1.0], [1.0, 2.0, 3.0]])
    report = whynan.explain(loaded(SOFTMAX.replace("e / s", "e / (s + 1)")).target, x, rerun=True)
    guards = [fix for fix in report.findings[0].fixes if fix.title.startswith("the largest")]
    assert len(guards) == 2
    for guard in guards:
        assert guard.verdict.status == "rejected"
        assert guard.verdict.why.startswith("run with it, the program gives Inf at ")
        assert guard.verdict.why.endswith("which makes a finite number wrong")


HIDDEN = """import torch


def target(x, y):
    e = torch.exp(x)
    s = (y * y).sum()
    return e, s.rsqrt()
"""


@pytest.mark.proof
def test_what_was_harm_before_an_edit_is_not_its_doing(loaded: Callable[[str], ModuleType]) -> None:
    report = whynan.explain(loaded(HIDDEN).target, torch.tensor([100.0, 1.0]), torch.tensor([1e20, 1e20]), rerun=True)
    assert [f.site.code for f in report.findings if f.site] == ["torch.exp(x)"]
    assert [f.site.code for f in report.damaging if f.site] == ["y * y"]
    assert [f.verdict.status for f in report.findings[0].fixes] == ["guarded", "guarded", "rejected", "rejected"]


@pytest.mark.proof
@pytest.mark.parametrize("born", LARGE)
@pytest.mark.parametrize(
    ("edit", "right"),
    [
        ("torch.exp(x - x.max(-1, keepdim=True).values)", True),
        ("torch.exp(x - x.amax(-1, keepdim=True))", True),
        ("torch.exp(x - x.amax(0, keepdim=True))", False),
        ("torch.exp(x.clamp(max=80.0))", False),
    ],
)
def test_an_edit_whose_difference_cancels_further_on_is_judged_there(
    loaded: Callable[[str], ModuleType], born: str, edit: str, right: bool
) -> None:
    module, x = loaded(SOFTMAX), LARGE[born]
    report = whynan.explain(module.target, x)
    finding = [*report.findings, *report.damaging][0]
    assert finding.site is not None
    with record_visits(str(module.__file__), SOFTMAX, finding.site.line) as (recorder, _):
        module.target(x)
    after = SOFTMAX.replace("torch.exp(x)", edit)
    verdict = judge_edit(SOFTMAX, after, str(module.__file__), finding, recorder.visits)
    assert (verdict.status == "verified") is right, verdict


@pytest.mark.proof
@pytest.mark.parametrize("statement", ["print('asked')", "global CALLS; CALLS += 1"])
def test_what_a_function_of_the_program_does_is_not_done_for_every_input(
    loaded: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    text = "import torch\n\nCALLS = 0\n\n\ndef temperature():\n    " + statement + "\n    return 0.5\n\n\n"
    text += "def target(x):\n    return torch.log(torch.softmax(x / temperature(), dim=-1))\n"
    module = loaded(text)
    report = whynan.explain(module.target, torch.tensor([[500.0, -500.0]]), rerun=True)
    assert report.findings[0].fixes[0].verdict.status == "verified"
    printed = capsys.readouterr().out.count("asked")
    assert module.CALLS <= 8
    assert printed <= 8


@pytest.mark.proof
def test_a_function_of_another_file_is_run_only_with_the_program(
    loaded: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asked_elsewhere.py").write_text("ASKED = []\n\n\ndef tau():\n    ASKED.append(1)\n    return 0.5\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = "import torch\nfrom asked_elsewhere import tau\n\n\n"
    module = loaded(text + "def target(x):\n    return torch.log(torch.softmax(x / tau(), dim=-1))\n")
    report = whynan.explain(module.target, torch.tensor([[500.0, -500.0]]), rerun=True)
    asked = sys.modules.pop("asked_elsewhere").ASKED
    assert report.findings[0].fixes[0].verdict.status == "verified"
    assert len(asked) <= 8


@pytest.mark.proof
def test_a_generator_of_the_program_draws_on_as_after_one_call(loaded: Callable[[str], ModuleType]) -> None:
    text = "import torch\n\ngen = torch.Generator().manual_seed(3)\n\n\n"
    text += "def target(x):\n    return torch.log(torch.softmax(x + torch.rand(2, generator=gen), dim=-1))\n"
    module, x = loaded(text), torch.tensor([[500.0, -500.0]])
    module.target(x)
    wanted = module.gen.get_state()
    module.gen.manual_seed(3)
    report = whynan.explain(module.target, x, rerun=True)
    assert report.findings[0].fixes[0].verdict.status == "verified"
    assert torch.equal(module.gen.get_state(), wanted)


@pytest.mark.parametrize(
    ("x", "advice"),
    [
        (torch.tensor([300.0], dtype=torch.float16), "torch.autocast with dtype=torch.bfloat16"),
        (torch.tensor([1e20]), "operands scaled down before this operation, or float64 for it"),
    ],
    ids=["float16", "float32"],
)
def test_a_setting_is_advised_where_it_helps(loaded: Callable[[str], ModuleType], x: torch.Tensor, advice: str) -> None:
    report = whynan.explain(loaded("def target(x):\n    return x * x\n").target, x)
    (setting,) = [fix for fix in report.findings[0].fixes if fix.kind == "setting"]
    assert setting.title.startswith(advice)


def test_two_errors_of_one_proof_are_one_warning(
    loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    monkeypatch.setattr("whynan.verify.verdict.judge", failing)
    module = loaded(ENTROPY)
    with pytest.warns(RuntimeWarning, match="met an error of its own") as warned:
        report = whynan.explain(module.target, *inputs(), rerun=True)
    assert len(warned) == 1
    fixes = [fix for fix in report.findings[0].fixes if fix.patch is not None]
    assert len(fixes) > 1
    assert {fix.verdict.status for fix in fixes} == {"unverified"}


def run(tmp_path: Path, text: str, *options: str) -> tuple[dict[str, Any], str]:
    """A program under ``whynan run``: its report, and what it printed."""
    script, document = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(text)
    command = [sys.executable, "-m", "whynan", "run", "--json", str(document), *options, str(script)]
    environment = {**os.environ, "WHYNAN_RAISE_INTERNAL": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    return json.loads(document.read_text()), ended.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "bad", "options"),
    [
        pytest.param(TRAINING, 2, ("--mode", "watch"), id="watched"),
        pytest.param(TRAINING, 0, (), id="first step"),
        pytest.param(LOOP, 2, (), id="in the loop itself"),
    ],
)
def test_a_bad_step_of_a_training_is_mended_on_the_way_of_its_replay(
    tmp_path: Path, text: str, bad: int, options: tuple[str, ...]
) -> None:
    text = text.replace("BAD", str(bad))
    report, printed = run(tmp_path, text, *options, "--capsule", str(tmp_path / "c"))
    assert len(printed.splitlines()) == bad
    (finding,) = report["findings"]
    held = open_capsule(tmp_path / "c").visits
    assert held is not None
    assert finding["site"]["line"] in {visit.line for visit in held.visits}
    best = finding["fixes"][0]
    assert best["verdict"]["status"] == "verified", best["verdict"]
    (tmp_path / "fix.patch").write_text(best["patch"])
    subprocess.run(["git", "apply", "--check", "fix.patch"], cwd=tmp_path, check=True)
    assert any(fix["verdict"]["status"] == "rejected" for fix in finding["fixes"])


@pytest.mark.full
def test_a_fix_of_several_edits_says_what_else_it_mends_and_is_made_whole(tmp_path: Path) -> None:
    report, _ = run(tmp_path, TWOFOLD.replace("BAD", "2"))
    first = report["findings"][0]
    best = first["fixes"][0]
    assert best["verdict"]["status"] == "guarded", best["verdict"]
    (further,) = best["further"]
    assert further["site"]["code"] == "torch.sqrt((h * h).sum(-1))"
    assert further["phase"] == "backward"
    command = [sys.executable, "-m", "whynan", "fix", "report.json", "--apply", "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    ended = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert len(ended.stdout.splitlines()) == 4
    again, _ = run(tmp_path, (tmp_path / "train.py").read_text())
    assert again["verdict"] == "clean"


TWO = """import torch


def first(x):
    return torch.log(torch.softmax(x, -1)).mean()


def second(y):
    return torch.sqrt((y * y).sum())


def target(x, y):
    loss = first(x) + second(y)
    loss.backward()
    return loss
"""


def bad_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([0.0, 300.0], requires_grad=True), torch.zeros(3, requires_grad=True)


@pytest.mark.full
def test_two_bugs_are_mended_by_one_fix_after_which_the_run_is_finite(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(TWO)
    best = whynan.explain(module.target, *bad_inputs(), rerun=True).findings[0].fixes[0]
    assert (best.verdict.status, len(best.further)) == ("verified", 1)
    assert best.patch is not None
    edited = apply_diff(read_diff(best.patch), TWO)
    x, y = bad_inputs()
    assert loaded(edited).target(x, y).isfinite()
    assert all(bool(g.isfinite().all()) for g in (x.grad, y.grad) if g is not None)


ODDS = """import torch


def target(v):
    return torch.log((1 + v) / (1 - v)) / 2
"""


@pytest.mark.full
def test_two_edits_of_one_formula_give_no_number_of_the_other_sign(loaded: Callable[[str], ModuleType]) -> None:
    """The guard of the logarithm would take the 0 that another one gives for the quotient, where that is infinite."""
    v = torch.tensor([0.3, 1.0, -0.5, -1.0, 0.9])
    finding = whynan.explain(loaded(ODDS).target, v, rerun=True).findings[0]
    held = [fix for fix in finding.fixes if fix.verdict.status in APPLICABLE]
    assert held
    for fix in held:
        given = loaded(apply_diff(read_diff(fix.patch or ""), ODDS)).target(v)
        assert given[1] > 0 > given[3]


@pytest.mark.full
def test_a_fix_beside_which_a_bug_stays_that_none_mends_is_not_verified(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(TWO.replace("torch.sqrt((y * y).sum())", "(y * float('inf')).sum()"))
    fixes = whynan.explain(module.target, *bad_inputs(), rerun=True).findings[0].fixes
    told = {fix.title: fix.verdict for fix in fixes}["log_softmax(x) instead of log(softmax(x))"]
    assert told.status == "unverified"
    assert told.why.startswith("it holds on the captured operands, but another finding remains: NaN at ")
    assert not any(fix.verdict.status == "verified" for fix in fixes)


NEXT_LINE = """import torch


def logarithm(x):
    return torch.log(x)


def target(x):
    given = logarithm(x)
    y = torch.exp(-2 * given)
    loss = (y - y.max()).sum()
    loss.backward()
    return loss
"""


@pytest.mark.proof
@pytest.mark.parametrize("moved", [True, False])
def test_a_guard_that_moves_the_failure_to_the_next_line_is_not_verified(
    loaded: Callable[[str], ModuleType], moved: bool
) -> None:
    module = loaded(NEXT_LINE if moved else NEXT_LINE.replace("torch.exp(-2 * given)", "given * 2"))
    report = whynan.explain(module.target, torch.tensor([0.0, 1.0, 2.0], requires_grad=True), rerun=True)
    told = {fix.title: fix.verdict for fix in report.findings[0].fixes}
    found = told["the smallest normal number instead of 0 in the logarithm"]
    assert (found.status, " behind it, the program gives Inf at " in found.why) == (
        ("unverified", True) if moved else ("guarded", False)
    )


@pytest.mark.full
@pytest.mark.parametrize("kept", [8, 0])
def test_a_fix_is_judged_on_the_visit_that_failed_and_not_on_those_after_it(
    loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    # each iteration is visited at several lines, so that of the first nothing would be left
    monkeypatch.setattr(visiting_module, "_MOST_VISITS", 256)
    monkeypatch.setattr(visiting_module, "_KEPT_BEFORE_BAD", kept)
    report = whynan.explain(loaded(BY_HAND).target, torch.ones(3), rerun=True)
    verdicts = [fix.verdict for fix in report.findings[0].fixes]
    assert (verdicts[0].status == "verified") == (kept == 8), verdicts


BY_HAND = """import torch


def target(w):
    w.requires_grad_()
    for step in range(140):
        x = torch.full((2, 3), 1.0 + step % 7)
        if step == 30:
            x[1] = 0.0
        d = torch.sqrt(((x * w) ** 2).sum(-1))
        loss = d.mean()
        loss.backward()
        w.data -= 1e-4 * w.grad
        w.grad = None
    return loss
"""


def test_what_computes_the_same_is_offered_before_a_guard_that_moves_less() -> None:
    formula = Formula((), (), 1, "return 0")

    def one(kind: FixKind, status: str, worse: int) -> RankedCandidate:
        candidate = Candidate(f"{kind}, {status}, {worse}", kind, "train.py", "", formula, formula)
        return RankedCandidate(candidate, FixVerdict.model_validate({"status": status, "healthy_worse": worse}))

    best_first = [
        one("reformulation", "verified", 1),
        one("reformulation", "verified", 5),
        one("guard", "verified", 0),
        one("epsilon", "distorting", 3),
        one("reformulation", "unverified", 0),
        one("reformulation", "rejected", 0),
    ]
    shuffled = best_first[::-1]
    assert sorted(shuffled, key=lambda judged: judged.rank) == best_first


BEHIND = """import torch


def directions(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def weighted(rows):
    total = rows.abs().sum(1, keepdim=True)
    return rows * torch.tanh(total) / total


def target(x):
    return weighted(directions(x)).sum()
"""


@pytest.mark.full
def test_what_the_first_birth_hides_in_another_function_is_mended_with_it(loaded: Callable[[str], ModuleType]) -> None:
    """What came there was NaN in the first run; with the first edit it is 0, and fails by itself."""
    module = loaded(BEHIND)
    report = whynan.explain(module.target, torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True), rerun=True)
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == "guarded"
    assert [further.rule for further in fix.further] == ["WN115"]
    assert check(report) >= 1


PLAYERS = """import torch

torch.manual_seed(0)
judge = torch.nn.Linear(2, 1)
maker = torch.nn.Linear(3, 2)
slow = torch.optim.SGD(judge.parameters(), lr=0.01)
fast = torch.optim.SGD(maker.parameters(), lr=0.01)
for turn in range(4):
    made = maker(torch.randn(8, 3))
    right = torch.sigmoid(judge(torch.randn(8, 2) + 1))
    wrong = torch.sigmoid(judge(made.detach() * (900 if turn == 3 else 1)))
    loss = -(torch.log(right + 1e-6) + torch.log(1 - wrong)).mean()
    slow.zero_grad()
    loss.backward()
    slow.step()
    fooled = torch.sigmoid(judge(made * (900 if turn == 2 else 1)))
    gain = torch.log(1 - fooled).mean()
    fast.zero_grad()
    gain.backward()
    fast.step()
    print(turn)
"""


@pytest.mark.full
def test_what_a_first_edit_leaves_to_another_optimizers_later_step_is_mended_with_it(tmp_path: Path) -> None:
    """The graph of what both players read is gone by the bad step: the program is run again from its start."""
    report, printed = run(tmp_path, PLAYERS)
    assert len(printed.split()) >= 2
    finding = report["findings"][0]
    assert "fooled" in finding["site"]["code"]
    assert report["run"]["replay"]["faithful"]
    best = finding["fixes"][0]
    assert best["verdict"]["status"] == "verified", best["verdict"]
    assert [further["site"]["code"] for further in best["further"]] == ["torch.log(1 - wrong)"]
    (tmp_path / "fix.patch").write_text(best["patch"])
    subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
    mended, _ = run(tmp_path, (tmp_path / "train.py").read_text())
    assert mended["verdict"] == "clean"


DIVERGENCE = """import torch

torch.manual_seed(0)
gate = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Sigmoid())
optimizer = torch.optim.SGD(gate.parameters(), lr=0.05)
x = torch.randn(8, 6) * torch.tensor([1000.0] + [1.0] * 7)[:, None]
for turn in range(2):
    p = gate(x)
    loss = (p * torch.log(p / 0.1) + (1 - p) * torch.log((1 - p) / 0.9)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.full
def test_what_an_edit_leaves_in_its_own_line_of_a_training_is_mended_with_it(tmp_path: Path) -> None:
    report, _ = run(tmp_path, DIVERGENCE)
    guarded = [fix for fix in report["findings"][0]["fixes"] if fix["verdict"]["status"] == "guarded"]
    assert guarded
    assert all(len(fix["further"]) == 1 for fix in guarded)
    assert any("/ 0.9)" in fix["patch"].partition("\n+")[2] for fix in guarded)


COOLING = """import torch

torch.manual_seed(0)
scores = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(scores.parameters(), lr=1e-6)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
for turn in range(4):
    temperature = 1.0 - turn / 3
    loss = torch.nn.functional.cross_entropy(scores(x) / temperature, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.full
def test_a_number_that_a_formula_computes_of_others_varies_where_nothing_is_healthy(tmp_path: Path) -> None:
    """At a rate at which gradients that are a thousand times as large spoil nothing."""
    report, _ = run(tmp_path, COOLING)
    best = report["findings"][0]["fixes"][0]
    assert best["verdict"]["status"] == "guarded", best["verdict"]
    assert best["verdict"]["healthy_elements"] > 0
    assert "(0.001 if temperature == 0 else temperature)" in best["patch"]


@pytest.mark.parametrize(
    ("body", "edited", "is_free"),
    [
        ("s = float(x.max())\nreturn x * s", "s = float(x.max())\nreturn x * s + 0", True),
        ("s = float(x.max())\ns = s * 2.0\nreturn x * s", "s = float(x.max())\ns = s * 2.0\nreturn x * s + 0", False),
        (
            "def f(v):\n    return float(v.log())\ns = f(x)\nreturn x * s",
            "def f(v):\n    return float((v + 1).log())\ns = f(x)\nreturn x * s",
            False,
        ),
    ],
)
def test_a_number_varies_by_itself_only_if_it_is_computed_once_and_by_what_no_edit_touches(
    body: str, edited: str, is_free: bool
) -> None:
    original, repaired = (Formula(("x",), ("x",), 3, text) for text in (body, edited))
    found = local_proof._with_free_numbers(  # pyright: ignore[reportPrivateUsage]
        original, repaired, Visits("net.py", "", None, (Visit(3, {"s": 1.5}),))
    )
    assert (found is not None) == is_free
