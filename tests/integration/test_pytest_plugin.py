"""The pytest plugin, in real runs of pytest: which tests fail, what they say, and what stays as it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.integration.pytest_runs import (
    FAILED_FOR,
    LATE,
    PASSED,
    SECTION,
    SKIPPED,
    SUITE,
    Ran,
    normal,
    plain,
    run,
    told,
    write,
)

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All of the suite under ``--whynan``."""
    directory = write(tmp_path_factory.mktemp("suite"), SUITE)
    (directory / "conftest.py").write_text(LATE, encoding="utf-8")
    done = run(directory, "--whynan", "--doctest-modules", "--junitxml=report.xml", "-rA", "--color=yes")
    return told(directory, done.stdout)


def test_those_tests_fail_in_which_a_bad_number_escaped_or_that_fail_by_themselves(ran: Ran) -> None:
    by_outcome = {end: {n for n, e in ran.outcomes.items() if e == end} for end in set(ran.outcomes.values())}
    assert by_outcome == {"passed": PASSED, "skipped": SKIPPED, "failure": set(FAILED_FOR)}
    first_lines = {name: message.split("\n")[0] for name, message in ran.messages.items() if name in FAILED_FOR}
    assert first_lines == FAILED_FOR


@pytest.mark.parametrize("name", FAILED_FOR)
def test_a_failure_has_the_report_where_something_was_found(name: str, ran: Ran) -> None:
    nothing = ("test_own_failure_of_numbers_that_are_well", "test_left_out_that_asks", "test_marked_late")
    assert (SECTION in ran.told[name]) == (name not in nothing)
    assert ran.told[name].count("nonfinite: 1 error") == (name not in nothing and name != "test_strict")


def test_a_failure_of_the_tests_own_comes_first_and_whole(ran: Ran) -> None:
    own, section, report = ran.told["test_own_failure"].partition(SECTION)
    assert section
    assert ">       assert y.sum().item() > 0" in plain(own)
    assert "NaN in y as the program raised" in report
    assert "@py_assert" not in report


def test_what_a_fixture_made_is_named_by_the_fixture(ran: Ran) -> None:
    report = ran.told["test_dirty_fixture"]
    assert "argument dirty.column holds NaN at [1]: 1 of its 2 elements" in report


def test_a_failure_has_no_traceback_of_whynans(ran: Ran) -> None:
    for name, message in ran.messages.items():
        if message.startswith("NonFinite"):
            before, _, _ = ran.told[name].partition("\n")
            assert before == message.removeprefix("NonFinite: ")
    assert "pluggy/" not in ran.text
    assert "pytest_whynan.py" not in ran.text
    assert "INTERNALERROR" not in ran.text


def test_the_xml_has_the_plain_text_and_the_terminal_the_colours(ran: Ran) -> None:
    _, _, report = ran.told["test_with_markup_in_it"].partition(SECTION)
    assert "torch.ones(2) < 0" in report
    assert "\x1b" not in report
    assert "#x1B" not in report
    assert "\x1b[1;31mNaN in the output\x1b[0m" in ran.text


def test_warnings_of_passing_tests_are_counted_in_a_line(ran: Ran) -> None:
    assert "whynan: 1 test passes with warnings; --whynan-all shows them" in plain(ran.text)


