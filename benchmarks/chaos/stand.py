"""What a scenario stands on: a database of its own, a study in it, and the launches that fill it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the tests' PostgreSQL and their small study

from tests.support.forked_cli import python_path
from tests.support.postgres_cluster import Cluster, running_cluster
from tests.support.small_study import definition
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume

STUDY = "chaos"
LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(slots=True)
class Stand:
    """A study in the database at `url`, in a folder for logs and journals."""

    url: str
    folder: Path
    trials: int
    lease_s: float
    trial_s: float = 1.0
    cluster: Cluster | None = None
    launches: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @contextmanager
    def opened(self) -> Iterator[OpenStudy]:
        """The study, created when it is not there."""
        database = open_database(parse_url(self.url))
        try:
            yield create_or_resume(database, STUDY, definition(), trials=self.trials)
        finally:
            database.close()

    def prepare(self) -> None:
        (self.folder / "journal").mkdir(parents=True)
        with self.opened() as study:
            study.set_policy(SearchPolicy(sampler="random"))

    def launch(
        self,
        workers: int,
        *,
        within: Sequence[str] = (),
        url: str | None = None,
        verify: bool = False,
        beside: bool = False,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        """Start a launch of that many workers; `within` is a command that runs it somewhere else.

        With `verify` they make the runs that are planned, not trials; with `beside` their trainings
        are in processes of their own.
        """
        command = [
            *within,
            sys.executable,
            str(LAUNCH),
            "--study",
            STUDY,
            "--workers",
            str(workers),
        ]
        command += [
            "--lease-s",
            str(self.lease_s),
            "--trial-s",
            str(self.trial_s),
            "--folder",
            str(self.folder),
        ]
        command += ["--verify"] if verify else []
        command += ["--beside"] if beside else []
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("TUNER_", "PG"))
        }
        environment = (
            kept | {"PYTHONPATH": python_path(), "TUNER_STORAGE": url or self.url} | environment
        )
        with (self.folder / f"launch-{len(self.launches)}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.launches.append(process)
        return process

    def launch_logs(self) -> str:
        return "".join(
            path.read_text(errors="replace") for path in sorted(self.folder.glob("launch-*.log"))
        )

    def stop_all(self) -> None:
        """Whatever is left when a scenario ends early."""
        for launch in self.launches:
            for process in [
                *workers_of(launch),
                psutil.Process(launch.pid) if launch.poll() is None else None,
            ]:
                if process is not None:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            launch.wait()


def workers_of(launch: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The living workers that a launch started, oldest first, also when it is dead itself."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if (
                any(part.endswith("chaos/worker.py") for part in line)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                supervisor = line[line.index("--supervised-by") + 1]
                if supervisor == str(_supervisor_pid(launch)):
                    found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def trainers_of(launch: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes in which those workers' trainings are."""
    found = []
    for worker in workers_of(launch):
        with contextlib.suppress(psutil.Error):
            found += worker.children()
    return found


def _supervisor_pid(launch: subprocess.Popen[bytes]) -> int:
    """`ip netns exec` replaces itself with the command: the same process."""
    return launch.pid


@contextmanager
def on_sqlite(trials: int, lease_s: float) -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="tuner-chaos-") as name:
        folder = Path(name)
        yield from _stand(Stand(f"sqlite:///{folder}/tuner.db", folder, trials, lease_s))


@contextmanager
def on_postgres(trials: int, lease_s: float) -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="tuner-chaos-") as name, running_cluster() as cluster:
        with cluster.connect() as connection:
            connection.execute("ALTER SYSTEM SET log_statement = 'none'")
        cluster.stop()
        cluster.start()
        url = cluster.url(cluster.create_database())
        yield from _stand(Stand(url, Path(name), trials, lease_s, cluster=cluster))


@contextmanager
def on_server(server: str, trials: int, lease_s: float) -> Iterator[Stand]:
    """On a database server that others use too, in a database made and dropped here; `server` is a URL without one."""
    database = f"tuner_chaos_{uuid.uuid4().hex[:8]}"
    engine = create_engine(parse_url(server).url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {database}"))
    try:
        with tempfile.TemporaryDirectory(prefix="tuner-chaos-") as name:
            yield from _stand(
                Stand(f"{server.rstrip('/')}/{database}", Path(name), trials, lease_s)
            )
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {database}"))
        engine.dispose()


def _stand(stand: Stand) -> Iterator[Stand]:
    stand.prepare()
    try:
        yield stand
    finally:
        stand.stop_all()
