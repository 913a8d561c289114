"""`auto` means the backend that was measured to be the faster one at a size."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
import torch

from tests.support.backend_choices import CPU, CUDA, SHAPES, config_of, network, triton
from tests.support.paths import BENCHMARKS
from tuner.config import Backend, Precision
from tuner.models.tsmixer import DESIGNS, TSMixer
from tuner.training.engines.choose import (
    LONGEST_FUSED,
    MEASURED_ON,
    choose_backend,
    identifying_backend,
    resolve_backend,
)


@pytest.fixture(autouse=True)
def _a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc")


SIZES_MEASURED = BENCHMARKS / "against_darts" / "h200" / "sizes.csv"
SIZES = [
    (16, 64, Backend.TRITON),
    (64, 1024, Backend.TRITON),
    (64, 2048, Backend.GRAPH),
    (128, 256, Backend.TRITON),
    (128, 512, Backend.GRAPH),
    (256, 64, Backend.GRAPH),
]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
@pytest.mark.parametrize(("hidden_size", "batch_size", "expected"), SIZES)
def test_auto_means_the_fused_kernels_up_to_the_sizes_of_the_table(
    hidden_size: int, batch_size: int, expected: Backend, precision: Precision
) -> None:
    pytest.importorskip("triton")
    config = config_of(Backend.AUTO, precision, hidden_size, batch_size)
    assert resolve_backend(config, SHAPES, CUDA) is expected
    assert choose_backend(config, SHAPES, network("original", hidden_size), CUDA) == (expected, "")
    assert resolve_backend(config, SHAPES, CPU) is Backend.EAGER


def test_auto_takes_what_was_the_faster_of_the_two_at_every_size_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: MEASURED_ON)
    seconds: dict[tuple[int, int], dict[str, float]] = {}
    with SIZES_MEASURED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = int(row["hidden_size"]), int(row["batch_size"])
            seconds.setdefault(at, {})[row["contender"].split()[-1]] = float(row["s_per_epoch"])
    assert (64, 256) in seconds
    for (hidden, batch), of in seconds.items():
        faster = Backend.TRITON if of["triton"] < of["graph"] else Backend.GRAPH
        config = config_of(Backend.AUTO, hidden_size=hidden, batch_size=batch)
        assert resolve_backend(config, SHAPES, CUDA) is faster, (hidden, batch)


def test_auto_means_captured_graphs_on_a_gpu_that_nobody_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert choose_backend(config_of(Backend.AUTO), SHAPES, network("original"), CUDA) == (
        Backend.GRAPH,
        "",
    )


@pytest.mark.usefixtures("measured")
def test_auto_means_captured_graphs_for_horizons_that_nobody_measured() -> None:
    pytest.importorskip("triton")
    for horizon, expected in ((LONGEST_FUSED, Backend.TRITON), (LONGEST_FUSED + 1, Backend.GRAPH)):
        shapes = replace(SHAPES, horizon=horizon)
        model = TSMixer(shapes, DESIGNS["original"], hidden_size=32, dropout=0.1)
        config = config_of(Backend.AUTO)
        assert choose_backend(config, shapes, model, CUDA) == (expected, "")
        assert identifying_backend(config, shapes, CUDA) is expected
        assert choose_backend(triton(), shapes, model, CUDA) == (Backend.TRITON, "")


@pytest.mark.usefixtures("measured")
def test_auto_in_bf16_means_captured_graphs() -> None:
    assert choose_backend(
        config_of(Backend.AUTO, Precision.BF16), SHAPES, network("original"), CUDA
    ) == (
        Backend.GRAPH,
        "",
    )


@pytest.mark.usefixtures("measured")
def test_a_choice_stands_whatever_the_sizes() -> None:
    for backend in (Backend.EAGER, Backend.GRAPH, Backend.COMPILE, Backend.TRITON):
        for hidden_size in (8, 4096):
            assert (
                resolve_backend(config_of(backend, hidden_size=hidden_size), SHAPES, CUDA)
                is backend
            )
