"""What hooks saw, as plain data that goes from one process to another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from tuner.profile.machine_load import Watching
from tuner.profile.recorders import HOW, recorder_for
from tuner.profile.script_hooks import Hooks


def numbers_of(hooks: Hooks) -> dict[str, Any]:
    """Times in seconds, memory in bytes."""
    seen, recorded = hooks.seen, hooks.recording()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    return {
        "steps": seen.steps,
        "all_steps": seen.sampled_steps,
        "validations": seen.validations,
        "recorded": {} if recorded is None else dict(recorded.seconds),
        "recorded_steps": seen.recorded_steps,
        "spans": [] if recorded is None else [asdict(span) for span in recorded.spans],
        "samples_a_step": seen.samples / seen.sampled_steps if seen.sampled_steps else 0,
        "loader": asdict(seen.loader),
        "network": "" if seen.network is None else type(seen.network).__name__,
        "how": HOW[type(recorder_for(device, captured=False))],
        "setup_s": seen.setup_s,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else Watching.peak_of_process(),
    }
