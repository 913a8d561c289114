"""What `tuner trial` says of a trial's throughput, and of how busy its device was."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.record import Recorded
from tuner.report.terminal.sparkline import SPARK_WIDTH, sparkline
from tuner.report.trial_detail import TrialDetail
from tuner.study.throughput import rate


def throughput_rows(detail: TrialDetail, *, plain: bool) -> Iterator[tuple[str, str]]:
    """From the first epochs to the last ones, of its last seed, and an alarm where it fell.

    In samples a second, or, where nobody recorded how many an epoch has, in seconds an epoch.
    """
    found = detail.throughput
    if (ends := found.ends) is not None:
        first, last = ends
        trend = sparkline([1 / each for each in found.seconds], width=SPARK_WIDTH, plain=plain)
        said = f"{first:.3g} to {last:.3g} s an epoch"
        if detail.windows:
            rates = (rate(detail.windows / seconds) for seconds in ends)
            said = f"{' to '.join(rates)} samples/s"
        yield "throughput", f"{trend} {said}"
    if detail.alarm:
        yield "alarm", detail.alarm


def busy_in_words(recorded: Recorded) -> str:
    """`GPU 38 %, 1.0 CPU cores`; empty where neither is known."""
    said = []
    if recorded.gpu_busy is not None:
        said.append(f"GPU {100 * recorded.gpu_busy:.0f} %")
    if recorded.cpu_busy is not None:
        said.append(f"{recorded.cpu_busy:.1f} CPU cores")
    return f"{', '.join(said)}, while the clock ran" if said else ""
