"""What a loop around a mark has gone on to: its items, and not what the program itself makes of them."""

from __future__ import annotations

import torch

from whynan.replay.checkpoint import Turn, mark


def turns(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Turn]:
    """Those of a loop that is looked at as each turn begins, and again after the program has written to a target."""
    made = None
    for a, b in rows:
        if made is None:
            made = mark("step")
        made.turn()
        b = a + b
        made.turn()
    assert made is not None
    (found,) = (standing.turns for standing in made.frames if standing.frame.f_code.co_name == "turns")
    return found[0]


def test_a_target_that_the_program_has_given_another_value_is_no_turn() -> None:
    rows = [(torch.tensor(1.0), torch.tensor(2.0)), (torch.tensor(3.0), torch.tensor(4.0))]
    (found,) = turns(rows)
    assert found.values == {"a": rows[1][0], "b": rows[1][1]}
    assert not found.stale
