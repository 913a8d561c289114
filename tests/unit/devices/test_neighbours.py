"""Who else is on a GPU: this process is not, a waiting worker is not, and in a container it can
only be counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.devices import Gpu, lock, watch
from tuner.devices.lock import cuda_users, foreign_processes, is_harmless, signed_in
from tuner.devices.watch import used_cpu_s


def test_this_process_is_no_neighbour() -> None:
    assert foreign_processes([7], [7], own=7) == []
    assert foreign_processes([7, 9], [7, 11], own=7) == [9, 11]
    assert foreign_processes([], [], own=7) == []


def test_in_a_container_the_others_are_still_counted() -> None:
    """The list has the host's numbers, of which none is ours."""
    assert foreign_processes([5001], [5001], own=7) == []
    assert len(foreign_processes([5001, 5002], [5001, 5002], own=7)) == 1
    assert foreign_processes([5001], [5001, 5002], own=7) == [5002]
    assert foreign_processes([5001], [5002], own=7) == [5001, 5002]
    # A host's process that happens to have our number inside: one of the two is ours.
    assert len(foreign_processes([7, 5001], [7, 5001], own=7)) == 1


def test_a_program_that_trains_for_us_is_no_neighbour() -> None:
    assert foreign_processes([], [8, 9], own=7, on_gpu=False, program=[8, 9]) == []
    assert foreign_processes([10], [8, 10, 11], own=7, on_gpu=False, program=[8]) == [10, 11]
    assert foreign_processes([7], [7, 8], own=7, program=[8], program_on_gpu=1) == []
    # Its number is known, so nobody else is taken for it.
    assert foreign_processes([], [8, 9], own=7, on_gpu=False, program=[8], program_on_gpu=2) == [9]


def test_in_a_container_as_many_are_a_programs_as_use_cuda() -> None:
    def seen(on_gpu: int, *after: int) -> list[int]:
        return foreign_processes(
            [5001], after, own=7, on_gpu=False, program=[8, 9], program_on_gpu=on_gpu
        )

    assert seen(1, 5001, 6001) == [5001]  # who was there before is another
    assert seen(2, 6001, 6002) == [5001]
    assert len(seen(1, 6001, 6002)) == 2
    assert seen(0, 6001) == [5001, 6001]


def test_who_uses_cuda_is_seen_by_what_it_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "cuda"
    device.touch()
    monkeypatch.setattr(lock, "CUDA_DEVICE", str(device))
    here = [os.getpid(), 2**22 + 1]
    assert cuda_users(here) == 0
    with device.open():
        assert cuda_users(here) == 1


def test_a_worker_that_signed_in_is_harmless_as_long_as_it_lives(tmp_path: Path) -> None:
    folder, pid = tmp_path / "locks", os.getpid()
    assert not is_harmless(pid, folder)
    with signed_in(folder):
        assert is_harmless(pid, folder)
        assert (
            foreign_processes(
                [1, pid], [1, pid], own=1, harmless=lambda each: is_harmless(each, folder)
            )
            == []
        )
        # A later process with the number of one that was killed.
        (folder / f"worker-{pid}").write_text("12.34")
        assert not is_harmless(pid, folder)
    assert list(folder.iterdir()) == []
    assert not is_harmless(2**22 + 1, folder), "no such process"


def test_nobody_is_harmless_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with signed_in(tmp_path / "locks"):
        assert not is_harmless(os.getpid(), tmp_path / "locks")


def look(*processes: int) -> dict[str, object]:
    return {
        "processes": list(processes),
        "program": set(),
        "program_on_gpu": 0,
        "throttle": 0,
        "sm_clock_mhz": 1,
        "memory_clock_mhz": 1,
        "temperature_c": 1,
    }


def test_a_foreign_process_contaminates_a_timing_and_is_named() -> None:
    seen = watch._judge_gpu(look(os.getpid()), look(os.getpid(), 2**22 + 1))
    assert (seen.contaminated, seen.why) == (True, f"other processes on the GPU: {2**22 + 1}")
    assert not watch._judge_gpu(look(os.getpid()), look(os.getpid())).contaminated


def test_on_several_gpus_the_ranks_are_no_strangers_and_others_are_on_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank, stranger = 2**22 + 1, 2**22 + 2
    both = Gpu.together([Gpu(n, f"GPU-{n}", "H200", n) for n in range(2)])
    there = {"GPU-0": [os.getpid()], "GPU-1": [rank]}
    monkeypatch.setattr(watch, "_look_at_gpu", lambda gpu, _program: look(*there[gpu.uuid]))
    ours = watch.Watch(both, ranks=[rank])
    seen = ours.finish()
    assert not seen.contaminated
    assert seen.details["sees_processes"]
    assert len(seen.details["others"]) == 1
    there["GPU-1"].append(stranger)
    assert ours.finish().why == f"other processes on the GPU: {stranger}"
    # Nobody of this training is known there: a program's processes are asked for otherwise.
    assert str(rank) in watch.Watch(both).finish().why


def test_the_lock_folder_is_one_for_all_users_whatever_temporary_folder_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SYSTEM_FOLDER", tmp_path / "nowhere")
    monkeypatch.delenv("TUNER_LOCK_DIR")
    here = lock.lock_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert lock.lock_folder() == here
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "shared"))
    assert lock.lock_folder() == tmp_path / "shared"


def test_signing_in_writes_through_nothing_that_lies_there(tmp_path: Path) -> None:
    folder, outside, entry = tmp_path / "locks", tmp_path / "outside", f"worker-{os.getpid()}"
    folder.mkdir()
    outside.write_text("somebody's")
    (folder / entry).symlink_to(outside)
    with signed_in(folder):
        assert not is_harmless(os.getpid(), folder)
    assert outside.read_text() == "somebody's"
    (folder / entry).unlink()
    os.mkfifo(folder / entry)  # to read from it would last for ever
    assert not is_harmless(os.getpid(), folder)


def test_where_no_process_is_listed_it_is_recorded_that_others_could_not_be_seen() -> None:
    assert watch._judge_gpu(look(), look(os.getpid())).details["sees_processes"]
    unseen = watch._judge_gpu(look(), look())
    assert not unseen.contaminated
    assert unseen.details["sees_processes"] is False


def test_what_a_worker_uses_counts_with_its_trainers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.devices.watch.lock_folder", lambda: tmp_path)

    def counted() -> bool:
        """Of a child: whether it counts more than its own."""
        own = time.process_time()  # of a fork: nothing yet
        return used_cpu_s() - own > 0.2 > time.process_time()

    assert not _in_a_fork(counted)
    with signed_in(tmp_path):
        assert _in_a_fork(counted)


def _in_a_fork(held: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if held() else 1)
    return os.waitpid(pid, 0)[1] == 0
