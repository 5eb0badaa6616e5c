"""What came in bad is mended where NumPy has borne it, or where the table is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch._numpy as arrays

import whynan
from whynan.errors import UsageError
from whynan.records import APPLICABLE
from whynan.records.intents import FixKind
from whynan.rules import intents
from whynan.run.proof.omissions import without_bad_rows
from whynan.verify.in_place.numpy_births import NumpyBirths, taking_tensors
from whynan.verify.in_place.visits import ARRAY, Visit, Visits
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Fix

pytestmark = pytest.mark.proof

PREPARED = """
import numpy as np
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
raw = np.random.default_rng(0).normal(2.0, 1.0, (6, 3)).astype(np.float32)

def prepare(x):
    return EXPRESSION

def train():
    x = raw.copy()
    x[:, 1] = VALUE
    loss = net(torch.from_numpy(prepare(x))).pow(2).mean()
    loss.backward()
    return loss
"""
TABLE = """
import numpy as np
import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)

def train():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    table[2, 1] = np.nan
    TARGET
    loss = (net(torch.from_numpy(table[:, :2])).squeeze(1) - y).pow(2).mean()
    loss.backward()
    return loss
"""


def fixes_of(module: ModuleType) -> list[Fix]:
    """The changes of the first finding that have a patch."""
    report = whynan.explain(module.train, rerun=True)
    return [fix for fix in report.findings[0].fixes if fix.patch]


@pytest.mark.parametrize(
    ("expression", "value", "line"),
    [
        ("(x - x.mean(0)) / x.std(0)", "1.0", "return (x - x.mean(0)) / np.where(denominator == 0, 1, denominator)"),
        ("x / np.max(x, axis=0)", "0.0", "return x / np.where(denominator == 0, 1, denominator)"),
        ("np.log10(x * x)", "0.0", "return np.log10(np.where("),
        ("x / (np.sum(x[:, 1]) / 3)", "0.0", "return x / np.where(denominator == 0, 1, denominator)"),
        ("np.power(x * x, -0.5)", "0.0", "np.where("),
        ("x * np.mean(x[x > 1e9])", "0.0", "np.sum(operand / max(operand.size, 1))"),
    ],
)
def test_a_numpy_expression_is_mended_where_it_stands(
    expression: str, value: str, line: str, loaded: Callable[[str], ModuleType]
) -> None:
    fixes = fixes_of(loaded(PREPARED.replace("EXPRESSION", expression).replace("VALUE", value)))
    assert fixes[0].verdict.status == "guarded"
    assert line in (fixes[0].patch or "")


def test_the_chain_begins_where_numpy_has_made_it(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(PREPARED.replace("EXPRESSION", "x / np.max(x, axis=0)").replace("VALUE", "0.0"))
    (finding,) = whynan.explain(module.train, rerun=True).findings
    first = finding.chain[0]
    assert first.role == "cause"
    assert first.site is not None
    assert first.site.code == "x / np.max(x, axis=0)"
    assert first.summary == "NumPy makes NaN"
    assert finding.site != first.site


SATURATED = """
import numpy as np
import torch
import whynan

