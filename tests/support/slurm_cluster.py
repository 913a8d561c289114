"""A Slurm of the tests' own: its controller and one node of two cores, on free ports of loopback.

Debian has the programs: apt-get install slurmctld slurmd slurm-client.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.cli_processes import wait_for
from tests.support.servers import ends_with_the_tests, free_port

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PARTITION, URGENT = "work", "urgent"
"""Where workers go, and whose jobs preempt them."""
NODE = "alone"

_SETTINGS = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MessageTimeout=5
GresTypes=gpu
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:2
PartitionName={partition} Nodes={node} Default=YES MaxTime=24:00:00 DefaultTime=60 PriorityTier=1
PartitionName={urgent} Nodes={node} MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
"""


@dataclass
class SlurmCluster:
    """It runs as whoever runs the tests, and trusts everybody on this host."""

    folder: Path
    cleared: int = 0
    """The youngest job by then."""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """For whoever is to talk to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def configure(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        settings = _SETTINGS.format(
            host=platform.node().partition(".")[0],
            controller=free_port(),
            daemon=free_port(),
            user=getpass.getuser(),
            folder=self.folder,
            node=NODE,
            partition=PARTITION,
            urgent=URGENT,
        )
        (self.folder / "slurm.conf").write_text(settings, encoding="utf-8")
        gres = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"  # any two devices
        (self.folder / "gres.conf").write_text(gres, encoding="utf-8")

    def of_nobody(self, folder: Path) -> Path:
        """A `slurm.conf` of this cluster at whose controller's port nobody listens."""
        settings = (self.folder / "slurm.conf").read_text(encoding="utf-8")
        written = folder / "slurm.conf"
        written.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=9", settings))
        return written

    def start(self, program: str, *options: str) -> None:
        """`slurmctld` or `slurmd`, in the foreground, as long as the tests run."""
        with (self.folder / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                [shutil.which(program) or program, "-D", *options],
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                preexec_fn=ends_with_the_tests(signal.SIGTERM),  # noqa: PLW1509 - one system call, no locks
            )

    def stop(self, program: str) -> None:
        process = self._running.pop(program)
        process.terminate()
        process.wait(60)

    def ask(self, *words: str) -> str:
        """What a command of Slurm's says, whether or not it likes what it is asked."""
        done = subprocess.run(
            words,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            for name, process in self._running.items():
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                assert process.poll() is None, f"{name} ended: {log[-3000:]}"
            return self.ask("sinfo", "--noheader", "-o", "%T").split()[:1] == ["idle"]

        wait_for(ready, "a node that is ready", patience_s=60)

    def tasks(self) -> dict[str, str]:
        """The state of every task since Slurm was last cleared, by job and number."""
        return {
            f"{job}_{number}": state
            for job, number, state in self._queue()
            if int(job) > self.cleared
        }

    def _queue(self) -> list[list[str]]:
        lines = self.ask("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%F %K %T").splitlines()
        return [line.split() for line in lines]

    def wait_for_state(self, task: str, *states: str) -> None:
        wait_for(lambda: self.tasks().get(task) in states, f"{task} to be {' or '.join(states)}")

    def begin_again(self, task: str) -> None:
        """Now: two minutes after it was queued again Slurm would by itself."""
        self.wait_for_state(task, "PENDING")
        assert "error" not in self.ask("scontrol", "update", f"JobId={task}", "StartTime=now")

    def clear(self) -> None:
        """Of whatever a test left."""
        self.ask("scancel", "--user", getpass.getuser())
        over = {"CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        wait_for(lambda: {state for _, _, state in self._queue()} <= over, "the jobs' end")
        self.cleared = max((int(job) for job, _, _ in self._queue()), default=0)


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmCluster]:
    """Without Slurm a test is skipped here, and fails where CI=true."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        said = f"no {', '.join(missing)}; install them: apt-get install slurmctld slurmd"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_session: SlurmCluster) -> Iterator[SlurmCluster]:
    """The same, with nothing in its queue."""
    yield slurm_session
    slurm_session.clear()


@contextmanager
def running_slurm() -> Iterator[SlurmCluster]:
    """A Slurm as long as the context lasts."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-test-slurm-"))
    cluster = SlurmCluster(folder)
    try:
        cluster.configure()
        cluster.start("slurmctld")
        cluster.start("slurmd", "-N", NODE)
        try:
            cluster.wait_until_ready()
            yield cluster
        finally:
            for program in ("slurmd", "slurmctld"):
                with contextlib.suppress(KeyError):
                    cluster.stop(program)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
