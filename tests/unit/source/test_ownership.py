"""Whose code a file is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pydantic
import pytest

import whynan
from whynan.source import Owner, owner_of, owner_of_code
from whynan.source.ownership import _places as places

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
STDLIB = Path(os.__file__).parent


@pytest.mark.parametrize(
    ("filename", "owner"),
    [
        (__file__, Owner.USER),
        ("<string>", Owner.USER),
        ("<stdin>", Owner.USER),
        ("<ipython-input-3-abc>", Owner.USER),
        ("<doctest example[0]>", Owner.USER),
        ("/tmp/ipykernel_123/456.py", Owner.USER),
        ("train.py", Owner.USER),
        ("/home/me/checkout/library/src/library/model.py", Owner.USER),
        (f"{sys.prefix}/project/train.py", Owner.USER),
        ("/home/me/site-packages-mirror/train.py", Owner.USER),
        ("/home/me/torch/train.py", Owner.USER),
        ("/home/me/whynan/train.py", Owner.USER),
        ("a\ud800b", Owner.USER),
        ("a\0b", Owner.USER),
        (f"{os.path.dirname(whynan.__file__)}-examples/train.py", Owner.USER),
        (pytest.__file__, Owner.LIBRARY),
        (f"{SITE_PACKAGES}/_pytest/python.py", Owner.LIBRARY),
        (pydantic.__file__, Owner.LIBRARY),
        ("/usr/lib/python3/dist-packages/numpy/linalg.py", Owner.LIBRARY),
        (f"{STDLIB}/site-packages/pip/__init__.py", Owner.LIBRARY),
        ("/home/me/.local/lib/python3.12/site-packages/lightning/loop.py", Owner.LIBRARY),
        (f"{sysconfig.get_path('scripts')}/torchrun", Owner.LIBRARY),
        ("<decorator-gen-2>", Owner.LIBRARY),
        (f"{SITE_PACKAGES}/torch/nn/functional.py", Owner.TORCH),
        (f"{SITE_PACKAGES}/torch/__init__.py", Owner.TORCH),
        (f"{SITE_PACKAGES}/functorch/__init__.py", Owner.TORCH),
        (f"{SITE_PACKAGES}/torchmetrics/metric.py", Owner.LIBRARY),
        ("/srv/env/lib/python3.11/site-packages/torch/_tensor.py", Owner.TORCH),
        ("<eval_with_key>.3 from <eval_with_key>.2", Owner.TORCH),
        ("/tmp/torchinductor_me/ab/cabc.py", Owner.TORCH),
        (ast.__file__, Owner.STDLIB),
        (f"{STDLIB}/concurrent/futures/thread.py", Owner.STDLIB),
        ("<frozen importlib._bootstrap>", Owner.STDLIB),
        ("/usr/lib/python311.zip/ast.py", Owner.STDLIB),
        (whynan.__file__, Owner.WHYNAN),
        (owner_of.__wrapped__.__code__.co_filename, Owner.WHYNAN),
    ],
)
def test_whose_a_file_is(filename: str, owner: Owner) -> None:
    assert owner_of(filename) is owner


@dataclass
class Point:
    x: float


def test_methods_that_dataclasses_write_are_no_code_of_the_user() -> None:
    assert Point.__init__.__code__.co_filename == "<string>"
    assert owner_of_code(Point.__init__.__code__) is Owner.STDLIB
    assert owner_of_code(compile("1", "<string>", "eval")) is Owner.USER
    assert owner_of_code(test_whose_a_file_is.__code__) is Owner.USER


def asked(program: str, *path: Path, environment: dict[str, str] | None = None) -> list[str]:
    """What a fresh interpreter prints."""
    source = str(Path(whynan.__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(p) for p in path]!r}\n{program}"]
    env = {**os.environ, "PYTHONPATH": source, **(environment or {})}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.process
def test_torch_is_found_without_being_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('this must not be imported')\n")
    program = (
        "from whynan.source import owner_of\n"
        f"print(owner_of({str(tmp_path / 'torch' / 'nn.py')!r}).name, owner_of({str(tmp_path / 'x.py')!r}).name)\n"
        "print('torch' in sys.modules)"
    )
    assert asked(program, tmp_path) == ["TORCH", "USER", "False"]


def test_a_torch_without_a_spec_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # as a test double stands for it
    places.cache_clear()
    try:
        assert owner_of(str(tmp_path / "double.py")) is Owner.USER
        assert owner_of(f"{SITE_PACKAGES}/torch/double.py") is Owner.TORCH
    finally:
        places.cache_clear()


@pytest.mark.process
def test_links_do_not_hide_an_owner(tmp_path: Path) -> None:
    (tmp_path / "real" / "torch").mkdir(parents=True)
    (tmp_path / "real" / "torch" / "__init__.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("real", "link"):
        program = f"from whynan.source import owner_of; print(owner_of({str(tmp_path / name / 'torch/a.py')!r}).name)"
        assert asked(program, tmp_path / "link") == ["TORCH"]


def test_what_pip_has_put_into_a_target_folder_is_a_librarys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target, plain = tmp_path / "deps", tmp_path / "src"
    records = {
        target / "thing-1.0.dist-info": "thing/deep/loss.py,sha256=a,1\nsolo.py,,\n../bin/thing,,\n",
        target / "torch-9.dist-info": "torch/nn.py,,\n",
        plain / "mine.egg-info": "",
    }
    for folder, record in records.items():
        folder.mkdir(parents=True)
        (folder / "RECORD").write_text(record)
    monkeypatch.setattr(sys, "path", [*sys.path, str(target), str(plain)])
    assert owner_of(str(target / "thing" / "deep" / "loss.py")) is Owner.LIBRARY
    assert owner_of(str(target / "thing" / "mine.py")) is Owner.USER
    assert owner_of(str(target / "solo.py")) is Owner.LIBRARY
    assert owner_of(str(target / "torch" / "nn.py")) is Owner.TORCH
    assert owner_of(str(target / "train.py")) is Owner.USER
    assert owner_of(str(plain / "mine" / "train.py")) is Owner.USER


@pytest.mark.parametrize("entry", [None, 3, b"bytes", "relative"])
def test_whatever_stands_on_the_path_does_no_harm(
    entry: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metadata = tmp_path / "thing-1.0.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_bytes(b"caf\xe9.py,,\n")
    monkeypatch.setattr(sys, "path", [entry, *sys.path, str(tmp_path)])
    assert owner_of(str(tmp_path / "train.py")) is Owner.USER


def test_a_command_is_a_library_through_a_link_to_it_or_to_its_environment(tmp_path: Path) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    (tmp_path / "bin").symlink_to(scripts)
    (tmp_path / "whynan").symlink_to(scripts / "whynan")
    (tmp_path / "mine").write_text("")
    owners = [owner_of(str(tmp_path / name)) for name in ("bin/whynan", "whynan", "mine")]
    assert owners == [Owner.LIBRARY, Owner.LIBRARY, Owner.USER]