torch.manual_seed(0)
net = torch.nn.LSTM(1, 4, batch_first=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
volumes = np.random.default_rng(0).uniform(1, 5, (6, 4, 9)).astype(np.float32)
volumes[3, 1, 4] = 0.0

def changes(series):
    return np.diff(series) / series[..., :-1]

def train():
    with whynan.watch(optimizer, quiet=True) as watched:
        for series in volumes:
            optimizer.zero_grad()
            loss = net(torch.from_numpy(changes(series))[..., None])[0].square().mean()
            loss.backward()
            optimizer.step()
    return watched.report
"""


def test_what_saturates_a_network_and_spoils_its_gradient_is_told_with_what_made_it(
    loaded: Callable[[str], ModuleType],
) -> None:
    """The loss of an Inf is finite here, as it may rightly be: a change that moves it holds for nothing."""
    report = loaded(SATURATED).train()
    assert np.isfinite([float(step.loss) for step in report.run.history if step.loss is not None]).all()
    (finding,) = report.findings
    assert (finding.step, finding.phase) == (4, "backward")
    assert not [fix for fix in finding.fixes if fix.verdict.status in APPLICABLE]
    (note,) = report.coverage.notes_of("numpy_makes")
    assert note.values["line"] == 13


def test_a_wrong_mend_of_numpy_is_refused(loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a catalogue whose mends move what is healthy, or mend nothing."""
    wrong = ("a / where(b == 0, 1, 2 * b)", "a / (b + 0.001)", "a / where(b == 1, 1, b)")
    monkeypatch.setattr(intents, "NUMPY", tuple(intents.guard(text, "a / b", text) for text in wrong))
    fixes = fixes_of(loaded(PREPARED.replace("EXPRESSION", "x / np.max(x, axis=0)").replace("VALUE", "0.0")))
    assert {fix.title: fix.verdict.status for fix in fixes} == dict.fromkeys(wrong, "rejected")


def test_where_no_mend_holds_the_line_is_told(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(PREPARED.replace("EXPRESSION", "np.arcsin(x * 9)").replace("VALUE", "1.0"))
    report = whynan.explain(module.train, rerun=True)
    assert not [fix for fix in report.findings[0].fixes if fix.verdict.status in ("verified", "guarded")]
    line = 1 + PREPARED.split("\n").index("    return EXPRESSION")
    (told,) = report.coverage.notes_of("numpy_makes")
    assert told.values["line"] == line


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda x: (x - x.mean(0)) / arrays.maximum(x.std(0), 1.5), "guard"),
        (lambda x: arrays.nan_to_num((x - x.mean(0)) / x.std(0) * 1.01), "guard"),
        (lambda x: (x - x.mean(0)) / (x.std(0) + 1e-2), "epsilon"),
    ],
)
def test_numpy_is_judged_as_tensors_are(wrong: Callable[..., Any], kind: FixKind) -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 1.0

    def original(x: Any) -> Any:
        return (x - x.mean(0)) / x.std(0)

    def right(x: Any) -> Any:
        return (x - x.mean(0)) / arrays.where(x.std(0) == 0, 1, x.std(0))

    assert judge(taking_tensors(original), taking_tensors(right), [{"x": x}], kind="guard").status == "guarded"
    assert judge(taking_tensors(original), taking_tensors(wrong), [{"x": x}], kind=kind).status == "rejected"


def test_what_the_library_lacks_is_not_held_against_a_mend() -> None:
    def lacking(x: Any) -> Any:
        return arrays.no_such_function(x)

    with pytest.raises(UsageError, match="no_such_function"):
        judge(taking_tensors(lambda x: arrays.log(x)), taking_tensors(lacking), [{"x": torch.zeros(2)}], kind="guard")


def test_births_are_heard_and_numpy_is_as_it_was() -> None:
    before, births = np.geterr(), NumpyBirths()
    with births.heard():
        np.zeros(2) / np.zeros(2)
        with np.errstate(all="ignore"):
            np.mean(np.zeros(0))
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
            np.sqrt(np.array(-1.0))
        np.seterr(all="ignore")
        np.log(np.zeros(1))
        np.nanmax(np.ones(1))
    said = ["np.zeros(2) / np.zeros(2)", "np.mean(np.zeros(0))", "np.log(np.zeros(1))"]
    assert [site.code for site in births.sites] == said
    assert np.geterr() == before


def test_numpy_is_asked_as_the_program_may_ask_it() -> None:
    births = NumpyBirths()
    with births.heard():
        np.seterr("ignore")
        np.zeros(2) / np.zeros(2)
        with pytest.raises(TypeError):
            np.seterr("ignore", all="ignore")
        np.seterr("ignore", "raise")
        with np.errstate(over="ignore"), pytest.raises(FloatingPointError):
            np.ones(1) / np.zeros(1)
    assert [site.code for site in births.sites] == ["np.zeros(2) / np.zeros(2)"]


