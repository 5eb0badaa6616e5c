"""``whynan run`` leaves a program as it is: the same bytes on both streams, the same exit status, the same files."""

from __future__ import annotations

import pytest

from tests.integration.programs import PROGRAMS, Program
from tests.integration.running import Workplace, differences


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Where the programs run."""
    return Workplace(tmp_path_factory.mktemp("programs"))


def _parameters(programs: list[Program]) -> list[object]:
    return [pytest.param(p, id=p.name, marks=[] if p.sample else [pytest.mark.full]) for p in programs]


@pytest.mark.parametrize("program", _parameters(PROGRAMS))
def test_a_program_does_what_it_does_without_whynan(program: Program, workplace: Workplace) -> None:
    expected = workplace.by_python(program)
    assert expected.status == program.status, expected.stderr.decode()
    # an error of whynan's own would be raised, and be seen
    found = workplace.by_whynan(program, {"WHYNAN_RAISE_INTERNAL": "1"})
    assert not differences(expected, found)
