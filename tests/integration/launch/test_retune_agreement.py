"""What a retune is about: what is there is gone on with, what was registered stays, and what is
over says its verdict without a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.planned_confirmations import SEEDS, known, unregistered
from tuner.errors import UsageError
from tuner.launch import (
    DeviceChoice,
    Outcome,
    StopRequests,
    StudySettings,
    retune,
    verification,
)
from tuner.launch.retune import (
    RegistrationChangedError,
    RetuneRequest,
    all_has_run,
    refuse_other_data,
    register,
)
from tuner.launch.retune_agreement import Agreement, agreement, search_request
from tuner.launch.retune_request import Stage
from tuner.spec.policy import Registered, SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, as_dict, from_dict, read_archive, write_archive
from tuner.study.open import OpenStudy, register_retune, registered_in
from tuner.study.transfer import restore
from tuner.verdict.confirmation_plan import plan_confirmation

ASKED = RetuneRequest(variant="rmsnorm", against="original", task="demo")


def asked(database: Database, **said: object) -> Agreement:
    request = dataclasses.replace(ASKED, **said)  # type: ignore[arg-type]
    return agreement(request, database.address)


@pytest.fixture
def studies(unverified: Database) -> list[OpenStudy]:
    """Two searches of each variant, 24 trials each, of which nothing is registered."""
    return unregistered(unverified)


def test_what_is_there_is_gone_on_with(studies: list[OpenStudy], unverified: Database) -> None:
    found = asked(unverified)
    assert found.registered == Registered(against="original", trials=24, together=2)
    assert (found.groups, found.own_groups) == (("demo-original", "demo-rmsnorm"),) * 2
    assert [each.group for each in found.to_search] == ["demo-original", "demo-rmsnorm"]
    assert found.before is None
    with pytest.raises(UsageError, match="there are 2 searches of 'demo-rmsnorm' already"):
        asked(unverified, searches=1)
    with pytest.raises(UsageError, match="is the variant itself"):
        asked(unverified, against="rmsnorm")
    with pytest.raises(UsageError, match="name one, and --against one"):
        asked(unverified, variant="rmsnorm,simple")
    with pytest.raises(UsageError, match="--against original,simple names several; name one"):
        asked(unverified, against="original,simple")
    with pytest.raises(UsageError, match="'' holds an empty name"):
        asked(unverified, against="")
    for own in ("demo-rmsnorm", "demo-simple,study:demo-rmsnorm-2", "demo-original-2"):
        with pytest.raises(UsageError, match="is a search of this retune itself"):
            asked(unverified, warm_start=own)
    limit = studies[2].definition.training.max_epochs
    with pytest.raises(UsageError, match=rf"--max-epochs {limit - 1}: demo-\w+ was searched with"):
        asked(unverified, settings=StudySettings(max_epochs=limit - 1))
    for same in (limit, limit + 1):
        assert asked(unverified, settings=StudySettings(max_epochs=same)) == found
    two = found.registered.but(searches=2)
    registered = dataclasses.replace(found, registered=two, before=two)
    assert retune.searches_are_full(registered, unverified.address, max_epochs=limit)
    assert not retune.searches_are_full(registered, unverified.address, max_epochs=limit + 1)
    request = dataclasses.replace(ASKED, warm_start="demo-simple")
    assert search_request(request, asked(unverified), None).warm_start == "demo-simple"
    register_retune(studies[2], Registered(against="original", searches=2, trials=24, together=2))
    again = asked(unverified, against=None)
    assert again.registered == again.before == registered_in(unverified, "demo-rmsnorm")
    assert again.reference is not None
    assert again.notes == (
        "the retune of demo-rmsnorm keeps --against original --searches 2 --trials 24",
    )


def test_a_reference_that_is_confirmed_is_none_of_what_is_searched(
    studies: list[OpenStudy], unverified: Database
) -> None:
    plan_confirmation(studies[:2], seeds=SEEDS)
    found = asked(unverified)
    with pytest.raises(UsageError, match="confirmed already, and between variants all searches"):
        asked(unverified, warm_start="demo-simple")
    assert found.registered.together == 1
    assert [each.group for each in found.to_search] == ["demo-rmsnorm"]
    assert found.own_groups == ("demo-rmsnorm",)


def test_a_reference_of_another_device_model_or_other_data_is_told_before_anything_runs(
    studies: list[OpenStudy], unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures cannot be compared with: the confirmation would refuse, when all is spent."""
    before = [each.ledger.counts() for each in studies]
    request = dataclasses.replace(
        ASKED, storage=unverified.address.full(), devices=DeviceChoice(cpu=True, workers=1)
    )
    monkeypatch.setattr(OpenStudy, "device_model", lambda _: "NVIDIA H200")
    with pytest.raises(UsageError, match=r"'demo-original' holds times measured on 'NVIDIA H200'"):
        retune.run(request)
    monkeypatch.undo()
    assert [each.ledger.counts() for each in studies] == before
    assert registered_in(unverified, "demo-rmsnorm") is None

    agreed, to_be = asked(unverified), studies[2].definition
    refuse_other_data(agreed, unverified.address, {"demo-rmsnorm": to_be})
    changed = dataclasses.replace(to_be, data_hash="0" * 64)
    with pytest.raises(UsageError, match="'demo-rmsnorm' would be on other data than 'demo-orig"):
        refuse_other_data(agreed, unverified.address, {"demo-rmsnorm": changed})


