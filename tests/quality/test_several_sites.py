"""A mend at several sites holds if it is right at each of them, and not if it is wrong at one."""

from __future__ import annotations

import importlib
import operator
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
import torch

import whynan
from tests.quality.verdicts.exactness import MAIN, differs, numbers, tensors, trained
from tests.quality.verdicts.several_sites import PROGRAMS, Program
from tests.quality.verdicts.substituted import Substitution, best, edited, held
from tests.quality.verdicts.trained import TRAININGS, run
from whynan.records import APPLICABLE
from whynan.run.proof import proving
from whynan.verify import comparison

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path
    from types import ModuleType

    from tests.quality.conftest import Tally
    from tests.quality.verdicts.substituted import Wrong
    from whynan.records import Fix, Report

pytestmark = pytest.mark.proof

SHARE: Final = {
    "the loss of likelihoods": 4,
    "a logarithm and a root in two functions": 4,
    "softplus by hand and an entropy": 4,
}
"""Programs of the short run: one of so many wrong mends of each is tried there."""


UNCAUGHT: Final = {
    ("a loss that hands on what it is given", f"{how} at (p - y).abs().mean()"): "it is beside what the birth is of, "
    "in a function without a birth of its own, and what that function gives is NaN as a whole"
    for how in ("the other sign", "an epsilon", "detached")
}
"""Wrong mends that pass, by program and what is wrong, each with the reason why nothing tells."""


@pytest.fixture(autouse=True)
def fixes_can_be_made() -> None:
    """What stands in the place of a candidate is no change that is made anew of its rule and place."""


@contextmanager
def loaded(program: Program, folder: Path) -> Generator[ModuleType]:
    """The files of a program in a folder, imported anew: nothing of it has been run."""
    for name, text in program.files.items():
        (folder / name).write_text(text, "utf-8")
    names = [name.removesuffix(".py") for name in program.files]
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(MAIN)
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)


def proved(program: Program, folder: Path) -> Report:
    """The report of a program that fails, with its fixes."""
    with loaded(program, folder) as module:
        return whynan.explain(module.target, *tensors(program.failing, program.learnt), rerun=True)


def right_of(program: Program, folder: Path) -> Fix:
    """The mend that holds, which is right and at several sites."""
    fix = best(proved(program, folder).findings[0].fixes)
    assert fix is not None, program.name
    after = edited(fix, program.files)
    exact = numbers(program.files, program.healthy, program.learnt, torch.float64)
    assert not differs(numbers(after, program.healthy, program.learnt, torch.float32), exact), fix
    assert _is_finite(program, after), fix
    assert fix.further or len(_changed(fix)) > 1, fix
    return fix


def _changed(fix: Fix) -> list[str]:
    """The functions and files that a fix changes, as its hunks show them."""
    return [line for line in (fix.patch or "").splitlines() if line.startswith(("+++", "-    "))]


def _is_finite(program: Program, texts: dict[str, str]) -> bool:
    found = numbers(texts, program.failing, program.learnt, torch.float32)
    return not isinstance(found, str) and all(bool(one.isfinite().all()) for one in found)


def is_wrong(program: Program, right: Fix, texts: dict[str, str]) -> bool:
    """Whether a mend gives other numbers than the program where that is healthy, or than exact where it fails."""
    exact = numbers(program.files, program.healthy, program.learnt, torch.float64)
    if not _is_finite(program, texts) or differs(numbers(texts, program.healthy, program.learnt, torch.float32), exact):
        return True
    if right.verdict.status != "verified":
        return False
    exact = numbers(edited(right, program.files), program.failing, program.learnt, torch.float64)
    return differs(numbers(texts, program.failing, program.learnt, torch.float32), exact)


def passed(program: Program, right: Fix, wrong: Wrong, folder: Path) -> list[Fix]:
    """What a proof lets pass of a mend that is wrong at one site."""
    texts = edited(right, program.files)
    mutated = {name: wrong.of(text) for name, text in texts.items()}
    assert mutated != texts, (program.name, wrong)
    assert is_wrong(program, right, mutated), (program.name, wrong)
    substitution = Substitution(wrong, right.title)
    with substitution.in_place():
        report = proved(program, folder)
    assert substitution.given or substitution.declined, (program.name, wrong)
    return substitution.passed(report, program.files)


