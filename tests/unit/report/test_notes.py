"""The catalogue: each kind of note has a sentence, also where its values are left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from whynan.records import KINDS, Coverage, Note
from whynan.records.notes import CHAIN
from whynan.report.notes import SENTENCES, sentence
from whynan.traces import json as parsing
from whynan.traces.redaction import FACTS, LEFT_OUT, Pseudonyms, Redaction, exception_type

TRAINING: dict[str, Any] = {"loss_count": 1, "gradients": 4, "read": False, "raised": False, "whole": False}
BAD: dict[str, Any] = {"step": 7, "loss": True, "gradients": 3, "read": False, "raised": False, "skipped": 0}
COMPILER = (
    "the step is finite: the compiler is the suspect; TORCHDYNAMO_DISABLE=1 runs the program as it is written, and "
    'torch.compile(backend="aot_eager") without the kernels of inductor'
)
REGION = (
    "was looked at only where values enter and leave it; TORCH_COMPILE_DISABLE=1, or "
    "torch.compiler.set_stance('force_eager'), shows what happens inside"
)


def nested(depth: int) -> dict[str, Any]:
    """A note in a note, as a document."""
    why = nested(depth - 1) if depth > 1 else None
    return {"kind": "no_second_run", "values": {"why": why}}


def _redacted(note: Note) -> Note:
    return Redaction(FACTS, Pseudonyms()).redact(note)


def test_every_kind_has_a_sentence_and_no_other() -> None:
    assert SENTENCES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_whose_values_are_left_out_has_a_sentence(kind: str) -> None:
    words = {
        "of": "events",
        "cause": "crash",
        "engine": "session",
        "does": "ends",
        "tests": "held",
        "bad": "NaN",
        "sink": "loss",
    }
    kept: dict[str, Any] = {"count": 3, "counts": (1, 2), "number": 0.5, "flag": True, "rule": "WN101"}
    values = {name: words.get(name, kept.get(privacy)) for name, privacy in KINDS[kind].items()}
    said = sentence(Note(kind=kind, values=values))
    assert said
    # of a chain nothing but what holds for all of a role is left
    assert kind in CHAIN or not re.search(r"\bNone\b|[{}]", said), said


def test_a_missing_sentence_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SENTENCES, "no_way")
    with pytest.raises(KeyError):
        sentence(Note.create("no_way"))


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (Note.create("whynan_failed"),
         "whynan met an error of its own and stopped looking: what follows it was not seen"),
        (Note.create("compiled_region", file=None, line=None), f"a compiled region {REGION}"),
        (
            Note.create("no_silent_on_device"),
            "finite numbers that are wrong or lost were looked for on the CPU alone, not on the device",
        ),
        (
            Note.create("fused_kernel"),
            "a kernel that TorchScript has fused ran: what it computes was not seen, and what it gives counts as from "
            "outside; PYTORCH_JIT=0 shows what happens inside",
        ),
        (Note.create("other_gradient_formula", node="ProdBackward0"),
         "ProdBackward0: PyTorch computes this gradient by another formula while it is watched; it can differ without"),
        (Note.create("operands_let_go", events=1234),
         "operands of 1,234 earlier events were let go to keep within the memory budget: what came before may be "
         "missing, and a larger memory= keeps it"),
        (Note.create("ranges_left_out", tensors=12), "ranges of 12 more tensors were left out"),
        (Note.create("other_events", second=3, first=4), "the second run had 3 events, the first 4"),
        (Note.create("looked_up_to", step=3), "looked at up to step 3, as --steps says"),
        (Note.create("never_reached", step=3), "step 3 was never reached, so nothing was looked at"),
        (Note.create("bad_step", **BAD), "NaN or Inf in the loss and 3 gradients at step 7"),
        (Note.create("bad_step", **{**BAD, "loss": False, "skipped": 8}),
         "NaN or Inf in 3 gradients at step 7, which a loss scaler has skipped 8 times on end"),
        (Note.create("bad_step", **{**BAD, "loss": False, "gradients": 0}), "NaN or Inf in the weights at step 7"),
        (Note.create("bad_step", **{**BAD, "loss": False, "gradients": 0, "read": True}),
         "NaN or Inf in a number that was read at step 7"),
        (Note.create("bad_step", **{**BAD, "loss": False, "gradients": 0, "raised": True}),
         "NaN or Inf in what the program held as it raised at step 7"),
        (Note.create("watched", steps=1234), "1,234 steps watched: the loss and the gradients of each were finite"),
        (Note.create("more_bad_steps", steps=3), "3 more steps bad after that, not looked into"),
        (Note.create("spoilt_at_the_end", parameters=1, graphs=False),
         "1 parameter bad after the last step: spoilt by that step"),
        (Note.create("spoilt_at_the_end", parameters=1, graphs=True),
         "1 parameter bad at the end: spoilt by the last step, or in a CUDA graph"),
        (Note.create("graph_replays", replays=1234), "1,234 replays of CUDA graphs: what ran inside was not looked at"),
        (Note.create("found_late", step=7, skipped=False),
         'found one step late: sync="deferred"; weights were moved by step 7'),
        (Note.create("found_late", step=7, skipped=True),
         'found one step late: sync="deferred"; a loss scaler has skipped step 7'),
        (Note.create("spoilt_before", parameters=2, step=8),
         "2 parameters bad before step 8: by the step before it, or earlier; whynan run --start-step 7 looks at every "
         "operation from that step on"),
        (Note.create("spoilt_before", parameters=2, step=1),
         "2 parameters bad before step 1, the first that was watched"),
        (Note.create("start_step_advice", step=7),
         "whynan run --start-step 7 looks at every operation from that step on, in another run"),
    ],
)  # fmt: skip
def test_what_holds_nothing_private_stays_as_it_is(note: Note, said: str) -> None:
    assert sentence(note) == said
    assert _redacted(note) == note


@pytest.mark.parametrize(
    ("note", "said", "left"),
    [
        (Note.create("compiled_region", file="/home/ada/net.py", line=3),
         f"a compiled region at /home/ada/net.py:3 {REGION}", f"a compiled region {REGION}"),
        (Note.create("numpy_makes", file="/home/ada/env.py", line=19),
         "NumPy made NaN or Inf in the same run at /home/ada/env.py:19", "NumPy made NaN or Inf in the same run"),
        (Note.create("other_gradient_formula", node="MySecretBackward"),
         "MySecretBackward: PyTorch computes this gradient by another formula while it is watched; it can differ "
         "without",
         "a gradient: PyTorch computes this gradient by another formula while it is watched; it can differ without"),
        (Note.create("thread_not_entered", thread="ada"),
         "thread 'ada' was not entered: what it computed was not traced",
         "a thread was not entered: what it computed was not traced"),
        (Note.create("allowed", code="WN101", name="zero-over-zero", file="/home/ada/net.py", line=3,
                     reason="ada said so"),
         "WN101 zero-over-zero at /home/ada/net.py:3 is allowed: ada said so", "WN101 zero-over-zero is allowed"),
        (Note.create("allowed", code="WN000", name="unexplained", file=None, line=None, reason="ada\nsaid: so"),
         "WN000 unexplained is allowed: ada\nsaid: so", "WN000 unexplained is allowed"),
        (Note.create("allowed", code="ADA1", name="ada-s-rule", file=None, line=None, reason="so"),
         "ADA1 ada-s-rule is allowed: so", "WN000 unexplained is allowed"),
        (Note.create("second_run_raised", exception="ValueError: bad ada"),
         "the second run raised ValueError: bad ada", "the second run raised ValueError"),
        (Note.create("second_run_raised", exception="AdaError: bad"),
         "the second run raised AdaError: bad", "the second run raised an exception"),
        (Note.create("only_modules", module="ada.attn"),
         "only the forward of ada.attn was looked at, and every backward",
         "only the forward of the chosen modules was looked at, and every backward"),
        (Note.create("no_such_module", module="ada", others=("Net", "ada.attn")),
         "no module called ada ran; those that ran: Net, ada.attn",
         "no module called as --only says ran; those that ran: left out"),
        (Note.create("identical", **TRAINING, way="from line 3 of ada", eager=False),
         "1 loss and 4 bad gradients identical, run again from line 3 of ada",
         "1 loss and 4 bad gradients identical, run again from the program's source"),
        (Note.create("no_replay", way="from line 3 of ada", eager=True, why="it raises AdaError: bad"),
         "no replay eagerly from line 3 of ada: it raises AdaError: bad",
         "no replay from the program's source: a reason, left out"),
        (Note.create("compiler_suspected", way="from line 3 of ada", eager=True),
         f"replayed eagerly from line 3 of ada, {COMPILER}", f"replayed from the program's source, {COMPILER}"),
        (Note.create("trace_stopped", folder="/home/ada/t", events=1234, why="No space left on device"),
         "the trace in /home/ada/t stopped after 1,234 events: No space left on device",
         "the trace in its folder stopped after 1,234 events"),
        (Note.create("trace_full", folder="/home/ada/t", events=1234, megabytes=4096),
         "the trace in /home/ada/t holds the first 1,234 events only: events may take 4,096 MiB",
         "the trace in its folder holds the first 1,234 events only"),
        (Note.create("no_second_run", why=Note.create("raised", exception="AdaError: bad")),
         "no second run: it raised AdaError: bad", "no second run: a reason, left out"),
        (Note.create("given", outputs=("ada",), literals=("initializer ada",)),
         "what is bad in ada was given: initializer ada", "what is bad in outputs was given: left out"),
    ],
)  # fmt: skip
def test_of_what_holds_a_name_the_rest_stays(note: Note, said: str, left: str) -> None:
    assert sentence(note) == said
    assert sentence(_redacted(note)) == left
    assert _redacted(_redacted(note)) == _redacted(note)


def test_notes_are_headed_by_what_was_done_and_end_with_how_many_were_dropped() -> None:
    failed = Note.create("whynan_failed")
    made = Coverage.model_validate({"notes": ["ada", "ada too"]}).with_notes(failed)
    left = Redaction(FACTS, Pseudonyms()).redact(made)
    assert left.typed_notes == (LEFT_OUT, failed, Note.create("notes_left_out", count=2))
    assert left.notes[-1] == "notes that may hold names, left out: 2"
    assert Redaction(FACTS, Pseudonyms()).redact(left) == left


@pytest.mark.parametrize(
    "held",
    [
        {"kind": "ada", "values": {}},
        {"kind": "never_reached", "values": {}},
        {"kind": "never_reached", "values": {"step": 1, "ada": 2}},
        {"kind": "never_reached", "values": {"step": {"ada": 1}}},
        {"kind": "never_reached", "values": [1]},
        {"kind": "no_second_run", "values": {"why": {"kind": "ada", "values": {}}}},
        {"kind": "never_reached", "values": {"step": "x"}},
        {"kind": "never_reached", "values": {"step": True}},
        {"kind": "fixes_not_proved", "values": {"cause": "ada"}},
        {"kind": "not_reproduced", "values": {"index": [0.5], "result": 1, "was_nan": True, "was_inf": False}},
        nested(5),
        {"kind": "never_reached"},
        {"kind": ["never_reached"], "values": {"step": 1}},
    ],
)
def test_what_is_no_note_is_refused(held: Any) -> None:
    with pytest.raises(ValidationError):
        Note.model_validate_json(json.dumps(held))


def test_a_number_that_json_has_none_for_comes_back() -> None:
    made = Note.create("not_reproduced", index=(0, 1), result=float("-inf"), was_nan=True, was_inf=False)
    assert Note.model_validate_json(made.model_dump_json()) == made


def test_text_in_a_note_is_taken_for_no_number() -> None:
    numbers = {*parsing._NUMBERS, *parsing._LISTS, *parsing._MIXED}
    texts = ("rule", "node", "exception", "name", "path", "text")
    assert not numbers & {name for fields in KINDS.values() for name, what in fields.items() if what in texts}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: ada", "ValueError"), ("KeyboardInterrupt: ", "KeyboardInterrupt"), ("OSError", "OSError"),
        ("AdaError: x", "an exception"), ("print: x", "an exception"), ("int: x", "an exception"), ("", "an exception"),
    ],
)  # fmt: skip
def test_only_pythons_own_exceptions_are_named(text: str, kind: str) -> None:
    assert exception_type(text) == kind