def test_once_its_confirmation_has_begun_nothing_changes(
    studies: list[OpenStudy], unverified: Database
) -> None:
    register_retune(studies[2], Registered(against="original", searches=2, trials=24, together=2))
    plan_confirmation(studies, seeds=SEEDS)
    assert asked(unverified, trials=24).to_search == ()
    with pytest.raises(UsageError, match="registered with --trials 24, and keeps that"):
        asked(unverified, trials=25)


def test_more_device_hours_reach_the_studies_once_the_confirmation_has_begun(
    studies: list[OpenStudy], unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Their trials were recorded as those of an example's processor; here they may be of any.
    monkeypatch.setattr(OpenStudy, "device_model", lambda _: None)
    register_retune(studies[2], Registered(against="original", searches=2, trials=24, together=2))
    plan_confirmation(studies, seeds=SEEDS)
    stop = StopRequests()
    stop.ask(Outcome.INTERRUPTED)
    try:
        for hours in (3600.0, 7200.0, None):
            request = dataclasses.replace(
                ASKED,
                storage=unverified.address.full(),
                devices=DeviceChoice(cpu=True),
                policy=SearchPolicy(max_gpu_s=hours),
            )
            outcome = retune.run(request, stop=stop)
            assert outcome.ended is Outcome.INTERRUPTED
            assert [each.policy().max_gpu_s for each in studies] == [hours] * 4
            assert any("--max-gpu-hours" in line for line in outcome.notes)
    finally:
        for each in studies:
            each.set_policy(each.policy().but(max_gpu_s=None, gpu_shared=()))


def test_one_that_is_over_says_its_verdict_without_a_device(
    studies: list[OpenStudy], unverified: Database
) -> None:
    registered = Registered(against="original", searches=2, trials=24, together=2, finished=True)
    register_retune(studies[2], registered)
    plan_confirmation(studies, seeds=SEEDS)
    verify_all(studies, known(mql=0.78))
    request = dataclasses.replace(ASKED, storage=unverified.address.full())
    outcome = retune.run(request)
    assert outcome.ended is Outcome.FILLED
    assert [each.stage for each in outcome.stages] == list(Stage)
    assert outcome.stages[0].done == 4 * 24
    assert outcome.verdict is not None
    assert len(outcome.verdict.confirmed) == 4
    reference, variant = outcome.costs
    assert (reference.group, variant.group) == ("demo-original", "demo-rmsnorm")
    offering = [each.confirmation for each in outcome.verdict.confirmed if each.confirmation.test]
    assert reference.confirmed + variant.confirmed == len(offering) >= 2
    assert reference.searches == 2
    assert reference.saved_s is not None
    # A default of 10 s, and what takes 6 s of them.
    assert reference.saved_s == pytest.approx(4.0, rel=0.1)
    assert "each training with what demo-original" in outcome.lines[0]
    assert any("times the epochs of its default" in line for line in outcome.lines)
    assert any(line.startswith("With an MQL at most 0, 0.2, 0.5") for line in outcome.lines)
    assert outcome.as_dict()["cost"][0]["saved_s"] == reference.saved_s


def test_what_has_all_run_elsewhere_needs_no_device_for_its_verdict(
    studies: list[OpenStudy], unverified: Database
) -> None:
    """As where the call before was cut off between its last run and its verdict."""
    address = unverified.address
    register_retune(studies[2], Registered(against="original", searches=2, trials=24, together=2))
    assert not all_has_run(asked(unverified), address)
    plan_confirmation(studies, seeds=SEEDS)
    assert not all_has_run(asked(unverified), address)
    verify_all(studies, known(mql=0.78))
    assert all_has_run(asked(unverified), address)
    assert studies[0].device_model() == "Example CPU, 2 cores", "which is not here"
    request = dataclasses.replace(ASKED, storage=address.full(), devices=DeviceChoice(cpu=True))
    outcome = retune.run(request)
    assert outcome.registered.finished
    assert registered_in(unverified, "demo-rmsnorm") == outcome.registered
    assert outcome.verdict is not None


def test_exported_it_goes_on_in_another_database_as_it_was_registered(
    studies: list[OpenStudy], unverified: Database, tmp_path: Path
) -> None:
    there = Registered(against="original", searches=2, trials=None, budget_s=840.0, together=2)
    register_retune(studies[2], there.but(finished=True))
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    for each in studies:
        write_archive(archive_of(each), tmp_path / "study.json.gz")
        restore(elsewhere, read_archive(tmp_path / "study.json.gz"), each.name)
    found = agreement(RetuneRequest(variant="rmsnorm", task="demo"), elsewhere.address)
    assert found.registered == there, "whether anything is left, it finds out"
    assert found.own_groups == ("demo-original", "demo-rmsnorm")
    assert "keeps --against original --searches 2 --budget 840s" in found.notes[0]
    renamed = restore(elsewhere, archive_of(studies[2]), "by-itself")
    assert registered_in(elsewhere, renamed.name) is None, "no search of the retune any more"
    elsewhere.close()


def test_a_retune_in_a_file_is_read_with_care(studies: list[OpenStudy]) -> None:
    register_retune(studies[2], Registered(searches=2))
    document = as_dict(archive_of(studies[2]))
    assert from_dict(document).retune == Registered(searches=2)
    assert "retune" not in as_dict(archive_of(studies[0]))
    document["retune"]["searches"] = "many"
    with pytest.raises(ValueError, match=r"retune\.searches"):
        from_dict(document)


def test_two_calls_at_once_run_what_is_registered_and_who_lost_is_told(
    studies: list[OpenStudy], unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call changes the seeds while the first searches, and once more as it is about to plan
    its confirmation; after the plan nobody does, nor does what is stale come back.
    """
    first = Registered(searches=2, trials=24, confirm_seeds=4)
    register_retune(studies[2], first)
    stale = asked(unverified, against=None, confirm_seeds=5)

    def change(was: int, seeds: int) -> bool:
        other = asked(unverified, against=None, confirm_seeds=seeds)
        if other.before is not None and other.before.confirm_seeds == was:
            register(other, studies[2], other.registered)
        return True

    def planned(*_: object) -> Outcome:
        there = registered_in(unverified, "demo-rmsnorm")
        finished = first.but(finished=True)
        for late, what in ((stale, finished), (dataclasses.replace(stale, before=there), first)):
            with pytest.raises(RegistrationChangedError):
                register(late, studies[2], what)
        return Outcome.INTERRUPTED

    monkeypatch.setattr(OpenStudy, "device_model", lambda _: None)
    monkeypatch.setattr(retune, "searches_are_full", lambda *_, **_more: change(4, 8))
    monkeypatch.setattr(verification, "_check_where", lambda *_: change(8, 9))
    monkeypatch.setattr(verification, "work_off", planned)
    request = dataclasses.replace(
        ASKED,
        storage=unverified.address.full(),
        devices=DeviceChoice(cpu=True, workers=1),
        against=None,
        confirm_seeds=4,
    )
    found = retune.run(request)
    assert found.registered == first.but(confirm_seeds=9)
    assert registered_in(unverified, "demo-rmsnorm") == found.registered
    assert {run.plan["seeds"] for run in studies[2].verifications.runs()} == {9}
    assert [line for line in found.notes if "another call" in line] == [
        "another call has changed the retune of demo-rmsnorm from --confirm-seeds "
        f"{was} to --confirm-seeds {now} meanwhile: this one goes on with that"
        for was, now in ((4, 8), (8, 9))
    ]
