"""That all kernels of a search are compiled: a file in Triton's cache, looked at without torch.

It names what has to be there, and nothing in it is ever executed: the worst that a wrong one does
is that a worker compiles, or that a process is started which finds everything there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.files.durable import read_regular, replacing
from tuner.trial.ahead.compile_order import Capability, Search

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
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return cache / f"tuner-ready-{digest[:32]}.json"


def read_stamp(path: Path) -> Ready | None:
    """What it says; None where there is none, or where any of what it names is gone."""
    try:
        said = json.loads(read_regular(path, at_most=AT_MOST_BYTES))
        ready = Ready(tuple(map(str, said["kernels"])), str(said["reason"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return ready if all((path.parent / name).exists() for name in ready.kernels) else None


def write_stamp(path: Path, ready: Ready) -> None:
    """For all who read the cache. Raises OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps({"kernels": ready.kernels, "reason": ready.reason}).encode())


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
