"""From moments, kernels and names to what is said."""

from __future__ import annotations

import random

import pytest
import torch

from tuner.profile.profile_records import (
    Advice,
    Operations,
    Pace,
    Stages,
    bottleneck,
    merged,
    of_falling,
    ranked,
    recording,
    trend_of,
    without_the_fall,
)
from tuner.profile.script_hooks import usual
from tuner.profile.step_operations import of_kernels, on_tensor_cores
from tuner.training.stage_marks import Stage


def test_windows_a_second_count_a_short_last_batch_as_it_is() -> None:
    """An epoch of 300 windows in batches of 128 is three steps."""
    pace = Pace(batch_size=128, windows=300, step_s=0.01, epoch_s=0.04)
    assert pace.windows_per_s == pytest.approx(300 / 0.03)
    unknown = Pace(batch_size=128, windows=0, step_s=0.01, epoch_s=0.0)
    assert unknown.windows_per_s == pytest.approx(12_800)


def test_stretches_of_a_stage_add_up() -> None:
    found = recording([(Stage.DATA, 1.0), (Stage.FORWARD, 3.0), (Stage.DATA, 3.5)])
    assert found.seconds == {Stage.DATA: 1.5, Stage.FORWARD: 2.0}
    assert sum(found.seconds.values()) == 3.5
    assert merged([found, found]).seconds == {Stage.DATA: 3.0, Stage.FORWARD: 4.0}


@pytest.mark.parametrize(
    ("kernel", "fast"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x64x32_stage3", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", True),
        ("nvjet_hsh_128x128_64x4_2x1_v_bz_coopA_NTT", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", False),
        ("ampere_sgemm_128x32_tn", False),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", False),
    ],
)
def test_a_kernels_name_says_whether_it_uses_tensor_cores(kernel: str, fast: bool) -> None:
    assert on_tensor_cores(kernel) is fast


def test_kernels_are_counted_a_step_and_the_longest_come_first() -> None:
    found = of_kernels([("ampere_sgemm_1", 2.0), ("add", 1.0), ("ampere_sgemm_1", 4.0)], steps=2)
    assert found.kernels == 1.5
    assert found.kernel_s == 3.5
    assert found.tensor_cores == 0.0
    assert [each.name for each in found.top] == ["ampere_sgemm_1", "add"]
    assert of_kernels([("add", 1.0)], steps=1).tensor_cores is None


def noisy(count: int, growth: float) -> list[float]:
    draw = random.Random(0)
    return [1.0 + growth * n + draw.uniform(-0.05, 0.05) for n in range(count)]


def test_a_throughput_that_falls_is_told_from_noise() -> None:
    falling = trend_of(noisy(60, 0.02), 60)
    assert falling.falls
    assert falling.growth_s == pytest.approx(0.02, rel=0.1)
    assert not trend_of(noisy(60, 0.0), 60).falls
    slower_for_a_while = [1.0] * 30 + [2.0] * 3 + [1.0] * 27
    assert not trend_of(slower_for_a_while, 60).falls
    assert not trend_of([1.0, 2.0, 3.0], 3).falls, "too few to say"


def test_the_gain_of_a_steady_pace_is_reckoned_for_an_epoch() -> None:
    trend = trend_of([1.16 + 0.02 * n for n in range(60)], 60)  # after 8 steps that settle
    falling_s, steady_s = without_the_fall(trend, 100)
    assert falling_s == pytest.approx(sum(1.0 + 0.02 * n for n in range(100)), rel=0.03)
    assert steady_s == pytest.approx(100, rel=0.03)
    advice = of_falling(trend, 100)
    assert advice is not None
    assert advice.gain == pytest.approx(2.0, rel=0.05)
    assert of_falling(trend_of([1.0] * 60, 60), 100) is None


def test_faults_come_first_then_what_helps_then_the_rest() -> None:
    given = [
        Advice(change="idle", why="", outcome="not tried"),
        Advice(change="slow", why="", gain=0.8),
        Advice(change="fault", why="", gain=1.2, fault=True),
        Advice(change="none", why="", fault=True),
        Advice(change="better", why="", gain=4.0),
        Advice(change="tiny batch", why="", gain=6.0, fault=True, mathematics="fewer updates"),
        Advice(change="useless fault", why="", gain=1.0, fault=True),
    ]
    order = [each.change for each in ranked(given)]
    assert order[:4] == ["fault", "none", "tiny batch", "better"]
    assert set(order[4:]) == {"idle", "slow", "useless fault"}


PACE = Pace(batch_size=8, windows=80, step_s=0.1, epoch_s=1.0)
STAGES = Stages(seconds={Stage.FORWARD: 0.7, Stage.DATA: 0.3}, how="", difference=0.0)


def test_without_a_fault_the_longest_stage_is_named_or_that_the_gpu_waits() -> None:
    assert bottleneck([], STAGES, Operations(), PACE) == "Forward takes 70% of an epoch."
    advice = [Advice(change="a larger batch", why="", gain=1.5)]
    assert bottleneck(advice, STAGES, Operations(), PACE) == (
        "Forward takes 70% of an epoch; a larger batch helps most, for 1.50 times the speed."
    )
    waiting = Operations(kernels=10, kernel_s=0.02)
    assert "nothing to do in 80% of a step" in bottleneck([], STAGES, waiting, PACE)


def test_a_usual_step_counts_slow_turns_and_passes_over_a_slow_stretch() -> None:
    in_turns = [1.0, 3.0] * 50
    assert usual(in_turns) == pytest.approx(2.0)
    assert usual([*in_turns[:80], *([9.0] * 20)]) == pytest.approx(2.0)


def test_a_recording_of_nothing_is_nothing() -> None:
    assert not merged([]).seconds
    assert not torch.cuda.is_initialized()
