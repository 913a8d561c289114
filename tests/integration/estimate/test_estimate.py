"""What a search costs is measured in a child, which may die, and foretold from that."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.estimate.sizes import compared, summary
from tests.support.forked_cli import run
from tests.support.in_process_worker import DEVICE, RESULT
from tests.support.programs import write_program
from tests.support.small_study import STUDY_TOML, TASK_TOML
from tuner.cli.app import app
from tuner.config import Hyperparameters
from tuner.data.prepare import prepare
from tuner.data.task import Task, load_task
from tuner.devices import CpuCores
from tuner.estimate.cost_sizes import key_of, size_of
from tuner.estimate.measuring.measured_costs import measured_costs
from tuner.estimate.measuring.measuring_process import MeasuringProcess, Subject
from tuner.estimate.size_costs import MeasuredSize, SizeCosts
from tuner.launch.plan import definition_of
from tuner.launch.request import StudySettings
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.relaunch import Said, open_studies
from tuner.worker.loop import Worker

SIZES = STUDY_TOML.replace("{ low = 256, high = 256 }", "{ low = 64, high = 128 }").replace(
    "batch_size = 256", "batch_size = 64"
)
ROOM = 64 << 20
"""Bytes that a training may take beside what its process has."""
TOOK = Recorded(converged=True, stopped_by="converged", wall_clock_s=1.5, total_s=1.6, cycle_s=2.0)


@dataclasses.dataclass(frozen=True)
class Small:
    definition: StudyDefinition
    task: Task
    folder: Path

    @property
    def words(self) -> list[str]:
        return ["--variant", str(self.folder / "s.toml"), "--task", str(self.folder / "t.toml")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp("estimate")
    (folder / "s.toml").write_text(SIZES)
    (folder / "t.toml").write_text(TASK_TOML)
    task = load_task(str(folder / "t.toml"))
    file = load_study_file(str(folder / "s.toml"))
    digest = prepare(task, data_dir=None).data_hash
    return Small(definition_of(file, task, digest, StudySettings()), task, folder)


@pytest.fixture(scope="module")
def process(small: Small) -> Iterator[MeasuringProcess]:
    device = CpuCores((min(os.sched_getaffinity(0)),))
    subject = Subject(
        definition=small.definition, task=small.task, data_dir=None, device=device, most_bytes=ROOM
    )
    with MeasuringProcess(subject) as found:
        yield found


@pytest.fixture(scope="module")
def costs(process: MeasuringProcess) -> SizeCosts:
    return measured_costs(process, seconds=20.0)


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
            most_bytes=ROOM,
        )
        self.built_s, self.epoch_s, self.now = built_s, 1.0, 0.0
        self.asked: list[str] = []

    def start(self) -> None:
        self.now = 0.0
        self.asked = []

    def fit(self, _wanted: Hyperparameters, *, within_s: float) -> MeasuredSize:
        assert within_s > 0
        return MeasuredSize(size={"batch_size": 1}, epoch_s=1.0)

    def time(self, wanted: Hyperparameters, *, within_s: float) -> MeasuredSize:
        assert within_s > 0
        self.now += 5.0
        size = size_of(wanted.as_dict())
        self.asked.append(key_of(size))
        return MeasuredSize(size=size, epoch_s=self.epoch_s, setup_s=0.1, built_s=self.built_s)

    def evaluation_s(self, _wanted: Hyperparameters, *, within_s: float) -> float:
        assert within_s > 0
        return 0.01

    def measured(self, **options: Any) -> tuple[MeasuredSize, ...]:
        with pytest.MonkeyPatch.context() as patch:
            clock = "tuner.estimate.measuring.measured_costs.time.monotonic"
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


def test_what_has_no_room_is_an_answer_and_whoever_asks_lives(
    process: MeasuringProcess, small: Small, costs: SizeCosts
) -> None:
    del costs  # the process has measured by now: its libraries have what they need
    default = small.definition.defaults
    assert process.fits(default, within_s=60)
    assert not process.fits(dataclasses.replace(default, hidden_size=4096), within_s=60)


def test_a_process_that_dies_is_an_answer_and_another_one_goes_on(
    process: MeasuringProcess, small: Small
) -> None:
    starts = process.starts
    process.start()
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert process.time(small.definition.defaults, within_s=60).fits
    assert process.starts == starts + 1
    late = process.time(small.definition.defaults, within_s=0.0)
    assert not late.fits
    assert "not done" in late.failure


def test_what_is_foretold_is_compared_with_real_epochs(small: Small, costs: SizeCosts) -> None:
    device = CpuCores((min(os.sched_getaffinity(0)),))
    sizes = [each.size for each in costs.sizes][:2]
    rows = compared(
        small.definition, small.task, device, costs, data_dir=None, sizes=sizes, epochs=3
    )
    found = summary("small", rows)
    assert (found["sizes"], found["measured"]) == (2, 2)
    assert found["time_worst"] is not None
    assert found["time_worst"] < 5  # of a machine that others use nothing closer is known


def test_the_command_tells_a_study_and_a_retune(
    small: Small, costs: SizeCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.estimate.size_costs.kept", lambda _key: costs)
    monkeypatch.setenv("TUNER_STORAGE", f"sqlite:///{small.folder}/none.db")
    cores = os.sched_getaffinity(0)
    try:
        found = told(["estimate", *small.words, "--cpu", "--no-largest-batch", "--gpus", "4",
                      "--price-per-gpu-hour", "2.5", "--json"])  # fmt: skip
        search = found["variants"][0]["search_s"]
        assert 0 < search["low"] < search["middle"] < search["high"]
        assert found["gpu_hours"]["middle"] == pytest.approx(search["middle"] / 3600)
        assert found["money"]["high"] == pytest.approx(2.5 * search["high"] / 3600)
        assert found["elapsed_hours"]["middle"] > found["gpu_hours"]["middle"] / 4
        assert len(found["variants"][0]["sizes"]) == 4
        whole = told(["estimate", *small.words, "--cpu", "--no-largest-batch", "--retune",
                      "--searches", "2", "--trials", "30", "--json"])  # fmt: skip
        assert whole["retune"]["searches"] == 2
        assert whole["retune"]["confirmation_s"]["middle"] > 0
        assert whole["retune"]["ablation_s"] is None
        assert whole["retune"]["reevaluation_s"]["middle"] == 0  # its searches repeat by themselves
        timed = told(["estimate", *small.words, "--cpu", "--no-largest-batch", "--retune",
                      "--searches", "2", "--budget", "2s", "--ablate", "--json"])  # fmt: skip
        assert timed["retune"]["search_s"]["low"] >= 2.0
        assert timed["retune"]["search_s"]["high"] < whole["retune"]["search_s"]["middle"]
        assert timed["variants"][0]["trials_bought"]["middle"] < 2000
        confirmed_s = timed["retune"]["confirmation_s"]["middle"]
        # 2.8 runs of the default on 10 seeds, where a confirmation takes 2.0 on 90.
        assert timed["retune"]["ablation_s"]["middle"] == pytest.approx(confirmed_s * 28 / 180)
        words = CliRunner().invoke(
            app, ["estimate", *small.words, "--cpu", "--no-largest-batch", "--trials", "30"]
        )
        assert "a search of 30 trials takes" in " ".join(words.stdout.split())
        for option in (["--against", "original"], ["--budget", "20m"], ["--ablate"]):
            refused = CliRunner().invoke(app, ["estimate", *small.words, *option])
            assert refused.exception is not None
            assert f"{option[0]} belongs to a retune" in str(refused.exception)
    finally:
        os.sched_setaffinity(0, cores)


def test_every_search_of_a_group_has_its_own_trials(
    small: Small, costs: SizeCosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four searches, the first has run all of its eight trials, the second three; all of the
    third's failed before they trained, and the fourth is not there.
    """
    monkeypatch.setattr("tuner.estimate.size_costs.kept", lambda _key: costs)
    url = f"sqlite:///{tmp_path}/t.db"
    group = f"{small.task.name}-{small.definition.variant}"
    with closing(open_database(parse_url(url))) as database:
        said = Said(searches=3, trials=8)
        made = open_studies(database, {group: small.definition}, said, device_model=None)
        for each, (budget, took) in zip(made, ((8, TOOK), (3, TOOK), (8, Recorded())), strict=True):
            each.study.set_policy(SearchPolicy(sampler="random", prune=False))
            each.study.ledger.set_budget(budget)
            result = dataclasses.replace(RESULT, recorded=took)
            Worker([each.study], DEVICE, lambda _, r=result: r, name="ann").run()  # type: ignore[misc]
            each.study.ledger.set_budget(8)
    words = ["estimate", *small.words, "--cpu", "--no-largest-batch", "--searches", "4"]
    words += ["--trials", "8", "--storage", url]
    cores = os.sched_getaffinity(0)
    try:
        document = told([*words, "--json"])
        lines = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    finally:
        os.sched_setaffinity(0, cores)
    (found,) = document["variants"]
    assert [each["trials_ended"] for each in found["searches"]] == [8, 3, 8, 0]
    all_run, begun, failed, new = (each["search_s"] for each in found["searches"])
    assert all_run["low"] == all_run["high"] > 0
    assert 3 * 2.0 < begun["low"] < begun["high"] < new["high"]
    assert failed["high"] < 1.0  # nothing is to come
    together = sum(each["middle"] for each in (all_run, begun, failed, new))
    assert document["gpu_hours"]["middle"] == pytest.approx(together / 3600, rel=0.1)
    said_of = " ".join(lines.split())
    for number, ended in enumerate(("8", "3", "8"), 1):
        assert f"search {number} of 8 trials, {ended} of which have ended, takes" in said_of
    assert "search 4 of 8 trials takes" in said_of


def test_a_program_is_not_measured(tmp_path: Path) -> None:
    write_program(tmp_path)
    refused = run("estimate", "--variant", "study.toml", "--task", "demo", "--cpu", folder=tmp_path)
    assert refused.code == 2
    assert refused.error == (
        "no program is measured in parts; tuner variants --check runs one shortly"
    )
    assert refused.err.count("\n") == 1


def told(words: list[str]) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document: dict = json.loads(result.stdout)  # type: ignore[type-arg]
    return document
