"""A Ray cluster of one node on loopback, which asks for a token, as long as the context lasts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.servers import ends_with_the_tests, free_port

STARTS_S = 60.0
TOKEN = "of-the-tests-" + "0" * 32


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Where it is, and what a client's environment says."""

    head: subprocess.Popen[bytes]
    environment: dict[str, str]

    def actors(self) -> list[psutil.Process]:
        """The processes in which workers were placed."""
        return self._named("ray::WorkerPlace")

    def kept(self) -> list[psutil.Process]:
        """What keeps a worker alive there."""
        return [
            child
            for actor in self.actors()
            for child in _children(actor)
            if "--keep-alive" in _command_line(child)
        ]

    def workers(self) -> list[psutil.Process]:
        return [child for kept in self.kept() for child in _children(kept)]

    def _named(self, name: str) -> list[psutil.Process]:
        below = psutil.Process(self.head.pid).children(recursive=True)
        return [process for process in below if name in "".join(_command_line(process)[:1])]


@contextmanager
def ray_cluster(folder: Path, *, cores: int = 2, gpus: int = 0) -> Iterator[RayCluster]:
    """A head node that believes to have so many cores and GPUs. Its sockets' paths must be short:
    `folder` is to have a short name.
    """
    port = free_port()
    # Of a GPU that is made up, CUDA knows nothing.
    others = ("RAY_", "CUDA_VISIBLE_DEVICES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(others)}
    client = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    environment = {**kept, **client, "RAY_USAGE_STATS_ENABLED": "0"}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    words = f"start --head --block --port {port} --num-cpus {cores} --num-gpus {gpus}"
    more = ["--include-dashboard=false", "--temp-dir", str(folder), "--node-ip-address=127.0.0.1"]
    # Whichever are free: among those that it would take by itself may be the head's.
    more += ["--min-worker-port=0", "--max-worker-port=0"]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(
            [*ray, *words.split(), *more],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=ends_with_the_tests(signal.SIGTERM),  # noqa: PLW1509 - one system call, no locks
        )
    try:
        _wait_until_there(head, folder / "head.log")
        yield RayCluster(head, {**client, "RAY_ADDRESS": f"127.0.0.1:{port}"})
    finally:
        for process in (head, *_all_below(head.pid)):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        head.wait()


def _wait_until_there(head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTS_S
    while "Ray runtime started" not in log.read_text(errors="replace"):
        assert head.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, f"no Ray: {log.read_text(errors='replace')}"
        time.sleep(0.1)


def _all_below(number: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(number).children(recursive=True))
    except psutil.Error:  # it ended by itself
        return []


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children())
    except psutil.Error:
        return []


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
