"""The words of a profile that terminal and page share."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.profile.advice_order import waiting_share
from tuner.profile.profile_records import Advice, AtBatch, Profile

MILLI, MICRO = 1e-3, 1e-6


def seconds(value: float) -> str:
    """`1.24 s`, `12.4 ms` or `312 us`."""
    if value >= 1:
        return f"{value:.3g} s"
    if value >= MILLI:
        return f"{value / MILLI:.3g} ms"
    return f"{value / MICRO:.3g} us"


def gain_of(advice: Advice) -> str:
    """`1.84 x`, or a dash."""
    return "-" if advice.gain is None else f"{advice.gain:.2f} x"


def remark_on(advice: Advice) -> str:
    """What is to be known of a piece of advice beside its gain."""
    changes = f"changes the mathematics: {advice.mathematics}" if advice.mathematics else ""
    return "; ".join(filter(None, (advice.why, advice.outcome, changes)))


def memory_of(at: AtBatch) -> str:
    """Of a batch size, or why there is none."""
    if at.failure:
        return at.failure
    return "-" if at.peak_bytes is None else f"{at.peak_bytes / 1e6:,.0f} MB"


def distrust(profile: Profile) -> str:
    """What speaks against all of its figures; empty where nothing does."""
    why = profile.contamination
    return f"These timings are not to be trusted: {why}." if why else ""


def facts_of(profile: Profile) -> Iterator[str]:
    """Lines on pace, attribution, machine and kernels."""
    pace, stages = profile.pace, profile.stages
    rate = f"{pace.windows_per_s:,.0f} windows/s"
    if pace.windows:
        yield (
            f"an epoch of {pace.windows:,} windows takes {seconds(pace.epoch_s)}, set-up "
            f"{seconds(pace.setup_s)}; a step of {pace.batch_size} takes {seconds(pace.step_s)}: "
            f"{rate}"
        )
    else:
        yield f"a step of {pace.batch_size} takes {seconds(pace.step_s)}: {rate}"
    yield f"stages: {stages.how}"
    yield (
        f"a recorded step took {abs(stages.difference):.1%} "
        f"{'more' if stages.difference >= 0 else 'less'} than one that was not; the stages are the "
        "shares of a recorded step, in the time of one that was not recorded"
    )
    trend = profile.trend
    if trend.seconds:
        falls = f"falls by {trend.fall:.0%}" if trend.falls else "does not fall"
        yield f"throughput {falls} within {trend.steps} steps"
    yield from _of_machine(profile)
    yield from profile.notes
    if profile.left:
        yield f"stopped before it was measured to its end: {', '.join(profile.left)}"


def _of_machine(profile: Profile) -> Iterator[str]:
    busy, launched = profile.busy, profile.operations
    if busy.gpu is not None:
        yield f"GPU {busy.gpu:.0f} % busy, as NVML says"
    if busy.process is not None:
        cores = ", ".join(f"{core:.0f}" for core in busy.cores)
        yield f"the process used {busy.process:.0f} % of a core; cores, in %: {cores or '-'}"
    if launched.failure:
        yield f"operations could not be looked at: {launched.failure}"
    if launched.kernels is not None and launched.kernel_s is not None:
        waits = waiting_share(launched, profile.pace)
        yield (
            f"{launched.kernels:.0f} kernels a step, {seconds(launched.kernel_s)} in all"
            + ("" if waits is None else f": the GPU is without one for {waits:.0%} of a step")
        )
        if launched.tensor_cores is None:
            yield "no kernel's name says that it multiplies matrices"
        else:
            yield f"tensor cores do {launched.tensor_cores:.0%} of the products' time"
