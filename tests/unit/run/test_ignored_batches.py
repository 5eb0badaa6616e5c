"""A batch of which a library's loss has nothing to average is left out by the loop that asks for the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import whynan
from whynan.fixes.python import patch
from whynan.records import Finding
from whynan.run.proof.ignored_batches import ignored_texts, without_ignored_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

PROGRAM = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=1))

def batches():
    for length in (2, 8, 3):
        ids = torch.randint(1, 20, (2, 8))
        labels = ids.clone()
        labels[:, KEPT] = -100
        yield {"input_ids": ids, "labels": labels}

def train():
    found = []
    for batch in batches():
        ids, labels = batch["input_ids"], batch["labels"]
        CALL
        loss.backward()
        found.append(loss)
    return found
"""


def finding_of(loaded: Callable[[str], ModuleType], call: str, kept: str = ":length") -> Finding:
    (finding,) = whynan.explain(loaded(PROGRAM.replace("CALL", call).replace("KEPT", kept)).train, rerun=True).findings
    return finding


@pytest.mark.proof
@pytest.mark.parametrize(
    ("call", "kept", "asked"),
    [
        ("loss = model(input_ids=ids, labels=labels).loss", ":length", "labels"),
        ("loss = model(**batch).loss", ":length", 'batch["labels"]'),
        ("loss = model(ids, labels=batch['labels'])[0] / 2", ":length", "batch['labels']"),
        # the first of all is no target, for each predicts the next
        ("loss = model(ids, labels=labels).loss", "1:length", "labels[..., 1:]"),
    ],
)
def test_a_batch_without_a_target_is_left_out(
    loaded: Callable[[str], ModuleType], call: str, kept: str, asked: str
) -> None:
    finding = finding_of(loaded, call, kept)
    assert finding.rule == "WN602"
    fix = finding.fixes[0]
    added = [line[1:].strip() for line in (fix.patch or "").splitlines() if line[:1] == "+" and line[:3] != "+++"]
    assert (fix.verdict.status, added) == ("guarded", [f"if ({asked} == -100).all():", "continue"])
    assert fix.verdict.why.startswith(f"a batch in which all of {asked} are -100 is left out")


def test_what_a_report_has_is_made_again_and_nothing_else() -> None:
    text = "for ids, y in loader:\n    with autocast():\n        loss = model(ids, labels=y).loss\n"
    made = text.replace("        loss", "        if (y[..., 1:] == -100).all():\n            continue\n        loss")
    assert made in ignored_texts(text, patch("a.py", text, made))
    assert ignored_texts(text, patch("a.py", text, made.replace("y[", "z["))) == []
    alone = "def step(ids, y):\n    loss = model(ids, labels=y).loss\n"
    skipped = alone.replace("    loss", "    if (y == -100).all():\n        continue\n    loss")
    assert ignored_texts(alone, patch("a.py", alone, skipped)) == []


@pytest.mark.parametrize(
    "program",
    [
        "while i < 3:\n    CALL\n    i += 1\n",
        "for x, y in b:\n    if x is None:\n        pass\n    elif model(x, labels=y).loss > 0:\n        pass\n",
        "for x, y in b:\n    try:\n        pass\n    finally:\n        CALL\n",
        "for x, y in b:\n    for z in x:\n        pass\n    else:\n        CALL\n",
        "for x, y in b:\n    loss = model(x, labels=y[\n        'labels'\n    ]).loss\n",
        "for x, y in b:\n    def f():\n        CALL\n",
        "for x, y in b: CALL\n",
    ],
    ids=["a counter", "a branch", "finally", "else of a loop", "several lines", "a function", "one line"],
)
def test_where_more_would_be_left_out_nothing_is_written(program: str) -> None:
    text = program.replace("CALL", "loss = model(x, labels=y).loss")
    for target in ("y", "y['labels']"):
        for line, each in enumerate(text.splitlines(keepends=True)):
            indent = each[: len(each) - len(each.lstrip())]
            made = f"{indent}if ({target} == -100).all():\n{indent}    continue\n"
            edited = "".join([*text.splitlines(keepends=True)[:line], made, *text.splitlines(keepends=True)[line:]])
            assert edited not in ignored_texts(text, patch("a.py", text, edited))


@pytest.mark.proof
def test_outside_of_a_loop_there_is_no_next_batch(loaded: Callable[[str], ModuleType]) -> None:
    finding = finding_of(loaded, "loss = model(input_ids=ids, labels=labels).loss")
    assert finding.site is not None
    text = PROGRAM.replace("CALL", "loss = model(input_ids=ids, labels=labels).loss").replace("KEPT", ":length")
    assert list(without_ignored_batch(text, "a.py", finding))
    assert not list(without_ignored_batch(text.replace("for batch in", "while ok: pass\n    if"), "a.py", finding))
