"""A launch says whose worker waits for its device and for whom, and does not fill pages with it."""

from __future__ import annotations

import pytest

from tuner.devices import CpuCores
from tuner.devices.lock import AGAIN_S, WAITING_FOR_DEVICE, Holder
from tuner.launch import supervisor
from tuner.launch.supervisor import PATIENT_S, DeviceWaits

DEVICE = CpuCores((0,))
HOLDER = Holder(pid=12, host="there", born="1.0")
HAS_IT = "process 12 on there has it, in another container or on another machine"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("tuner.launch.supervisor.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        supervisor, "holder_among", lambda names: HOLDER if names == DEVICE.lock_names else None
    )
    return now


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_it_names_device_and_holder_once_and_again_from_time_to_time(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    seen = DeviceWaits()
    for at in (0.0, PATIENT_S - 0.1, PATIENT_S, PATIENT_S + AGAIN_S / 2):
        clock[0] = 100.0 + at
        seen.look(DEVICE, WAITING_FOR_DEVICE)
    assert said(caplog) == [
        f"the worker on CPU core 0 waits for its device, for 3 s by now: {HAS_IT}"
    ]
    clock[0] = 100.0 + PATIENT_S + AGAIN_S
    seen.look(DEVICE, WAITING_FOR_DEVICE)
    assert said(caplog) == [
        f"the worker on CPU core 0 waits for its device, for 63 s by now: {HAS_IT}"
    ]
    clock[0] += 7.0
    seen.look(DEVICE, "set-up")
    seen.look(DEVICE, "training")
    assert said(caplog) == ["the worker on CPU core 0 has its device now, after 70 s"]


def test_a_holder_that_is_stopped_is_told_at_once(
    clock: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = DeviceWaits()
    seen.look(DEVICE, WAITING_FOR_DEVICE)
    clock[0] += PATIENT_S
    seen.look(DEVICE, WAITING_FOR_DEVICE)
    said(caplog)
    monkeypatch.setattr(Holder, "is_stopped", property(lambda self: True))
    monkeypatch.setattr(Holder, "__str__", lambda self: "it is stopped")
    for _ in range(3):
        clock[0] += 2.0
        seen.look(DEVICE, WAITING_FOR_DEVICE)
    assert said(caplog) == [
        "the worker on CPU core 0 waits for its device, for 5 s by now: it is stopped"
    ]


def test_short_turns_with_another_launch_say_nothing_and_long_ones_a_line_a_minute(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    seen = DeviceWaits()
    for wait_s, expected in [(PATIENT_S - 1.0, 0), (PATIENT_S, 2), (PATIENT_S, 0), (PATIENT_S, 0)]:
        seen.look(DEVICE, WAITING_FOR_DEVICE)
        clock[0] += wait_s
        seen.look(DEVICE, WAITING_FOR_DEVICE)
        seen.look(DEVICE, "training")
        clock[0] += 5.0
        assert len(said(caplog)) == expected
    seen.look(DEVICE, None)  # the worker has ended
    assert said(caplog) == []


def test_a_worker_that_ends_between_two_looks_is_said_to_wait_no_longer(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    seen = DeviceWaits()
    for after in (0.0, PATIENT_S):
        clock[0] = 100.0 + after
        seen.look(DEVICE, WAITING_FOR_DEVICE)
    said(caplog)
    for _ in range(2):
        seen.look(DEVICE, None)
    assert said(caplog) == ["the worker on CPU core 0 waits for its device no longer, after 3 s"]
