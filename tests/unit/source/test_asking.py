"""Of several expressions of one line that ask for the same operator, the one that a node was exported from is told."""

from __future__ import annotations

import ast
import importlib.util
import logging
import warnings
from collections.abc import Mapping

import onnx
import pytest
import torch

from whynan.source.exported_expressions import ExportedNode, matching_expression, parse_node_description
from whynan.source.exporter_metadata import FX_NODE, STACK, Exported
from whynan.source.syntax import Syntax, span_of

# Each line with what its nodes of some operators were exported from, in their order; None where only the line is told.
LINES: list[tuple[str, dict[str, list[str | None]]]] = [
    (
        "a = (x * x).sum() / x.square().mean() - (y**2).mean()",
        {"pow": ["x.square()", "y**2"], "mean": ["x.square().mean()", "(y**2).mean()"]},
    ),
    ("a = torch.exp(x) + torch.exp(y)", {"exp": ["torch.exp(x)", "torch.exp(y)"]}),
    ("a = x / y + y / x", {"div": ["x / y", "y / x"]}),
    ("a = torch.log(torch.log(x + 9))", {"log": ["torch.log(x + 9)", "torch.log(torch.log(x + 9))"]}),
    ("a = (x / 2) / (y / 3)", {"div": ["x / 2", "y / 3", "(x / 2) / (y / 3)"]}),
    ("a = torch.softmax(x, -1) * F.softmax(y, 1)", {"softmax": ["torch.softmax(x, -1)", "F.softmax(y, 1)"]}),
    ("a = x - y - (y - x)", {"sub": ["x - y", "y - x", "x - y - (y - x)"]}),
    (
        "a = 1 / (x + 1) + 1 / (y + 1)",
        {"reciprocal": ["1 / (x + 1)", "1 / (y + 1)"], "add": ["x + 1", "y + 1", "1 / (x + 1) + 1 / (y + 1)"]},
    ),
    ("a = x.std() / (y + 2).var()", {"var": ["x.std()", "(y + 2).var()"], "sqrt": ["x.std()"]}),
    (
        "a = (x + 3).sqrt() * y.rsqrt() * (x + 4).sqrt()",
        {"sqrt": ["(x + 3).sqrt()", "(x + 4).sqrt()"], "rsqrt": ["y.rsqrt()"]},
    ),
    (
        "a = F.normalize(x * 2) / F.normalize(y * 2)",
        {"div": ["F.normalize(x * 2)", "F.normalize(y * 2)", "F.normalize(x * 2) / F.normalize(y * 2)"]},
    ),
    (
        "a = x.pow(3) / y**0.3 / y.pow(5) / x**7",
        {"pow": ["x.pow(3)", "y**0.3", "y.pow(5)", "x**7"]},
    ),
    ("a = x @ y.T @ x @ y.T", {"matmul": ["x @ y.T", "x @ y.T @ x", "x @ y.T @ x @ y.T"]}),
    ("a = torch.stack([v / 5 for v in (x, y)])", {"div": ["v / 5", "v / 5"]}),
    # what is calculated a second time is there once
    ("a = (x - 5).tanh() + (x - 5).tanh() + (y - 5).tanh()", {"tanh": [None, None]}),
    # the first exponential is there already, and the sum is not
    ("a = torch.where(x > 0, x.exp(), (x + 6).exp())", {"exp": ["(x + 6).exp()"]}),
    ("a = (x - 6) ** 2 if self.training else (x - 7) ** 2", {"pow": [None], "sub": [None]}),
    ("a = (x + y) / 11 + (lambda t: t / 13)(x)", {"div": [None, None]}),
    ("a = F.cosine_similarity(x, y) / x.norm(dim=1, keepdim=True)", {"div": [None, None, None]}),
    ("for _ in range(3): x = torch.exp(x / 7) / (y + 8)", {"exp": ["torch.exp(x / 7)"] * 3}),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, list[tuple[str, str | None]]]:
    """What was told of the nodes of each line: their operators, and the expressions."""
    folder = tmp_path_factory.mktemp("lines")
    head = (
        "import torch\nimport torch.nn.functional as F\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n"
    )
    kept = f"\n        kept.append(x if number == {len(LINES) - 1} else a)\n        number += 1\n"
    body = "        kept, number = [], 0\n" + "".join(f"        {line}{kept}" for line, _ in LINES)
    source = f"{head}{body}        return tuple(kept)\n"
    (folder / "lines.py").write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location("lines", folder / "lines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = (torch.rand(3, 4) + 1, torch.rand(3, 4) + 1)
            torch.onnx.export(module.Net().eval(), given, str(folder / "net.onnx"), dynamo=True, verbose=False)
    finally:
        logging.disable(logging.NOTSET)
    metadata = [{p.key: p.value for p in node.metadata_props} for node in onnx.load(folder / "net.onnx").graph.node]
    exported = Exported(metadata)
    first = source[: source.index(LINES[0][0])].count("\n")
    told: dict[int, dict[str, tuple[str, str | None]]] = {}
    for entries in metadata:
        asked, site = parse_node_description(entries.get(FX_NODE, "")), exported.place_of(entries).site
        if asked is not None and site is not None:
            code = site.code if site.column is not None else None
            told.setdefault((site.line - first - 1) // 3, {})[asked.value] = asked.operator, code
    return {line: list(nodes.values()) for line, nodes in told.items()}


@pytest.mark.parametrize("number", range(len(LINES)), ids=lambda number: LINES[number][0])
def test_each_node_is_told_at_its_own_expression(
    number: int, found: Mapping[int, list[tuple[str, str | None]]]
) -> None:
    expected = LINES[number][1]
    told = {name: [code for operator, code in found[number] if operator == name] for name in expected}
    assert told == expected


def line(text: str, *asked: ExportedNode) -> list[str | None]:
    """What is told of each node of a line."""
    syntax = Syntax([text])
    nodes = [node for node in syntax.parents if isinstance(node, (ast.expr, ast.stmt))]
    chosen_of = (matching_expression(nodes, one, asked, syntax.parents) for one in asked)
    return [None if node is None else syntax.line_of(span_of(node)) for node in chosen_of]


def test_a_variable_holds_no_result_of_its_own_line() -> None:
    ones = ExportedNode("log", "log", "x"), ExportedNode("log_1", "log", "log")
    assert line("torch.log(torch.log(x))", *ones) == ["torch.log(x)", "torch.log(torch.log(x))"]
    # there both are of variables, so that something else must have made the second
    assert line("torch.log(x) + torch.log(y)", *ones) == [None, None]


def test_as_many_in_each_turn_of_a_loop() -> None:
    turn = ExportedNode("div", "div", "x"), ExportedNode("exp", "exp", "div"), ExportedNode("div_1", "div", "exp")
    again = (
        ExportedNode("div_2", "div", "div_1"),
        ExportedNode("exp_1", "exp", "div_2"),
        ExportedNode("div_3", "div", "exp_1"),
    )
    two = ["x / 2", "torch.exp(x / 2)", "torch.exp(x / 2) / y"]
    assert line("x = torch.exp(x / 2) / y", *turn, *again) == two * 2
    assert line("x = torch.exp(x / 2) / y", *turn, again[0], again[2]) == [None, "torch.exp(x / 2)", None, None, None]


def test_what_an_unknown_call_is_made_of_is_not_told_of_another() -> None:
    ones = ExportedNode("div", "div", "x"), ExportedNode("div_1", "div", "div")
    assert line("F.normalise_somehow(x) / 2", *ones) == [None, None]
    assert line("x / 2", *ones) == ["x / 2", "x / 2"]


@pytest.mark.parametrize(
    "text", ["", "%", "%x : [num_users=1] = placeholder[target=x]", "target=torch.ops.", "%\0:" * 99]
)
def test_what_describes_no_operator_asks_for_none(text: str) -> None:
    assert parse_node_description(text) is None
    assert Exported([{STACK: text, FX_NODE: text}]).place_of({STACK: text, FX_NODE: text}).site is None
