"""Time at equal quality: of which configurations, on one device, without disturbed timings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from tests.support.compared_studies import Compared, with_runs
from tuner.report.comparison_files import LEVELS, page
from tuner.storage.queue.verifications import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import compare
from tuner.verdict.verified import verified_in


def test_hypervolumes_come_with_intervals_below_one_reference(compared: Compared) -> None:
    report = compared.report()
    assert report.reference is not None
    original, rmsnorm = report.volumes
    for volume in report.volumes:
        assert volume.verified
        assert volume.interval is not None
        assert volume.interval.low < volume.value < volume.interval.high
    assert rmsnorm.value > original.value


def test_time_at_equal_quality_is_that_of_the_fastest_verified_configuration_at_the_level(
    compared: Compared,
) -> None:
    report = compared.report()
    verified = [verified_in(study).values() for study in report.studies]
    assert [level.mql for level in report.levels] == sorted({level.mql for level in report.levels})
    for level in report.levels:
        for found, configurations in zip(level.fastest, verified, strict=True):
            able = [
                v.seconds.estimate
                for v in configurations
                if v.mql and v.seconds and v.mql.estimate <= level.mql
            ]
            assert (found.seconds.estimate if found else None) == min(able, default=None)
    original, rmsnorm = report.levels[-1].fastest  # where all of them are good enough
    assert original is not None
    assert rmsnorm is not None
    assert original.ratio is None
    assert rmsnorm.ratio is not None
    assert rmsnorm.ratio.estimate == rmsnorm.seconds.estimate / original.seconds.estimate
    assert rmsnorm.ratio.covers(0.6)
    assert rmsnorm.ratio.high < 1
    assert (
        report.as_dict()["time_at_equal_quality"][-1]["fastest"][1]["ratio"]["estimate"]
        == rmsnorm.ratio.estimate
    )


def test_time_at_equal_quality_needs_verified_studies_on_one_device(compared: Compared) -> None:
    assert compared.report("original", "simple").levels == ()
    original, rmsnorm = compared.studies()
    assert (
        compare(
            [original, dataclasses.replace(rmsnorm, device_model="Another CPU, 2 cores")]
        ).levels
        == ()
    )


def test_time_at_equal_quality_does_without_disturbed_timings_one_configuration_at_a_time(
    compared: Compared,
) -> None:
    """Of each configuration other seeds are disturbed; only four are clean for all of them."""
    studies = []
    for nth, study in enumerate(compared.studies()):
        trials = sorted(verified_in(study))
        disturbed = {
            n: {(3 * nth + 2 * i) % 10, (3 * nth + 2 * i + 1) % 10} for i, n in enumerate(trials)
        }
        runs = tuple(
            dataclasses.replace(
                run,
                result=dataclasses.replace(
                    run.result,
                    recorded=dataclasses.replace(run.result.recorded, contaminated=True),
                ),
            )
            if run.result and run.block in disturbed[run.trial_number]
            else run
            for run in study.runs
        )
        studies.append(with_runs(study, runs))
    samples = [each.sample() for study in studies for each in verified_in(study).values()]
    assert len(set.intersection(*(set(sample.seconds) for sample in samples))) < 5
    assert all(len(sample.seconds) == 8 for sample in samples)
    report = compare(studies)
    _, rmsnorm = report.levels[-1].fastest
    assert rmsnorm is not None
    assert rmsnorm.ratio is not None
    assert rmsnorm.ratio.covers(0.6)
    assert rmsnorm.ratio.runs == 8


def with_mql(studies: list[StudySnapshot], mql: Callable[[float], float]) -> list[StudySnapshot]:
    """The same verification with other test MQLs."""

    def changed(run: VerificationRun) -> VerificationRun:
        assert run.result is not None
        was = run.result.recorded
        assert was.test_mql is not None
        recorded = dataclasses.replace(was, test_mql=mql(was.test_mql))
        return dataclasses.replace(run, result=dataclasses.replace(run.result, recorded=recorded))

    return [with_runs(each, (changed(run) for run in each.runs)) for each in studies]


def test_levels_that_lie_close_together_are_told_apart(compared: Compared) -> None:
    report = compare(with_mql(compared.studies(), lambda mql: 1e6 + mql))
    shown = re.findall(r"<tr><td class='number'>([^<]+)</td>", page(report).partition(LEVELS)[2])
    assert len(set(shown)) == len(report.levels) == 2
    assert [float(level) for level in shown] == pytest.approx(
        [level.mql for level in report.levels], rel=1e-6
    )


def test_runs_that_all_forecast_alike_reach_their_level_and_have_a_resolution(
    compared: Compared,
) -> None:
    report = compare(with_mql(compared.studies(), lambda _: 0.1 + 0.2))
    assert [level.mql for level in report.levels] == [pytest.approx(0.303)]
    assert all(report.levels[0].fastest)
    assert report.resolution.endswith("or of 0.000 in MQL; smaller ones are missed more often")


def test_different_devices_share_no_time_and_say_so(compared: Compared) -> None:
    original, rmsnorm = compared.studies()
    report = compare([original, dataclasses.replace(rmsnorm, device_model=None)])
    between = report.answers[0]
    assert between.comparison.seconds.estimate is None
    assert between.sentence.endswith("; measured on None and on Example CPU, 2 cores")
    assert "measured on Example CPU, 2 cores and on None" in report.between[0].sentence
    assert between.comparison.mql.estimate is not None
    mixed = compared.report("original", "study:elsewhere")
    assert any(
        line.startswith("Devices differ, so times do not compare") for line in mixed.fairness
    )
