"""What an exporter wrote beside a node leads to the line, and to the expression where file and model agree on it."""

from __future__ import annotations

import os
import sysconfig
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.selection import examples
from whynan.records import Site
from whynan.source.exporter_metadata import (
    FX_NODE,
    SCOPES,
    STACK,
    frames_of,
    module_of,
    place_of,
)

TORCH = str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py")
INSTALLED = str(Path(sysconfig.get_path("purelib")) / "timm" / "block.py")

NET = """\
import torch
from torch.nn import functional as F


class Net:
    def forward(self, x, y):
        a = x / y + y / x
        b = torch.log(x) / y
        c = self.norm(self.fc(x)) * self.act(y)
        d = (
            x
            .sqrt()
            - torch.atan2(
                y, x)
        )
        e = F.softmax(self.head(x), -1)
        f = -x if (x > y).all() else ~y
        x *= y
        g = self.blocks[0](x)
        h = "größe"; i = torch.exp(x)
        j = [self.fc(v) for v in (x, y)]
        return helper(x)


def helper(x):
    return x ** 2
"""


def number_of(beginning: str) -> int:
    """The number of the only line that begins so."""
    (number,) = (n for n, line in enumerate(NET.splitlines(), 1) if line.strip().startswith(beginning))
    return number


def frame(file: str, line: int, code: str, function: str = "forward") -> str:
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'


def metadata(stack: str, op: str | None = None, scopes: list[str] | None = None) -> dict[str, str]:
    """As ``torch.onnx.export`` writes it."""
    found = {STACK: stack.strip()}
    if op is not None:
        found[FX_NODE] = f"%n : [num_users=1] = call_function[target=torch.ops.aten.{op}](args = (%x,), kwargs = {{}})"
    if scopes is not None:
        found[SCOPES] = repr(scopes)
    return found


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(NET, "utf-8")
    return path


def in_net(line: int, *inner: str, op: str | None = None, scopes: list[str] | None = None) -> Site:
    """The site of a node whose frame stands in a line of the file; below it those of `inner`."""
    stack = frame(os.path.abspath("net.py"), line, NET.splitlines()[line - 1].strip())
    site = place_of(metadata(stack + "".join(inner), op, scopes)).site
    assert site is not None
    assert site.file == "net.py"
    return site


LINEAR = frame(TORCH, 134, "return F.linear(input, self.weight, self.bias)")
SOFTMAX = frame(TORCH.replace("linear", "functional"), 99, "ret = input.softmax(dim)", "softmax")


@pytest.mark.parametrize(
    ("line", "op", "code"),
    [
        ("b = ", "log.default", "torch.log(x)"),
        ("b = ", "div.Tensor", "torch.log(x) / y"),
        ("a = ", "add.Tensor", "x / y + y / x"),
        (".sqrt()", "sqrt.default", "x .sqrt()"),
        ("- torch", "atan2.default", "torch.atan2( y, x)"),
        ("x *= y", "mul.Tensor", "x *= y"),
        ("f = ", "neg.default", "-x"),
        ("f = ", "bitwise_not.default", "~y"),
        ("f = ", "gt.Tensor", "x > y"),
        ("h = ", "exp.default", "torch.exp(x)"),
        ("return x", "pow.Tensor_Scalar", "x ** 2"),
    ],
)
@pytest.mark.usefixtures("net")
def test_the_expression_that_asks_for_the_operator_is_found(line: str, op: str, code: str) -> None:
    site = in_net(number_of(line), op=op)
    assert site.code == code
    assert site.column is not None
    assert site.end_line is not None
    assert site.end_column is not None
    text = NET.splitlines()[site.line - 1 : site.end_line]
    text[-1] = text[-1][: site.end_column - 1]
    text[0] = text[0][site.column - 1 :]
    assert " ".join(part.strip() for part in text) == code


@pytest.mark.parametrize(
    ("name", "inner", "op", "scopes", "code"),
    [
        ("c", LINEAR, "linear.default", ["", "net", "net.fc", "linear"], "self.fc(x)"),
        ("c", LINEAR, "layer_norm.default", ["", "net", "net.norm", "n"], "self.norm(self.fc(x))"),
        ("c", LINEAR, "linear.default", ["", "net", "net.act.0", "n"], "self.act(y)"),
        ("e", SOFTMAX, "softmax.int", ["", "softmax"], "F.softmax(self.head(x), -1)"),
        ("e", LINEAR, "linear.default", ["", "odd", "linear"], "self.head(x)"),
        ("g", LINEAR, "linear.default", ["", "blocks.0", "linear"], "self.blocks[0](x)"),
    ],
)
@pytest.mark.usefixtures("net")
def test_the_call_that_leads_to_the_operator_is_found(
    name: str, inner: str, op: str, scopes: list[str], code: str
) -> None:
    assert in_net(number_of(f"{name} = "), inner, op=op, scopes=scopes).code == code


