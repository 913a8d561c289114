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

from tests.support.cli_processes import PATIENCE_S, Bench, finished, interrupt, kill, wait_for
from tests.support.ray_cluster import RayCluster, ray_cluster

pytestmark = pytest.mark.slow
TRIALS = 5
ON_RAY = ["--cpu", "--workers=2", "--on=ray"]
SMALL = ["--variant=small.toml", "--task=tiny.toml"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # sockets lie in it, whose paths must be short
    try:
        with ray_cluster(folder, gpus=2) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bench(tmp_path: Path, cluster: RayCluster) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db", dict(cluster.environment))


def launch(bench: Bench, trials: int, *, epochs: int = 40) -> list[str]:
    more = f"--trials={trials} --max-epochs={epochs} --sampler=random --reruns=0"
    return ["launch", *SMALL, *ON_RAY, *more.split()]


def converging(bench: Bench) -> None:
    """No epoch is ever better by so much than the first: each training converges, as it were."""
    file = bench.folder / "small.toml"
    text = file.read_text().replace("patience = 100000", "patience = 30\nmin_delta = 1e6")
    file.write_text(text, encoding="utf-8")


def two(there: Callable[[], list[psutil.Process]]) -> bool:
    return len(there()) == 2


def gone(cluster: RayCluster) -> bool:
    return not cluster.actors()


def states(bench: Bench) -> set[str]:
    return {state for state, _ in bench.claims()}


def all_returned(bench: Bench, *, patience_s: float = 0.0) -> None:
    """Once none runs, for which `patience_s` is enough; or else what was logged of them."""
    deadline = time.monotonic() + patience_s
    while "running" in states(bench) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert states(bench) == {"returned"}, f"{bench.claims()}\n{bench.log_text()[-4000:]}"


def test_whatever_is_killed_the_budget_is_exact_and_each_trial_has_one_result(
    bench: Bench, cluster: RayCluster
) -> None:
    slow = bench.slowed()
    converging(bench)
    process = bench.start(*launch(bench, TRIALS))
    for there in (cluster.workers, cluster.actors, cluster.kept):
        wait_for(functools.partial(two, there), "both workers")
        bench.wait_until_training(process, workers=1)
        kill(there()[:1])
    slow.unlink()
    done = finished(process)
    assert done.code == 0, done.err
    counted = Counter(number for state, number in bench.claims() if state == "finished")
    assert counted == Counter(range(TRIALS))
    assert "running" not in states(bench)
    wait_for(lambda: gone(cluster), "the actors' end")

    one = ["--cpu", "--workers=1", "--on=ray", "--choose=front", "--top=1", "--seeds=2", "--json"]
    verified = bench.run("verify", *SMALL, *one)
    assert verified.code == 0, verified.err
    (study,) = verified.json()["studies"]
    asked = 2 * len(study["configurations"])  # the default is one of them, maybe the front's best
    assert study["runs"] == {"waiting": 0, "running": 0, "finished": asked, "skipped": 0}
    assert asked in (2, 4)
    again = bench.run(*launch(bench, TRIALS))
    assert "nothing to do" in again.err


def test_a_killed_launch_and_ctrl_c_leave_no_worker_and_hand_back_what_runs(
    bench: Bench, cluster: RayCluster
) -> None:
    bench.slowed()
    # However late the second worker comes, the first one is at its first trial still.
    endless = launch(bench, 3, epochs=4000)
    process = bench.start(*endless)
    bench.wait_until_training(process, workers=2)
    kill([process])
    process.communicate()
    wait_for(lambda: gone(cluster), "the actors' end")
    all_returned(bench, patience_s=PATIENCE_S)  # some outlive their actor for a moment

    process = bench.start(*endless)
    bench.wait_until_training(process, workers=2)
    done = interrupt(process)
    assert done.code == 130, done.err
    all_returned(bench)
    wait_for(lambda: gone(cluster), "the actors' end")


def test_one_actor_gets_each_gpu_and_workers_that_find_none_end_it_in_a_line(
    bench: Bench,
) -> None:
    """The cluster believes to have two."""
    done = bench.run("launch", *SMALL, "--gpus=all", "--on=ray", "--trials=1")
    assert done.code == 1
    *told, last = done.err.splitlines()
    assert sum("--gpu free: no GPU is visible here" in line for line in told) == 2
    assert "no worker on Ray at " in last
    assert "Traceback" not in done.err


def test_the_doctor_asks_each_node_and_what_cannot_be_reached_is_one_line(
    bench: Bench, cluster: RayCluster
) -> None:
    found = bench.run("doctor", "--on", "ray")
    assert "Ray cluster" in found.out
    assert "2 cores, 2 GPUs" in found.out
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