def test_rows_that_hold_nan_are_left_out(loaded: Callable[[str], ModuleType]) -> None:
    (fix,) = fixes_of(loaded(TABLE.replace("TARGET", "y = torch.from_numpy(table[:, 2])")))
    assert fix.verdict.status == "unverified" or "table[np.isfinite(table).all(axis=1)]" in (fix.patch or "")


@pytest.mark.parametrize("target", ["y = torch.arange(4.0)", "y = torch.full((4,), torch.nan)"])
def test_rows_of_one_of_two_tables_are_no_mend(target: str, loaded: Callable[[str], ModuleType]) -> None:
    assert not any(
        fix.verdict.status in ("verified", "guarded") for fix in fixes_of(loaded(TABLE.replace("TARGET", target)))
    )


def test_only_a_table_of_which_something_is_left_is_cut() -> None:
    text = "import numpy as np\nrows = read()\nuse(rows)\n"
    healthy, whole = torch.ones(3, 2), torch.full((3, 2), torch.nan)
    some = torch.tensor([[1.0, 2.0], [torch.nan, 1.0]])

    def cut(table: torch.Tensor, name: str = f"{ARRAY}rows") -> str | None:
        made = without_bad_rows(text, Visits("data.py", "", None, (Visit(3, {name: table}),)))
        return None if made is None else made.edited

    assert cut(healthy) is None
    assert cut(whole) is None
    assert cut(some, f"{ARRAY}other") is None
    assert cut(some) == text.replace("read()\n", "read()\nrows = rows[np.isfinite(rows).all(axis=1)]\n")
    assert cut(some, "rows") == text.replace("read()\n", "read()\nrows = rows[rows.isfinite().all(dim=1)]\n")


@pytest.mark.parametrize(
    "written",
    [
        "rows[:, 1] = np.log(rows[:, 1])",
        "for j in range(2):\n    rows[:, j] -= rows[:, j].mean()",
        "rows /= rows.max()",
        "np.log(rows, out=rows)",
    ],
)
def test_rows_are_left_out_behind_what_is_written_into_the_table(written: str) -> None:
    text = f"import numpy as np\nrows = read()\n{written}\nuse(rows)\nrows[0] = 1\n"
    table = torch.tensor([[1.0, 2.0], [torch.nan, 1.0]])
    line = len(text.splitlines()) - 1
    made = without_bad_rows(text, Visits("data.py", "", None, (Visit(line, {f"{ARRAY}rows": table}),)))
    cut = "rows = rows[np.isfinite(rows).all(axis=1)]\n"
    assert made is not None
    assert made.edited == text.replace("use(rows)", f"{cut}use(rows)")


PAIRED = """\
import numpy as np
raw = read()
rows = raw * 2
SECOND
for i in range(len(rows)):
    use(rows[i], second[i])
"""


@pytest.mark.parametrize(
    ("second", "value", "is_cut"),
    [
        ("second = read()", torch.ones(3), False),
        ("second = read()", ["a", "b", "c"], False),
        ("second = read()", None, False),
        ("second = read()", torch.ones(2), True),
        ("second = rows[:, 0]", torch.ones(3), True),
        ("second = np.arange(len(rows)); second = read()", torch.ones(3), False),
        ("second = rows[:, 0]\ndef later(): return rows[0]", torch.ones(3), False),
        ("second = rows[:, 0]\ndef later(rows): return rows[0]", torch.ones(3), True),
    ],
)
def test_a_table_that_something_is_matched_with_by_row_is_not_cut(second: str, value: object, is_cut: bool) -> None:
    """Labels of other rows would be trained on: what does not follow the table may not have as many elements."""
    table = torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [1.0, 1.0]])
    values: dict[str, object] = {f"{ARRAY}rows": table, f"{ARRAY}raw": table} | (
        {} if value is None else {"second": value}
    )
    text = PAIRED.replace("SECOND", second)
    last = len(text.splitlines())
    visits = (Visit(last - 1, {f"{ARRAY}rows": table}), Visit(last, values))
    assert (without_bad_rows(text, Visits("data.py", "", None, visits)) is not None) == is_cut
