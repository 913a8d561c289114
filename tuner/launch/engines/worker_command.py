"""The command line of a worker that an engine places: the same on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.storage.url import DatabaseUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """What each of the workers is to do, and on what kind of device."""

    studies: str
    """Their names, with commas."""
    address: DatabaseUrl
    """With its password: it goes into the environment of a worker, never on a command line."""
    cores: int | None
    """So many of the host's cores, which no other worker there has; None: a GPU."""
    verify: bool = False
    task: Path | None = None
    """The task file, where there is one; the worker's host has it under the same path."""
    data_dir: str | None = None
    """A folder, absolute, or a URL."""
    hang_limit_s: float | None = None
    trusted_code: tuple[str, ...] = ()
    """Hashes of files that the database has and the worker's host may not have."""

    def words(self) -> tuple[str, ...]:
        """The command line, from `tuner` on. It names no secret."""
        words = ["tuner", "worker", "--study", self.studies, "--keep-alive"]
        words += ["--gpu", "free"] if self.cores is None else ["--cpu", "--cores", self._cores]
        if self.verify:
            words.append("--verify")
        if self.task is not None:
            words += ["--task", str(self.task.absolute())]
        if self.data_dir is not None:
            words += ["--data-dir", self.data_dir]
        if self.hang_limit_s is not None:
            words += ["--hang-limit", f"{self.hang_limit_s:g}s"]
        if self.trusted_code:
            words += ["--trust-code", ",".join(self.trusted_code)]
        return tuple(words)

    @property
    def _cores(self) -> str:
        return f"free:{self.cores}"
