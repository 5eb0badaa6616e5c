"""Runs of pytest with the plugin: a suite of tests of every kind, what is to become of each, and what pytest said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import math
import pytest
import torch
import whynan
from torch import nn


def a_bad_output():
    nn.Softsign()(torch.zeros(2) / 0)

"""

SUITE = """
import unittest

import pytest_whynan


@pytest.fixture
def dirty():
    return {"column": torch.tensor([1.0, -1.0]).log()}


@pytest.fixture
def tracing():
    with whynan.trace() as trace:
        yield trace


def test_healthy():
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    scores = (weight * 2).masked_fill(torch.tensor([True, False, False]), -math.inf)
    scores.softmax(0)[1].backward()
    optimizer.step()


def test_gradient():
    weight = nn.Parameter(torch.zeros(3))
    weight.sqrt().sum().backward()
    assert weight.grad is not None


def test_own_failure():
    y = torch.zeros(2) / torch.zeros(2)
    assert y.sum().item() > 0


def test_own_failure_of_numbers_that_are_well():
    assert torch.ones(2).sum().item() > 3


def test_asks_isnan():
    assert (torch.zeros(2) / 0).isnan().all()


def test_reads_nan():
    assert math.isnan((torch.zeros(1) / 0).item())


def test_raises():
    with pytest.raises(ZeroDivisionError):
        y = torch.zeros(2).log()
        1 / 0


def test_dirty_fixture(dirty):
    nn.Linear(2, 1)(dirty["column"])


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_parameters(scale):
    nn.Softsign()(torch.full((2,), scale) / scale)


class TestCase(unittest.TestCase):
    def setUp(self):
        self.zeros = torch.zeros(2)

    def test_passes(self):
        nn.Softsign()(self.zeros / self.zeros)

    def test_fails(self):
        y = self.zeros / self.zeros
        self.assertTrue((y > 0).all())

    def test_skips_as_a_case(self):
        a_bad_output()
        self.skipTest("by itself")

    def test_in_parts(self):
        for number in range(2):
            with self.subTest(number=number):
                a_bad_output()


def test_skips():
    a_bad_output()
    pytest.skip("by itself")


@pytest.mark.xfail(strict=True)
def test_expected():
    a_bad_output()


@pytest.mark.xfail(raises=pytest_whynan.NonFinite, strict=True)
def test_expected_by_name():
    a_bad_output()


@pytest.mark.xfail(raises=ValueError)
def test_expected_otherwise():
    a_bad_output()


def test_gives_up():
    a_bad_output()
    pytest.xfail("by itself")


def test_explains_itself():
    a_bad_output()
    assert whynan.explain(a_bad_output).verdict == "nonfinite"


def test_traced_by_a_fixture(tracing):
    a_bad_output()


def test_takes_the_report(whynan_report):
    a_bad_output()
    report = whynan_report()
    assert (report.verdict, report.findings[0].rule) == ("nonfinite", "WN101")
    assert whynan_report() is report


def test_takes_the_report_and_fails(whynan_report):
    a_bad_output()
    assert whynan_report().verdict == "clean"


def test_has_no_report_but_could(whynan_report):
    a_bad_output()


@pytest.mark.whynan(False)
def test_left_out():
    a_bad_output()


@pytest.mark.whynan(False)
def test_left_out_that_asks(whynan_report):
    whynan_report()


@pytest.mark.whynan(allow=["zero-over-zero"], reason="meant", memory="1MB")
def test_allowed_by_its_marker():
    a_bad_output()


@pytest.mark.whynan(allow="WN5")
class TestMarked:
    @pytest.mark.whynan(allow="WN1")
    def test_both(self):
        a_bad_output()

    def test_one(self):
        a_bad_output()


def test_allowed_in_a_block():
    with whynan.allow("WN101", reason="meant"):
        a_bad_output()


def test_allowed_by_a_comment():
    nn.Softsign()(torch.zeros(2) / 0)  # whynan: allow WN101


@pytest.mark.whynan(strict=True)
def test_strict():
    assert math.isnan((torch.zeros(1) / 0).item())


def test_marked_late():
    pass


def test_with_markup_in_it():
    nn.Softsign()(torch.zeros(2) / torch.tensor([0.0, 1.0]).where(torch.ones(2) < 0, torch.zeros(2)))


def documented():
    \"\"\"
    >>> import torch
    >>> torch.nn.Softsign()(torch.zeros(2) / 0).shape
    torch.Size([2])
    \"\"\"
"""

LATE = """
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_marked_late":
            item.add_marker(pytest.mark.whynan(alow="WN5"))
"""

