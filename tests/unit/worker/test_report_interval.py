"""How often epochs are written: less often where that takes long."""

from __future__ import annotations

import pytest

from tuner.worker.work_source import LONGEST_PAUSE_S, REPORT_S, ReportInterval


@pytest.mark.parametrize(
    ("took_s", "pause_s"), [(0.0, REPORT_S), (0.01, REPORT_S), (0.2, 4.0), (60, LONGEST_PAUSE_S)]
)
def test_a_slow_database_is_written_to_less_often(
    monkeypatch: pytest.MonkeyPatch, took_s: float, pause_s: float
) -> None:
    now = [100.0]
    monkeypatch.setattr("tuner.worker.work_source.time.monotonic", lambda: now[0])
    interval = ReportInterval()
    assert interval.due()
    interval.wrote(well=True, took_s=took_s)
    now[0] += pause_s - 0.001
    assert not interval.due()
    now[0] += 0.002
    assert interval.due()
