"""What is to be compiled: the kernels of some studies' searches on GPUs of one kind."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tuner.config import Backend, Hyperparameters
from tuner.data.task import Task
from tuner.files.durable import read_regular, replacing
from tuner.files.plain import digest_of
from tuner.models.names import builtin_names
from tuner.spec.definition import StudyDefinition

Capability = tuple[int, int]
"""A compute capability, (9, 0) for Hopper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A study's definition, and its task with the place of its data."""

    definition: StudyDefinition
    task: Task

    def needs(self) -> dict[str, Any]:
        """All of the definition that kernels follow from."""
        definition = self.definition.comparable()
        space, training = definition["space"], definition["training"]
        defaults = definition["defaults"]
        sizes = ("hidden_size", "batch_size", "dropout")
        return {
            "architecture": definition["architecture"],
            "data": definition["data_hash"],
            "space": {name: space[name] for name in sizes},
            "defaults": {name: defaults[name] for name in sizes},
            "training": {
                name: str(training[name])
                for name in ("backend", "precision", "accumulate", "checkpoint_activations")
                if name in training  # later settings are there where they are not the default
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one process compiles.

    Attributes:
        capability: of the GPUs.
        searches: the first configuration of each comes first.
        data_dir: the folder of the data; None: the user's cache.
        jobs: kernels that are compiled at the same time.
    """

    capability: Capability
    searches: Sequence[Search]
    data_dir: Path | None
    jobs: int


def why_none(definition: StudyDefinition) -> str | None:
    """Why a study's trials never run on the fused kernels, as far as its definition says so."""
    if definition.program is not None:
        return "its trials are a program, which compiles what it wants"
    backend = definition.training.backend
    if backend not in (Backend.AUTO, Backend.TRITON):
        return f"backend {backend.value} has no kernels of its own"
    if definition.architecture.model not in builtin_names():
        return "the fused kernels are written for the built-in networks"
    for name in ("checkpoint_activations", "gpus_per_trial"):
        if name in definition.training.unusual():
            return f"{name} has no kernels of its own"
    return None


def configurations(definition: StudyDefinition) -> Iterator[Hyperparameters]:
    """One of each kind that is compiled differently: the default first, then the widest.

    Whether anything drops out is compiled in, how much is
    not: the kinds without dropout come last, for few trials have exactly none.
    """
    defaults, space = definition.defaults, definition.space
    yield defaults
    assert space.dropout is not None, "the built-in networks drop out"
    assert space.hidden_size is not None, "the built-in networks have a hidden size"
    lowest, highest = space.dropout.bounds()
    rates = [defaults.dropout or highest]
    if lowest == 0 or defaults.dropout == 0:
        rates.append(0.0)
    for dropout in dict.fromkeys(rates):
        for hidden in reversed(space.hidden_size.values()):
            for batch in space.batch_size.values():
                yield replace(
                    defaults, dropout=dropout, hidden_size=int(hidden), batch_size=int(batch)
                )


# How far compiling is: a line of JSON from the process that does it to whoever started it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts of kernels so far.

    Attributes:
        found: how many are needed, as far as that is known.
        there: of them, compiled before.
        compiled: of them, compiled now, here or by another process.
        failed: of them, not compiled: the process's log says why.
        reasons: why searches need none, one for each such search.
        over: nothing more follows.
    """

    found: int = 0
    there: int = 0
    compiled: int = 0
    failed: int = 0
    reasons: tuple[str, ...] = ()
    over: bool = False

    @property
    def ready(self) -> int:
        """How many are compiled."""
        return self.there + self.compiled

    def to_line(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_line(line: str | bytes) -> Progress:
        """Raises ValueError: it is none."""
        return _PROGRESS.validate_json(line)


_PROGRESS = TypeAdapter(Progress)


# That all kernels of a search are compiled: a file in Triton's cache, looked at without torch.


AT_MOST_BYTES = 1 << 20
_CODE = ("models", "training")
"""Folders of the package that say what is compiled."""
_COMPILERS = ("TRITON_", "PTXAS_", "DISABLE_", "ENABLE_", "LLVM_", "MLIR_", "NVPTX_")
"""How the names of variables begin that compilers read."""
_PLACES = ("TRITON_CACHE_DIR", "TRITON_HOME")


@dataclass(frozen=True, slots=True)
class Ready:
    """What a search needs, by the files in the cache that are written last.

    Attributes:
        kernels: one file for each, relative to the cache; none where nothing is compiled.
        reason: why nothing is.
    """

    kernels: tuple[str, ...]
    reason: str = ""


_READY = TypeAdapter(Ready)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where Triton keeps what it compiled."""
    if folder := environment.get("TRITON_CACHE_DIR"):
        return Path(folder)
    home = environment.get("TRITON_HOME") or str(Path("~").expanduser())
    return Path(home) / ".triton" / "cache"


def stamp_path(cache: Path, search: Search, capability: Capability) -> Path:
    """The file for a search on GPUs of a capability, with this code, this Triton and this torch."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_COMPILERS) and name not in _PLACES
    }
    parts = [search.needs(), capability, _code_digest(), _compiler_digest(), environment]
    return cache / f"tuner-ready-{digest_of(parts)[:32]}.json"


def read_stamp(path: Path) -> Ready | None:
    """What it says; None where there is none, or where any of what it names is gone."""
    try:
        ready = _READY.validate_json(read_regular(path, at_most=AT_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return ready if all((path.parent / name).exists() for name in ready.kernels) else None


def write_stamp(path: Path, ready: Ready) -> None:
    """For all who read the cache. Raises OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(_READY.dump_json(ready))


@functools.cache
def _code_digest() -> str:
    package = Path(__file__).parents[2]
    files = [path for folder in _CODE for path in (package / folder).rglob("*.py")]
    return _digest(sorted(files))


@functools.cache
def _compiler_digest() -> str:
    """Of the files that hold the versions, which are not imported here."""
    files = []
    for package, name in (("triton", "__init__.py"), ("torch", "version.py")):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            files.append(Path(spec.origin).parent / name)
    return _digest(files)


def _digest(files: Iterable[Path]) -> str:
    together = hashlib.sha256()
    for path in files:
        together.update(path.name.encode() + b"\0" + path.read_bytes())
    return together.hexdigest()
