"""What a formula reads and nobody knows is replaced by the value of what is computed from it."""

from __future__ import annotations

from whynan.fixes.candidates import Formula
from whynan.verify.formula import lift_expressions


def formula(body: str, **names: str) -> Formula:
    return Formula(tuple(names.values()), tuple(names), 3, body)


def test_a_call_of_what_is_unknown_becomes_an_input() -> None:
    before = formula("return torch.sqrt(me.lin(x).pow(2).sum(-1))", me="self", x="x")
    after = formula("return torch.linalg.vector_norm(me.lin(x), dim=-1)", me="self", x="x")
    found = lift_expressions(before, after, {"x", "self.lin(x)", "self.lin(x).pow(2)"})
    assert found is not None
    assert found[0].body == "return torch.sqrt(self_lin_x.pow(2).sum(-1))"
    assert found[1].body == "return torch.linalg.vector_norm(self_lin_x, dim=-1)"
    assert [f.inputs for f in found] == [("self.lin(x)",)] * 2
    assert [f.parameters for f in found] == [("self_lin_x",)] * 2


def test_an_entry_of_a_dictionary_becomes_an_input() -> None:
    before = formula("return 1 / batch['x'] + y", batch="batch", y="y")
    after = formula("return batch['x'].reciprocal() + y", batch="batch", y="y")
    found = lift_expressions(before, after, {"y", "batch['x']"})
    assert found is not None
    assert found[0].body == "return 1 / batch_x + y"
    assert set(found[0].inputs) == {"batch['x']", "y"}


def test_an_attribute_of_what_a_call_gives_becomes_an_input() -> None:
    before, after = (formula(body, mixing="mixing", x="x") for body in ("return mixing(x).probs.log()", "return 0"))
    found = lift_expressions(before, after, {"x", "mixing(x).probs"})
    assert found is not None
    assert (found[0].body, found[0].inputs) == ("return mixing_x_probs.log()", ("mixing(x).probs",))


def test_what_stays_unknown_is_no_formula() -> None:
    before = formula("return f(x).log()", f="f", x="x")
    assert lift_expressions(before, before, {"x"}) is None
