"""Devices that train a trial together, as one: what they are called, and what cannot be one."""

from __future__ import annotations

import pytest

from tuner.devices import CpuCores, Gpu
from tuner.devices.group import as_group, devices_of_all, grouped, refuse_placed
from tuner.errors import UsageError

GPUS = [Gpu(n, f"GPU-{n}", "H200", n + 4) for n in range(5)]
CORES = [CpuCores((2 * n, 2 * n + 1)) for n in range(3)]


def test_gpus_in_groups_have_the_locks_of_all_and_a_rest_stays_idle() -> None:
    first, second = grouped(GPUS, 2)
    assert first.lock_names == first.lease_keys == ("GPU-0", "GPU-1")
    assert first.uuid == "GPU-0,GPU-1", "as CUDA_VISIBLE_DEVICES has them"
    assert (first.model, first.label) == ("2 x H200", "2 x H200 #4,5")
    assert first.devices == (GPUS[0], GPUS[1])
    assert second.lock_names == ("GPU-2", "GPU-3")


def test_cores_in_groups_are_parted_again_as_they_were() -> None:
    (group,) = grouped(CORES, 2)
    assert group.lock_names == tuple(f"cpu-core-{core}" for core in range(4))
    assert group.devices == (CORES[0], CORES[1])
    assert group.model == f"2 x {CORES[0].model}"
    assert as_group(CpuCores((0, 1, 2, 3)), 2) == group, "as its worker has it"


def test_groups_of_one_are_the_devices_themselves_and_groups_stay_groups() -> None:
    assert grouped(GPUS, 1) == GPUS
    pairs = grouped(GPUS, 2)
    assert grouped(pairs, 2) == pairs
    assert as_group(pairs[0], 2) == pairs[0]
    assert as_group(CORES[0], 1) == CORES[0]


def test_too_few_devices_are_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="takes 6 GPUs at a time, and there are 5; name more"):
        grouped(GPUS, 6)
    with pytest.raises(UsageError, match=r"4 sets of cores .* are 3; --workers 4 shares out"):
        grouped(CORES, 4)
    with pytest.raises(UsageError, match=r"2 GPUs at a time, and this worker has 1; .* --gpu 0,1"):
        as_group(GPUS[0], 2)
    with pytest.raises(UsageError, match="takes 1 GPU at a time, and this worker has 2"):
        as_group(Gpu.together(GPUS[:2]), 1)
    with pytest.raises(UsageError, match="the 2 of this worker cannot be shared out so"):
        as_group(CORES[0], 3)


def test_a_worker_has_one_number_for_all_its_studies_and_an_engine_none_but_one() -> None:
    assert devices_of_all({"a": 2, "b": 2}) == 2
    with pytest.raises(UsageError, match=r"is 2 in 'a' and 1 in 'b'.* launch the studies one by"):
        devices_of_all({"a": 2, "b": 1})
    refuse_placed("Slurm", 1)
    with pytest.raises(UsageError, match="Slurm gives each worker one device"):
        refuse_placed("Slurm", 2)
