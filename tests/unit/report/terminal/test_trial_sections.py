"""What a trial's sections say of its device."""

from __future__ import annotations

import pytest

from tuner.record import Recorded
from tuner.report.terminal.trial_sections import _as_far_as_seen


@pytest.mark.parametrize(
    ("watched", "said"),
    [
        ({"sees_processes": False}, True),
        ({"watched": False}, True),
        ({"sees_processes": True}, False),
    ],
)
def test_where_no_process_could_be_seen_it_is_said(watched: dict[str, bool], said: bool) -> None:
    told = _as_far_as_seen(Recorded(device_watch=watched))
    assert ("NVML lists no processes here" in told) == said


def test_nothing_is_said_of_a_device_that_was_not_watched_so() -> None:
    assert _as_far_as_seen(Recorded()) == ""
    assert _as_far_as_seen(Recorded(device_watch={"foreign_cpu_share": 0.0})) == ""
