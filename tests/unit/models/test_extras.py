"""What an extra brings is missed, or found to be too old, in one line that says how to install it."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.errors import MissingExtraError
from whynan.models import extras
from whynan.models.extras import LEAST, need

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_what_is_installed_serves() -> None:
    need("onnx")
    need("ort")


@pytest.mark.parametrize(("extra", "package"), [("onnx", "onnx"), ("ort", "onnxruntime")])
def test_an_older_version_is_refused(
    extra: str, package: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    major, minor = LEAST[package]
    monkeypatch.setattr(extras, "version", lambda _: f"{major}.{minor}.0rc1")
    need(extra)
    monkeypatch.setattr(extras, "version", lambda _: f"{major}.{minor - 1}.9")
    with pytest.raises(MissingExtraError) as refused:
        need(extra)
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(("extra", "package"), [("onnx", "onnx"), ("onnx", "onnx_ir"), ("ort", "onnxruntime")])
def test_a_missing_package_is_refused(extra: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(MissingExtraError, match="not installed"):
        need(extra)


def test_the_project_asks_for_the_same_versions() -> None:
    optional = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    asked = dict(one.split(">=") for extra in ("onnx", "ort") for one in optional[extra])
    assert {name: tuple(map(int, asked[name].split("."))) for name in LEAST} == LEAST


def test_the_version_is_that_of_the_distribution() -> None:
    assert extras._installed("onnx") == version("onnx")
    assert extras._installed("nothing") is None
