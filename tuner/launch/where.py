"""Where the workers of a launch run: on devices of this host, or where an engine places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.devices import CpuCores, Gpu, list_gpus, pick_gpus, share_out_cores
from tuner.devices.cpu import available_cores
from tuner.errors import UsageError
from tuner.launch.engines.placement import Engine
from tuner.launch.request import DeviceChoice, checked

# Which engine `--on` names.


RAY, SLURM, KUBERNETES = "ray", "slurm", "k8s"


def engine_for(choice: DeviceChoice) -> Engine:
    """The engine of that name, with as many workers as were asked for.

    Raises:
        UsageError: there is none, or it is told too little, or what it cannot do.
        TunerError: it cannot be reached.
    """
    name = choice.on or ""
    refuse_unknown(name)
    if name == SLURM:
        from tuner.launch.engines.on_slurm import slurm_engine

        return slurm_engine(choice)
    if name == KUBERNETES:
        from tuner.launch.engines.on_kubernetes import kubernetes_engine

        return kubernetes_engine(choice)
    from tuner.launch.engines.on_ray import ray_engine

    return ray_engine(choice)


def refuse_unknown(name: str) -> None:
    """Raises UsageError where `name` is no engine."""
    if name not in (RAY, SLURM, KUBERNETES) and not name.startswith(f"{RAY}://"):
        raise UsageError(
            f"--on: {name!r} is no engine; expected ray, ray://HOST:PORT, slurm or k8s (without "
            "--on, workers run on this host)"
        )


DEFAULT_CPU_WORKERS = 4
"""At most, and one per core at most: small networks gain little from a second thread, and lose much
where anything else runs on one of two cores that wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Devices of this host, one worker on each, or the engine that places them."""

    devices: Sequence[Gpu | CpuCores] = ()
    engine: Engine | None = None
    notice: str = ""
    """What to say where the choice was ours."""

    @property
    def workers(self) -> int:
        """How many there will be."""
        return len(self.devices) if self.engine is None else self.engine.workers

    @property
    def model(self) -> str | None:
        """The devices' model; None where it is not known before a worker is there."""
        return self.devices[0].model if self.devices else None

    @property
    def on_gpus(self) -> bool:
        if self.engine is not None:
            return self.engine.cores is None
        return isinstance(self.devices[0], Gpu)


def choose_where(choice: DeviceChoice, *, environment: Mapping[str, str]) -> Where:
    """Where workers run, as somebody chose, or else on all GPUs here, or on the CPU.

    Raises:
        UsageError: flags that contradict each other, devices that are not there, or an engine that
            is none or is told too little.
        TunerError: an engine that cannot be reached.
    """
    if choice.on is not None:
        _refuse_contradictions(choice)
        engine = engine_for(choice)
        return Where(engine=engine, notice=engine.notice)
    for flag, value in (("--placement", choice.placement), ("--print", choice.print_only or None)):
        if value is not None:
            raise UsageError(f"{flag} belongs to --on: on this host nothing is placed")
    devices, notice = choose_devices(choice, environment=environment)
    return Where(devices=devices, notice=notice)


def choose_devices(
    choice: DeviceChoice, *, environment: Mapping[str, str]
) -> tuple[Sequence[Gpu | CpuCores], str]:
    """The devices of this host to run on, and a notice when the choice was ours.

    Raises:
        UsageError: flags that contradict each other, or devices that are not there.
    """
    choice = checked(choice)
    _refuse_contradictions(choice)
    gpus, cpu, workers = choice.gpus, choice.cpu, choice.workers
    if gpus is not None:
        return pick_gpus(gpus, list_gpus(environment)), ""
    if not cpu and workers is None and (found := list_gpus(environment)):
        return found, f"neither --gpus nor --cpu given: using all {len(found)} GPUs"
    why = "no GPU is visible" if workers is None else "--workers belongs to --cpu"
    notice = "" if cpu else f"{why}: running on the CPU (say --cpu to silence this)"
    cores = available_cores()
    return share_out_cores(workers or min(DEFAULT_CPU_WORKERS, len(cores)), cores), notice


def _refuse_contradictions(choice: DeviceChoice) -> None:
    if choice.cpu and choice.gpus is not None:
        raise UsageError("--cpu and --gpus exclude each other; choose one")
    if choice.workers is not None and choice.gpus is not None:
        raise UsageError(
            "--workers belongs to --cpu; on GPUs there is one worker per GPU, chosen by --gpus"
        )
