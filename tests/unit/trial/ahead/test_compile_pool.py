"""Kernels compiled side by side: for real once, and with others at the same ones."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.collected_kernels import CHEAPEST, kernels, pretend_compiled
from tuner.kernels.compile_only import Kernel
from tuner.trial.ahead.compile_all import CompilePool


@dataclass(frozen=True, slots=True, eq=False)
class Written(Kernel):
    """Takes a moment to compile, and notes who did it; one called `broken` never is."""

    cache: Path = Path()

    def compile(self) -> None:
        if self.name == "broken":
            raise ValueError("it does not compile")
        with (self.cache / "compiled.txt").open("a") as done:
            done.write(f"{self.name}\n")
        time.sleep(0.05)
        pretend_compiled(self, self.cache)


def written(cache: Path, *names: str) -> list[Written]:
    return [
        Written(name, f"{number:064x}", None, {}, None, {}, cache)
        for number, name in enumerate(names)
    ]


def emptied(*pools: CompilePool) -> None:
    while not all(pool.is_over for pool in pools):
        for pool in pools:
            pool.step()
        pools[0].wait()


def test_a_kernel_of_ours_is_compiled_for_hopper_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    chosen = next(kernel for kernel in kernels().values() if kernel.name == CHEAPEST)
    first = CompilePool(tmp_path, jobs=1)
    first.add([chosen])
    emptied(first)
    assert (first.there, first.compiled, first.failed) == (0, 1, 0)
    made = {path.suffix: path for path in (tmp_path / chosen.folder).glob(f"{chosen.name}.*")}
    assert ".target sm_90a" in made[".ptx"].read_text()
    assert made[".cubin"].read_bytes().startswith(b"\x7fELF")
    assert json.loads(made[".json"].read_text())["hash"] == chosen.key
    second = CompilePool(tmp_path, jobs=1)
    second.add([chosen])
    assert second.is_over
    assert (second.there, second.compiled) == (1, 0)


def test_two_at_once_compile_nothing_twice_and_both_end_with_all(tmp_path: Path) -> None:
    pools = [CompilePool(tmp_path, jobs=2), CompilePool(tmp_path, jobs=2)]
    names = ("a", "b", "c", "d", "e")
    for pool in pools:
        pool.add(written(tmp_path, *names))
    emptied(*pools)
    assert sorted((tmp_path / "compiled.txt").read_text().split()) == list(names)
    assert [pool.there + pool.compiled for pool in pools] == [5, 5]


def test_what_another_has_compiled_before_its_turn_is_not_compiled_again(tmp_path: Path) -> None:
    slow = CompilePool(tmp_path, jobs=1)
    slow.add(written(tmp_path, "a", "b"))
    fast = CompilePool(tmp_path, jobs=2)
    fast.add(written(tmp_path, "a", "b"))
    emptied(fast)
    emptied(slow)
    assert sorted((tmp_path / "compiled.txt").read_text().split()) == ["a", "b"]
    assert (slow.there, slow.compiled, slow.failed) == (0, 2, 0)


def test_one_that_does_not_compile_is_counted_and_leaves_the_others_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = CompilePool(tmp_path, jobs=3)
    pool.add(written(tmp_path, "a", "broken", "c"))
    pool.add(written(tmp_path, "a"))
    emptied(pool)
    assert (pool.found, pool.compiled, pool.failed) == (3, 2, 1)
    assert "ValueError: it does not compile" in capfd.readouterr().err


def test_never_more_run_than_there_are_jobs(tmp_path: Path) -> None:
    pool = CompilePool(tmp_path, jobs=2)
    pool.add(written(tmp_path, *"abcde"))
    pool.step()
    assert len(pool._running) == 2
    emptied(pool)
    assert pool.compiled == 5
    assert pool._running == {}


def test_what_runs_beside_takes_no_job_and_counts_for_nothing(tmp_path: Path) -> None:
    pool = CompilePool(tmp_path, jobs=1)
    pool.run_beside((tmp_path / "built").touch)
    assert not pool.is_over
    pool.add(written(tmp_path, "a"))
    pool.step()
    assert len(pool._running) == 1
    emptied(pool)
    assert (tmp_path / "built").exists()
    assert (pool.found, pool.compiled, pool.failed) == (1, 1, 0)
