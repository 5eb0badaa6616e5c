"""A function's names are recorded statement by statement, and the program does not notice."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from whynan.errors import UsageError
from whynan.verify.in_place.visits import record_visits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def visits_of(module: ModuleType, text: str, line: int, run: Callable[[], object], **options: Any) -> Any:
    with record_visits(str(module.__file__), text, line, **options) as (recorder, _):
        run()
    return recorder.visits


HEAD = '''import torch

SCALE = 2.0


class Head(torch.nn.Module):
    """A head."""

    def __init__(self):
        super().__init__()
        self.eps = 1e-3
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.__hidden = 5
        self.read = 0

    @property
    def counted(self):
        self.read += 1
        return 1.0

    def forward(self, x):
        """Docstring."""
        p = x * self.weight * SCALE
        if x.ndim == 1:
            p = p + self.eps
            p += self.counted + self.__hidden
        return p.log()
'''


def test_each_statement_is_visited_with_what_its_names_were(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(HEAD)
    head, x = module.Head(), torch.tensor([1.0, 2.0])
    found = visits_of(module, HEAD, 24, lambda: head(x))
    assert found.function == "Head.forward"
    assert [visit.line for visit in found.visits] == [23, 24, 25, 26, 27]
    first, *_, last = found.visits
    assert torch.equal(first.values["x"], x)
    assert first.values["self.eps"] == 1e-3
    assert first.values["SCALE"] == 2.0
    assert first.values["self.__hidden"] == 5
    assert "p" not in first.values
    assert torch.allclose(last.values["p"], torch.tensor([8.001, 10.001]))
    assert last.needs_grad == {"p", "self.weight", "p.log()"}
    assert not last.values["p"].requires_grad


def test_what_a_small_function_that_is_called_reads_of_the_module_is_kept(loaded: Callable[[str], ModuleType]) -> None:
    text = (
        "import torch\nrate, shift, scale = torch.ones(2), 3.0, 5.0\n\n\n"
        "def model(t, scale):\n    far = rate * t\n    return far * scale + shift\n\n\n"
        "def f(x):\n    shift = 1.0\n    return model(x, shift)\n"
    )
    module = loaded(text)
    found = visits_of(module, text, 12, lambda: module.f(torch.ones(2)))
    last = found.visits[-1].values
    assert torch.equal(last["rate"], torch.ones(2))
    # the function's own, and what the other has by that name
    assert last["shift"] == 1.0
    assert not {"t", "far", "scale"} & set(last)


def test_nothing_is_differentiated_by_where_gradients_are_off(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    return x * 2\n"
    module, x = loaded(text), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        off = visits_of(module, text, 2, lambda: module.f(x))
    on = visits_of(module, text, 2, lambda: module.f(x))
    assert [visit.needs_grad for visit in (*off.visits, *on.visits)] == [frozenset(), {"x"}]


def test_no_property_of_the_program_runs(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(HEAD)
    head = module.Head()
    found = visits_of(module, HEAD, 24, lambda: head(torch.ones(2)))
    assert head.read == 1
    # what the program's own reading gave is known where it was read
    assert {visit.values.get("self.counted") for visit in found.visits} == {None, 1.0}


def test_copies_are_those_of_their_time_and_made_once(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    y = x\n    x.add_(1)\n    x.data.add_(1)\n    return x\n"
    module = loaded(text)
    found = visits_of(module, text, 2, lambda: module.f(torch.zeros(3)))
    assert [visit.values["x"][0].item() for visit in found.visits] == [0.0, 0.0, 1.0, 2.0]
    assert found.visits[0].values["x"] is found.visits[1].values["x"]


def test_a_zero_that_changes_its_sign_is_another_value(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    x.neg_()\n    return x\n"
    module = loaded(text)
    found = visits_of(module, text, 2, lambda: module.f(torch.zeros(1)))
    assert [torch.signbit(visit.values["x"]).item() for visit in found.visits] == [False, True]


def test_lambdas_and_comprehensions_tell_of_their_own_names(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(xs):\n    g = lambda v: v + 1\n    return [g(x) for x in xs]\n"
    module = loaded(text)
    found = visits_of(module, text, 2, lambda: module.f([1, 2]))
    assert [(visit.line, visit.values.get("x"), visit.values.get("v")) for visit in found.visits] == [
        (2, None, None),
        (3, None, None),
        (3, 1, None),
        (2, None, 1),
        (3, 2, None),
        (2, None, 2),
    ]


def test_the_innermost_function_at_the_line_is_recorded(loaded: Callable[[str], ModuleType]) -> None:
    text = "def outer(x):\n    def inner(y):\n        return y * x\n\n    return inner(3)\n"
    module = loaded(text)
    found = visits_of(module, text, 3, lambda: module.outer(2))
    assert found.function == "outer.inner"
    assert [visit.values for visit in found.visits] == [{"y": 3, "x": 2}]


def test_values_and_gradients_and_random_numbers_are_the_same(loaded: Callable[[str], ModuleType]) -> None:
    text = (
        "import torch\n\n\ndef f(x, w):\n    y = torch.dropout(x * w, 0.5, True)\n    for _ in range(3):\n"
        "        y = y * w\n        y.mul_(2)\n    while y.sum() < 0:\n        y = y + 1\n    with torch.no_grad():\n"
        "        z = y.exp()\n    loss = (y * z).sum()\n    loss.backward()\n    return loss\n"
    )
    module = loaded(text)

    def run() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        w = torch.ones(4, requires_grad=True)
        loss = module.f(torch.randn(4), w)
        assert w.grad is not None
        return loss.detach(), w.grad, torch.get_rng_state()

    before = run()
    with record_visits(str(module.__file__), text, 5) as (recorder, _):
        during = run()
    assert all(torch.equal(a, b) for a, b in zip(before, during, strict=True))
    assert len(recorder.visits.visits) > 10


def test_inference_mode_vmap_and_subclasses_are_no_obstacle(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    return x * 2\n"
    module = loaded(text)

    def run() -> None:
        with torch.inference_mode():
            module.f(torch.ones(2))
        torch.vmap(module.f)(torch.ones(2))
        torch.func.grad(module.f)(torch.tensor(1.0))

    found = visits_of(module, text, 2, run)
    assert [sorted(visit.values) for visit in found.visits] == [["x"], [], []]
    assert not found.visits[0].values["x"].is_inference()


def test_memory_is_bounded_and_what_is_left_out_is_counted(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    return x\n"
    module = loaded(text)

    def run() -> None:
        for number in range(10):
            module.f(torch.full((256,), float(number)))

    found = visits_of(module, text, 2, run, memory=4096)
    assert [visit.values["x"][0].item() for visit in found.visits] == [0, 1, 8, 9]
    assert found.left_out == 6


def test_what_is_larger_than_the_memory_is_left_out(loaded: Callable[[str], ModuleType]) -> None:
    text = "def f(x):\n    return x\n"
    module = loaded(text)
    found = visits_of(module, text, 2, lambda: module.f(torch.ones(2048)), memory=4096)
    assert (found.visits, found.left_out) == ((), 1)


def test_lines_of_tracebacks_and_warnings_stay(loaded: Callable[[str], ModuleType]) -> None:
    text = "import warnings\n\n\ndef f(x):\n    y = x\n    warnings.warn('here')\n    return y / 0\n"
    module = loaded(text)
    with record_visits(str(module.__file__), text, 5), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError) as raised:
            module.f(1)
    assert caught[0].lineno == 6
    assert traceback.extract_tb(raised.value.__traceback__)[-1].lineno == 7


def test_a_function_that_reads_its_own_names_is_refused(loaded: Callable[[str], ModuleType], snapshot: Any) -> None:
    text = "def f(x):\n    return len(locals())\n"
    module = loaded(text)
    with pytest.raises(UsageError) as raised:
        visits_of(module, text, 2, lambda: module.f(1))
    assert str(raised.value) == snapshot
    assert module.f(1) == 1


def test_what_a_function_lets_go_of_is_let_go(loaded: Callable[[str], ModuleType]) -> None:
    text = (
        "import weakref\n\n\ndef f():\n    x = type('Thing', (), {})()\n    r = weakref.ref(x)\n    y = x\n"
        "    del x, y\n    return r()\n"
    )
    module = loaded(text)
    with record_visits(str(module.__file__), text, 5):
        assert module.f() is None


def test_an_error_of_ours_does_not_reach_the_program(
    loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    text = "def f(x):\n    y = x + 1\n    return y\n"
    module = loaded(text)
    monkeypatch.setattr("whynan.verify.in_place.visits.resolve_chain", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="an error of its own"), record_visits(str(module.__file__), text, 2):
        assert module.f(1) == 2


def test_each_array_of_numpys_is_kept_as_what_it_was(loaded: Callable[[str], ModuleType]) -> None:
    """Their tensors are made for a moment: the next one may have the identity of the last."""
    text = "def scaled(x, mean, std):\n    y = (x - mean) / std\n    return y\n"
    module = loaded(text)
    given = {name: np.full(6, number, np.float32) for number, name in enumerate(("x", "mean", "std"))}
    found = visits_of(module, text, 2, lambda: module.scaled(*given.values()))
    first = found.visits[0].values
    assert {name: first[f"numpy {name}"].tolist() for name in given} == {n: a.tolist() for n, a in given.items()}


def test_numbers_of_numpys_are_numbers(loaded: Callable[[str], ModuleType]) -> None:
    text = "import numpy as np\n\n\ndef scaled(x, rates, epoch):\n    y = x / rates[epoch]\n    return y\n"
    module = loaded(text)
    rates = np.linspace(0.0, 1.0, 3)
    found = visits_of(module, text, 5, lambda: module.scaled(torch.ones(2), rates, np.int64(1)))
    (seen, *_) = [v for v in found.visits if v.line == 5]
    assert (seen.values["epoch"], seen.values["rates[epoch]"]) == (1, 0.5)
    assert (type(seen.values["epoch"]), type(seen.values["rates[epoch]"])) == (int, float)


def test_a_member_of_an_enumeration_of_numbers_is_its_number(loaded: Callable[[str], ModuleType]) -> None:
    text = "import enum\n\n\nclass Kind(enum.IntEnum):\n    PAD = 3\n\n\n"
    text += "def scaled(x):\n    y = x / Kind.PAD\n    return y\n"
    module = loaded(text)
    found = visits_of(module, text, 9, lambda: module.scaled(torch.ones(2)))
    (seen, *_) = [v for v in found.visits if v.line == 9]
    assert (type(seen.values["Kind.PAD"]), seen.values["Kind.PAD"]) == (int, 3)
