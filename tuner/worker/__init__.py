"""A worker: a process that owns one device and pulls trials from its studies until their budgets are filled."""

from tuner.worker.afresh import ContextLostError, lost_context
from tuner.worker.loop import Worker
from tuner.worker.places import Places, deliver, tidy_up
from tuner.worker.pulse import FRESH_PROCESS, Beat, Pulse
from tuner.worker.running import RunningTrial
from tuner.worker.stop import StopFlag

__all__ = [
    "FRESH_PROCESS",
    "Beat",
    "ContextLostError",
    "Places",
    "Pulse",
    "RunningTrial",
    "StopFlag",
    "Worker",
    "deliver",
    "lost_context",
    "tidy_up",
]
