"""A default that the limit of epochs cuts off, in comparisons of variants and of several searches
of one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.support.cut_defaults import with_default
from tests.support.drawn_verifications import drawn_result, missed, verify_all
from tests.support.present import present
from tests.support.recorded_studies import record_group
from tuner.config import StopReason
from tuner.report.figures.confirmed_figure import confirmed_series
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import open_group, snapshot
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.confirmation_plan import plan_confirmation

SEEDS = 6
SEARCHES = ("demo-rmsnorm", "demo-rmsnorm-2")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Archive]:
    url = f"sqlite:///{tmp_path_factory.mktemp('searches')}/once.db"
    names = record_group(url, variant="original", searches=1, trials=16)
    names += record_group(url, variant="rmsnorm", searches=2, trials=16)
    database = open_database(parse_url(url), create=False)
    found = {name: archive_of(open_study(database, name)) for name in names}
    database.close()
    return found


def restored(
    archives: dict[str, Archive], folder: Path, cut: Collection[str]
) -> dict[str, OpenStudy]:
    """All of these studies in one database, of which some have a default that is cut off."""
    database = open_database(parse_url(f"sqlite:///{folder}/tuner.db"))
    found = {}
    for name, archive in archives.items():
        mine = with_default(archive, StopReason.EPOCH_LIMIT) if name in cut else archive
        found[name] = restore(database, mine, name)
    return found


def runs(cut: Collection[str], *, mql: float = 0.79) -> Callable[[TrialJob], TrialResult]:
    def run(job: TrialJob) -> TrialResult:
        if job.number:
            return drawn_result(job, seconds=3.0, mql=mql)
        return missed(job) if job.study in cut else drawn_result(job, seconds=10.0, mql=0.8)

    return run


def test_a_reference_that_runs_its_default_for_others_alone_has_a_level(
    archives: dict[str, Archive], tmp_path: Path
) -> None:
    cut = ("demo-original",)
    studies = restored(archives, tmp_path, cut)
    mine = studies["demo-rmsnorm"]
    reference = open_group(mine.database, "demo-original")
    plan_confirmation([mine], reference=reference, seeds=SEEDS)
    both = [*reference.members, mine]
    verify_all(both, runs(cut))
    levels = {each.group: each for each in compare([snapshot(each) for each in both]).registered}
    of_reference = levels["demo-original"]
    assert (of_reference.runs, of_reference.cut_off, of_reference.confirmed) == (SEEDS, True, True)


def test_at_the_quality_of_another_default_one_that_is_cut_off_is_a_miss(
    archives: dict[str, Archive], tmp_path: Path
) -> None:
    cut = ("demo-rmsnorm",)
    studies = restored(archives, tmp_path, cut)
    both = [studies["demo-original"], studies["demo-rmsnorm"]]
    plan_confirmation(both, seeds=SEEDS)
    verify_all(both, runs(cut, mql=0.9))
    levels = {
        each.group: each for each in registered_levels(groups_of([snapshot(s) for s in both]))
    }
    (there,) = levels["demo-original"].searches["demo-rmsnorm"]
    assert (there.how, there.confirmed) == ("not reached", True)
    (own,) = levels["demo-rmsnorm"].searches["demo-rmsnorm"]
    assert own.how == "default"
    assert levels["demo-rmsnorm"].cut_off


@pytest.mark.parametrize("cut", SEARCHES)
def test_what_converged_in_one_search_is_not_cut_off_in_another(
    archives: dict[str, Archive], tmp_path: Path, cut: str
) -> None:
    """The level, and the figure, go by the runs that converged."""
    studies = restored(archives, tmp_path, (cut,))
    mine = [studies[name] for name in SEARCHES]
    plan_confirmation(mine, seeds=SEEDS)
    ran: list[str] = []

    def run(job: TrialJob) -> TrialResult:
        if job.number:
            return drawn_result(job, seconds=3.0, mql=0.65)
        ran.append(job.study)
        first = ran.count(job.study) == 1
        return missed(job) if first else drawn_result(job, seconds=8.0, mql=0.7)

    verify_all(mine, run)
    now = [snapshot(each) for each in mine]
    (level,) = registered_levels(groups_of(now))
    assert (level.runs, level.cut_off) == (SEEDS - 1, False)
    (drawn,) = confirmed_series(now)
    assert present(drawn.default).label == f"the default, trial 0, {SEEDS} seeds"
