"""The examples that export a model: each shows its symptom and is explained, and is healthy with its mend."""

from __future__ import annotations

import re

import pytest

from tests.integration.examples import EXPORTED, exported, inferred, shown

pytestmark = pytest.mark.process

ANEW = "run: python -m tests.integration.examples"


def without_versions(report: str) -> str:
    """The report with the versions of its first line taken out, whose padding depends on their length."""
    return re.sub(r"\s+whynan \S+ · onnx\S* \S+ · ", "  whynan · ", report)


@pytest.mark.parametrize("name", ["istft_export", pytest.param("onnx_precision", marks=pytest.mark.full)])
def test_an_exported_model_is_explained(name: str) -> None:
    run = exported(name)
    assert (run.status, run.out) == (0, shown(name)["plain"]), ANEW + run.err
    told = {way: inferred(name, *asked) for way, asked in EXPORTED[name].items()}
    for way, found in told.items():
        assert without_versions(found.out) == without_versions(shown(name)[way]), f"{way}: {ANEW}"
    if name == "istft_export":
        (torchscript,) = told["torchscript"].document["findings"]
        (absorbed,) = told["default"].document["absorbed"]
        assert (torchscript["rule"], torchscript["site"], torchscript["modules"]) == ("WN101", None, ["polar"])
        assert (absorbed["rule"], absorbed["site"]["code"]) == ("WN101", "torch.atan2(imag, real)")
        assert (told["torchscript"].status, told["default"].status) == (1, 0)
    else:
        assert (told["emulated"].status, told["reference"].status) == (0, 1)
        assert {f["rule"] for f in told["reference"].document["findings"]} == {"WN701"}


@pytest.mark.full
@pytest.mark.parametrize("name", EXPORTED)
def test_the_mend_is_clean(name: str) -> None:
    printed = exported(name, "--fixed").out
    assert "NaN" not in printed
    for asked in EXPORTED[name].values():
        assert inferred(name, *asked).document["verdict"] == "clean"
