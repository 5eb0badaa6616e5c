"""Notes without names: what is known word for word stays, what is not is only counted."""

from __future__ import annotations

import pytest

from whynan.capture.torch.formulas import FORMULA_NOTE, VALUES_NOTE
from whynan.capture.torch.regions import NOTE
from whynan.session.region import STEPPED_ASIDE
from whynan.session.replays import SUSPECT
from whynan.session.unloaded import NO_TORCH
from whynan.traces.format import FAILED
from whynan.traces.notes import LEFT_OUT, exception_type, generic, without_names
from whynan.traces.reading import NO_FACTS, UNFINISHED

BUDGET = (
    "operands of 1,234 earlier events were let go to keep within the memory budget: what came before may be missing, "
    "and a larger memory= keeps it"
)


@pytest.mark.parametrize(
    "note",
    [
        FAILED,
        VALUES_NOTE,
        NOTE.format(""),
        FORMULA_NOTE.format("ProdBackward0"),
        STEPPED_ASIDE,
        NO_TORCH,
        NO_FACTS,
        UNFINISHED.format(events=1234),
        BUDGET,
        LEFT_OUT,
        "ranges of 12 more tensors were left out",
        "the second run had 3 events, the first 4",
        "looked at up to step 3, as --steps says",
        "NaN or Inf in a number that was read at step 3",
        "NaN or Inf in what the program held as it raised at step 3",
        "whynan run --mode trace looks at every operation",
        "the run ended in the replay of a bad step: whether that is what has happened is not known",
        "step 3 was never reached, so nothing was looked at",
        "1,234 steps watched: the loss and the gradients of each were finite",
        "NaN or Inf in the loss and 3 gradients at step 7",
        "NaN or Inf in 3 gradients at step 17, which a loss scaler has skipped 8 times on end",
        "3 more steps bad after that, not looked into",
        "1 parameter bad after the last step: spoilt by that step",
        "1 parameter bad at the end: spoilt by the last step, or in a CUDA graph",
        "1,234 replays of CUDA graphs: what ran inside was not looked at",
        'found one step late: sync="deferred"; weights were moved by step 7',
        'found one step late: sync="deferred"; a loss scaler has skipped step 7',
        "no replay: the program has gone on from that step",
        "2 parameters bad before step 8: by the step before it, or earlier; whynan run --start-step 7 looks at every "
        "operation from that step on",
        "whynan run --start-step 7 looks at every operation from that step on, in another run",
    ],
)
def test_what_holds_no_name_stays_as_it_is(note: str) -> None:
    assert without_names(note) == note


@pytest.mark.parametrize(
    ("note", "left"),
    [
        (NOTE.format(" at /home/ada/net.py:3"), NOTE.format("")),
        (FORMULA_NOTE.format("MySecretBackward"), FORMULA_NOTE.format("a gradient")),
        ("thread 'ada' was not entered: what it computed was not traced",
         "a thread was not entered: what it computed was not traced"),
        ("WN101 zero-over-zero at /home/ada/net.py:3 is allowed: ada said so", "WN101 zero-over-zero is allowed"),
        ("WN000 unexplained is allowed: ada\nsaid: so", "WN000 unexplained is allowed"),
        ("the second run raised ValueError: bad ada", "the second run raised ValueError"),
        ("the second run raised AdaError: bad", "the second run raised an exception"),
        ("only the forward of ada.attn was looked at, and every backward",
         "only the forward of the chosen modules was looked at, and every backward"),
        ("no module called ada ran; those that ran: Net, ada.attn",
         "no module called as --only says ran; those that ran: left out"),
        ("1 loss and 4 bad gradients identical, run again from line 3 of ada",
         "1 loss and 4 bad gradients identical, run again from the program's source"),
        ("no replay eagerly from line 3 of ada: it raises AdaError: bad",
         "no replay from the program's source: a reason, left out"),
        (f"replayed eagerly from line 3 of ada, the step is finite: {SUSPECT}",
         f"replayed from the program's source, the step is finite: {SUSPECT}"),
        ("the trace in /home/ada/t stopped after 1,234 events: No space left on device",
         "the trace in its folder stopped after 1,234 events"),
    ],
)  # fmt: skip
def test_of_what_holds_a_name_the_rest_stays(note: str, left: str) -> None:
    assert without_names(note) == left
    assert without_names(left) == left


@pytest.mark.parametrize(
    "note",
    [
        "", "ada", "ranges of ada more tensors were left out", "ranges of 12 more tensors were left out, says ada",
        "WN101 at ada is allowed: so", "ada: WN101 zero-over-zero is allowed", "step ٣ was never reached, so nothing",
    ],
)  # fmt: skip
def test_any_other_note_is_dropped(note: str) -> None:
    assert without_names(note) is None


def test_notes_are_headed_by_what_was_done_and_end_with_how_many_were_dropped() -> None:
    said = generic(["ada", FAILED, "ada too", FAILED])
    assert said == (LEFT_OUT, FAILED, "notes that may hold names, left out: 2")
    assert generic(said) == said


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: ada", "ValueError"), ("KeyboardInterrupt: ", "KeyboardInterrupt"), ("OSError", "OSError"),
        ("AdaError: x", "an exception"), ("print: x", "an exception"), ("int: x", "an exception"), ("", "an exception"),
    ],
)  # fmt: skip
def test_only_pythons_own_exceptions_are_named(text: str, kind: str) -> None:
    assert exception_type(text) == kind
