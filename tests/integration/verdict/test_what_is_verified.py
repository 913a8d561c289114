"""What `tuner verify` runs where nobody says: what may be recommended, and the knee once; the front
where too little has converged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.drawn_verifications import DEVICE, verify_all
from tests.support.planned_confirmations import known
from tuner.config import Choice
from tuner.launch import DeviceChoice, verification
from tuner.launch.request import Outcome
from tuner.launch.verification import VerificationRequest
from tuner.launch.where import Where
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import snapshot
from tuner.verdict import verification_plan
from tuner.verdict.compare.findings import compare
from tuner.verdict.picks import picks, picks_of
from tuner.verdict.recommendation import ROUNDS
from tuner.verdict.verified import verifications_of, verified_in

SEEDS = 5


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are drawn, on the device of the recorded studies."""

    def work_off(opened: Sequence[OpenStudy], *_: object) -> Outcome:
        verify_all(opened, known())
        return Outcome.FILLED

    monkeypatch.setattr(verification, "work_off", work_off)
    monkeypatch.setattr(verification, "choose_where", lambda *_, **__: Where(devices=(DEVICE,)))


def verified(
    database: Database, study: str, **asked: Any
) -> tuple[OpenStudy, verification.VerificationOutcome]:
    variant = study.removeprefix("demo-").removesuffix("-2")
    outcome = verification.run(
        VerificationRequest(
            variants=variant,
            task="demo",
            studies=study,
            seeds=SEEDS,
            top=3,
            storage=database.address.full(),
            devices=DeviceChoice(cpu=True, workers=1),
            **asked,
        )
    )
    return open_study(database, study), outcome


def test_it_is_what_may_be_recommended_by_the_model_in_rounds(unverified: Database) -> None:
    study, outcome = verified(unverified, "demo-original")
    assert outcome.notes == ()
    runs = verifications_of([study]).runs()
    assert {run.plan["choice"] for run in runs} == {"recommended"}
    rounds = len({run.session for run in runs})
    assert 1 <= rounds <= ROUNDS
    assert len(verified_in(snapshot(study))[0].runs) == rounds * SEEDS
    # A table shows the knee beside the default, and nothing is missing for it.
    missing = compare([snapshot(study)]).missing
    assert not [line for line in missing if "configuration" in line]
    verified(unverified, "demo-original")
    assert verifications_of([study]).runs() == runs, "the rounds are over"


def test_a_knee_that_nobody_would_recommend_runs_in_one_round(
    unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = snapshot(open_study(unverified, "demo-original")).results.eligible
    worst = max(records, key=lambda record: record.values or (0.0, 0.0)).number
    monkeypatch.setattr(verification_plan, "picks", lambda *given: picks(*given) | {"knee": worst})
    study, _ = verified(unverified, "demo-original")
    now = snapshot(study)
    assert len(verified_in(now)[worst].runs) == SEEDS
    assert picks_of(now)["knee"] == worst


@pytest.mark.parametrize(
    ("study", "asked"),
    [
        ("demo-simple", {}),
        ("demo-rmsnorm", {"choice": Choice.FRONT}),
    ],
)
def test_it_is_the_front_where_there_is_no_model_and_where_that_was_asked_for(
    unverified: Database, study: str, asked: dict[str, Any]
) -> None:
    opened, outcome = verified(unverified, study, **asked)
    runs = verifications_of([opened]).runs()
    assert {run.plan["choice"] for run in runs} == {"front"}
    assert len({run.session for run in runs}) == 1
    said = [note for note in outcome.notes if "too little has converged" in note]
    assert len(said) == (0 if asked else 1)