def test_the_whole_output_of_a_failing_run(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    write(
        tmp_path,
        """
        class Pool(nn.Module):
            def __init__(self):
                super().__init__()
                self.p = nn.Parameter(torch.tensor(3.0))

            def forward(self, x):
                return x.clamp(min=0).pow(self.p).mean(-1).pow(1 / self.p)


        def test_pool_learns():
            pool = Pool()
            pool(torch.tensor([[1.0, 2.0], [-1.0, -2.0]])).sum().backward()
            assert pool.p.grad is not None


        def test_ratio():
            hits, tries = torch.zeros(2), torch.zeros(2)
            assert (hits / tries).mean() <= 1


        def test_reads():
            assert math.isinf(torch.zeros(1).log().item())
        """,
    )
    done = run(tmp_path, "--whynan")
    assert done.returncode == 1
    assert normal(done.stdout, tmp_path) == snapshot


BAD = """
def test_bad():
    a_bad_output()


def test_reads():
    assert math.isnan((torch.zeros(1) / 0).item())


def test_well():
    pass
"""


def test_nothing_is_loaded_where_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\nimport pytest\n\n"
        "def heavy():\n"
        "    names = ('torch', 'whynan', 'whynan.api', 'pydantic', 'rich', 'numpy')\n"
        "    return {name for name in names if name in sys.modules}\n\n"
        "def test_plain():\n    assert heavy() == set()\n\n"
        "@pytest.mark.skipif('MARKED' not in __import__('os').environ, reason='the twin')\n"
        "class TestTwin:\n"
        "    whynan = pytest.mark.whynan if 'MARKED' in __import__('os').environ else lambda f: f\n"
        "    @whynan\n"
        "    def test_marked(self):\n        assert {'torch', 'pydantic'} <= heavy()\n",
        encoding="utf-8",
    )
    bare = run(tmp_path, "-q")
    assert "1 passed, 1 skipped" in bare.stdout, bare.stdout
    asked = run(tmp_path, "-q", MARKED="1")
    assert "1 failed, 1 passed" in asked.stdout, asked.stdout


def test_the_plugin_is_found_by_pytest_and_can_be_left_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    found = pytester.runpytest_subprocess("--whynan", "--collect-only", "-q")
    found.stdout.fnmatch_lines(["*::test_it"])
    without = pytester.runpytest_subprocess("-p", "no:whynan", "--whynan")
    assert without.ret == pytest.ExitCode.USAGE_ERROR
    without.stderr.fnmatch_lines(["*unrecognized arguments: --whynan*"])


@pytest.mark.full
def test_the_reports_come_through_xdist_once_and_in_colour(pytester: pytest.Pytester) -> None:
    write(pytester.path, BAD)
    done = pytester.runpytest_subprocess("--whynan", "--whynan-all", "-n", "2", "--color=yes", "-p", "no:cacheprovider")
    text = done.stdout.str()
    done.assert_outcomes(failed=1, passed=2)
    assert plain(text).count(SECTION) == 1
    assert "\x1b[1;31mNaN in the output" in text
    shown = plain(text).partition("whynan: what failed no test")[2]
    assert "test_it.py::test_reads" in shown
    assert "warning: NaN in a value that was read" in shown
    assert "--whynan-all shows them" not in plain(text)


@pytest.mark.parametrize(
    ("arguments", "there", "not_there"),
    [
        (
            ["--tb=line", "-q", "-x"],
            ["test_it.py:10: NonFinite: NaN in the output, born at test_it.py:10 (WN101", "1 failed in"],
            ["looks at every test"],
        ),
        (
            ["--tb=no", "--whynan-strict"],
            ["FAILED test_it.py::test_reads - NonFinite: warning: NaN in a value that was read", "2 failed, 1 passed"],
            [SECTION, "nonfinite:"],
        ),
    ],
)
def test_other_ways_of_showing(arguments: list[str], there: list[str], not_there: list[str], tmp_path: Path) -> None:
    done = run(write(tmp_path, BAD), "--whynan", *arguments)
    assert done.returncode == 1
    for text in there:
        assert text in done.stdout
    for text in not_there:
        assert text not in done.stdout