@pytest.mark.parametrize(
    ("name", "inner", "op"),
    [
        ("a", "", "div.Tensor"),  # twice
        ("a", "", "mul.Tensor"),  # not there: it was decomposed
        ("c", LINEAR, "linear.default"),  # three modules
        ("b", LINEAR, "log.default"),  # no module is called here
        ("a", "", None),
    ],
)
@pytest.mark.usefixtures("net")
def test_what_is_not_certain_is_the_whole_line(name: str, inner: str, op: str | None) -> None:
    number = number_of(f"{name} = ")
    site = in_net(number, inner, op=op)
    assert site == Site(file="net.py", line=number, code=NET.splitlines()[number - 1].strip(), function="Net.forward")


@pytest.mark.usefixtures("net")
def test_the_function_is_qualified_where_the_file_tells_it() -> None:
    assert in_net(number_of("a = ")).function == "Net.forward"
    stack = frame("net.py", number_of("a = "), "a = x / y + y / x", "other")
    site = place_of(metadata(stack)).site
    assert site is not None
    assert site.function == "other"


@pytest.mark.parametrize("change", ["gone", "other", "shorter", "no Python", "a folder", "a pipe", "too large"])
def test_a_file_that_does_not_tell_the_same_line_is_left_alone(
    net: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is told as the model tells it, and the expression as far as that alone is certain."""
    number = number_of("b = ")
    stack = metadata(frame(str(net), number, "b = torch.log(x) / y"), "div.Tensor")
    net.unlink()
    match change:
        case "other":
            net.write_text("\n" + NET, "utf-8")
        case "shorter":
            net.write_text("import torch\n", "utf-8")
        case "no Python":
            net.write_text("{" * 20, "utf-8")
        case "a folder":
            net.mkdir()
        case "a pipe":
            os.mkfifo(net)
        case "too large":
            net.write_text(NET, "utf-8")
            monkeypatch.setattr("whynan.source.exporter_metadata._LARGEST_SOURCE", 10)
        case _:
            pass
    assert place_of(stack).site == Site(file="net.py", line=number, code="torch.log(x) / y", function="forward")


def test_a_file_that_was_written_anew_is_read_anew(net: Path) -> None:
    number = number_of("b = ")
    stack = metadata(frame(str(net), number + 1, "b = torch.log(x) / y"), "div.Tensor")
    first = place_of(stack).site
    net.write_text("\n" + NET, "utf-8")
    os.utime(net, (1, 1))
    second = place_of(stack).site
    assert first is not None
    assert second is not None
    assert (first.column, second.column) == (None, 13)


def test_a_file_that_is_no_source_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password = 1 / 2\n", "utf-8")
    site = place_of(metadata(frame(str(secret), 1, "a = x / y"), "div.Tensor")).site
    assert site is not None
    assert site.code == "x / y"
    assert site.column is None


# Whose the line is.


def stack_of(*files: str) -> str:
    return "".join(frame(file, number, "f(x)", "f") for number, file in enumerate(files, 1))


OTHERS = "/home/else/venv/lib/python3.9/site-packages"


@pytest.mark.parametrize(
    ("files", "line", "library"),
    [
        (["/home/me/a.py", "/home/me/b.py"], 2, None),
        (["/home/me/a.py", TORCH], 1, None),
        (["/home/me/a.py", INSTALLED, TORCH], 1, 2),
        (["/home/me/a.py", f"{OTHERS}/timm/block.py", f"{OTHERS}/torch/nn/f.py"], 1, 2),
        (["/home/me/a.py", f"{OTHERS}/torch/nn/f.py", "/home/me/b.py"], 3, None),
        (["/home/me/a.py", INSTALLED, "/home/me/b.py"], 3, None),
        (["/home/me/a.py", "/usr/lib/python3.9/contextlib.py", TORCH], 1, None),
        (["C:\\Users\\me\\a.py", "C:\\venv\\Lib\\site-packages\\timm\\b.py"], 1, 2),
        (["C:\\Users\\me\\a.py", "C:\\Python311\\Lib\\contextlib.py"], 1, None),
        (["<ipython-input-3-abc>", TORCH], 1, None),
        (["<eval_with_key>.4", "/home/me/a.py"], 2, None),
        ([f"{OTHERS}/timm/a.py", f"{OTHERS}/timm/b.py", TORCH], 2, None),
        (["/usr/lib/python3.9/runpy.py", TORCH], 1, None),
        ([TORCH], None, None),
        ([], None, None),
    ],
)
def test_the_innermost_line_of_the_user_is_the_site(files: list[str], line: int | None, library: int | None) -> None:
    found = metadata(stack_of(*files))
    site, inner, _ = place_of(found)
    assert (site and site.line, inner and inner.line) == (line, library)
    assert site is None or site.file == files[site.line - 1]


# What the entries look like.


def doc_of(*frames: str) -> str:
    return "".join(f"{frame}\n" for frame in frames)


EXPORT = (
    f"{OTHERS}/torch/jit/_trace.py(131): wrapper",
    f"{OTHERS}/torch/onnx/utils.py(9): export",
    "/home/me/e.py(7): <module>",
)


def test_a_scripted_export_that_was_asked_to_tells_the_line() -> None:
    doc = doc_of(f"{OTHERS}/torch/nn/linear.py(9): forward", "/home/me/a.py(6): forward", *EXPORT)
    site = Site(file="/home/me/a.py", line=6, function="forward", module="fc")
    assert place_of({}, name="/fc/Gemm", doc=doc) == (site, None, "fc")


@pytest.mark.usefixtures("net")
def test_no_line_is_shown_that_the_model_does_not_tell() -> None:
    site = place_of({}, name="/Log", doc=doc_of(f"{os.path.abspath('net.py')}({number_of('b = ')}): forward")).site
    assert site == Site(file="net.py", line=number_of("b = "), function="forward")


@pytest.mark.parametrize("doc", [doc_of(*EXPORT), "Relu of a convolution (see 3): it is", "x(y): f", "(1): f"])
def test_a_documentation_without_frames_leads_nowhere(doc: str) -> None:
    assert place_of({}, doc=doc).site is None


def test_a_stack_goes_before_a_documentation() -> None:
    site = place_of(metadata(stack_of("/home/me/a.py")), doc=doc_of("/home/me/b.py(2): g")).site
    assert site is not None
    assert site.file == "/home/me/a.py"


def test_the_frames_of_every_python_are_read() -> None:
    stack = """\
        File "a.py", line 1, in forward
            return (x /
                ~~~^
                    y)
                    ^^
          File "b.py", line 2, in <module>
          File "c d.py", line 3, in <listcomp>
            z
        [Previous line repeated 3 more times]
    """
    found = frames_of(textwrap.dedent(stack))
    assert [(frame.file, frame.line, frame.function) for frame in found] == [
        ("a.py", 1, "forward"),
        ("b.py", 2, "<module>"),
        ("c d.py", 3, "<listcomp>"),
    ]
    assert found[0].code is not None
    assert found[0].code.split() == ["return", "(x", "/", "y)"]
    assert found[1].code is None


def test_an_expression_of_many_lines_is_told_whole() -> None:
    stack = 'File "gone.py", line 7, in f\n    return torch.log(\n        x / y\n    )\n'
    assert place_of(metadata(stack, "log.default")).site == Site(
        file="gone.py", line=7, code="torch.log( x / y )", function="f"
    )


@pytest.mark.parametrize(
    ("scopes", "module"),
    [
        (["", "layers.0", "layers.0.fc", "linear"], "layers.0.fc"),
        (["", "linear"], None),
        (["linear"], None),
        ([], None),
        (["", "it's", "linear"], "it's"),
    ],
)
def test_the_module_is_the_scope_around_the_node(scopes: list[str], module: str | None) -> None:
    found = place_of(metadata(stack_of("/home/me/a.py"), scopes=scopes))
    assert found.module == module
    assert found.site is not None
    assert found.site.module == module
    assert place_of({SCOPES: repr(scopes)}) == (None, None, module)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/layers.0/fc/Gemm", "layers.0.fc"),
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/features/features.1/conv/conv.0/conv.0.0/Conv_1", "features.1.conv.0.0"),
        ("/encoder/layer.1/attention/self/MatMul", "encoder.layer.1.attention.self"),
        ("/Softmax", None),
        ("node_linear", None),
        ("model/dense/MatMul", None),
        ("", None),
        ("/", None),
        ("//a/b", None),
        ("/a//b", None),
        ("/a/b/", None),
        ("/" + "a/" * 1000 + "b", None),
    ],
)
def test_a_scripted_name_holds_the_module(name: str, module: str | None) -> None:
    assert module_of(name) == module


@pytest.mark.parametrize(
    "stack",
    [
        "no frame",
        'File "a.py", line x, in f',
        'File "a.py", line 99999999999999999999, in f',
        'File "", line 1, in f',
        'File "a\n.py", line 1, in f',
        'File "a.py", line 1, in f\n    x\n' * 100_000,
    ],
)
def test_what_is_no_stack_leads_nowhere(stack: str) -> None:
    assert place_of({STACK: stack}).site is None


def test_what_is_no_text_leads_nowhere() -> None:
    assert place_of({STACK: b"\xff", SCOPES: b"\xff", FX_NODE: b"\xff"}) == (None, None, None)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("a\0b.py", "x / y"),
        ("/proc/self/mem.py", "x / y"),
        ("/dev/zero", "x / y"),
        ("a.py", "(" * 5000),
        ("a.py", "-" * 20_000 + "x"),
        ("a.py", "x" + " / x" * 10_000),
        ("a.py", "'" + "\\" * 1001),
        ("\x1b[2J[/bold].py", "x / y"),
    ],
)
def test_hostile_frames_do_no_harm(file: str, code: str) -> None:
    place = place_of(metadata(frame(file, 1, code), "div.Tensor"))
    assert place.module is None


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text()
    | st.lists(st.sampled_from(['File "', "a.py", '", line 1', ", in f", "\n", "x / y", "^^", "'", "["])).map("".join)
)
def test_any_text_is_read_or_ignored(text: str) -> None:
    place_of({STACK: text, SCOPES: text, FX_NODE: f"target=torch.ops.aten.{text}"}, name=text, doc=text)
