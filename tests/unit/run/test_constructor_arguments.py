"""An argument of the call that constructed an object at fault: given there, and proved on the live object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import whynan
from whynan.records.intents import ArgumentIntent
from whynan.run.fix.apply import regenerate_text
from whynan.run.suppressions import user_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

pytestmark = pytest.mark.proof


@pytest.fixture(autouse=True)
def only_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests that are loaded beside a program construct optimizers too, and are no files of it."""
    monkeypatch.setattr(
        "whynan.run.suppressions.user_files",
        lambda main: tuple(file for file in user_files(main) if file.startswith(str(tmp_path))),
    )


WATCHED = """
import torch
import whynan
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 8).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
criterion = nn.CRITERION
MORE

def train():
    with whynan.watch(optimizer, quiet=True) as watched:
        for step in range(12):
            x, y = torch.randn(16, 4, dtype=DTYPE), torch.randn(16, 8, dtype=DTYPE)
            BATCH
            loss = LOSS
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watched.report
"""
STEPPED = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(DTYPE)
x = torch.randn(16, 4, dtype=DTYPE)
x[:, 2] = 0
optimizer = torch.optim.OPTIMIZER
MORE

def train():
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
"""
LENGTHS = "(3 + 20 * (step == 6), 3)"
CTC = (
    "criterion(model(x).log_softmax(-1)[:, None].repeat(1, 2, 1), torch.ones((2, 23), dtype=torch.long), (16, 16), "
    f"{LENGTHS})"
)


def watched(criterion: str, loss: str, batch: str = "pass", dtype: str = "torch.float32", more: str = "") -> str:
    parts = {"CRITERION": criterion, "LOSS": loss, "BATCH": batch, "DTYPE": dtype, "MORE": more}
    text = WATCHED
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def stepped(optimizer: str, dtype: str = "torch.float32", more: str = "") -> str:
    return STEPPED.replace("OPTIMIZER", optimizer).replace("DTYPE", dtype).replace("MORE", more)


def fixes_of(report: Any) -> list[Any]:
    (finding,) = report.findings[:1]
    return [fix for fix in finding.fixes if fix.patch is not None]


COSINE = "1 - criterion(model(x), y).mean()"
ZERO_ROW = "y[3] = 0 if step == 6 else y[3]"


@pytest.mark.parametrize(
    ("text", "added", "status"),
    [
        (
            watched("CosineSimilarity(dim=1)", COSINE, ZERO_ROW, "torch.float16"),
            "+criterion = nn.CosineSimilarity(dim=1, eps=1e-4)",
            "distorting",
        ),
        pytest.param(
            watched("CosineSimilarity(1, 0)", COSINE, ZERO_ROW),
            "+criterion = nn.CosineSimilarity(1, 1e-8)",
            "distorting",
            marks=pytest.mark.full,
        ),
        pytest.param(
            watched("LayerNorm(8, eps=0)", "(criterion(y) * model(x)).mean()", "y[3] = 1 if step == 6 else y[3]"),
            "+criterion = nn.LayerNorm(8, eps=1e-5)",
            "distorting",
            marks=pytest.mark.full,
        ),
        (
            watched("RMSNorm(8, 0.0)", "(criterion(y) * model(x)).mean()", ZERO_ROW),
            "+criterion = nn.RMSNorm(8, 1e-12)",
            "distorting",
        ),
        pytest.param(
            watched("GroupNorm(2, 8, eps=0)", "(criterion(y) * model(x)).mean()", "y[3] = 1 if step == 6 else y[3]"),
            "+criterion = nn.GroupNorm(2, 8, eps=1e-12)",
            "distorting",
            marks=pytest.mark.full,
        ),
        pytest.param(
            watched(
                "PoissonNLLLoss(log_input=False, eps=0)",
                "criterion(y.abs() * (model(x).detach().abs() + 1) + 0 * model(x).sum(), torch.ones(16, 8))",
                ZERO_ROW,
            ),
            "+criterion = nn.PoissonNLLLoss(log_input=False, eps=1e-8)",
            "distorting",
            marks=pytest.mark.full,
        ),
        # the exact loss is infinite, and 0 is given
        (watched("CTCLoss()", CTC), "+criterion = nn.CTCLoss(zero_infinity=True)", "guarded"),
    ],
)
def test_a_module_is_given_another_argument_where_it_is_constructed(
    text: str, added: str, status: str, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(text)
    held = dict(vars(module.criterion))
    report = module.train()
    assert report.findings[0].step == 7
    fixes = fixes_of(report)
    assert [fix.verdict.status for fix in fixes if f"{added}\n" in fix.patch] == [status], fixes
    if status == "guarded":
        (given,) = fixes[0].verdict.stand_ins
        assert (given.lack, given.least, given.greatest, given.count, given.gradient_zero) == (
            "infinite",
            0,
            0,
            1,
            True,
        )
        assert fixes[0].verdict.why.startswith("a target that has no alignment with its input has a loss of 0")
    assert vars(module.criterion) == held
    assert {source.file for source in report.run.sources} >= {module.__file__}


@pytest.mark.full
def test_two_constructions_are_told_apart_by_what_holds_the_object(loaded: Callable[[str], ModuleType]) -> None:
    text = watched("CosineSimilarity(1, 0)", COSINE, ZERO_ROW, more="other = nn.CosineSimilarity(1, 0)\n")
    (fix,) = [fix for fix in fixes_of(loaded(text).train()) if "Similarity" in fix.patch]
    assert "-criterion = nn.CosineSimilarity(1, 0)" in fix.patch


NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.LayerNorm(8, eps=0)
        self.b = nn.LayerNorm(8, eps=0)

    def forward(self, x):
        return self.a(x) + self.b(x * (x[:, :1] != 1))

net = Net()
"""


