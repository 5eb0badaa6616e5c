"""What a program decides on a number that it has read: the read is a call of ``read``, which asks."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from whynan.source.decisions import decision

NAN, INF = float("nan"), float("inf")
PRELUDE = """
import contextlib, math, pytest, sys, types
import numpy as np
os = types.SimpleNamespace(_exit=sys.exit)

class Loss:
    def __bool__(self):
        return answer()

def isnan(loss):
    return Loss()

def backward():
    pass

def step():
    pass

"""


def decided(tmp_path: Path, program: str, value: float | bool) -> list[Any]:
    """All that is decided where a program calls ``read``, or asks for the truth of what ``isnan`` gives."""
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + textwrap.dedent(program), encoding="utf-8")
    found: list[Any] = []

    def read(*_: Any) -> float | bool:
        found.append(decision(sys._getframe(1), value))
        return value

    def answer() -> bool:
        # the frame of ``__bool__`` is of the probe's
        frame = sys._getframe(2)
        found.append(decision(frame, value))
        return bool(value)

    names: dict[str, Any] = {"__name__": "program", "read": read, "answer": answer}
    with contextlib.ExitStack() as stack:
        # said so, it is nothing that a caller of the program's is known to catch
        stack.enter_context(contextlib.suppress(SystemExit, ValueError, AssertionError))
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return found


def only(tmp_path: Path, program: str, value: float | bool = NAN) -> tuple[str, str] | None:
    """The one decision: what it does, and the text of its line."""
    (made,) = decided(tmp_path, program, value)
    if made is None:
        return None
    return made.does, Path(made.file).read_text(encoding="utf-8").splitlines()[made.line - 1].strip()


ENDS = {
    "exit": ("if not math.isfinite(read()):\n    print('bad')\n    sys.exit(1)", "sys.exit(1)"),
    "exit of the site": ("value = read()\nif np.isnan(value) or np.isinf(value):\n    exit(1)", "exit(1)"),
    "os._exit": ("loss = read()\nif loss != loss:\n    os._exit(3)", "os._exit(3)"),
    "raise": ("total = 1.0\ntotal += read()\nif math.isnan(total):\n    raise ValueError", "raise ValueError"),
    "a threshold": ("limit = 10.0\nif not (read() < limit):\n    raise ValueError", "raise ValueError"),
    "assert": ("assert math.isfinite(read()), 'bad'", "assert math.isfinite(read()), 'bad'"),
    "a flag": ("bad = False\nif math.isnan(read()):\n    bad = True\nif bad:\n    sys.exit(1)", "sys.exit(1)"),
    "a function": (
        "def check(value):\n    if not math.isfinite(value):\n        raise ValueError\n\ncheck(read())",
        "raise ValueError",
    ),
    "a method": (
        "class Guard:\n    def check(self, value):\n        if math.isnan(value):\n            sys.exit(1)\n\n"
        "guard = Guard()\nguard.check(value=read())",
        "sys.exit(1)",
    ),
    "a function that answers": (
        "def is_bad():\n    value = read()\n    return value != value\n\nif is_bad():\n    sys.exit(2)",
        "sys.exit(2)",
    ),
    "a lambda": ("bad = lambda: math.isnan(read())\nif bad():\n    sys.exit(2)", "sys.exit(2)"),
    "an attribute": ("class A: pass\na = A()\na.loss = read()\nif math.isnan(a.loss):\n    sys.exit(1)", "sys.exit(1)"),
    "any of several": ("if any(math.isnan(read()) for _ in range(3)):\n    sys.exit(1)", "sys.exit(1)"),
    "a walrus": ("if math.isnan(loss := read()):\n    raise ValueError(loss)", "raise ValueError(loss)"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_number_for_which_the_program_ends(name: str, tmp_path: Path) -> None:
    program, line = ENDS[name]
    assert only(tmp_path, program) == ("ends", line)


LEAVES = {
    "break": "for i in range(3):\n    if math.isnan(read()):\n        break\n    backward()",
    "return": (
        "def f():\n    for i in range(3):\n        if math.isnan(read()):\n            return\n"
        "        backward()\n\nf()"
    ),
    "a while that asks": "loss = 1.0\nwhile loss > 0.1:\n    backward()\n    loss = read()",
    "behind a loop over it": (
        "for i in range(3):\n    for key in ('a', 'b'):\n        if math.isnan(read(key)):\n            bad = True\n"
        "            break\n    if bad:\n        break\n    step()"
    ),
    "a step in a function": (
        "def f():\n    step()\nfor i in range(3):\n    if math.isnan(read()):\n        break\n    f()"
    ),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_number_for_which_a_loop_that_trains_is_left(name: str, tmp_path: Path) -> None:
    found = decided(tmp_path, LEAVES[name], NAN)
    assert [made.does for made in found] == ["leaves"]


SKIPS = {
    "continue": "for i in range(1):\n    if not math.isfinite(read()):\n        continue\n    backward()",
    "only if it is finite": "for i in range(1):\n    loss = read()\n    if math.isfinite(loss):\n        backward()",
    "a step function": "def f():\n    if math.isnan(read()):\n        return None\n    backward()\n\nf()",
    "an exception that is caught": (
        "for i in range(1):\n    try:\n        if math.isnan(read()):\n"
        "            raise ValueError\n        backward()\n"
        "    except ValueError:\n        print('skipped')"
    ),
}


@pytest.mark.parametrize("name", SKIPS)
def test_a_number_for_which_a_step_is_skipped(name: str, tmp_path: Path) -> None:
    found = decided(tmp_path, SKIPS[name], NAN)
    assert [made.does for made in found] == ["skips"]


STEP = "def {}():\n    loss = read()\n    if math.isnan(loss):\n        return None\n    return loss\n\n{}()"


@pytest.mark.parametrize(("name", "does"), [("training_step", "skips"), ("validation_step", None)])
def test_a_step_function_that_gives_no_loss_skips_the_step(name: str, does: str | None, tmp_path: Path) -> None:
    found = decided(tmp_path, STEP.format(name, name), NAN)
    assert [made and made.does for made in found] == [does]


NOTHING = {
    "printed": "print(read())",
    "logged if it is a number": (
        "def log(v):\n    if math.isnan(v):\n        return\n    print(v)\n\nlog(read())\nbackward()"
    ),
    "said": "if math.isnan(read()):\n    print('NaN')\nbackward()",
    "replaced": "loss = read()\nloss = 0.0 if math.isnan(loss) else loss\nif math.isnan(loss):\n    sys.exit(1)",
    "the best one": (
        "best = 1.0\nfor i in range(1):\n    loss = read()\n    if loss < best:\n        break\n    backward()"
    ),
    "an evaluation that passes over it": (
        "for i in range(1):\n    value = read()\n    if math.isnan(value):\n        continue\n    print(value)"
    ),
    "another condition": "loss = read()\nif len(sys.argv) > 1000:\n    sys.exit(1)",
    "what nobody knows": "from random import random\nif random() < 2 and math.isfinite(read()):\n    sys.exit(1)",
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_number_on_which_nothing_is_decided(name: str, tmp_path: Path) -> None:
    """The twin: the same reads, where the program goes on."""
    assert only(tmp_path, NOTHING[name]) is None


@pytest.mark.parametrize(("value", "does"), [(INF, "ends"), (NAN, None)])
def test_what_is_known_is_the_number_itself(value: float, does: str | None, tmp_path: Path) -> None:
    found = only(tmp_path, "if read() > 1e8:\n    sys.exit(1)", value)
    assert (found and found[0]) == does


@pytest.mark.parametrize(("answer", "does"), [(True, "ends"), (False, None)])
def test_the_answer_of_a_test_of_a_tensor(answer: bool, does: str | None, tmp_path: Path) -> None:
    found = decided(tmp_path, "loss = 1\nif isnan(loss):\n    raise ValueError", answer)
    assert [made and made.does for made in found] == [does]
    assert all(made is None or (made.tests and "loss" in made.names) for made in found)


NAMED = {
    "a mask": ("bad = isnan(loss)", "if bad:\n        break"),
    "a mask of a mask": ("mask = isnan(loss)\n    bad = mask", "if bad:\n        break"),
    "another answer": ("bad = answers(loss)\n    isnan(loss)", "if bad:\n        break"),
    "one that is changed": ("bad = isnan(loss)\n    bad = answers(loss)", "if bad:\n        break"),
}


@pytest.mark.parametrize(("name", "tests"), [(name, index < 2) for index, name in enumerate(NAMED)])
def test_an_answer_that_has_a_name(name: str, tests: bool, tmp_path: Path) -> None:
    """The twins: names of what is no test of finiteness."""
    before, after = NAMED[name]
    program = f"answers = isnan\nloss = 1\nfor i in range(1):\n    {before}\n    {after}\n    step()"
    (made,) = decided(tmp_path, program, value=True)
    assert (made.does, made.tests, "loss" in made.names) == ("leaves", tests, True)


def test_an_answer_that_is_one_part_of_a_test(tmp_path: Path) -> None:
    found = decided(tmp_path, "a = b = 1\nif isnan(a) or isnan(b):\n    sys.exit(1)", value=True)
    assert [made.does for made in found] == ["ends"]


CAUGHT = {
    "a restart": ("while True:\n    try:\n        fit()\n        break\n    except ValueError:\n        break", False),
    "a handler that raises": ("try:\n    fit()\nexcept Exception:\n    print('lost')\n    raise", True),
    "a handler that exits": ("try:\n    fit()\nexcept ValueError:\n    sys.exit(1)", True),
    "another matter": ("try:\n    fit()\nexcept KeyboardInterrupt:\n    pass", True),
    "a finally": ("try:\n    fit()\nfinally:\n    print('over')", True),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_what_a_caller_catches_and_goes_on_with_does_not_end_the_program(name: str, tmp_path: Path) -> None:
    around, ends = CAUGHT[name]
    program = f"def fit():\n    if math.isnan(read()):\n        raise ValueError('nan')\n\n{around}\n"
    (found,) = decided(tmp_path, program, NAN)
    assert (found is not None and found.does == "ends") is ends


HELD = {
    "a dictionary": "losses = {'a': 1.0, 'b': read()}\nif any(not math.isfinite(v) for v in losses.values()):\n",
    "pairs": "losses = {'a': read()}\nif any(math.isnan(v) for k, v in losses.items()):\n",
    "a list": "losses = [read(), 1.0]\nif not all([math.isfinite(v) for v in losses]):\n",
    "a sum": "losses = {'a': read(), 'b': 1.0}\nif math.isnan(sum(losses.values())):\n",
    "a dictionary that is made anew": "losses = {k: read() for k in 'ab'}\nif math.isnan(sum(losses.values())):\n",
}


@pytest.mark.parametrize("name", HELD)
def test_a_number_that_a_container_holds_is_tested(name: str, tmp_path: Path) -> None:
    found = decided(tmp_path, f"{HELD[name]}    raise ValueError('nan')\n", NAN)
    assert {each.does for each in found if each is not None} == {"ends"}


def test_a_loop_over_what_a_container_holds_is_followed(tmp_path: Path) -> None:
    program = (
        "losses = {'a': read()}\nfor name, value in losses.items():\n    if math.isnan(value):\n        sys.exit(1)\n"
    )
    assert [each.does for each in decided(tmp_path, program, NAN)] == ["ends"]


@pytest.mark.parametrize(("after", "does"), [("backward()\n    step()", "skips"), ("print('logged')", None)])
def test_a_turn_that_has_made_its_step_skips_nothing(after: str, does: str | None, tmp_path: Path) -> None:
    program = "for turn in range(1):\n    backward()\n    step()\n    if math.isnan(read()):\n        continue\n    "
    program += f"{after}\n"
    found = [each and each.does for each in decided(tmp_path, program, NAN)]
    assert found == [does]


def test_a_flag_that_ends_a_loop_leaves_it(tmp_path: Path) -> None:
    program = """
    stopped = False
    while not stopped:
        if math.isnan(read()):
            stopped = True
        else:
            backward()
            step()
    """
    assert [each.does for each in decided(tmp_path, program, NAN)] == ["leaves"]


WATCHDOG = """
class Trainer:
    should_stop = False

    def check(self, value):
        if math.isnan(value):
            self.should_stop = True

