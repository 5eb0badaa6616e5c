"""Rules state expressions as structures: none takes a term or a syntax tree apart by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import whynan.rules

FILES = sorted(Path(whynan.rules.__file__).parent.glob("wn*/wn*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_rule_walks_a_tree(file: Path) -> None:
    text = file.read_text("utf-8")
    assert not re.search(r"\.(is_call|parts|operands\[|constant)\b|\bast\.(walk|iter_child_nodes)\b", text)