@pytest.mark.full
def test_a_configuration_holds_wherever_a_test_goes(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        def test_goes_away(tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            a_bad_output()


        def test_other_rule():
            nn.Softmax(0)(torch.zeros(2).log() + math.inf)


        def test_reads():
            assert math.isinf(torch.zeros(1).log().item())
        """,
    )
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nwhynan = true\nwhynan_strict = true\n[tool.whynan]\nallow = ["WN101"]\n',
        encoding="utf-8",
    )
    done = run(tmp_path)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "excused nothing" not in done.stdout
    off = run(tmp_path, "-o", "whynan=false")
    assert "3 passed" in off.stdout


def test_wrong_markers_are_errors_of_collection(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    wrong = [
        "alow='WN5'",
        "allow='WN99'",
        "allow=5",
        "strict='maybe'",
        "memory='lots'",
        "reason=''",
        "True, 'WN5'",
        "'WN5'",
    ]
    for number, arguments in enumerate(wrong):
        body = f"import pytest\n\n@pytest.mark.whynan({arguments})\ndef test_it(): pass\n"
        (tmp_path / f"test_{number}.py").write_text(body, encoding="utf-8")
    done = run(tmp_path, "-q")
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert normal(done.stdout, tmp_path) == snapshot


def test_without_torch_it_says_so_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "without.py").write_text("import sys\n\nsys.modules['torch'] = None\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n", encoding="utf-8")
    without = ("-p", "without")
    asked = run(tmp_path, *without, "--whynan", PYTHONPATH=str(tmp_path))
    assert asked.returncode == pytest.ExitCode.USAGE_ERROR
    said = "ERROR: whynan: this needs the extra 'torch', which is not installed: pip install 'whynan[torch]'"
    assert asked.stderr.split("\n") == [said, "", ""]
    assert run(tmp_path, *without, PYTHONPATH=str(tmp_path)).returncode == 0


FAULTS = """
import pytest

PLACES = (
    "whynan.capture.torch.provenance.births.BadEvents.explain_event",
    "whynan.integrations.pytest.TracedTest.end",
    "whynan.integrations.pytest.TracedTest.begin",
    "whynan.report.terminal.render",
)


@pytest.fixture(autouse=True, params=PLACES, ids=lambda place: place.rpartition(".")[2])
def fault(request, monkeypatch):
    def never(*_, **__):
        raise OSError("no")

    monkeypatch.setattr(request.param, never)
"""


def test_an_error_of_whynans_fails_no_test(tmp_path: Path) -> None:
    write(tmp_path, BAD)
    (tmp_path / "conftest.py").write_text(FAULTS, encoding="utf-8")
    done = run(tmp_path, "--whynan", "-W", "error", WHYNAN_RAISE_INTERNAL="0")
    assert "1 failed, 11 passed" in done.stdout, done.stdout + done.stderr
    # what was found stands, though it cannot be told
    assert "FAILED test_it.py::test_bad[render] - NonFinite: NaN in the output" in done.stdout
    assert "INTERNALERROR" not in done.stdout
    for place in ("test_bad[explain_event]", "test_bad[end]", "test_bad[begin]", "test_bad[render]"):
        assert re.search(rf"{re.escape(place)}\n.* RuntimeWarning: .* an error of its own \(OSError\)", done.stdout)


@pytest.mark.parametrize(
    ("how", "said", "status"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough', returncode=7)", "Exit: enough", 7),
    ],
)
def test_an_interruption_is_none_of_whynans(how: str, said: str, status: int, tmp_path: Path) -> None:
    done = run(write(tmp_path, f"def test_it():\n    a_bad_output()\n    {how}\n"), "--whynan")
    assert done.returncode == status
    assert said in done.stdout
    assert "INTERNALERROR" not in done.stdout


@pytest.mark.full
def test_the_debugger_opens_where_the_bad_number_is_used(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        def test_step():
            weight, mine = nn.Parameter(torch.zeros(3)), "here I am"
            optimizer = torch.optim.SGD([weight], 0.1)
            weight.sqrt().sum().backward()
            optimizer.step()
        """,
    )
    done = run(tmp_path, "--whynan", "--pdb", stdin="p mine\nq\n")
    assert ">       optimizer.step()" in done.stdout
    assert "(Pdb) 'here I am'" in done.stdout
    assert SECTION in done.stdout


GUIDE = Path(__file__).parents[2] / "docs" / "pytest.md"
BEFORE = """
empty = torch.zeros(0, 3)


class Mean(nn.Module):
    def forward(self, batch):
        return batch.mean()


model = Mean()


def norm(x):
    return x.square().sum().sqrt()

"""


@pytest.mark.full
def test_the_tests_of_the_guide_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(def test_.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    write(tmp_path, BEFORE + "\n\n".join(blocks))
    done = run(tmp_path, "--whynan-strict")
    assert "2 passed" in done.stdout, done.stdout
    without = write(tmp_path, BEFORE + "\n\n".join(blocks).replace("WN601", "WN5").replace('["WN308"]', "[]"))
    assert "2 failed" in run(without, "--whynan-strict").stdout