class Watchdog:
    stop = False

    def __init__(self, trainer):
        self.trainer = trainer

    def __call__(self):
        if math.isnan(read()):
            self.stop = True

    def told(self, value):
        if not math.isfinite(value):
            self.trainer.should_stop = True

trainer = Trainer()
other = Trainer()
watchdog = Watchdog(trainer)
"""
FLAGS = {
    "of a callback that reads": (
        "for i in range(2):\n    step()\n    watchdog()\n    if watchdog.stop:\n        break",
        "leaves",
    ),
    "of what a callback holds": (
        "while not trainer.should_stop:\n    step()\n    watchdog.told(read())\n    trainer.should_stop = True",
        None,
    ),
    "of the trainer, by a callback": (
        "for i in range(1):\n    watchdog.told(value=read())\n    if trainer.should_stop:\n        raise ValueError",
        "ends",
    ),
    "that a while asks for": ("while not trainer.should_stop:\n    step()\n    trainer.check(read())", "leaves"),
    "in a function of its own": (
        "def after():\n    watchdog.told(read())\n\nfor i in range(1):\n    after()\n    if trainer.should_stop:\n"
        "        continue\n    step()",
        "skips",
    ),
    "of an early stopping, two calls below the loop": (
        "class Stopping:\n    stop = False\n    def __call__(self, value):\n        self.stop = value != value\n\n"
        "class Fit:\n    def __init__(self):\n        self.stopping = Stopping()\n"
        "    def log(self, value):\n        self.stopping(value)\n"
        "    def turn(self):\n        loss = read()\n        self.log(loss)\n        return 1.0\n"
        "    def fit(self):\n        for i in range(3):\n            self.turn()\n"
        "            if self.stopping.stop:\n                break\n            backward()\n\nFit().fit()",
        "leaves",
    ),
    "of another object": (
        "for i in range(1):\n    trainer.check(read())\n    if other.should_stop:\n        sys.exit(1)",
        None,
    ),
    "that nobody asks for": ("for i in range(2):\n    step()\n    watchdog()", None),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_of_an_object(name: str, tmp_path: Path) -> None:
    program, does = FLAGS[name]
    found = {made and made.does for made in decided(tmp_path, WATCHDOG + program, NAN)}
    assert found == {does}


HANDLED = {
    "a helper raises, its caller passes over it": (
        "def step():\n    if math.isnan(read()):\n        raise ValueError\n    backward()\n\n"
        "for i in range(1):\n    try:\n        step()\n    except ValueError:\n        pass",
        "skips",
    ),
    "a helper that is told raises": (
        "def check(value):\n    if math.isnan(value):\n        raise ValueError\n\n"
        "for i in range(1):\n    try:\n        check(read())\n        step()\n    except ValueError:\n        continue",
        "skips",
    ),
    "an exception that is passed over": (
        "for i in range(1):\n    with contextlib.suppress(OSError, ValueError):\n        if math.isnan(read()):\n"
        "            raise ValueError\n        backward()",
        "skips",
    ),
    "an exception that a test expects": (
        "with pytest.raises((AssertionError, OSError)):\n    assert math.isfinite(read())\nprint('over')",
        None,
    ),
    "another exception than a test expects": (
        "with pytest.raises(OSError, match='gone'):\n    assert math.isfinite(read())",
        "ends",
    ),
    "a handler of another matter": (
        "for i in range(1):\n    try:\n        if math.isnan(read()):\n            raise ValueError\n"
        "        backward()\n    except KeyboardInterrupt:\n        break",
        "ends",
    ),
    "a handler of another error": (
        "for i in range(1):\n    try:\n        assert math.isfinite(read())\n        backward()\n"
        "    except ArithmeticError:\n        pass",
        "ends",
    ),
    "a handler that ends the program": (
        "try:\n    for i in range(1):\n        if math.isnan(read()):\n            raise ValueError\n"
        "        backward()\nexcept ValueError:\n    print('diverged')\n    sys.exit(7)",
        "ends",
    ),
    "a handler behind the loop": (
        "try:\n    for i in range(1):\n        if math.isnan(read()):\n            raise ValueError\n"
        "        backward()\nexcept Exception:\n    print('diverged')",
        "leaves",
    ),
    "a handler that breaks": (
        "for i in range(1):\n    try:\n        if math.isnan(read()):\n            raise ValueError\n"
        "        backward()\n    except Exception:\n        break",
        "leaves",
    ),
    "a raise in a handler": (
        "try:\n    int('x')\nexcept ValueError:\n    if math.isnan(read()):\n        raise ValueError",
        "ends",
    ),
    "an evaluation that passes over it": (
        "def score():\n    value = read()\n    if math.isnan(value):\n        raise ValueError\n    return value\n\n"
        "for i in range(1):\n    try:\n        print(score())\n    except ValueError:\n        continue",
        None,
    ),
    "two reads in one condition": (
        "loss = types.SimpleNamespace(item=read)\nfor i in range(1):\n    if loss.item() > 1e6 or "
        "math.isnan(loss.item()):\n        continue\n    backward()",
        "skips",
    ),
}


@pytest.mark.parametrize("name", HANDLED)
def test_what_becomes_of_an_exception(name: str, tmp_path: Path) -> None:
    program, does = HANDLED[name]
    made = decided(tmp_path, program, NAN)[0]
    assert (made and made.does) == does


CALLBACKS = """
class Guard:
    def after(self, trainer, value):
        if math.isnan(value):
            trainer.stop = True

