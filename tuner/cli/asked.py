"""What commands ask alike that start work: where it runs, on which data, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.cli.command import option, switch
from tuner.cli.options import (
    Cpu,
    DataDir,
    HangLimit,
    Json,
    Storage,
    TaskName,
    Timeout,
    Trust,
    data_folder,
    storage_url,
)
from tuner.config import MANY
from tuner.settings import duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """The options of a command that starts workers."""

    task: TaskName = "etth"
    data_dir: DataDir = None
    gpus: str | None = option("0,1|all", "GPUs, one worker each; with --on: how many, or all.")
    cpu: Cpu = False
    workers: int | None = option(
        "N", "CPU workers, sharing out the cores (up to 4); with --on: so many.", min=1
    )
    on: str | None = option(
        "ENGINE", "Who places the workers on other machines: ray, ray://HOST:PORT, slurm or k8s."
    )
    placement: str | None = option(
        "KEY=VALUE,...|FILE",
        "What the engine is told beside (partition=gpu,time=2:00:00), or a TOML file with its "
        "table.",
    )
    timeout: Timeout = None
    trust: Trust = False
    storage: Storage = None
    json: Json = False

    def common(self) -> dict[str, Any]:
        """What these are in a request."""
        from tuner.launch import DeviceChoice

        return {
            "task": self.task,
            "data_dir": data_folder(self.data_dir),
            "devices": DeviceChoice(
                gpus=self.gpus,
                cpu=self.cpu,
                workers=self.workers,
                on=self.on,
                placement=self.placement,
                print_only=getattr(self, "print_only", False),  # no retune's, in stages
            ),
            "timeout_s": duration_s(self.timeout, "--timeout"),
            "trust": self.trust,
            "storage": storage_url(self.storage),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(WorkOptions):
    """The options of a command that starts searches."""

    draw: int | None = option(
        "N",
        "Of all seeds, of searches, trainings and confirmations: another N asks the same question "
        "again (1).",
        min=1,
        max=MANY,
    )
    no_estimate: bool = switch("Measure nothing before the work to foretell it.")
    hang_limit: HangLimit = None

    def common(self) -> dict[str, Any]:
        """What these are in a request."""
        return WorkOptions.common(self) | {
            "draw": self.draw,
            "estimate": not self.no_estimate,
            "hang_limit_s": duration_s(self.hang_limit, "--hang-limit"),
        }
