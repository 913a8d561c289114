"""What a search costs is measured in a child, which may die, and foretold from that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.estimate.sizes import compared, summary
from tests.support.forked_cli import run
from tests.support.programs import write_program
from tests.support.small_estimates import Small, told
from tuner.cli.app import app
from tuner.config import Hyperparameters
from tuner.devices import CpuCores
from tuner.estimate.cost_model import MeasuredSize, SizeCosts, key_of, size_of
from tuner.estimate.measuring_process import MeasuringProcess, Subject, measured_costs

pytestmark = pytest.mark.slow


def test_every_size_of_a_small_space_is_measured(costs: SizeCosts) -> None:
    assert len(costs.sizes) == 4
    for each in costs.sizes:
        assert each.epoch_s is not None
        assert 0 < each.epoch_s < 10
        assert each.setup_s > 0
        assert each.peak_bytes > 50 << 20
        assert each.backend == "eager"
    assert costs.windows == 212
    assert costs.evaluation_s > 0


class MadeUp:
    """Measures a size in five seconds of a clock of its own; kernels may be part of them."""

    windows, torch_version, start_s = 100, "2.11", 1.0

    def __init__(self, small: Small, *, built_s: float = 0.0) -> None:
        self.subject = Subject(
            definition=small.definition,
            task=small.task,
            data_dir=None,
            device=CpuCores((0,)),
        )
        self.built_s, self.epoch_s, self.now = built_s, 1.0, 0.0
        self.asked: list[str] = []

    def start(self) -> None:
        self.now = 0.0
        self.asked = []

    def measure(
        self, wanted: Hyperparameters, *, within_s: float, timed: bool = True
    ) -> MeasuredSize:
        assert within_s > 0
        if not timed:
            return MeasuredSize(size={"batch_size": 1}, epoch_s=1.0)
        self.now += 5.0
        size = size_of(wanted.as_dict())
        self.asked.append(key_of(size))
        return MeasuredSize(size=size, epoch_s=self.epoch_s, setup_s=0.1, built_s=self.built_s)

    def evaluation_s(self, _wanted: Hyperparameters, *, within_s: float) -> float:
        assert within_s > 0
        return 0.01

    def measured(self, **options: Any) -> tuple[MeasuredSize, ...]:
        with pytest.MonkeyPatch.context() as patch:
            clock = "tuner.estimate.measuring_process.time.monotonic"
            patch.setattr(clock, lambda: self.now)
            return measured_costs(self, **options).sizes  # type: ignore[arg-type]


def test_what_a_compiler_takes_is_not_taken_from_the_time_for_sizes(small: Small) -> None:
    """Each size is measured in a second, and its kernels are built in four."""
    process = MadeUp(small, built_s=4.0)

    def measured(building_s: float) -> int:
        return len(process.measured(seconds=2.5, building_s=building_s))

    assert measured(0.0) == 1
    assert measured(6.0) == 2  # 10 s are over by then: 8 for kernels, of which 6 do not count
    assert measured(100.0) == 3  # after two sizes it has 0.5 s left


def test_a_measurement_goes_on_where_an_earlier_one_ended(small: Small, costs: SizeCosts) -> None:
    """As long as the default takes what it took; where it does not, nothing of then stands."""
    process = MadeUp(small)
    first = process.measured(seconds=7.5)
    assert len(first) == 2, "the time is over then"
    both = process.measured(seconds=7.5, before=first)
    assert len(both) == 3
    assert both[1] == first[1]
    asked = [key_of(both[0].size), key_of(both[2].size)]
    assert process.asked == asked, "the default is measured again"
    assert len(process.measured(seconds=7.5, before=both)) == len(costs.sizes) == 4
    process.epoch_s = 1.3
    anew = process.measured(seconds=7.5, before=both)
    assert [each.epoch_s for each in anew] == [1.3, 1.3]


def test_a_process_that_dies_is_an_answer_and_another_one_goes_on(
    process: MeasuringProcess, small: Small
) -> None:
    process.start()
    child = process._child
    assert child is not None
    child.popen.kill()
    child.popen.wait()
    assert process.measure(small.definition.defaults, within_s=60).fits
    assert process._child is not child
    late = process.measure(small.definition.defaults, within_s=0.0)
    assert not late.fits
    assert "not done" in late.failure


FACTOR = 12
"""Of a machine that others use, also while sizes are measured, nothing closer is known."""


def test_what_is_foretold_is_compared_with_real_epochs(small: Small, costs: SizeCosts) -> None:
    device = CpuCores((min(os.sched_getaffinity(0)),))
    sizes = [each.size for each in costs.sizes][:2]
    for _ in range(5):  # beside other tests an epoch may take any time
        rows = compared(
            small.definition, small.task, device, costs, data_dir=None, sizes=sizes, epochs=3
        )
        found = summary("small", rows)
        if (found["time_worst"] or 0.0) < FACTOR:
            break
    assert (found["sizes"], found["measured"]) == (2, 2)
    assert found["time_worst"] is not None
    assert found["time_worst"] < FACTOR


def test_the_command_tells_a_study_and_a_retune(
    small: Small, costs: SizeCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.estimate.cost_model.kept", lambda _key: costs)
    monkeypatch.setenv("TUNER_STORAGE", f"sqlite:///{small.folder}/none.db")
    cores = os.sched_getaffinity(0)
    try:
        found = told(["estimate", *small.words, "--cpu", "--gpus", "4",
                      "--price-per-gpu-hour", "2.5", "--json"])  # fmt: skip
        search = found["variants"][0]["search_s"]
        assert 0 < search["low"] < search["middle"] < search["high"]
        assert found["gpu_hours"]["middle"] == pytest.approx(search["middle"] / 3600)
        assert found["money"]["high"] == pytest.approx(2.5 * search["high"] / 3600)
        assert found["elapsed_hours"]["middle"] > found["gpu_hours"]["middle"] / 4
        assert len(found["variants"][0]["sizes"]) == 4
        whole = told(["estimate", *small.words, "--cpu", "--retune",
                      "--searches", "2", "--trials", "30", "--json"])  # fmt: skip
        assert whole["retune"]["searches"] == 2
        assert whole["retune"]["confirmation_s"]["middle"] > 0
        assert whole["retune"]["reevaluation_s"]["middle"] == 0  # its searches repeat by themselves
        timed = told(["estimate", *small.words, "--cpu", "--retune",
                      "--searches", "2", "--budget", "2s", "--json"])  # fmt: skip
        assert timed["retune"]["search_s"]["low"] >= 2.0
        assert timed["retune"]["search_s"]["high"] < whole["retune"]["search_s"]["middle"]
        assert timed["variants"][0]["trials_bought"]["middle"] < 2000
        words = CliRunner().invoke(app, ["estimate", *small.words, "--cpu", "--trials", "30"])
        assert "a search of 30 trials takes" in " ".join(words.stdout.split())
        for option in (["--against", "original"], ["--budget", "20m"]):
            refused = CliRunner().invoke(app, ["estimate", *small.words, *option])
            assert refused.exception is not None
            assert f"{option[0]} belongs to a retune" in str(refused.exception)
    finally:
        os.sched_setaffinity(0, cores)


def test_a_program_is_not_measured(tmp_path: Path) -> None:
    write_program(tmp_path)
    refused = run("estimate", "--variant", "study.toml", "--task", "demo", "--cpu", folder=tmp_path)
    assert refused.code == 2
    assert refused.error == (
        "no program is measured in parts; tuner variants --check runs one shortly"
    )
    assert refused.err.count("\n") == 1
