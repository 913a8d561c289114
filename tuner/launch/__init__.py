"""`tuner launch`: plan the studies, start one worker per device, watch them, and sum up."""

from tuner.launch.plan import Plan, choose_devices, make_plan
from tuner.launch.supervisor import Outcome, Supervisor

__all__ = ["Outcome", "Plan", "Supervisor", "choose_devices", "make_plan"]
