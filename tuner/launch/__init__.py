"""Launches: `run` fills studies with trials, by workers on every device, as a `LaunchRequest` asks.

`tuner.launch.verification` does the same for verifications.
"""

from tuner.launch.launcher import run
from tuner.launch.request import (
    DeviceChoice,
    LaunchOutcome,
    LaunchRequest,
    Outcome,
    Progress,
    StopRequests,
    StudyOutcome,
)
from tuner.launch.supervisor import Supervisor
from tuner.launch.where import choose_devices
from tuner.spec.policy import SearchPolicy, StudySettings

__all__ = [
    "DeviceChoice",
    "LaunchOutcome",
    "LaunchRequest",
    "Outcome",
    "Progress",
    "SearchPolicy",
    "StopRequests",
    "StudyOutcome",
    "StudySettings",
    "Supervisor",
    "choose_devices",
    "run",
]
