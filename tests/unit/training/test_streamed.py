"""Rows that stay on the host: the same windows in the same order, and so the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from tuner.config import Backend, Precision, RunConfig, StopReason
from tuner.data import windows
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, StreamedSplit, bytes_on_device, to_device
from tuner.training import FitResult, evaluate, fit
from tuner.training.engines.choose import choose_backend, identifying_backend, what_auto_means
from tuner.training.model_state import model_state

Configure = Callable[..., RunConfig]
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def streamed(prepared: PreparedData) -> DeviceData:
    """Four times as much as is allowed."""
    return to_device(prepared.within(bytes_on_device(prepared) // 4), "cpu")


@pytest.fixture(autouse=True, params=[True, False], ids=["ahead", "when asked"])
def _no_thread_is_left(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """As beside a GPU, and as beside a CPU."""
    if request.param:
        monkeypatch.setattr(windows, "READ_AHEAD_FOR", {"cpu"})
    yield
    assert not [each for each in threading.enumerate() if each.name == "read ahead"]


def same(one: FitResult, other: FitResult) -> bool:
    assert one.model is not None
    assert other.model is not None
    assert [record.epoch for record in one.history] == [record.epoch for record in other.history]
    pairs = zip(model_state(one.model), model_state(other.model), strict=True)
    losses = [[(r.train_loss, r.val_loss) for r in each.history] for each in (one, other)]
    return losses[0] == losses[1] and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.2, "batch_size": 32},
        {"batch_size": 32, "accumulate": 3},
        {"precision": Precision.BF16},
        {"backend": Backend.COMPILE},
    ],
    ids=str,
)
def test_weights_losses_and_scores_are_the_same_bits(
    data: DeviceData, streamed: DeviceData, run_config: Configure, settings: dict[str, object]
) -> None:
    config = run_config(max_epochs=3, **settings)
    one, other = fit(config, data), fit(config, streamed)
    assert same(one, other)
    assert other.backend is one.backend
    assert one.model is not None
    assert other.model is not None
    assert evaluate(one.model, data) == evaluate(other.model, streamed)


def test_a_shorter_past_and_single_windows_are_the_same(
    data: DeviceData, streamed: DeviceData
) -> None:
    for size in (None, 5):
        one, other = data.seeing(size), streamed.seeing(size)
        assert isinstance(other.train, StreamedSplit)
        for split in ("train", "val", "test"):
            index = torch.tensor([3, 0, 3])
            batches = [
                getattr(each, split).gather(index, with_series=True) for each in (one, other)
            ]
            for name in ("past", "future", "static", "target", "series"):
                torch.testing.assert_close(*(getattr(b, name) for b in batches), rtol=0, atol=0)


def test_double_precision_is_that_of_batches(prepared: PreparedData) -> None:
    double = to_device(prepared.within(1), "cpu", dtype=torch.float64)
    assert double.train.gather(torch.tensor([0])).past.dtype is torch.float64


def test_another_batch_in_between_is_gathered_by_itself(streamed: DeviceData) -> None:
    order = torch.arange(12)
    parts = list(order.split(5))
    with streamed.train.reading_ahead(parts):
        first = streamed.train.gather(parts[0])
        streamed.train.gather(torch.tensor([7]))
        second = streamed.train.gather(parts[1])
    torch.testing.assert_close(first.past, streamed.train.gather(parts[0]).past, rtol=0, atol=0)
    torch.testing.assert_close(second.past, streamed.train.gather(parts[1]).past, rtol=0, atol=0)


def test_an_epoch_that_is_left_in_the_middle_leaves_no_thread(
    streamed: DeviceData, run_config: Configure
) -> None:
    result = fit(
        run_config(max_epochs=3, batch_size=8),
        streamed,
        should_stop=lambda: StopReason.INTERRUPTED,
    )
    assert result.stopped_by is StopReason.INTERRUPTED


def test_what_fails_ahead_fails_where_it_is_asked_for(
    streamed: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(StreamedSplit, "rows_of", broken)
    order = torch.arange(4)
    with pytest.raises(OSError, match="the disk is gone"), streamed.train.reading_ahead([order]):
        streamed.train.gather(order)


def test_where_and_why_is_said(
    prepared: PreparedData, streamed: DeviceData, caplog: pytest.LogCaptureFixture
) -> None:
    assert to_device(prepared, "cpu").streamed == ""
    needed = bytes_on_device(prepared)
    assert to_device(prepared.within(needed), "cpu").streamed == ""
    assert not caplog.text
    said = to_device(prepared.within(needed - 1).within(needed), "cpu").streamed
    mebibytes = f"{needed / 2**20:.3g} MiB"
    assert said == (
        f"the data is streamed from memory: its rows take {mebibytes}, data_memory allows "
        f"{(needed - 1) / 2**20:.3g} MiB"
    )
    assert f"task tiny: {said}" in caplog.text
    assert streamed.seeing(5).streamed == streamed.streamed != ""


def test_memory_that_runs_out_falls_back(
    prepared: PreparedData, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = windows._placed

    def full(*told: object) -> DeviceData:
        if not told[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return place(*told)  # type: ignore[arg-type]

    monkeypatch.setattr(windows, "_placed", full)
    fallen = to_device(prepared, "cpu")
    assert "they do not fit beside what is there" in fallen.streamed
    index = torch.arange(3)
    assert torch.equal(fallen.train.gather(index).past, data.train.gather(index).past)


@pytest.mark.parametrize("asked", [Backend.AUTO, Backend.GRAPH, Backend.COMPILE, Backend.TRITON])
def test_engines_that_read_rows_on_the_device_give_way(
    streamed: DeviceData, run_config: Configure, asked: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    config, model = run_config(backend=asked), torch.nn.Linear(1, 1)
    told = config, streamed.shapes, model, CUDA, streamed.streamed
    assert choose_backend(*told) == (Backend.EAGER, streamed.streamed)
    assert identifying_backend(config, streamed.shapes, CUDA, streamed.streamed) is Backend.EAGER
    assert identifying_backend(config, streamed.shapes, CUDA) is not Backend.EAGER
    on_gpu = replace(streamed, minimum=torch.empty(0, device="meta"))
    assert what_auto_means(config, on_gpu) is None
