"""Workers that Ray places: a real cluster on loopback, real actors, whatever is killed there."""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cli_processes import PATIENCE_S, Bench, interrupt, kill, wait_for
from tests.support.ray_cluster import RayCluster, ray_cluster

pytestmark = pytest.mark.slow
TRIALS = 3
ON_RAY = ["--cpu", "--workers=2", "--on=ray"]
SMALL = ["--variant=small.toml", "--task=tiny.toml"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # sockets lie in it, whose paths must be short
    try:
        with ray_cluster(folder, gpus=1) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bench(tmp_path: Path, cluster: RayCluster) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db", dict(cluster.environment))


def launch(bench: Bench, trials: int, *, epochs: int = 40) -> list[str]:
    more = f"--trials={trials} --max-epochs={epochs} --sampler=random --reruns=0"
    return ["launch", *SMALL, *ON_RAY, *more.split()]


def two(there: Callable[[], list[psutil.Process]]) -> bool:
    return len(there()) == 2


def gone(cluster: RayCluster) -> bool:
    return not cluster.actors()


def states(bench: Bench) -> set[str]:
    return {state for state, _ in bench.claims()}


def none_runs(bench: Bench, *, patience_s: float = 0.0) -> None:
    """For which `patience_s` is enough; or else what was logged of them."""
    deadline = time.monotonic() + patience_s
    while "running" in states(bench) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert "running" not in states(bench), f"{bench.claims()}\n{bench.log_text()[-4000:]}"


def test_whatever_is_killed_the_budget_is_exact_and_each_trial_has_one_result(
    bench: Bench, cluster: RayCluster
) -> None:
    """An actor, then the launch itself; what goes on is told to stop, and then ends."""
    slow = bench.slowed()
    process = bench.start(*launch(bench, TRIALS))
    # Workers, and what keeps them alive, are killed by benchmarks/chaos/on_ray.py.
    wait_for(functools.partial(two, cluster.actors), "both workers")
    bench.wait_until_training(process, workers=2)
    kill(cluster.actors()[:1])
    wait_for(lambda: states(bench) != {"running"}, "the end of its worker")
    kill([process])
    process.communicate()
    wait_for(lambda: gone(cluster), "the actors' end")
    none_runs(bench, patience_s=PATIENCE_S)  # some outlive their actor for a moment

    one = [*launch(bench, TRIALS), "--workers=1"]
    process = bench.start(*one)
    bench.wait_until_training(process)
    done = interrupt(process)
    assert done.code == 130, done.err
    none_runs(bench)
    wait_for(lambda: gone(cluster), "the actors' end")

    slow.unlink()
    done = bench.run(*one)
    assert done.code == 0, done.err
    counted = Counter(number for state, number in bench.claims() if state == "finished")
    assert counted == Counter(range(TRIALS))
    assert "nothing to do" in bench.run(*one).err


def test_an_actor_gets_the_gpu_and_a_worker_that_finds_none_ends_it_in_a_line(
    bench: Bench,
) -> None:
    """The cluster believes to have one."""
    done = bench.run("launch", *SMALL, "--gpus=all", "--on=ray", "--trials=1")
    assert done.code == 1
    *told, last = done.err.splitlines()
    assert sum("--gpu free: no GPU is visible here" in line for line in told) == 1
    assert "no worker on Ray at " in last
    assert "Traceback" not in done.err


def test_the_doctor_asks_each_node_and_what_cannot_be_reached_is_one_line(
    bench: Bench, cluster: RayCluster
) -> None:
    found = bench.run("doctor", "--on", "ray")
    assert "Ray cluster" in found.out
    assert "2 cores, 1 GPU" in found.out
    assert "with a token" in found.out
    for address, words in (
        ("127.0.0.1:1", "Connection refused"),
        ("nowhere", "'nowhere' is no address of a Ray cluster"),
    ):
        refused = bench.run(*launch(bench, 3), RAY_ADDRESS=address)
        assert refused.code in (1, 2)
        assert refused.err.count("\n") == 1
        assert words in refused.err
    for flags, words in (
        (["--gpus=0,1", "--on=ray"], "is how many GPUs"),
        (["--cpu", "--on=ray"], "--workers N"),
        ([*ON_RAY, "--print"], "--print"),
        ([*ON_RAY, "--placement=speed=9"], "its keys are cores, accelerator"),
        (["--cpu", "--on=mesos"], "is no engine"),
        (["--cpu", "--placement=cores=2"], "--placement belongs to --on"),
    ):
        refused = bench.run("launch", *SMALL, *flags)
        assert refused.code == 2, refused.err
        assert words in refused.err
        assert refused.err.count("\n") == 1, refused.err
