"""What `auto` comes to is measured by one worker, stored with the study, and kept to by all."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from tests.support.databases import SQLITE_ALONE
from tests.support.in_process_worker import result_of
from tests.support.small_study import definition
from tuner.config import Backend
from tuner.devices import CpuCores, Gpu
from tuner.devices.backend_rules import BackendChoice
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.records import TrialResult
from tuner.storage.schema import backend_choices, forget_study
from tuner.study.open import OpenStudy, create_or_resume
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker
from tuner.worker.work_source import MeasuredBackend

GPU = Gpu(index=0, uuid="GPU-1", name="NVIDIA Example", number=0)
EAGER = BackendChoice(backend=Backend.EAGER, reason="it waits", epoch_s={"eager": 0.5})
GRAPH = BackendChoice(backend=Backend.GRAPH, epoch_s={"graph": 0.25, "eager": 0.5})


def own(**training: Any) -> StudyDefinition:
    """A study of a class of somebody's own, which no test here builds."""
    found = definition()
    own_class = found.architecture.but(model="nowhere:Net")
    return replace(found, architecture=own_class, training=found.training.but(**training))


def study_of(database: Database, given: StudyDefinition, name: str = "own") -> OpenStudy:
    opened = create_or_resume(database, name, given, trials=6)
    opened.set_policy(SearchPolicy(sampler="random", seed=1))
    return opened


def asked_of(opened: OpenStudy, sizes: str = "8, 64 on an example with 2") -> MeasuredBackend:
    return MeasuredBackend(opened.database.engine, opened.study_id, sizes)


def test_the_first_measurement_counts_for_everybody(study: OpenStudy) -> None:
    asked = asked_of(study)
    assert asked.known() is None
    assert asked.settle(GRAPH) == GRAPH
    assert asked.settle(EAGER) == GRAPH
    assert asked_of(study).known() == GRAPH
    assert asked_of(study, "others").known() is None
    assert replace(asked, study_id=study.study_id + 1).known() is None


def test_many_that_measure_at_once_agree(study: OpenStudy) -> None:
    asked, ready, counted = asked_of(study), threading.Barrier(8), []

    def measure(number: int) -> None:
        mine = replace(EAGER, epoch_s={"eager": float(number)})
        ready.wait()
        counted.append(asked.settle(mine))

    threads = [threading.Thread(target=measure, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(counted) == 8
    assert set(counted) == {asked.known()}


@SQLITE_ALONE
@pytest.mark.parametrize(
    "stored",
    [
        "no JSON",
        "[]",
        '{"backend": "auto", "reason": "", "epoch_s": {}}',
        '{"backend": "triton", "reason": "", "epoch_s": {}}',
        '{"backend": "graph", "reason": "", "epoch_s": {"graph": NaN}}',
        '{"backend": "graph", "reason": ""}',
    ],
)
def test_what_a_stranger_stored_is_measured_anew(study: OpenStudy, stored: str) -> None:
    asked = asked_of(study)
    asked.settle(GRAPH)
    with study.database.engine.begin() as connection:
        connection.execute(update(backend_choices).values(choice=stored))
    assert asked.known() is None
    assert asked.settle(EAGER) == EAGER


@SQLITE_ALONE
def test_a_reason_is_harmless_where_it_is_read(study: OpenStudy) -> None:
    asked = asked_of(study)
    asked.settle(replace(EAGER, reason="\x1b]0;x"))
    found = asked.known()
    assert found is not None
    assert "\x1b" not in found.reason


@SQLITE_ALONE
def test_choices_go_with_their_study(study: OpenStudy) -> None:
    asked_of(study).settle(GRAPH)
    with study.database.engine.begin() as connection:
        forget_study(connection, study.study_id)
        query = select(func.count()).select_from(backend_choices)
        assert connection.execute(query).scalar_one() == 0


@SQLITE_ALONE
def test_each_size_is_measured_once_and_the_trials_after_it_are_told(database: Database) -> None:
    opened = study_of(database, own())
    seen: list[tuple[tuple[Any, ...], BackendChoice | None]] = []

    def run(job: TrialJob) -> TrialResult:
        h = job.hyperparameters
        seen.append(((h.hidden_size, h.batch_size), job.backend))
        if job.backend is None:
            assert job.on_backend(EAGER) == EAGER
            assert job.on_backend(GRAPH) == EAGER
        return result_of(job)

    for _ in range(2):  # a second worker knows what the first one measured
        Worker([opened], GPU, run, name="ann").run()
        opened.ledger.set_budget(12)
    measured = [sizes for sizes, choice in seen if choice is None]
    assert len(measured) == len(set(measured))
    assert {choice for sizes, choice in seen if choice is not None} <= {EAGER}


@SQLITE_ALONE
def test_nothing_is_asked_for_where_nothing_is_measured(database: Database) -> None:
    h = own().defaults
    cases: list[tuple[StudyDefinition, Gpu | CpuCores]] = [
        (definition(), GPU),
        (own(backend=Backend.GRAPH), GPU),
        (own(), CpuCores((0,))),
    ]
    for number, (given, device) in enumerate(cases):
        opened = study_of(database, given, f"study-{number}")
        asked = MeasuredBackend.of(opened, device, h)
        assert asked.known() is None
        assert asked.settle(EAGER) == EAGER
        assert asked_of(opened, asked.measured_for).known() is None


@SQLITE_ALONE
def test_rates_and_decays_are_no_sizes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, h = study_of(database, own()), own().defaults
    first = MeasuredBackend.of(opened, GPU, h)
    assert first == MeasuredBackend.of(opened, GPU, replace(h, learning_rate=0.5, weight_decay=0.1))
    assert first != MeasuredBackend.of(opened, GPU, replace(h, batch_size=1))
    assert first != MeasuredBackend.of(opened, replace(GPU, name="another"), h)
    named = replace(h, own={"norm": "layer", "depth": 2, "alpha": 0.5, "wide": True})
    found = json.loads(MeasuredBackend.of(opened, GPU, named).measured_for)["sizes"]
    assert (found["norm"], found["wide"], found["depth"]) == ("layer", True, 2)
    assert "alpha" not in found
    monkeypatch.setattr("tuner.worker.work_source.torch_version", lambda: "3")
    assert first != MeasuredBackend.of(opened, GPU, h)


@SQLITE_ALONE
def test_while_the_database_is_away_what_was_measured_counts(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = MeasuredBackend.of(study_of(database, own()), GPU, own().defaults)

    def away(*_: object) -> BackendChoice:
        raise OperationalError("INSERT", {}, Exception("connection refused"))

    monkeypatch.setattr(MeasuredBackend, "_stored", away)
    assert asked.settle(EAGER) == EAGER
    assert "the backend is measured again" in caplog.text
