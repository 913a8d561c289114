"""A profile as plain data: for `--json`, and from the process of somebody else's script."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tuner.profile.profile_records import Advice, Profile
from tuner.training.stage_marks import Stage


def as_document(profile: Profile) -> dict[str, Any]:
    """Times in seconds, memory in bytes, shares from 0 to 1, utilisation in per cent."""
    stages = profile.stages
    return {
        "subject": profile.subject,
        "device": profile.device,
        "settings": dict(profile.settings),
        "bottleneck": profile.bottleneck,
        "pace": asdict(profile.pace)
        | {"window_s": profile.pace.window_s, "windows_per_s": profile.pace.windows_per_s},
        "stages": {
            "epoch_s": stages.epoch_s,
            "seconds": {stage.value: stages.seconds.get(stage, 0.0) for stage in Stage},
            "shares": {stage.value: stages.share(stage) for stage in Stage},
            "attribution": stages.how,
            "difference": stages.difference,
        },
        "throughput": {
            "step_s": list(profile.trend.seconds),
            "fall": profile.trend.fall,
            "falls": profile.trend.falls,
        },
        "operations": asdict(profile.operations),
        "busy": asdict(profile.busy),
        "memory": [asdict(each) for each in profile.memory],
        "advice": [_of_advice(each) for each in profile.advice],
        "contamination": profile.contamination,
        "notes": list(profile.notes),
        "not_measured": list(profile.left),
    }


def _of_advice(advice: Advice) -> dict[str, Any]:
    return {
        "change": advice.change,
        "why": advice.why,
        "fault": advice.fault,
        "tried": advice.gain is not None,
        "gain": advice.gain,
        "helps": advice.helps,
        "epoch_s": advice.epoch_s,
        "changes_the_mathematics": advice.mathematics,
        "outcome": advice.outcome,
    }