PASSED = set(
    "documented test_healthy test_asks_isnan test_reads_nan test_raises test_parameters[1.0] test_explains_itself "
    "test_traced_by_a_fixture test_takes_the_report test_left_out test_allowed_by_its_marker test_both "
    "test_allowed_in_a_block test_allowed_by_a_comment".split()
)
SKIPPED = set("test_skips test_skips_as_a_case test_expected test_expected_by_name test_gives_up".split())
FAILED_FOR = {
    "test_gradient": "NonFinite: Inf in the gradients, born at test_it.py:39 (WN301 sqrt-at-zero)",
    "test_dirty_fixture": "NonFinite: NaN in the output, born at test_it.py:67 (WN001 nan-in-data)",
    "test_parameters[0.0]": "NonFinite: NaN in the output, born at test_it.py:72 (WN101 zero-over-zero)",
    "test_passes": "NonFinite: NaN in the output, born at test_it.py:80 (WN101 zero-over-zero)",
    "test_strict": "NonFinite: warning: NaN in a value that was read, born at test_it.py:182 (WN101 zero-over-zero)",
    "test_with_markup_in_it": "NonFinite: NaN in the output, born at test_it.py:190 (WN101 zero-over-zero)",
    **dict.fromkeys(
        "test_in_parts test_expected_otherwise test_has_no_report_but_could test_one".split(),
        "NonFinite: NaN in the output, born at test_it.py:10 (WN101 zero-over-zero)",
    ),
    "test_own_failure": "assert nan > 0",
    "test_own_failure_of_numbers_that_are_well": "assert 2.0 > 3",
    "test_fails": "AssertionError: tensor(False) is not true",
    "test_takes_the_report_and_fails": "AssertionError: assert 'nonfinite' == 'clean'",
    "test_left_out_that_asks": "whynan.errors.UsageError: whynan_report(): test_it.py::test_left_out_that_asks is not "
    "looked at, or not yet: call it in the test or after it, and leave whynan(False) away",
    "test_marked_late": "Failed: whynan: the marker of test_it.py::test_marked_late: alow is no argument of it: give "
    "traced, allow, reason, strict, memory",
}
"""The first line of what each failing test fails for."""
SECTION = "-- whynan --"


@dataclass(frozen=True)
class Ran:
    """A run of pytest: what it printed, and what its XML says of each test."""

    text: str
    outcomes: dict[str, str]
    told: dict[str, str]
    messages: dict[str, str]


def environment(**changed: str) -> dict[str, str]:
    """That of a run: wide, without colours, and only the plugins that it names; never that of a build server.

    pytest cuts its last lines to the width of the terminal, but not where ``CI`` or ``BUILD_NUMBER`` is set.
    """
    left_out = ("PYTEST", "COV_", "WHYNAN")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    for name in ("CI", "BUILD_NUMBER"):
        kept.pop(name, None)
    fixed = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return {**kept, **fixed, "WHYNAN_RAISE_INTERNAL": "1", **changed}


def run(directory: Path, *arguments: str, stdin: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, with the plugin."""
    command = [sys.executable, "-m", "pytest", "-p", "pytest_whynan", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=directory, input=stdin, env=environment(**changed), capture_output=True, text=True, check=False
    )


def write(directory: Path, body: str, name: str = "test_it.py") -> Path:
    (directory / name).write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    return directory


def told(directory: Path, text: str) -> Ran:
    outcomes: dict[str, str] = {}
    texts: dict[str, str] = {}
    messages: dict[str, str] = {}
    for case in ET.parse(directory / "report.xml").iter("testcase"):
        name = case.get("name", "").rpartition(".")[2] if "[" not in case.get("name", "") else case.get("name", "")
        ends = [end for end in case if end.tag in ("failure", "error", "skipped")]
        outcomes[name] = ends[-1].tag if ends else "passed"
        if ends:
            texts[name], messages[name] = ends[-1].text or "", ends[-1].get("message", "")
    return Ran(text, outcomes, texts, messages)


def plain(text: str) -> str:
    """Text without colours, as a terminal or an XML file writes them."""
    return re.sub(r"(\x1b|#x1B)\[[0-9;]*m", "", text)


def normal(text: str, directory: Path) -> str:
    """Output without what differs from run to run and from machine to machine."""
    for pattern, instead in (
        (re.escape(str(directory)), "<folder>"),
        (r"in \d+\.\d\ds", "in <time>"),
        (r"=+ (.*<time>) =+", r"== \1 =="),
        (r"platform .*", "platform <platform>"),
        (r"plugins: .*\n", ""),
        (r"0x[0-9a-f]+", "<address>"),
        (r"whynan \d\S* · torch \S+", "whynan <version> · torch <version>"),
    ):
        text = re.sub(pattern, instead, text)
    return text
