"""The numbers of a watched training in TensorBoard, W&B and MLflow, read back from what they have written."""

from __future__ import annotations

import json
import math
import struct
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whynan
from whynan.errors import UsageError
from whynan.integrations import mlflow, tensorboard, wandb

STEPS = 4


class Kept:
    """Keeps the numbers."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """One step."""
        self.rows.append((step, dict(numbers)))


def train(sink: Any, also: Callable[[int], object] = lambda n: None) -> list[tuple[int, dict[str, float]]]:
    """A watched training, and the numbers of its steps; a scaler skips the second of them."""
    torch.manual_seed(0)
    model, kept = nn.Linear(3, 1), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with whynan.watch(optimizer, metrics=[kept, sink], quiet=True):
        for n in range(1, STEPS + 1):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 3)).square().mean()
            if n == 2:
                loss = loss + (model.bias - model.bias.detach()).sum() * 2e38
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            also(n)
    assert [numbers["whynan/skipped"] for _, numbers in kept.rows] == [0.0, 1.0, 0.0, 0.0]
    assert [len(numbers) for _, numbers in kept.rows] == [4, 3, 4, 4]
    return kept.rows


# -- TensorBoard -----------------------------------------------------------------------------------------------------


def test_tensorboard_has_a_scalar_of_each_number_at_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        rows = train(tensorboard.sink(writer))
    events = EventAccumulator(str(tmp_path)).Reload()
    found = {(event.step, tag): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}
    expected = {(step, name): value for step, numbers in rows for name, value in numbers.items()}
    assert found == pytest.approx(expected, rel=1e-6)


def test_tensorboard_refuses_what_is_no_writer() -> None:
    with pytest.raises(UsageError, match="pip install tensorboard"):
        tensorboard.sink("runs")


# -- W&B -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A run that stays on this machine."""
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    library = pytest.importorskip("wandb")
    settings = library.Settings(console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True)
    begun = library.init(mode="offline", dir=str(tmp_path), project="p", settings=settings)
    yield begun
    begun.finish()


def _end(run: Any) -> None:
    """End a run, and wait until all of it is on disk."""
    run.finish()
    sys.modules["wandb"].teardown()


def _records(folder: Path) -> Iterator[Any]:
    """What an offline run has written: protocol buffers in the log format of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""


def _rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the history, without the clock's."""
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in _records(folder)
        if record.WhichOneof("record_type") == "history"
    ]
    return [{k: v for k, v in row.items() if k not in ("_timestamp", "_runtime")} for row in rows]


def _axes(folder: Path) -> dict[str, str]:
    metrics = [r.metric for r in _records(folder) if r.WhichOneof("record_type") == "metric"]
    return {metric.name: metric.step_metric for metric in metrics if metric.step_metric}


@pytest.mark.breadth
def test_the_numbers_join_the_rows_that_the_program_logs_to_wandb(run: Any, tmp_path: Path) -> None:
    rows = train(wandb.sink(), lambda n: run.log({"mine": n}))
    assert run.step == STEPS
    _end(run)
    names = rows[0][1].keys()
    for row, (step, numbers) in zip(_rows(tmp_path), rows, strict=True):
        assert (row["_step"], row["mine"], row["whynan/step"]) == (step - 1, step, step)
        assert {n: row[n] for n in names} == pytest.approx({n: numbers.get(n, math.nan) for n in names}, nan_ok=True)
    assert {name: axis for name, axis in _axes(tmp_path).items() if name in names} == dict.fromkeys(
        names, "whynan/step"
    )


def test_a_program_that_counts_the_steps_of_its_rows_itself_loses_none_in_wandb(run: Any, tmp_path: Path) -> None:
    train(wandb.sink(run), lambda n: run.log({"mine": n}, step=10 * n))
    _end(run)
    mine = [(row["_step"], row["mine"]) for row in _rows(tmp_path) if "mine" in row]
    assert mine == [(10 * n, n) for n in range(1, STEPS + 1)]


def test_a_number_that_is_not_known_is_not_that_of_an_earlier_step_in_wandb(run: Any, tmp_path: Path) -> None:
    rows = train(wandb.sink(run), lambda n: run.log({"mine": n}) if n % 2 == 0 else None)
    _end(run)
    skipped, last = _rows(tmp_path)
    assert (skipped["whynan/step"], last["whynan/step"]) == (2, 4)
    assert math.isnan(skipped["whynan/gradient_norm"])
    assert last["whynan/gradient_norm"] == rows[3][1]["whynan/gradient_norm"]


def test_where_the_program_logs_nothing_each_step_can_be_a_row_in_wandb(run: Any, tmp_path: Path) -> None:
    rows = train(wandb.sink(run, commit=True, every=2))
    _end(run)
    found = [(row["whynan/step"], row["whynan/loss"]) for row in _rows(tmp_path)]
    assert found == [(step, numbers["whynan/loss"]) for step, numbers in rows if step % 2 == 0]


def test_a_run_of_wandb_that_has_ended_does_not_end_the_training(run: Any) -> None:
    with pytest.warns(RuntimeWarning, match="the metric sink _Rows raised"):
        train(wandb.sink(run), lambda n: run.finish() if n == 2 else None)


def test_without_a_run_wandb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=None, __spec__=object()))
    with pytest.raises(UsageError, match=r"wandb\.init"):
        wandb.sink()
    with pytest.raises(UsageError, match="which is no run"):
        wandb.sink("p")


# -- MLflow ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a store in a folder."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow")
    before = found.get_tracking_uri()
    found.set_tracking_uri((tmp_path / "runs").as_uri())
    yield found
    while found.active_run() is not None:
        found.end_run()
    found.set_tracking_uri(before)


def _metrics(library: Any, run_id: str) -> dict[tuple[int, str], float]:
    client = library.MlflowClient()
    names = client.get_run(run_id).data.metrics
    return {(m.step, name): m.value for name in names for m in client.get_metric_history(run_id, name)}


@pytest.mark.breadth
def test_mlflow_has_each_number_at_its_step_in_the_active_run(library: Any) -> None:
    with library.start_run() as active:
        rows = train(mlflow.sink())
    expected = {(step, name): value for step, numbers in rows for name, value in numbers.items()}
    assert _metrics(library, active.info.run_id) == pytest.approx(expected)


def test_mlflow_has_them_in_a_run_that_is_named_though_another_is_active(library: Any) -> None:
    named = library.MlflowClient().create_run("0").info.run_id
    with library.start_run() as active:
        train(mlflow.sink(named, every=2))
    assert {step for step, _ in _metrics(library, named)} == {2, 4}
    assert _metrics(library, active.info.run_id) == {}


def test_without_a_run_mlflow_is_refused_and_none_is_started(library: Any) -> None:
    with pytest.raises(UsageError, match=r"mlflow\.start_run"):
        mlflow.sink()
    assert library.active_run() is None


# -- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "package"), [(wandb.sink, "wandb"), (mlflow.sink, "mlflow")])
def test_a_package_that_is_missing_is_named_with_its_install_command(
    make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"{package} is not installed: pip install {package}"):
        make()


def test_steps_are_thinned_from_one_on() -> None:
    writer = types.SimpleNamespace(add_scalar=lambda *_: None)
    for every in (0, -1):
        with pytest.raises(UsageError, match=f"every is {every}"):
            tensorboard.sink(writer, every=every)