class Reader:
    def after(self, trainer, value):
        if math.isnan(read()):
            trainer.stop = True

class Trainer:
    stop = False
    def __init__(self, callback):
        self.callbacks = [callback]
    def call(self, name, *more):
        for each in self.callbacks:
            getattr(each, name)(self, *more)
    def fit(self):
        for i in range(1):
            {turn}
            if self.stop:
                break
            backward()

Trainer({callback}).fit()
"""


@pytest.mark.parametrize(
    ("callback", "turn"),
    [
        ("Reader()", "for each in self.callbacks: each.after(self, 1.0)"),
        ("Reader()", "self.call('after', 1.0)"),
    ],
)
def test_a_flag_that_one_of_several_callbacks_sets(callback: str, turn: str, tmp_path: Path) -> None:
    (made,) = decided(tmp_path, CALLBACKS.format(callback=callback, turn=turn), NAN)
    assert made.does == "leaves"


def test_what_a_later_turn_may_store_is_not_known(tmp_path: Path) -> None:
    """The twin: a loop whose turns give the name another number."""
    program = (
        "for i in range(1):\n    for key in 'a':\n        v = read()\n    if math.isnan(v):\n        break\n    step()"
    )
    assert decided(tmp_path, program, NAN) == [None]


def test_what_is_read_after_something_was_stored_is_another_number(tmp_path: Path) -> None:
    """The twin of two reads in one condition."""
    program = (
        "loss = types.SimpleNamespace(item=read)\nfor i in range(1):\n    v = loss.item()\n"
        "    if len(sys.argv) > 1000 or math.isnan(loss.item()):\n        continue\n    backward()"
    )
    assert decided(tmp_path, program, NAN)[0] is None
