"""Joules of a real training by the GPU's own counter, beside nvidia-smi's power draw."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Thread

import pytest
import torch

from tests.support.present import present
from tests.support.trial_jobs import job_of
from tuner.config import EpochRecord, StopReason
from tuner.data.windows import DeviceData
from tuner.devices import Gpu, list_gpus
from tuner.devices.watch import energy_j
from tuner.record import Recorded
from tuner.trial.run import run_trial

LONG_S, SHORT_S = 60.0, 2.0
EVERY_MS = 100
APART = 0.05
"""At most, of the two figures."""


@pytest.fixture
def gpu() -> Gpu:
    """The one that torch uses; where NVML counts no joules of it there is nothing to test."""
    found = list_gpus(os.environ)[torch.cuda.current_device()]
    if energy_j(found) is None:
        pytest.skip("NVML counts no joules of this GPU")
    return found


@dataclass
class PowerDraw:
    """What nvidia-smi says of a GPU's power, each reading with the moment that it says."""

    readings: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since 1970, and watts."""

    def joules(self, since: float, until: float) -> float:
        """Trapezoids between the readings, whose ends are drawn out to the two moments."""
        inside = [(max(since, min(until, t)), watts) for t, watts in self.readings]
        first, last = inside[0][1], inside[-1][1]
        points = [(since, first), *inside, (until, last)]
        steps = itertools.pairwise(points)
        return math.fsum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in steps)


@contextmanager
def power_of(gpu: Gpu) -> Iterator[PowerDraw]:
    """Read every tenth of a second while the block runs, by a process of its own."""
    words = ["nvidia-smi", f"--id={gpu.uuid}", f"--query-gpu=timestamp,{power_field(gpu)}"]
    words += ["--format=csv,noheader,nounits", f"--loop-ms={EVERY_MS}"]
    seen = PowerDraw()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        lines = present(process.stdout)

        def read() -> None:
            for line in lines:
                moment, watts = line.split(", ")
                at = datetime.strptime(moment, "%Y/%m/%d %H:%M:%S.%f")  # noqa: DTZ007 - local time
                seen.readings.append((at.timestamp(), float(watts)))

        reader = Thread(target=read)
        reader.start()
        try:
            yield seen
        finally:
            process.terminate()
            reader.join()


def power_field(gpu: Gpu) -> str:
    """The name of the power of a moment; drivers before 530 have one alone."""
    words = ["nvidia-smi", f"--id={gpu.uuid}", "--format=csv,noheader,nounits"]
    instant = [*words, "--query-gpu=power.draw.instant"]
    found = subprocess.run(instant, capture_output=True, text=True, check=False)
    numbers = found.stdout.strip().replace(".", "", 1)
    return "power.draw.instant" if found.returncode == 0 and numbers.isdigit() else "power.draw"


def trained(gpu: Gpu, data: DeviceData, seconds: float) -> Recorded:
    """The record of a trial whose clock runs for so long, as a worker's would."""
    job = job_of(device=gpu)
    settings = job.definition.training.but(
        max_epochs=1_000_000, patience=1_000_000, time_limit_s=seconds
    )

    def go_on(_record: EpochRecord) -> StopReason | None:
        return None

    result = run_trial(
        replace(job.definition, training=settings),
        replace(job.hyperparameters, hidden_size=64, batch_size=256),
        0,
        data,
        gpu,
        on_epoch=go_on,
        should_stop=lambda: None,
    )
    return present(result).recorded


def test_joules_are_those_of_the_power_that_nvidia_smi_shows(
    gpu: Gpu, cuda_data: DeviceData
) -> None:
    trained(gpu, cuda_data, SHORT_S)  # what is compiled is compiled once
    with power_of(gpu) as power:
        recorded = trained(gpu, cuda_data, LONG_S)
    since, until = present(recorded.timed_from), present(recorded.timed_until)
    ours, theirs = present(recorded.energy_j), power.joules(since, until)
    print(
        f"NVML's counter {ours:.0f} J, nvidia-smi's power {theirs:.0f} J over {until - since:.1f} s"
        f" in {len(power.readings)} readings: {ours / theirs - 1:+.2%}"
    )
    assert len(power.readings) > LONG_S * 1000 / EVERY_MS / 2
    assert present(recorded.wall_clock_s) >= 0.9 * LONG_S
    assert recorded.energy_unresolved is None
    assert ours == pytest.approx(theirs, rel=APART)


def test_joules_of_a_short_training_are_unresolved(gpu: Gpu, cuda_data: DeviceData) -> None:
    recorded = trained(gpu, cuda_data, SHORT_S)
    assert recorded.energy_j is None
    assert recorded.energy_unresolved is True
