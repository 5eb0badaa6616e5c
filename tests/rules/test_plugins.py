"""Rules that other distributions bring: found, told like whynan's own, and harmless where they are broken."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

import whynan
from whynan.cli.main import whynan as command
from whynan.report.redaction import redacted
from whynan.rules.catalogue import FAMILIES, clear_rule_cache, distribution, parsed_page, rules

PAGE = '''"""{code} {name}: a gamma that is too dark.

What it is
    The logarithm of a pixel that is black.

Why it breaks
    log(0) is -Inf.

Example
    Bad::

        y = torch.log(torch.zeros(1))

    Good::

        y = torch.log(torch.ones(1))

Fix
    Add the black level.

When it is fine
    Never.

References
    The camera's manual.
"""

from whynan.rules.base import STRUCTURE, Explanation, Rule


def match(finding):
    {body}


RULE = Rule("{code}", "{name}", match, since="2.0")
'''
RECOGNISES = """
    if finding.op != "aten.log.default":
        return None
    return Explanation("a pixel is black", "Its logarithm is -Inf.", STRUCTURE)
"""

Install = Callable[..., Path]


def module(code: str = "ACME201", name: str = "black-pixel", body: str = RECOGNISES) -> str:
    """The source of a rule."""
    return PAGE.format(code=code, name=name, body=body.strip())


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with one module a rule; its name, and the sources by the name of their entry points."""
    made: list[str] = []

    def put(distribution: str = "acme-rules", *, points: str | None = None, **sources: str) -> Path:
        site = tmp_path / distribution
        info = site / f"{distribution.replace('-', '_')}-2.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.1\n")
        package = f"package_of_{distribution.replace('-', '_')}"
        lines = [f"{name} = {package}.{name}" for name in sources] if points is None else [points]
        (info / "entry_points.txt").write_text("\n".join(["[whynan.rules]", *lines, ""]))
        (site / package).mkdir()
        for name, source in {"__init__": "", **sources}.items():
            (site / package / f"{name}.py").write_text(source)
            made.append(f"{package}.{name}")
        monkeypatch.syspath_prepend(site)
        made.append(package)
        clear_rule_cache()
        return site

    yield put
    for name in made:
        sys.modules.pop(name, None)
    monkeypatch.undo()
    clear_rule_cache()


def black() -> object:
    return torch.log(torch.zeros(1))


