"""Seeds of verifications: ones that nothing in the database has seen; the same where a plan
goes on."""

from __future__ import annotations

from tests.support.drawn_verifications import verify_all
from tests.support.recorded_studies import record_group, record_study
from tuner.spec.membership import seed_of_trial
from tuner.storage.database import Database
from tuner.storage.queue.verifications import planned_seeds
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.results import read_results
from tuner.study.snapshot import searches_of
from tuner.verdict.verification_plan import fresh_seeds, plan_verification, seen_seeds
from tuner.verdict.verified import verifications_of


def record(database: Database) -> tuple[OpenStudy, OpenStudy]:
    """Two studies, and a third whose trials were all run on the second of the fresh seeds."""
    url = database.address.full()
    for variant in ("original", "rmsnorm"):
        record_study(url, variant=variant, trials=3)
    record_study(
        url, variant="rmsnorm", name="seer", trials=2, said={"seed": fresh_seeds(2, ())[1]}
    )
    return open_study(database, "demo-original"), open_study(database, "demo-rmsnorm")


def seeds_of_runs(*studies: OpenStudy) -> list[int]:
    """In the order of the plan."""
    return list(dict.fromkeys(run.seed for run in verifications_of(studies).runs()))


def test_a_verification_is_on_seeds_that_nothing_in_the_database_has_seen(
    database: Database,
) -> None:
    one, other = record(database)
    fresh = fresh_seeds(7, ())
    plan_verification([one], top=1, seeds=2)
    assert seeds_of_runs(one) == [fresh[0], fresh[2]]
    # Of another study: not on what the first verification has seen.
    plan_verification([other], top=1, seeds=1)
    assert seeds_of_runs(other) == [fresh[3]]
    # Both together are a plan of their own; what either has seen is not fresh to it.
    both = plan_verification([one, other], top=1, seeds=2).new_runs
    assert seeds_of_runs(one) == [fresh[0], fresh[2], fresh[4], fresh[5]]
    assert seeds_of_runs(other) == [fresh[3], fresh[4], fresh[5]]
    # It goes on where it is asked for again, with more seeds, or for one of them.
    assert plan_verification([one, other], top=1, seeds=2).new_runs == 0
    assert plan_verification([one], top=1, seeds=2).new_runs == 0
    assert plan_verification([one, other], top=1, seeds=3).new_runs == both // 2
    assert seeds_of_runs(other) == [fresh[3], *fresh[4:7]]


def test_no_search_has_seen_a_seed_of_a_verification_or_will_see_it(database: Database) -> None:
    one, other = record(database)
    other.ledger.set_budget(500)
    plan_verification([one, other], top=2, seeds=20)
    planned = planned_seeds(database.engine)
    assert len(planned) == 20
    studies = [open_study(database, name) for name in list_studies(database)]
    assert len(studies) == 3
    for study in studies:
        recorded = {record.recorded.seed for record in read_results(study).records}
        assert not planned & recorded
        budget = study.ledger.counts().budget
        assert not planned & {
            seed_of_trial(n, root=study.membership.seed_root) for n in range(budget)
        }
    will_be = {seed_of_trial(n, root=other.membership.seed_root) for n in range(500)}
    assert will_be | planned <= seen_seeds(database)


def test_a_group_is_verified_together_and_goes_on(database: Database) -> None:
    names = record_group(database.address.full(), variant="rmsnorm", searches=3, trials=8)
    assert searches_of(database, "demo-rmsnorm") == names
    studies = [open_study(database, name) for name in names]
    fronts = [{r.number: r.params for r in read_results(each).front} for each in studies]
    assert fronts[0] != fronts[1] != fronts[2]
    plan_verification(studies, top=2, seeds=3)
    runs = verifications_of(studies).runs()
    for seed in seeds_of_runs(*studies):
        assert {run.study_id for run in runs if run.seed == seed} == {s.study_id for s in studies}
    verify_all(studies)
    assert plan_verification(studies, top=2, seeds=3).new_runs == 0
    assert plan_verification(studies[1:2], top=2, seeds=3).new_runs == 0
