"""The stages of a captured step: read off timing events in its graph, or off markers in a trace.

An event that is recorded while a step is captured, and is external to the graph, becomes a node of
it: each replay stamps it (torch >= 2.8). Where that does not work, a kernel that does nothing
stands at each boundary, and a trace of a replay shows when each of them ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from tuner.bench.kernels import is_kernel
from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError, first_line
from tuner.models.out_of_memory import out_of_memory
from tuner.profile.recorders import HOW, Recording, ReplayRecorder, merged, recording
from tuner.profile.timed_training import Running, running
from tuner.training.stage_marks import Stage

SETTLE = 8
REPLAYS = 12
"""Read, each the last of some in a row: the GPU is at work when it begins."""

IN_A_ROW = 4

MARKER = "spin_kernel"
"""What `torch.cuda._sleep` launches."""

BY_MARKERS = (
    "the step is one captured graph: by kernels that do nothing and stand at the boundaries of its "
    "stages, as a trace of a replay shows them"
)


class MarkerRecorder:
    """Launches a marker at each boundary of the step that is captured first."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._full = False

    def __call__(self, stage: Stage) -> None:
        if self._full or not torch.cuda.is_current_stream_capturing():
            return
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # noqa: SLF001 - the only kernel that torch has for doing nothing
        self.stages.append(stage)
        self._full = len(self.stages) > 1 and stage is Stage.OTHER


def of_capture(config: RunConfig, data: DeviceData) -> tuple[Recording | None, str]:
    """One step's stages, and how they were attributed; no recording where neither way works."""
    said = ""
    for way, how in ((_by_events, HOW[ReplayRecorder]), (_by_markers, BY_MARKERS)):
        try:
            return way(config, data), how
        except UsageError:
            raise
        except (RuntimeError, ValueError) as error:
            if out_of_memory(error) is not None:
                raise
            said = first_line(error)
    return None, f"the stages of this captured step could not be told apart: {said}"


def _by_events(config: RunConfig, data: DeviceData) -> Recording:
    recorder = ReplayRecorder()
    with running(config, data, mark=recorder) as found:
        found.steps(SETTLE)
        seen = []
        for _ in range(REPLAYS):
            found.steps(_in_a_row(found))
            seen.append(recorder.stop())
    whole = merged(seen)
    mean = {stage: seconds / len(seen) for stage, seconds in whole.seconds.items()}
    return Recording(mean, whole.spans)


def _by_markers(config: RunConfig, data: DeviceData) -> Recording:
    recorder = MarkerRecorder()
    with running(config, data, mark=recorder) as found:
        found.steps(SETTLE)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            found.steps(1)
        events = [event for event in traced.events() if is_kernel(event)]
    kernels = [
        (event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in events
    ]
    return between_markers(kernels, recorder.stages)


def between_markers(
    kernels: Sequence[tuple[str, float, float]], stages: Sequence[Stage]
) -> Recording:
    """The stages of a replay.

    Args:
        kernels: name, start and end in seconds, of a trace in which the step was replayed once.
        stages: of the markers, in their order; the first only begins.

    Raises:
        ValueError: the trace has not as many markers.
    """
    ends = sorted(end for name, _, end in kernels if MARKER in name)
    if len(ends) != len(stages) or not ends:
        raise ValueError(f"the trace shows {len(ends)} markers of {len(stages)}")
    pairs = zip(stages[1:], ends[1:], strict=True)
    return recording([(stage, end - ends[0]) for stage, end in pairs])


def _in_a_row(found: Running) -> int:
    """Full batches only: the last one may be short, and is another graph."""
    return max(1, min(IN_A_ROW, found.n_windows // found.batch_size))