@pytest.mark.full
def test_two_constructions_in_a_class_are_told_apart_by_what_holds_the_object(
    loaded: Callable[[str], ModuleType],
) -> None:
    batch = "y[3] = 1 + torch.arange(8) if step == 6 else y[3]"
    report = loaded(watched("Identity()", "(net(y) * model(x)).mean()", batch, more=NET)).train()
    fixes = [fix for fix in fixes_of(report) if "LayerNorm" in fix.title]
    assert {fix.verdict.status for fix in fixes} == {"distorting"}
    assert all("-        self.b = nn.LayerNorm(8, eps=0)" in fix.patch for fix in fixes)


@pytest.mark.full
def test_two_constructions_that_nothing_tells_apart_are_said(loaded: Callable[[str], ModuleType]) -> None:
    text = watched("Sequential(nn.CosineSimilarity(1, 0))[0]", COSINE, ZERO_ROW, more="c = nn.CosineSimilarity(1, 0)\n")
    fixes = loaded(text).train().findings[0].fixes
    assert not any(fix.patch and "Similarity" in fix.patch for fix in fixes)
    assert any("2 calls construct a CosineSimilarity" in fix.verdict.why for fix in fixes)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (
            watched("CosineSimilarity(dim=1, eps=0)", COSINE, ZERO_ROW),
            {"rules": ("WN109", "WN110", "WN101", "WN704"), "classes": ("torch.nn.CosineSimilarity",), "value": "3.0"},
        ),
        (
            watched("LayerNorm(8, eps=0)", "(criterion(y) * model(x)).mean()", "y[3] = 1 if step == 6 else y[3]"),
            {"rules": ("WN107", "WN109", "WN704"), "classes": ("torch.nn.LayerNorm",), "value": "0.1"},
        ),
        (
            watched("CTCLoss()", CTC),
            {"rules": ("WN603",), "classes": ("torch.nn.CTCLoss",), "name": "blank", "value": "1", "kind": "guard"},
        ),
    ],
)
def test_a_wrong_value_is_neither_verified_nor_guarded(
    text: str, row: dict[str, Any], loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: the row of another catalogue, whose value moves what is healthy or mends nothing."""
    wrong = ArgumentIntent(
        row["rules"], row["classes"], row.get("name", "eps"), row.get("kind", "epsilon"), (("", row["value"]),)
    )
    monkeypatch.setattr("whynan.rules.arguments.ARGUMENTS", (wrong,))
    fixes = [fix for fix in fixes_of(loaded(text).train()) if row["classes"][0].rpartition(".")[2] in fix.title]
    assert [fix.verdict.status for fix in fixes] == ["rejected"]


def test_an_object_that_has_another_value_was_not_constructed_there(loaded: Callable[[str], ModuleType]) -> None:
    text = watched("CosineSimilarity(1, 1e-8)", COSINE, ZERO_ROW, more="criterion.eps = 0\n")
    assert not any("Similarity" in fix.patch for fix in fixes_of(loaded(text).train()))


@pytest.mark.full
def test_what_leaves_the_program_bad_is_not_verified(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: a second bug behind the first, which no argument mends."""
    loss = f"{COSINE} + (0 if step != 6 else torch.log(0 * model(x).sum().abs()))"
    (fix, *_) = fixes_of(loaded(watched("CosineSimilarity(1, 0)", loss, ZERO_ROW)).train())
    assert "Similarity" in fix.patch
    assert fix.verdict.status not in ("verified", "distorting")


@pytest.mark.full
def test_a_librarys_own_module_is_not_mended_at_another_of_its_class(loaded: Callable[[str], ModuleType]) -> None:
    """The layer of the library has the value that the user's call gives, and was not made by it."""
    text = watched(
        "TransformerEncoderLayer(8, 2, 8, dropout=0.0, layer_norm_eps=0)",
        "(criterion(y[None] * (model(x).detach()[None] * 0 + (step != 6))) * model(x)).mean()",
        more="own = nn.LayerNorm(8, eps=0)\n",
    )
    report = loaded(text).train()
    assert not any("LayerNorm" in fix.patch for finding in report.findings for fix in finding.fixes if fix.patch)


@pytest.mark.parametrize("cls", ["Adam", "AdamW", "RMSprop", "Adagrad"])
def test_an_optimizer_is_given_the_least_epsilon_that_moves_no_healthy_update(
    cls: str, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(stepped(f"{cls}(model.parameters(), lr=1e-2, eps=0)"))
    weights = [parameter.detach().clone() for parameter in module.model.parameters()]
    report = whynan.explain(module.train, rerun=True)
    assert report.findings[0].rule == "WN801"
    first, second = fixes_of(report)
    assert f"+optimizer = torch.optim.{cls}(model.parameters(), lr=1e-2, eps=1e-20)\n" in first.patch
    assert first.verdict.status == "guarded"
    (given,) = first.verdict.stand_ins
    assert (given.lack, given.least, given.greatest) == ("undefined", 0, 0)
    assert first.verdict.healthy_worse == 0
    assert "eps=1e-8" in second.patch
    assert second.verdict.status in ("distorting", "rejected")
    assert module.optimizer.param_groups[0]["eps"] == 0
    assert [w.shape for w in weights] == [p.shape for p in module.model.parameters()]


def test_no_epsilon_of_half_precision_is_verified_where_squares_vanish(loaded: Callable[[str], ModuleType]) -> None:
    """Adam's update is 0.01 there, and a small number gives one of hundreds, a larger one moves the healthy."""
    module = loaded(stepped("Adam(model.parameters(), lr=1e-2)", "torch.float16"))
    report = whynan.explain(module.train, rerun=True)
    fixes = fixes_of(report)
    assert {fix.verdict.status for fix in fixes} == {"rejected"}
    assert "where the exact one is" in fixes[0].verdict.why or "where the exact one is" in fixes[1].verdict.why


def test_two_optimizers_of_one_class_are_told_apart(loaded: Callable[[str], ModuleType]) -> None:
    more = "other = torch.optim.Adam(model.parameters(), eps=0)\n"
    module = loaded(stepped("Adam(model.parameters(), lr=1e-2, eps=0)", more=more))
    fixes = fixes_of(whynan.explain(module.train, rerun=True))
    assert fixes
    assert all("-optimizer = " in fix.patch for fix in fixes)


def test_an_optimizer_with_other_settings_was_not_constructed_there(loaded: Callable[[str], ModuleType]) -> None:
    more = "def unused(p):\n    return torch.optim.Adam(p, lr=0.5, eps=0)\n"
    made = "__dict__['Adam'](model.parameters(), lr=1e-2, eps=0)"
    module = loaded(stepped(made, more=more))
    report = whynan.explain(module.train, rerun=True)
    assert report.findings[0].rule == "WN801"
    assert fixes_of(report) == []


def test_a_group_with_a_value_of_its_own_is_not_mended_by_the_argument(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(stepped("Adam([{'params': [*model.parameters()], 'eps': 0.0}], lr=1e-2)"))
    report = whynan.explain(module.train, rerun=True)
    assert report.findings[0].rule == "WN801"
    assert fixes_of(report) == []


def test_the_constructor_may_stand_in_another_file(
    loaded: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "makers_of_test.py").write_text(
        "import torch\n\n\ndef make(parameters):\n    return torch.optim.Adam(parameters, eps=0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        module = loaded(
            "from makers_of_test import make\n"
            + stepped("Adam()").replace("torch.optim.Adam()", "make(model.parameters())")
        )
        report = whynan.explain(module.train, rerun=True)
        fix, _ = fixes_of(report)
        assert fix.verdict.status == "guarded"
        assert "makers_of_test.py" in fix.patch
        assert "+    return torch.optim.Adam(parameters, eps=1e-20)\n" in fix.patch
        assert any(source.file.endswith("makers_of_test.py") for source in report.run.sources)
    finally:
        sys.modules.pop("makers_of_test", None)


def test_what_was_not_run_again_is_not_proved_and_not_offered(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(stepped("Adam(model.parameters(), eps=0)"))
    assert fixes_of(whynan.explain(module.train)) == []


SPEECH = """
import torch
import transformers
import whynan
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

torch.manual_seed(0)
MADE
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def train():
    with whynan.watch(optimizer, quiet=True) as watched:
        for step in range(4):
            sound = torch.randn(2, 400 if step < 2 else 100)
            loss = model(input_values=sound, labels=torch.randint(1, 8, (2, 6))).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watched.report
"""
CONFIGURATION = (
    "Wav2Vec2Config(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, "
    "conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2, num_conv_pos_embeddings=4, "
    "num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, pad_token_id=0)"
)
MODELS = {
    "made": f"model = Wav2Vec2ForCTC({CONFIGURATION})",
    "loaded": "model = Wav2Vec2ForCTC.from_pretrained(FOLDER)",
    "chosen": "model = transformers.AutoModelForCTC.from_pretrained(FOLDER)",
}


@pytest.mark.breadth
@pytest.mark.parametrize("name", MODELS)
def test_the_configuration_of_a_model_is_edited_where_it_is_made_or_loaded(
    name: str, loaded: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    folder = str(tmp_path / "model")
    if name != "made":
        import transformers

        config = eval(CONFIGURATION, {"Wav2Vec2Config": transformers.Wav2Vec2Config})
        transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    text = SPEECH.replace("MADE", MODELS[name]).replace("FOLDER", repr(folder))
    module = loaded(text)
    (finding,) = module.train().findings
    assert finding.rule == "WN603"
    best = finding.fixes[0]
    assert (best.verdict.status, best.kind) == ("guarded", "source")
    assert "ctc_zero_infinity=True)" in (best.patch or "")
    assert "has a loss of 0 and no gradient" in best.verdict.why
    assert module.model.config.ctc_zero_infinity is False
    assert isinstance(regenerate_text(module.__file__ or "", text, finding, best), str)


def test_of_two_configurations_none_is_edited(loaded: Callable[[str], ModuleType]) -> None:
    text = SPEECH.replace("MADE", f"other = Wav2Vec2ForCTC({CONFIGURATION})\n{MODELS['made']}")
    (finding,) = loaded(text).train().findings
    assert not any("ctc_zero_infinity" in fix.title for fix in finding.fixes)


def test_a_configuration_of_another_model_is_not_edited(loaded: Callable[[str], ModuleType]) -> None:
    held = f"usual = {CONFIGURATION}\nmodel = Wav2Vec2ForCTC(Wav2Vec2Config.from_dict(usual.to_dict()))"
    (finding,) = loaded(SPEECH.replace("MADE", held)).train().findings
    assert not any("ctc_zero_infinity" in fix.title for fix in finding.fixes)
