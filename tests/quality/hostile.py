"""Text as a stranger would choose it, and programs that carry it at every place where whynan takes text from one."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import whynan
from whynan.records import Report

TEXTS: dict[str, str] = {
    "markup": "[bold red]x[/] [/bold] [link=https://evil.example]y[/link] :skull:",
    "a closing tag alone": "tensor [/bold]",
    "colours": "\x1b[31mred\x1b[2J\x1b[1;1H",
    "a title of the window": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "control bytes of 8 bits": "a\x9b31mb\x85c\x90d\x9c",
    "a script": "</script><script>alert(1)</script><img src=x onerror=alert(1)> &amp; ${x} {{x}} {x!r} %s %n",
    "lines": "one\ntwo\r\nthree\rnonfinite: 0 errors\u2028four\u2029five\x0b\x0csix",
    "bidirectional": "a\u202ecba\u2066x\u2069\u200e\u200f\u061c",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg\u3164h\U000e0041",
    "half a pair": "a\ud800b\udfffc\udc80",
    "nul": "a\0b",
    "other signs of zero and end": "\x04\x08\x08\x08\x7f\x1a\u0000",
    "very long": "x" * 100_000,
    "very long with spaces": "ab " * 33_000,
    "combining": "e" + "\u0301" * 3_000,
    "wide": "入力" * 50 + "\U0001f469\u200d\U0001f52c\ufe0f",
    "numbers by name": "NaN",
    "json": '"}],"verdict":"clean","x":"\\u001b[2J\\',
    "a formula": "=cmd|' /C calc'!A0",
    "nothing": "",
}

Program = Callable[[str, Path], Report]


def _bad(x: Tensor) -> Tensor:
    return x / (x - x)


def explained(target: Callable[..., Any], *inputs: Any) -> Report:
    return whynan.explain(target, *inputs)


def parameter(text: str, _: Path) -> Report:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_parameter(_name(text), nn.Parameter(torch.zeros(2)))
            self.register_buffer(_name(text) + "b", torch.full((2,), float("nan")))

        def forward(self) -> Tensor:
            return (next(self.parameters()).sqrt() + next(self.buffers())).sum()

    net = Net()

    def target() -> None:
        net().backward()

    return explained(target)


def module(text: str, _: Path) -> Report:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return _bad(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(_name(text), Inner())
            self.add_module(_name(text) + "2", Inner())

        def forward(self, x: Tensor) -> Tensor:
            return sum((inner(x) for inner in self.children()), x)

    return explained(Net(), torch.ones(2))


def class_of_modules(text: str, _: Path) -> Report:
    kind = type(class_name(text), (nn.Module,), {"forward": lambda self, x: _bad(x)})
    return explained(kind(), torch.ones(2))


def function(text: str, _: Path) -> Report:
    def target(x: Tensor) -> Tensor:
        return x / (x - x)

    target.__code__ = target.__code__.replace(co_name=text, co_qualname=text, co_filename=text)
    target.__qualname__ = target.__name__ = text
    measuring = sys.gettrace()
    # what measures coverage cannot follow code of a file that no file system has
    sys.settrace(None)
    try:
        return explained(target, torch.ones(2))
    finally:
        sys.settrace(measuring)


def source(text: str, folder: Path) -> Report:
    script = folder / "source.py"
    body = f"def target(x):\n    return x / (x - x), {text!r}, '''{text}''' # {text}\n"
    with script.open(
        "w", encoding="utf-8", errors="surrogateescape" if _is_utf8(text) else "replace", newline=""
    ) as file:
        file.write(body)
    namespace: dict[str, Any] = {}
    try:
        exec(compile(script.read_bytes(), str(script), "exec"), namespace)
    except (SyntaxError, ValueError):
        exec(compile(f"def target(x):\n    return x / (x - x), {text!r}\n", str(script), "exec"), namespace)
    return explained(namespace["target"], torch.ones(2))


def file(text: str, folder: Path) -> Report:
    script = folder / (file_name(text) + ".py")
    script.write_text("def target(x):\n    return x / (x - x)\n", "utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), namespace)
    return explained(namespace["target"], torch.ones(2))


def key_of_an_output(text: str, _: Path) -> Report:
    return explained(lambda x: {text: _bad(x), "other": {text: [_bad(x)]}}, torch.ones(2))


def key_of_an_input(text: str, _: Path) -> Report:
    return explained(lambda batch: batch[text] * 2, {text: torch.full((2,), float("nan"))})


def field_of_an_output(text: str, _: Path) -> Report:
    @dataclasses.dataclass
    class Output:
        x: Tensor

    def target(x: Tensor) -> Output:
        made = Output(x)
        vars(made)[text] = _bad(x)
        return made

    return explained(target, torch.ones(2))


def variable(text: str, _: Path) -> Report:
    namespace: dict[str, Any] = {"torch": torch, text: torch.zeros(2, requires_grad=True)}
    with whynan.trace() as t:
        exec(compile(f"held = globals()[{text!r}]\nheld.sqrt().sum().backward()\ndel held", "<s>", "exec"), namespace)
    return t.report


def identifier(text: str, _: Path) -> Report:
    """A variable whose name Python takes, and a terminal should not."""
    kept = "".join(sign for sign in text if ("x" + sign).isidentifier())[:2000]
    name = f"x{kept}"
    with whynan.trace() as t:
        exec(f"import torch\n{name} = torch.zeros(2, requires_grad=True)\n({name} ** 0.5).sum().backward()\n", {})
    return t.report


def exception(text: str, _: Path) -> Report:
    with suppress(ValueError), whynan.trace() as t:
        bad = _bad(torch.ones(2))
        raise ValueError(text, bad)
    return t.report


def class_of_exceptions(text: str, _: Path) -> Report:
    kind = type(class_name(text), (ValueError,), {})
    with suppress(ValueError), whynan.trace() as t:
        bad = _bad(torch.ones(2))
        raise kind(text, bad)
    return t.report


def reason(text: str, _: Path) -> Report:
    with whynan.trace() as t, whynan.allow("WN101", reason=text or " x"):
        x = torch.zeros(2)
        nn.Identity()(x / x)
    return t.report


def data_file(text: str, folder: Path) -> Report:
    path = folder / (file_name(text) + ".npy")
    np.save(path, np.array([1.0, float("nan")]))
    with whynan.trace() as t:
        nn.Identity()(torch.from_numpy(np.load(path)) * 2)
    return t.report


def optimizer(text: str, _: Path) -> Report:
    leaf = torch.ones(2, requires_grad=True)
    with whynan.trace() as t:
        adam = torch.optim.Adam([(text, leaf)], lr=0.1, eps=0.0)
        (leaf * 0).sum().backward()
        adam.step()
    return t.report


def autograd_function(text: str, _: Path) -> Report:
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _bad(gradient)

    members = {"forward": staticmethod(lambda ctx, x: x.clone()), "backward": staticmethod(backward)}
    kind: Any = type(class_name(text), (torch.autograd.Function,), members)
    leaf = torch.ones(2, requires_grad=True)
    with whynan.trace() as t:
        kind.apply(leaf).sum().backward()
    return t.report


def thread(text: str, _: Path) -> Report:
    with whynan.trace() as t:
        other = threading.Thread(target=lambda: torch.ones(2).log(), name=text or None)
        other.start()
        other.join()
        nn.Identity()(_bad(torch.ones(2)))
    return t.report


def setting(text: str, _: Path) -> Report:
    """An argument of an operator that is text."""
    with whynan.trace() as t, suppress(Exception):
        nn.Identity()(torch.div(torch.zeros(2), torch.zeros(2)))
        torch.div(torch.zeros(2), torch.zeros(2), rounding_mode=text)
    return t.report


PROGRAMS: dict[str, Program] = {
    "a parameter and a buffer": parameter,
    "modules": module,
    "a class of modules": class_of_modules,
    "a function, its code and its file": function,
    "the source": source,
    "a file on disk": file,
    "a key of an output": key_of_an_output,
    "a key of an input": key_of_an_input,
    "a field of an output": field_of_an_output,
    "a global variable": variable,
    "an identifier": identifier,
    "the text of an exception": exception,
    "a class of exceptions": class_of_exceptions,
    "the reason of an allowance": reason,
    "a file of data": data_file,
    "an optimizer's name of a parameter": optimizer,
    "an autograd function": autograd_function,
    "a thread": thread,
    "a setting of an operator": setting,
}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def class_name(text: str) -> str:
    """What `type` takes for a name: no NUL, and nothing that UTF-8 cannot hold."""
    return text.replace("\0", "").encode("utf-8", "replace").decode() or "N"


def _name(text: str) -> str:
    """What torch takes for the name of a parameter: anything but a dot and nothing."""
    return text.replace(".", "_") or "_"


def argument(text: str) -> str:
    """What an argument of a process can be: no NUL, and of halves of pairs only those that stand for bytes."""
    kept = "".join(sign for sign in text if not "\ud800" <= sign < "\udc80" and not "\udcff" < sign <= "\udfff")
    return kept.replace("\0", "")


def file_name(text: str) -> str:
    """What a file system takes: no slash, no NUL, 255 bytes."""
    kept = argument(text).replace("/", "_").encode("utf-8", "surrogateescape")
    return kept[:200].decode("utf-8", "surrogateescape") or "_"
