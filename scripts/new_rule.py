"""Write the file of a new rule and its test from a template, whose test fails until both are filled in.

python scripts/new_rule.py WN704 cast-out-of-range
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whynan.rules.catalogue import CODE, NAME, family, rules, title

ROOT = Path(__file__).parents[1]

RULE = '''"""{code} {name}: TODO in one line, what happens.

What it is
    TODO: the operation, and the values at which it breaks.

Why it breaks
    TODO: what they give in the forward, and in the backward.

Example
    Bad::

        TODO: the hazard, as programs have it

    Good::

        TODO: the same program, mended

Fix
    TODO: what to do, and what it changes.

When it is fine
    TODO: where the bad number does no harm.

References
    TODO: where it is documented.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, result
from whynan.rules.intents import guard
from whynan.rules.wording import named_value_text, operand_source


def match(finding: Finding) -> Explanation | None:
    if base(finding) != "TODO":
        return None
    source = operand_source(finding, "self")
    return Explanation(
        f"TODO: the sentence with the values, which give {{result(finding)}}{{named_value_text(source, 'TODO')}}",
        "TODO: why, in two or three sentences.",
        OPERATION,
    )


RULE = Rule(
    "{code}",
    "{name}",
    match,
    fixes=(
        # TODO: what would mend it, best first, and its operands in tests/rules/operands.py; or no fixes at all
        guard("TODO: what the user reads", "TODO(x)", "TODO(where(x == 0, 1, x))"),
    ),
)
'''

TEST = '''"""{code} {name}: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def the_hazard() -> object:
    x = torch.tensor([0.0, 1.0])
    raise NotImplementedError(f"TODO: a program of {{x}} that runs into it")


def mended() -> object:
    x = torch.tensor([0.0, 1.0])
    raise NotImplementedError(f"TODO: the same program of {{x}}, which does not")


@pytest.mark.parametrize("program", [the_hazard])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "{code}"
    assert said == snapshot


@pytest.mark.parametrize("program", [mended])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
'''


def files(code: str, name: str, root: Path = ROOT) -> dict[Path, str]:
    """The text of the rule and of its test, by their files."""
    stem = f"{code.lower()}_{name.replace('-', '_')}"
    return {
        root / "src" / "whynan" / "rules" / stem[:3] / f"{stem}.py": RULE.format(code=code, name=name),
        root / "tests" / "rules" / f"test_{stem}.py": TEST.format(code=code, name=name),
    }


def refusal(code: str, name: str, root: Path = ROOT) -> str | None:
    """Why there can be no new rule of this code and name; None where there can."""
    found = CODE.fullmatch(code)
    if found is None or found["letters"] != "WN" or code == "WN000":
        return f"{code!r} is no code of a rule: WN, a digit or X for the family, two digits"
    if not NAME.fullmatch(name):
        return f"{name!r} is no name: small letters and digits, in words with hyphens"
    held = {key: rule.code for rule in rules() for key in (rule.code, rule.name)}
    # what is written and does not load yet is there too
    there = list((root / "src" / "whynan" / "rules").glob("wn?/wn*.py"))
    held |= {path.stem[:5].upper(): path.name for path in there}
    held |= {path.stem[6:].replace("_", "-"): path.name for path in there}
    for key in (code, name):
        if key in held:
            return f"{key} exists already: {held[key]}"
    return None


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write both files; gives 2, and writes nothing, where code or name cannot be."""
    parser = argparse.ArgumentParser(description="Write the file of a new rule, and its test, from a template.")
    parser.add_argument("code", help="WN704")
    parser.add_argument("name", help="the pattern, not the cure: cast-out-of-range")
    chosen = parser.parse_args(arguments)
    if (why := refusal(chosen.code, chosen.name, root)) is not None:
        print(why, file=sys.stderr)
        return 2
    for path, text in files(chosen.code, chosen.name, root).items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        print(path.relative_to(root))
    print(f"{family(chosen.code)} {title(family(chosen.code))}: fill in every TODO, then run the test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
