"""The catalogue: codes, names and pages, and what is said of a birth that no rule explains."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan
import whynan.rules
from tests.selection import spread
from whynan.records import Element, Finding, Operand, Report
from whynan.rules.catalogue import SECTIONS, explain, families, family, page, parsed_page, read, rules, title

ALL = {rule.code: rule for rule in rules()}
PAGE = "WN999 x: y.\n\n" + "\n".join(
    f"{name}\n    Bad::\n\n        a\n\n    Good::\n\n        b" if name == "Example" else f"{name}\n    z"
    for name in SECTIONS
)


def _unexplained(**operand: object) -> Finding:
    known = Operand.model_validate({"name": "self", "value": 2.0, "dtype": "float32", "origin": "live", **operand})
    element = Element(index=(0,), shape=(3,), dtype="float32", value=float("nan"), count=1, total=3, operands=(known,))
    return Finding(
        severity="error",
        fate="escaped",
        birth="invalid",
        phase="forward",
        op="mine.op.default",
        element=element,
        site=None,
    )


def test_codes_and_names_are_used_once() -> None:
    assert len({rule.code for rule in rules()}) == len({rule.name for rule in rules()}) == len(rules())


def test_every_rule_is_in_a_family_that_has_a_title() -> None:
    for rule in rules():
        assert families(rule)[0] == rule.code[:-2]
        assert all(title(start) for start in families(rule))
    assert "WN9" in families(ALL["WN404"])


@pytest.mark.parametrize("code", ["WN1", "WN1000", "wn100", "WNY00", "W100", ""])
def test_what_is_no_code_has_no_family(code: str) -> None:
    with pytest.raises(ValueError, match="is no code"):
        family(code)


def test_every_module_of_a_rule_is_found() -> None:
    folders = {m.name for m in pkgutil.iter_modules(whynan.rules.__path__) if m.ispkg}
    modules = [m.name for f in folders for m in pkgutil.iter_modules([f"{whynan.rules.__path__[0]}/{f}"])]
    assert sorted(m[:5].upper() for m in modules) == sorted(ALL)
    assert {m[:3] for m in modules} == folders


@pytest.mark.parametrize("code", ALL)
def test_a_rule_has_a_whole_page(code: str) -> None:
    found = parsed_page(code)
    assert found.summary.startswith(f"{code} {ALL[code].name}: ")
    assert tuple(found.sections) == SECTIONS
    assert all(found.sections.values())
    assert "TODO" not in page(code)


@pytest.mark.parametrize(
    "doc",
    ["WN999 x: y.\n\nWhat it is\n    z", PAGE.replace("Good::", "Better::"), PAGE.replace("Bad::", "")],
    ids=["a section is missing", "no good example", "no bad example"],
)
def test_half_a_page_is_refused(doc: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError, match=r"a page has|an example is") as caught:
        read(doc)
    assert str(caught.value) == snapshot


def _run(source: str, folder: Path) -> Report:
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np, "inf": float("inf")}
    torch.manual_seed(0)
    # uninitialised memory is filled with NaN, for the one example that reads it
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        if "whynan.watch" in source:
            return _watched(source, folder / "example.py", {**names, "whynan": whynan, "__name__": "example"})
        with whynan.trace() as t:
            exec(compile(source, "example.py", "exec"), names)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    return t.report


def _watched(source: str, path: Path, names: dict[str, Any]) -> Report:
    """The report of an example that watches itself: what is run again of it comes from its file."""
    path.write_text(source)
    exec(compile(source, str(path), "exec"), names)
    return names["w"].report


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("code", spread(ALL, 3))
def test_the_bad_example_of_a_page_runs_into_it(code: str, tmp_path: Path) -> None:
    report = _run(parsed_page(code).bad, tmp_path)
    assert code in {f.rule for f in (report.damaging if ALL[code].reads else report.findings)}


@pytest.mark.parametrize("code", ALL)
def test_the_good_example_of_a_page_is_clean(code: str, tmp_path: Path) -> None:
    assert _run(parsed_page(code).good, tmp_path).verdict == "clean"


@pytest.mark.parametrize("code", ALL)
def test_a_rule_has_its_test(code: str) -> None:
    (file,) = Path(__file__).parent.glob(f"test_{code.lower()}_*.py")
    assert file.stem == f"test_{code.lower()}_{ALL[code].name.replace('-', '_')}"


def test_an_unknown_code_has_no_page() -> None:
    with pytest.raises(KeyError):
        page("WN999")


@pytest.mark.parametrize(
    "operand",
    [{}, {"value": None, "origin": "gone"}, {"value": None, "min": -1.0, "max": 3.0}, {"expression": "x + 1"}],
    ids=["a value", "gone", "a row", "an expression"],
)
def test_what_no_rule_explains_states_its_facts(operand: dict[str, object], snapshot: SnapshotAssertion) -> None:
    explained = explain(_unexplained(**operand))
    assert explained.rule == "WN000"
    assert (explained.message, explained.explanation) == snapshot


def test_the_most_specific_rule_explains_and_the_others_are_named() -> None:
    x = torch.zeros(2, requires_grad=True)

    def program() -> None:
        x.sqrt().sum().backward()

    (finding,) = whynan.explain(program).findings
    assert finding.rule == "WN301"
    assert finding.matched == ("WN102",)


def test_no_sentence_is_left_open() -> None:
    text = (Path(__file__).parent / "__snapshots__").glob("*.ambr")
    for file in text:
        for message in re.findall(r"'message': '(.*)',", file.read_text(encoding="utf-8")):
            assert "None" not in message, message
            assert "?" not in message, message
