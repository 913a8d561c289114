"""What a trial's sections say of its device."""

from __future__ import annotations

import pytest

from tuner.record import Recorded
from tuner.report.terminal.trial_sections import _as_far_as_seen, busy_in_words, energy_in_words


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


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (Recorded(gpu_busy=0.384, cpu_busy=1.04), "GPU 38 %, 1.0 CPU cores, while the clock ran"),
        (Recorded(cpu_busy=1.96), "2.0 CPU cores, while the clock ran"),
        (Recorded(gpu_busy=0.0), "GPU 0 %, while the clock ran"),
        (Recorded(), ""),
    ],
)
def test_what_could_not_be_seen_is_left_out_and_is_no_nought(recorded: Recorded, said: str) -> None:
    assert busy_in_words(recorded) == said


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (Recorded(energy_j=8412.4), "8,412 J"),
        (Recorded(energy_unresolved=True), "unresolved"),
        (Recorded(), ""),
    ],
)
def test_joules_that_were_not_resolved_are_no_nought(recorded: Recorded, said: str) -> None:
    assert energy_in_words(recorded) == said
