"""Real trainings record nothing of the last block of the test split, and the run of a confirmation
records it alone."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.small_study import write_files
from tuner.config import TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.devices import CpuCores
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.queue.verifications import CONFIRMATION, StoredFrozen
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import run_job
from tuner.verdict.verification_plan import Turn, interleaved
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.trial_source import TrialSource, VerificationSource


def test_only_a_run_of_a_confirmation_records_anything_of_the_last_block(tmp_path: Path) -> None:
    """Real trainings, of a few milliseconds each."""
    study_file, task_file = map(str, write_files(tmp_path))
    task = load_task(task_file)
    prepared = prepare(task, cache_dir=tmp_path / "prepared")
    data = {prepared.data_hash: to_device(prepared, "cpu")}
    definition = StudyDefinition.of(
        load_study_file(study_file),
        task=task.definition(),
        data_hash=prepared.data_hash,
        training=TrainingSettings(max_epochs=2),
        mql_split="origins",
        seeds_per_trial=2,
    )
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    study = create_or_resume(database, "tiny-small", definition, trials=2)
    study.set_policy(SearchPolicy(sampler="random", reruns=0))
    jobs: list[TrialJob] = []

    def train(job: TrialJob) -> TrialResult | None:
        jobs.append(job)
        return run_job(job, data)

    device = CpuCores((0,))
    Worker([study], device, train, source=TrialSource, name="searcher").run()
    params = snapshot(study).record(0).params
    plans: tuple[dict[str, Any], ...] = (
        {"seeds": 1, "top": 1, "looks": [], "picks": {}, "choice": "front"},
        {
            "kind": CONFIRMATION,
            "confirms": {study.name: StoredFrozen(default=0, margin=0.01, known=2).model_dump()},
            "seeds": 1,
            "looks": [],
        },
    )
    queue = verifications_of([study])
    for place, plan in enumerate(plans):
        turn = Turn(study.study_id, 0, params, 7 + place)
        queue.add(interleaved([[turn]], first=place, plan=plan | {"shuffle_seed": place}))
    Worker([study], device, train, source=VerificationSource, name="verifier").run()
    trials = [dict(trial.user_attrs) for trial in study.optuna.get_trials()]
    round_, confirmed = (run.result.recorded.to_flat() for run in queue.runs() if run.result)
    database.close()
    assert len(trials) == 2
    for flat in (*trials, round_):
        assert _blocks(flat) == ["1", "2", "3"]
        assert "test_block_mql/4" not in json.dumps(flat)
    parts = [round_[f"test_block_mql/{number}"] for number in (1, 2, 3)]
    assert round_["test_mql"] == pytest.approx(statistics.fmean(parts))
    assert _blocks(confirmed) == ["4"]
    assert confirmed["test_mql"] == pytest.approx(confirmed["test_block_mql/4"])
    # One seed trains one network, whatever of it is scored.
    again = present(run_job(dataclasses.replace(jobs[-1], confirms=False), data)).recorded
    assert (jobs[-1].seed, jobs[-1].confirms) == (8, True)
    assert confirmed["val_mql"] == again.val_mql
    assert set(again.block_test_mql) == {"1", "2", "3"}


def _blocks(flat: dict[str, Any]) -> list[str]:
    prefix = "test_block_mql/"
    return sorted(name.removeprefix(prefix) for name in flat if name.startswith(prefix))
