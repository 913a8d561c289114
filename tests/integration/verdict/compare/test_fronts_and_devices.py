"""What fresh seeds say beside the table: fronts, and times of one device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.support.compared_studies import Compared, with_runs
from tuner.storage.queue.verifications import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import compare


def test_hypervolumes_come_with_intervals_below_one_reference(compared: Compared) -> None:
    report = compared.report()
    assert report.reference is not None
    original, rmsnorm = report.volumes
    for volume in report.volumes:
        assert volume.verified
        assert volume.interval is not None
        assert volume.interval.low < volume.value < volume.interval.high
    assert rmsnorm.value > original.value


def with_mql(studies: list[StudySnapshot], mql: Callable[[float], float]) -> list[StudySnapshot]:
    """The same verification with other test MQLs."""

    def changed(run: VerificationRun) -> VerificationRun:
        assert run.result is not None
        was = run.result.recorded
        assert was.test_mql is not None
        recorded = dataclasses.replace(was, test_mql=mql(was.test_mql))
        return dataclasses.replace(run, result=dataclasses.replace(run.result, recorded=recorded))

    return [with_runs(each, (changed(run) for run in each.runs)) for each in studies]


def test_runs_that_all_forecast_alike_have_a_level(compared: Compared) -> None:
    report = compare(with_mql(compared.studies(), lambda _: 0.1 + 0.2))
    assert report.registered[0].mql == pytest.approx(0.303)


def test_different_devices_share_no_time_and_say_so(compared: Compared) -> None:
    original, rmsnorm = compared.studies()
    report = compare([original, dataclasses.replace(rmsnorm, device_model=None)])
    assert "measured on Example CPU, 2 cores and on None" in report.between[0].sentence
    mixed = compared.report("original", "study:elsewhere")
    assert any(
        line.startswith("Devices differ, so times do not compare") for line in mixed.fairness
    )
