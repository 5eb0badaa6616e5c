"""Every message a user can meet, word for word, and what a program can do with the error."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.errors import (
    InterruptedEditError,
    InterruptedRunError,
    MetaTensorError,
    MissingExtraError,
    NestedTraceError,
    NonFiniteError,
    UsageError,
    WhynanError,
)

FINDING = SimpleNamespace(message="1/x at phase.py:41 is Inf because x is 2.0e-40")
ERRORS: list[WhynanError] = [
    UsageError("memory=-1 is not a number of bytes", "give a non-negative integer, such as 1 << 30"),
    NestedTraceError(),
    MetaTensorError("encoder.0.weight"),
    InterruptedRunError("net.onnx"),
    InterruptedEditError(),
    MissingExtraError("torch"),
    NonFiniteError(FINDING),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_message_says_what_and_what_to_do(error: WhynanError, snapshot: SnapshotAssertion) -> None:
    assert str(error) == snapshot


def test_every_error_is_in_this_list() -> None:
    assert {type(error) for error in ERRORS} == set(WhynanError.__subclasses__())


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_border_whole(error: WhynanError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_findings_end_a_command_with_1_bad_usage_with_2_and_the_user_with_130() -> None:
    assert {type(error): error.exit_status for error in ERRORS} == {
        UsageError: 2,
        NestedTraceError: 2,
        MetaTensorError: 2,
        InterruptedRunError: 130,
        InterruptedEditError: 130,
        MissingExtraError: 2,
        NonFiniteError: 1,
    }


def test_the_finding_rides_on_the_error() -> None:
    error = NonFiniteError(FINDING)
    assert error.finding is FINDING
    assert str(NonFiniteError(SimpleNamespace(message=""))).startswith("a bad number was born here: ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("w\x1b[2Jeight", r"w\x1b[2Jeight"),
        ("two\nlines", r"two\nlines"),
        ("right\u202eleft", r"right\u202eleft"),
        ("größe", "größe"),
    ],
)
def test_control_characters_of_a_name_are_shown(name: str, shown: str) -> None:
    assert str(MetaTensorError(name)).startswith(f"{shown} is on the meta device")
