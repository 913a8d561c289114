"""Which engine `--on` names."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.launch.engines.placement import Engine
from tuner.launch.request import DeviceChoice

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
