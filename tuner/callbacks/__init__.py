"""For inside a program that tuner runs (docs/own-loop.md): the trial it is to train, and reports
of how that goes.

`Report` serves any loop in Python; `LightningReport` and `HuggingFaceReport` are callbacks of those
two libraries. `LightningProfile` says where the time of any Lightning training goes. Nothing here
imports torch, a library or the rest of tuner before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.callbacks.program_report import Report, TrialToRun, trial_to_run

if TYPE_CHECKING:
    from tuner.callbacks.huggingface_report import HuggingFaceReport as HuggingFaceReport
    from tuner.callbacks.lightning_report import LightningReport as LightningReport
    from tuner.profile.lightning_profile import LightningProfile as LightningProfile

_HOMES = {
    "HuggingFaceReport": "tuner.callbacks.huggingface_report",
    "LightningProfile": "tuner.profile.lightning_profile",
    "LightningReport": "tuner.callbacks.lightning_report",
}

__all__ = ["Report", "TrialToRun", "trial_to_run"]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tuner.callbacks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_HOMES]