def complaints() -> list[str]:
    """What is warned of as the rules are discovered."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rules()
    return [str(w.message) for w in caught]


def test_a_rule_of_another_distribution_explains(install: Install) -> None:
    install(black_pixel=module())
    assert complaints() == []
    (finding,) = whynan.explain(black).findings
    assert (finding.rule, finding.name, finding.message) == ("ACME201", "black-pixel", "a pixel is black")
    assert finding.matched == ("WN201",)
    assert distribution("ACME201") == "acme-rules 2.1"
    assert distribution("WN201") is None
    assert parsed_page("ACME201").sections["Fix"] == "Add the black level."


def test_without_it_whynans_own_rule_explains() -> None:
    assert {finding.rule for finding in whynan.explain(black).findings} == {"WN201"}


def test_it_is_allowed_by_code_family_and_name(install: Install) -> None:
    install(black_pixel=module())
    for pattern in ("ACME201", "ACME2", "black-pixel", "WN201"):
        with whynan.trace() as t, whynan.allow(pattern, reason="the lens cap is on"):
            kept = black()
        del kept
        assert t.report.verdict == "clean"
        assert t.report.unused_allows == ()


def test_it_stands_in_the_catalogue(install: Install, snapshot: SnapshotAssertion) -> None:
    install(black_pixel=module())
    runner = CliRunner(env={"COLUMNS": "100"})
    assert "ACME2 logarithm and exponential\n  ACME201 black-pixel" in runner.invoke(command, ["rules"]).output
    assert runner.invoke(command, ["rules", "ACME2"], prog_name="whynan").output == snapshot
    assert runner.invoke(command, ["rules", "black-pixel"], prog_name="whynan").output == snapshot
    document = runner.invoke(command, ["rules", "ACME201", "--format", "json"]).output
    assert '"distribution": "acme-rules 2.1"' in document


BROKEN = {
    "its import fails": module().replace("from whynan", "import nothing_of_the_kind\nfrom whynan", 1),
    "its import exits": "raise SystemExit(3)",
    "it has no rule": '"""Nothing."""',
    "it has no page": module().replace("Why it breaks", "Why"),
    "the page is of another": module().replace("ACME201 black", "ACME202 white", 1),
    "a code of whynan's": module(code="WN201"),
    "a code in whynan's name": module(code="WN299"),
    "a name of whynan's": module(name="log-of-zero"),
    "no code": module(code="acme-1"),
    "no name": module(name="Black Pixel"),
    "no family": module().replace('since="2.0"', 'also=("ACMEQ",)'),
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_one_warning_that_names_its_distribution(
    source: str, install: Install, snapshot: SnapshotAssertion
) -> None:
    install(black_pixel=source, grey_pixel=module(code="ACME203", name="grey-pixel"))
    (said,) = complaints()
    assert said == snapshot
    assert complaints() == []
    codes = [rule.code for rule in rules()]
    assert codes.count("WN201") == 1
    assert "ACME203" in codes
    assert "ACME201" not in codes


def test_of_two_that_clash_the_first_by_name_stays(install: Install, snapshot: SnapshotAssertion) -> None:
    install("zebra-rules", other=module())
    install("acme-rules", black_pixel=module())
    assert complaints() == snapshot
    assert distribution("ACME201") == "acme-rules 2.1"


def test_a_distribution_that_stands_twice_on_the_path_is_one(install: Install, tmp_path: Path) -> None:
    site = install(black_pixel=module())
    (tmp_path / "copy").symlink_to(site)
    sys.path.append(str(tmp_path / "copy"))
    clear_rule_cache()
    assert complaints() == []
    assert distribution("ACME201") == "acme-rules 2.1"


def test_entry_points_that_nobody_can_read_hurt_nobody(install: Install) -> None:
    install(points="neither a name nor a value")
    assert all(said.startswith("whynan leaves out all rules of other distributions") for said in complaints())
    assert len(rules()) == len({rule.code for rule in rules()}) > 50
    assert {finding.rule for finding in whynan.explain(black).findings} == {"WN201"}


FAILING = {
    "it raises": 'raise ZeroDivisionError("in the dark")',
    "it gives something else": 'return "black"',
    "its sentence is none": "return Explanation(None, '', STRUCTURE)",
}


@pytest.mark.parametrize("body", FAILING.values(), ids=FAILING)
def test_one_that_fails_on_a_finding_is_left_out_from_then_on(
    body: str, install: Install, snapshot: SnapshotAssertion
) -> None:
    install(black_pixel=module(body=body))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reports = [whynan.explain(black) for _ in range(2)]
    assert [finding.rule for report in reports for finding in report.findings] == ["WN201", "WN201"]
    assert [str(w.message) for w in caught] == snapshot


def test_where_warnings_are_errors_the_run_goes_on(install: Install) -> None:
    install(black_pixel=module(body=FAILING["it raises"]), other="1 / 0")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        report = whynan.explain(black)
    assert [finding.rule for finding in report.findings] == ["WN201"]
    assert len(caught) == 2


def test_what_strangers_write_is_harmless_in_a_warning(install: Install) -> None:
    install(black_pixel='raise ValueError("\\x1b[2J" + "x" * 5000)')
    (said,) = complaints()
    assert "\x1b" not in said
    assert len(said) < 2000


def test_a_report_for_other_eyes_does_not_name_it(install: Install) -> None:
    install(black_pixel=module())
    report = whynan.explain(black)
    assert "black-pixel" in report.to_json()
    shown = redacted(report)
    assert (shown.findings[0].rule, shown.findings[0].name) == ("WN000", "unexplained")
    assert shown.findings[0].matched == ("WN201",)
    assert "ACME" not in shown.to_json()
    assert "black" not in shown.to_json()


def test_the_rule_of_the_documentation_works(install: Install) -> None:
    text = (Path(__file__).parents[2] / "docs" / "writing-rules.md").read_text("utf-8")
    source = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    install(black_pixel=source)
    assert complaints() == []

    def program(shift: float) -> object:
        picture = torch.tensor([0.0, 0.5]) + shift
        return torch.log(picture)

    (finding,) = whynan.explain(program, 0.0).findings
    assert (finding.rule, finding.message) == ("ACME201", "the logarithm of a black pixel is -Inf: picture is 0 here")
    assert whynan.explain(program, 1 / 4096).verdict == "clean"


def test_the_documentation_has_every_family() -> None:
    text = (Path(__file__).parents[2] / "docs" / "writing-rules.md").read_text("utf-8")
    assert "".join(f"| {key} | {title} |\n" for key, title in FAMILIES.items()) in text
