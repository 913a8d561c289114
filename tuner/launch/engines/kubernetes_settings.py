"""What manifests say beside the workers: the keys of `--placement`, checked."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from tuner.files.plain import Strict

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""Of an object, as RFC 1123 has it."""
Image = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9_.:/-]{0,254}(@sha256:[0-9a-f]{64})?$")]
Quantity = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,11}([KMGT]i?)?$")]
LabelPair = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,252}=[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
]


def _path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or not text.isprintable():
        raise ValueError("no absolute path; expected e.g. /data/shops.toml")
    return text


AbsolutePath = Annotated[str, Field(max_length=512), AfterValidator(_path)]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


class KubernetesSettings(Strict):
    """The keys of `--placement`, or of the table `[kubernetes]`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, alias_generator=_hyphens
    )

    image: Image
    """That the Dockerfile of tuner makes, where the nodes find it."""
    namespace: Name | None = None
    secret: Name = "tuner-database"  # noqa: S105 - its name
    """Holds the database's address as TUNER_STORAGE. It is made by hand."""
    dashboard_secret: Name | None = None
    """The same with an address that may only read; None: as the workers."""
    data_claim: Name | None = None
    """A volume with the task's data; workers see it as /data, and may only read it."""
    work_claim: Name | None = None
    """A volume that all nodes can write: checkpoints on it outlive a node."""
    cores: int | None = Field(None, ge=1, le=4096)
    """Of each worker. By default 1, and 4 beside a GPU."""
    memory: Quantity | None = None
    """Of each worker: `16Gi`."""
    node_selector: LabelPair | None = None
    """`nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3`: times compare only between equal devices."""
    device_locks: AbsolutePath | None = None
    """A folder of each node, made by root with mode 1777: workers lock their devices in it. Without
    it a node has one worker of ours on its cores."""
