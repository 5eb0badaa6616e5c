"""The one call that constructs an object is found in the source, and given an argument; or it is said why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from whynan.fixes.candidates import Declined
from whynan.fixes.python.constructors import ArgumentEdit, Target, argument_edits, assignment, constructions
from whynan.rules.arguments import ARGUMENTS

if TYPE_CHECKING:
    from whynan.records.intents import ArgumentIntent

ADAM = next(row for row in ARGUMENTS if "torch.optim.Adam" in row.classes and row.value_for("float32") == "1e-8")
COSINE = next(row for row in ARGUMENTS if row.classes == ("torch.nn.CosineSimilarity",))
CTC = next(row for row in ARGUMENTS if row.classes == ("torch.nn.CTCLoss",))


def edit_of(text: str, row: ArgumentIntent = ADAM, cls: str = "torch.optim.Adam") -> ArgumentEdit | Declined:
    found = constructions({"train.py": text}, cls)
    if isinstance(found, str):
        return Declined("", found)
    (call,) = found
    return call.edit(row, row.value_for("float32"), "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.optim.Adam(p)", "torch.optim.Adam(p, eps=1e-8)"),
        ("torch.optim.Adam(p, eps=0)", "torch.optim.Adam(p, eps=1e-8)"),
        ("torch.optim.Adam(p, eps=args.eps, lr=1)", "torch.optim.Adam(p, eps=1e-8, lr=1)"),
        ("torch.optim.Adam(p, (1e-3))", "torch.optim.Adam(p, (1e-3), eps=1e-8)"),
        (
            "torch.optim.Adam(\n    p,\n    lr=1,  # (high)\n)",
            "torch.optim.Adam(\n    p,\n    lr=1, eps=1e-8,  # (high)\n)",
        ),
        ("torch.optim.Adam(p, **{}, eps=0)", "torch.optim.Adam(p, **{}, eps=1e-8)"),
    ],
)
def test_the_argument_is_given_in_the_call(before: str, after: str) -> None:
    made = edit_of(f"import torch\noptimizer = {before}\n")
    assert isinstance(made, ArgumentEdit)
    assert made.edited == f"import torch\noptimizer = {after}\n"


@pytest.mark.parametrize(
    ("row", "cls", "before", "after"),
    [
        (COSINE, "torch.nn.CosineSimilarity", "CosineSimilarity(1, 1e-12)", "CosineSimilarity(1, 1e-8)"),
        (COSINE, "torch.nn.CosineSimilarity", "CosineSimilarity()", "CosineSimilarity(eps=1e-8)"),
        (CTC, "torch.nn.CTCLoss", "CTCLoss(0, 'mean', False)", "CTCLoss(0, 'mean', True)"),
        (CTC, "torch.nn.CTCLoss", "CTCLoss(0, 'mean')", "CTCLoss(0, 'mean', zero_infinity=True)"),
    ],
)
def test_a_call_may_give_it_by_position(row: ArgumentIntent, cls: str, before: str, after: str) -> None:
    made = edit_of(f"from torch.nn import *\nfrom torch import nn\nloss = nn.{before}\n", row, cls)
    assert isinstance(made, ArgumentEdit)
    assert made.edited.endswith(f"loss = nn.{after}\n")


@pytest.mark.parametrize(
    "imports",
    ["from torch.optim import Adam as Best", "from torch import optim\nBest: type", "import torch.optim as o"],
)
def test_the_class_is_known_by_its_imports(imports: str) -> None:
    name = {"from torch.optim": "Best", "from torch import": "optim.Adam", "import torch": "o.Adam"}
    call = next(call for begin, call in name.items() if imports.startswith(begin))
    assert isinstance(edit_of(f"{imports}\noptimizer = {call}(p)\n# Adam\n"), ArgumentEdit)


def test_a_question_an_annotation_and_a_base_make_no_object() -> None:
    text = (
        "import torch\n"
        "class Mine(torch.optim.Adam):\n    pass\n"
        "def f(o: torch.optim.Adam) -> torch.optim.Adam:\n    assert isinstance(o, (torch.optim.Adam, int))\n"
        "x: torch.optim.Adam = torch.optim.Adam(p)\n"
    )
    made = edit_of(text)
    assert isinstance(made, ArgumentEdit)
    assert "x: torch.optim.Adam = torch.optim.Adam(p, eps=1e-8)" in made.edited


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("make = torch.optim.Adam\na = torch.optim.Adam(p)", "train.py:2 hands the class on"),
        ("a = build(torch.optim.Adam, torch.optim.Adam(p))", "train.py:2 hands the class on"),
        ("def f(make=torch.optim.Adam): ...\na = torch.optim.Adam(p)", "train.py:2 hands the class on"),
        ("a = torch.optim.Adam(p, **options)", "what the call at train.py:2 is given cannot be told (* or **)"),
        ("a = torch.optim.Adam(p, 1, (0.9, 0.99), 0)", "what the call at train.py:2 gives by position may be eps"),
        ("a = torch.optim.Adam(p, eps=1e-8)", "it is written so already"),
        ("a = mine.Adam(p)", "no call in the program's own files makes the Adam"),
        ("class Adam: ...\na = Adam(p)", "no call in the program's own files makes the Adam"),
        ("a = torch.optim.Adam(", "train.py does not parse"),
    ],
)
def test_what_cannot_be_told_is_declined(text: str, why: str) -> None:
    made = edit_of(f"import torch\n{text}\n")
    assert isinstance(made, Declined)
    assert made.why.startswith(why)


def test_two_files_that_construct_one_are_two_calls() -> None:
    text = "import torch\na = torch.optim.Adam(p)\n"
    both = constructions({"a.py": text, "b.py": text}, "torch.optim.Adam")
    assert [call.where for call in both if not isinstance(call, str)] == ["a.py:2", "b.py:2"]
    one = constructions({"a.py": text, "b.py": "Adam = 1\n"}, "torch.optim.Adam")
    assert [call.where for call in one if not isinstance(call, str)] == ["a.py:2"]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("a = torch.optim.Adam(p)", Target("a")),
        ("a: object = torch.optim.Adam(p)", Target("a")),
        ("def f():\n    a = torch.optim.Adam(p)", Target("a", function="f")),
        ("class C:\n    def f(self):\n        self.a = torch.optim.Adam(p)", Target("a", owner="C")),
        ("other.a = torch.optim.Adam(p)", None),
        ("a = [torch.optim.Adam(p) for p in ps]", None),
        ("a = b = torch.optim.Adam(p)", None),
    ],
)
def test_what_an_object_is_assigned_to(text: str, target: Target | None) -> None:
    (call,) = constructions({"train.py": f"import torch\n{text}\n"}, "torch.optim.Adam")
    assert not isinstance(call, str)
    assert call.target == target


def test_what_hands_the_class_on_or_derives_from_it_is_no_call_of_it() -> None:
    partial = "from functools import partial\nimport torch\nmake = partial(torch.optim.Adam, eps=0)\n"
    made = edit_of(partial)
    assert isinstance(made, Declined)
    assert "hands the class on" in made.why
    derived = "import torch\nclass Mine(torch.optim.Adam):\n    def __init__(self, p):\n        super().__init__(p)\n"
    assert isinstance(edit_of(derived), Declined)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("optimizer.param_groups[0]['eps'] = 0", "train.py:1"),
        ("for m in model.modules():\n    m.eps = 0", "train.py:2"),
        ("self.eps = eps", None),
        ("eps = 0\nprint(m.eps)", None),
    ],
)
def test_an_argument_that_is_assigned_later_is_found(text: str, where: str | None) -> None:
    assert assignment({"train.py": text}, "eps") == where


def test_each_edit_of_a_row_is_made_anew_from_the_text() -> None:
    made = [edit.edited for edit in argument_edits("train.py", "import torch\na = torch.optim.Adam(p)\n", ADAM)]
    assert sorted(made) == [f"import torch\na = torch.optim.Adam(p, eps={eps})\n" for eps in ("1e-4", "1e-8")]


def test_each_row_names_a_class_that_has_the_argument() -> None:
    import ast
    import inspect

    from whynan.verify.in_place.live_objects import class_named

    for row in ARGUMENTS:
        for name in row.classes if row.owner != "config" else ():
            cls = class_named(name)
            assert cls is not None, name
            names = list(inspect.signature(cls.__init__).parameters)[1:]
            assert row.name in names
            assert tuple(names[: len(row.parameters)]) == row.parameters
            for _, value in row.values:
                ast.literal_eval(value)
