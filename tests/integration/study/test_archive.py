"""A study goes into a file and comes back whole, on either database and without one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import finish_one
from tests.support.present import present
from tests.support.recorded_studies import record_study
from tests.support.small_study import definition
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of, read_archive, write_archive
from tuner.study.open import create_or_resume, open_study
from tuner.study.results import TrialRecord
from tuner.study.transfer import restore
from tuner.verdict.round_allowances import SPENT


def exported(url: str) -> Archive:
    """A finished study of eight trials, with their curves, and a running trial, as its archive."""
    record_study(url, variant="rmsnorm", trials=8)
    database = open_database(parse_url(url), create=False)
    try:
        opened = open_study(database, "demo-rmsnorm")
        opened.ledger.set_budget(9)
        opened.set_policy(SearchPolicy(sampler="tpe", seed=5, max_time_s=1e-9))
        claim = opened.ledger.claim("ann")
        assert claim is not None
        assert opened.ask(claim) is not None
        return archive_of(opened)
    finally:
        database.close()


def test_a_study_comes_back_from_a_file_as_it_was(database_url: str, tmp_path: Path) -> None:
    archive = exported(database_url)
    write_archive(archive, tmp_path / "study.json.gz")
    again = read_archive(tmp_path / "study.json.gz")
    assert again.definition.identity() == archive.definition.identity()
    assert (again.name, again.policy, again.budget) == ("demo-rmsnorm", archive.policy, 9)
    assert (again.device_model, again.exported_by) == (archive.device_model, archive.exported_by)
    assert again.results.records == archive.results.records
    assert (
        [record.number for record in again.results.front]
        == [r.number for r in archive.results.front]
        != []
    )
    assert again.results.infeasible  # under the policy's limit nothing is feasible
    assert again.curves.keys() == archive.curves.keys() != set()
    for number, curve in archive.curves.items():
        assert [row.epoch for row in again.curves[number]] == [row.epoch for row in curve]
        for name in ("train_loss", "val_loss", "learning_rate", "elapsed_s"):
            there, here = (
                [getattr(row, name) for row in rows] for rows in (again.curves[number], curve)
            )
            assert there == pytest.approx(here, rel=1e-6)


@SQLITE_ALONE
def test_a_running_trial_waits_in_the_file_with_its_configuration(database_url: str) -> None:
    (waiting,) = [r for r in exported(database_url).records if r.state is TrialState.WAITING]
    assert waiting.number == 8
    assert set(waiting.params) == {
        "learning_rate",
        "weight_decay",
        "dropout",
        "hidden_size",
        "batch_size",
    }


def big_archive() -> Archive:
    """200 trials of 70 epochs."""
    records, curves = [], {}
    for number in range(200):
        attributes = {
            "epochs": 70,
            "seed": number,
            "versions": {"torch": "2.11"},
            "git_revision": "0" * 40,
        }
        attributes |= {f"test_mql/{i}": 0.8 + number / (3000 + i) for i in range(20)}
        values = (10 + number / 7, 0.8 + number / 999)
        params = definition().defaults.as_dict() | {"learning_rate": 1e-3 * (1 + number / 300)}
        records.append(
            TrialRecord(
                number,
                TrialState.COMPLETE,
                params,
                values,
                Recorded.from_flat(attributes),
                None,
                None,
            )
        )
        curves[number] = tuple(
            EpochRow(
                e,
                0.5 + 0.377 / (e + number),
                0.2 + 0.291 / (e + number),
                1e-3 * 0.999**e,
                e * 0.1234567,
            )
            for e in range(1, 71)
        )
    return Archive(
        name="big",
        definition=definition(),
        membership=Membership(group="big"),
        policy=SearchPolicy(),
        budget=200,
        device_model="X",
        records=tuple(records),
        curves=curves,
    )


def test_runs_that_there_was_no_time_for_travel_as_skipped(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/late.db"))
    study = create_or_resume(database, "late", definition(), trials=1)
    finish_one(study)
    run = PlannedRun(
        study_id=study.study_id,
        trial_number=0,
        seed=5,
        session="s",
        plan={"seeds": 1},
        params=definition().defaults.as_dict(),
        block=0,
        place=0,
    )
    assert study.verifications.add([run]) == 1
    assert study.verifications.skip_waiting("s", SPENT) == 1
    write_archive(archive_of(study), tmp_path / "late.json")
    (skipped,) = restore(
        database, read_archive(tmp_path / "late.json"), "copy"
    ).verifications.runs()
    assert (skipped.state, skipped.seed) == ("skipped", 5)
    assert present(skipped.result).recorded.skipped == SPENT
    database.close()


def test_200_trials_with_their_curves_stay_well_under_a_megabyte(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_archive(big_archive(), tmp_path / name)
    assert (tmp_path / "a.json.gz").stat().st_size < 500_000
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no exported study"),
        (b"{}", "is no exported study"),
        (b"\x1f\x8bbroken", "is no exported study"),
        (gzip.compress(bytes(range(256)))[:-9], "is no exported study: .*; copy it again"),
        (
            json.dumps({"format": "tuner study", "version": 99}).encode(),
            "version 99 of the format, this tuner reads 1",
        ),
        (gzip.compress(json.dumps({"format": "tuner study", "version": 1}).encode()), "damaged"),
    ],
    ids=["empty", "no fields", "no gzip", "cut short", "a later version", "nothing in it"],
)
def test_a_file_that_is_no_study_is_refused_in_one_line(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says) as refused:
        read_archive(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (slice(1, None), "its trials are not 0, 1, 2"),
        (slice(0, 199), r"curves of trials that did not end: \[199\]"),
    ],
)
def test_a_file_that_lacks_a_trial_is_refused(tmp_path: Path, left: slice, says: str) -> None:
    """A database would number the others anew, and their curves would be another's."""
    write_archive(big_archive(), tmp_path / "x.json")
    data = json.loads((tmp_path / "x.json").read_text())
    data["trials"] = data["trials"][left]
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=says):
        read_archive(tmp_path / "x.json")


def test_a_missing_file_and_a_strange_ending_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_archive(tmp_path / "none.json")
    with pytest.raises(UsageError, match=r"\.json or \.json\.gz"):
        write_archive(big_archive(), tmp_path / "x.zip")
