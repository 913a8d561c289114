"""Of a training of ours: stages that add up, and a measurement that changes nothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest
import torch

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import TunerError
from tuner.estimate.driven import running
from tuner.profile.profile_records import MEMORY, OPERATIONS, Pace, Profile, Recorder
from tuner.profile.stage_times import NoMemoryError, measure_pace
from tuner.profile.variant_profile import _settings, profile_variant
from tuner.training.stage_marks import Mark, Stage, unmarked


def test_the_stages_add_up_to_the_epoch_and_little_is_left_over(profiled: Profile) -> None:
    assert profiled.stages.epoch_s == pytest.approx(profiled.pace.epoch_s, rel=0.05)
    assert profiled.stages.share(Stage.OTHER) < 0.10
    for stage in (Stage.DATA, Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER, Stage.VALIDATION):
        assert profiled.stages.seconds[stage] > 0, stage


def test_the_timeline_is_made_of_spans_that_follow_each_other(profiled: Profile) -> None:
    spans = profiled.stages.spans
    assert len(spans) > 20
    assert all(a.end_s == b.start_s for a, b in itertools.pairwise(spans))


def test_the_machine_the_operations_and_the_memory_are_said(profiled: Profile, trace: Path) -> None:
    assert profiled.busy.process is not None
    assert len(profiled.busy.cores) == 1
    assert profiled.operations.top[0].seconds > 0
    assert profiled.operations.kernels is None  # there is no GPU
    sizes = [each.batch_size for each in profiled.memory]
    assert sizes == sorted(sizes)
    assert 32 in sizes
    assert all(each.peak_bytes and each.step_s for each in profiled.memory)
    assert "traceEvents" in json.loads(trace.read_text())


def test_it_is_told_how_long_it_takes_and_what_there_is_as_it_is_measured(
    profiled: Profile, told: list[Profile], said: list[str]
) -> None:
    assert re.search(r"a step takes .*s: all of it about [\d.]+ (s|min),", said[1])
    assert told[0].left == (OPERATIONS, MEMORY)
    assert told[0].stages == profiled.stages
    assert told[0].bottleneck
    assert told[1].left == (MEMORY,)
    assert told[1].operations == profiled.operations
    rows = [len(each.memory) for each in told]
    assert rows == [0, 0, *range(1, len(profiled.memory) + 1), *[len(profiled.memory)] * 2]
    assert told[-1] == profiled
    assert profiled.left == ()


def trained(config: RunConfig, data: DeviceData, mark: Mark) -> list[torch.Tensor]:
    with running(config, data, mark=mark) as found:
        found.steps(12)
        found.validate()
        return [parameter.detach().clone() for parameter in found.engine.model.parameters()]


def test_recorded_steps_compute_what_others_compute(config: RunConfig, data: DeviceData) -> None:
    recorder = Recorder(torch.device("cpu"))
    recorder.start()
    plain, recorded = trained(config, data, unmarked), trained(config, data, recorder)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert set(recorder.stop().seconds) >= {Stage.DATA, Stage.FORWARD, Stage.BACKWARD}


def test_an_update_of_several_batches_tells_the_stages_of_each(
    config: RunConfig, data: DeviceData
) -> None:
    training = config.training.but(accumulate=3)
    recorder = Recorder(torch.device("cpu"))
    with running(dataclasses.replace(config, training=training), data, mark=recorder) as found:
        recorder.start()
        found.steps(1)
        seen = [span.stage for span in recorder.stop().spans]
    assert found.batch_size == 96
    assert seen.count(Stage.FORWARD) == seen.count(Stage.BACKWARD) == 3
    assert seen[-2:] == [Stage.OPTIMISER, Stage.OTHER]


def test_memory_that_runs_out_is_an_outcome(
    config: RunConfig, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr("tuner.training.step.Step.loss", full)
    with pytest.raises(NoMemoryError, match="no more"):
        measure_pace(config, data, steps=9)
    from tuner.devices import CpuCores

    with pytest.raises(TunerError, match="original does not fit with batch_size 32: no more"):
        profile_variant("original", config, data, CpuCores((0,)), steps=9)


def test_settings_away_from_their_defaults_are_said(config: RunConfig, data: DeviceData) -> None:
    training = config.training.but(accumulate=3, validate_every=2)
    changed = dataclasses.replace(config, training=training)
    pace = Pace(batch_size=32, windows=100, step_s=0.01, epoch_s=0.1, backend="eager")
    said = _settings(changed, pace, data)
    assert (said["accumulate"], said["validate_every"]) == (3, 2)
