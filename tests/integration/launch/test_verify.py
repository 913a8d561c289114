"""`tuner verify` as people run it: two workers, killed in the middle and given again."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import select

from tests.support.cli_processes import STUDY, Bench, finished, kill, wait_for, workers_of
from tuner.config import TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage import schema
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume, open_study
from tuner.verdict.verified import verifications_of

VERIFY = (
    f"verify --variant small.toml --study {STUDY} --task tiny.toml --cpu --top 2 --seeds 3".split()
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A study of two recorded trials, bound to one core of this machine: runs take forty epochs."""
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    task = load_task(str(tmp_path / "tiny.toml"))
    definition = StudyDefinition.of(
        load_study_file(str(tmp_path / "small.toml")),
        task=task.definition(),
        data_hash=prepare(task).data_hash,
        # No epoch is ever better by this much than the first: each run takes exactly 1 + 40 epochs.
        training=TrainingSettings(max_epochs=1000, patience=40, min_delta=1e6),
    )
    database = open_database(parse_url(bench.url))
    opened = create_or_resume(database, STUDY, definition, trials=2)
    opened.bind_device_model(CpuCores(available_cores()[:1]).model)
    for number in range(2):
        claim = opened.ledger.claim("recorder")
        assert claim is not None
        params = definition.defaults.as_dict() | {"dropout": 0.1 * (1 + number)}
        assert opened.ledger.write_parameters(claim, params, definition.space.stored(), {})
        said = Recorded(stopped_by="converged", converged=True, seed=number)
        result = TrialResult(TrialState.COMPLETE, (1.0 + number, 1.0 - 0.1 * number), said)
        assert opened.ledger.finish(claim, result)
    database.close()
    return bench


def runs(bench: Bench) -> dict[tuple[int, int], tuple[str, str | None, str | None]]:
    """State, worker and result of every run, by trial and seed."""
    c = schema.work.c
    with bench.database() as database, database.engine.connect() as connection:
        query = select(c.trial_number, c.seed, c.state, c.worker, c.result).where(
            (c.kind == "run") & c.state.not_in(["lost", "returned"])
        )
        return {
            (row.trial_number, row.seed): (row.state, row.worker, row.result)
            for row in connection.execute(query)
        }


def test_killed_in_the_middle_and_given_again_no_run_is_repeated_and_none_is_lost(
    bench: Bench,
) -> None:
    process = bench.start(*VERIFY, "--workers", "2", cores=2)
    try:
        wait_for(
            lambda: [r for r in runs(bench).values() if r[0] == "finished"], "a first finished run"
        )
        # Everything at once, and without a word: supervisor and workers.
        kill([process, *workers_of(process.pid)])
    finally:
        process.communicate()
    wait_for(lambda: not workers_of(process.pid), "the workers' end")
    left = runs(bench)
    before = {key: run for key, run in left.items() if run[0] == "finished"}
    with (
        bench.database() as database
    ):  # instead of waiting for their leases to run out, and half a lease longer
        queue = verifications_of([open_study(database, STUDY)])
        for _, worker, _ in left.values():
            queue.reap(worker=worker or "", state="returned")
    again = finished(
        bench.start(*VERIFY, "--json", cores=1)
    )  # with one worker of the same device model
    assert again.code == 0, again.err
    after = runs(bench)
    assert len(after) == 6
    assert {state for state, _, _ in after.values()} == {"finished"}
    assert {key: after[key] for key in before} == before
    (study,) = again.json()["studies"]
    assert study["runs"] == {"waiting": 0, "running": 0, "finished": 6, "skipped": 0}
    assert {each["runs"]["converged"] for each in study["configurations"]} == {3}
