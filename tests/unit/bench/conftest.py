"""The demo job on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tuner.bench.contender import Entry, Epoch, Job, Measurement, Round, Scope
from tuner.config import Precision
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    prepared = prepare(load_task("demo"), cache_dir=tmp_path_factory.mktemp("prepared"))
    return Job(prepared=prepared, device=torch.device("cpu"), precision=Precision.FP32)


@pytest.fixture(scope="session")
def data(job: Job) -> DeviceData:
    return to_device(job.prepared, job.device)


@pytest.fixture
def turn() -> Callable[..., Round]:
    """A turn with these epochs, as pairs of seconds and seconds per step."""

    def build(setup_s: float, *epochs: tuple[float, float], peak: int | None = None) -> Round:
        return Round(
            setup_s=setup_s,
            epochs=tuple(Epoch(*epoch) for epoch in epochs),
            counted=(0.0, 1.0),
            peak_memory_bytes=peak,
            n_parameters=10,
            n_windows=400,
            n_steps=4,
        )

    return build


@pytest.fixture
def measured() -> Callable[..., Measurement]:
    """The measurement of `library` at batch size 256 unless told otherwise."""

    def build(
        library: str,
        cold_setup_s: float,
        *rounds: Round,
        batch_size: int = 256,
        scope: Scope = Scope.EPOCH,
        failure: str = "",
    ) -> Measurement:
        entry = Entry(
            library=library,
            variant="",
            backend="",
            hidden_size=64,
            batch_size=batch_size,
            scope=scope,
            note="a note",
        )
        return Measurement(entry, cold_setup_s, list(rounds), failure=failure)

    return build