def _hold(program: Program, wrong: Sequence[Wrong], folder: Path, tally: Tally) -> None:
    right = right_of(program, folder)
    tally.count("several sites, right mends", right.verdict.status in APPLICABLE, 1, "verified or guarded")
    found = {one.how: passed(program, right, one, folder) for one in wrong}
    missed = [how for how, fixes in found.items() if fixes]
    tally.count("several sites, wrong mends", len(wrong) - len(missed), len(wrong), "neither verified nor guarded")
    for how in missed:
        tally.listed("several sites, wrong mends", f"{program.name}, {how}: {UNCAUGHT.get((program.name, how), '')}")
    asked = {one.how for one in wrong}
    assert set(missed) == {how for name, how in UNCAUGHT if name == program.name and how in asked}, program.name


def _program(name: str) -> Program:
    return next(program for program in PROGRAMS if program.name == name)


def _names(programs: Iterable[Program]) -> list[str]:
    return [program.name for program in programs]


def test_there_are_enough_of_them() -> None:
    assert len(PROGRAMS) >= 20
    wrong = [(program.name, one) for program in (*PROGRAMS, *TRAININGS) for one in program.wrong]
    assert len(set(wrong)) == len(wrong)
    assert len(wrong) >= 200


@pytest.mark.parametrize("name", SHARE)
def test_right_mends_hold_and_wrong_ones_do_not(name: str, tmp_path: Path, tally: Tally) -> None:
    program = _program(name)
    _hold(program, [*program.wrong][:: SHARE[name]], tmp_path, tally)


@pytest.mark.full
@pytest.mark.parametrize("name", _names(PROGRAMS))
def test_all_right_mends_hold_and_all_wrong_ones_do_not(name: str, tmp_path: Path, tally: Tally) -> None:
    program = _program(name)
    _hold(program, [*program.wrong], tmp_path, tally)


def _hold_trained(program: Program, wrong: Sequence[Wrong], folder: Path, tally: Tally) -> None:
    right = best(run(program, folder).findings[0].fixes)
    assert right is not None
    texts = edited(right, program.files)
    exact = trained(texts, torch.float64)
    assert not differs(trained(texts, torch.float32), exact)
    tally.count("several sites, right mends", 1, 1, "verified or guarded")
    missed: list[str] = []
    for one in wrong:
        mutated = {name: one.of(text) for name, text in texts.items()}
        assert mutated != texts, one
        assert differs(trained(mutated, torch.float32), exact), one
        report = run(program, folder, one, right.title)
        missed += [one.how] if held(report, one, program.files) else []
    tally.count("several sites, wrong mends", len(wrong) - len(missed), len(wrong), "neither verified nor guarded")
    assert not missed, program.name


@pytest.mark.full
def test_a_training_is_mended_at_both_sites_or_not_at_all(tmp_path: Path, tally: Tally) -> None:
    _hold_trained(TRAININGS[0], [*TRAININGS[0].wrong][::12], tmp_path, tally)


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("name", _names(TRAININGS))
def test_all_trainings_are_mended_at_both_sites_or_not_at_all(name: str, tmp_path: Path, tally: Tally) -> None:
    program = next(program for program in TRAININGS if program.name == name)
    _hold_trained(program, [*program.wrong], tmp_path, tally)


def _wrong(program: Program, how: str) -> Wrong:
    return next(one for one in program.wrong if one.how == how)


def _same(*_: object) -> bool:
    return True


@pytest.mark.full
def test_a_proof_that_takes_any_moved_text_for_the_same_lets_a_wrong_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program("the loss of likelihoods")
    right = right_of(program, tmp_path)
    wrong = _wrong(program, "another argument")
    assert not passed(program, right, wrong, tmp_path)
    monkeypatch.setattr(proving, "are_same", _same)
    monkeypatch.setattr(proving, "_birth_numbers", operator.attrgetter("op"))
    assert passed(program, right, wrong, tmp_path)


@pytest.mark.full
def test_a_judge_that_forgives_all_lets_a_wrong_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program("softplus by hand and an entropy")
    right = right_of(program, tmp_path)
    wrong = _wrong(program, "multiplied by 1.01 at F.softplus(x)")
    assert not passed(program, right, wrong, tmp_path)
    monkeypatch.setattr(comparison, "NOISY", 1e12)
    assert passed(program, right, wrong, tmp_path)
