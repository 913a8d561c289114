"""Networks of the user's own that were checked and passed: the same code on the same data is not
tried again by the next launch.

Kept in the user's cache. A check that failed is not kept, and whatever cannot be read is no check.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.data.cache import user_cache
from tuner.data.task import Task
from tuner.errors import DataError
from tuner.files.durable import read_regular, replacing
from tuner.files.plain import Strict
from tuner.models.names import names_file
from tuner.spec.study_file import StudyFile

MOST_BYTES = 1 << 20
MOST_SOURCE_BYTES = 16 << 20
PACKAGES = ("torch", "tuner", "neuralforecast", "xlstm")
"""With another version of these a check says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A check that a network has passed."""

    notices: tuple[str, ...]
    """What is to be said of it all the same."""
    sources: Mapping[str, str]
    """The hash of each file of the user's that it imported, by the file's path; one that lies
    beneath the folder of its class by the path from there.
    """


class _Stored(Strict):
    notices: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=100)
    sources: dict[Annotated[str, Field(max_length=4096)], str] = Field(max_length=1000)


def key_of(file: StudyFile, task: Task, data_hash: str) -> str | None:
    """The same for the same code, settings, defaults, data and packages; None where the code cannot
    be read.
    """
    loss = file.training.loss
    codes = [file.model, *([loss.term] if loss is not None else [])]
    try:
        read = [_code(each) for each in codes]
    except (OSError, ValueError):
        return None
    plain = [
        read,
        dict(file.model_settings),
        file.defaults.values(),
        file.training.model_dump(mode="json", exclude={"loss": {"term"}}),
        task.model_dump(mode="json", exclude={"source"}),
        data_hash,
        [_version(each) for each in PACKAGES],
    ]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def kept(key: str, file: StudyFile) -> tuple[str, ...] | None:
    """The notices of a check that still stands; None where there is none."""
    try:
        text = read_regular(_path(key), at_most=MOST_BYTES)
        stored = _Stored.model_validate_json(text, strict=True)
        folder = folder_of(file)
        for path, digest in stored.sources.items():
            if _hash(folder / path) != digest:
                return None
    except (OSError, ValueError, DataError):
        return None
    return tuple(stored.notices)


def keep(key: str, file: StudyFile, notices: Sequence[str], sources: Mapping[str, str]) -> None:
    """For the next launch; a cache that cannot be written is none."""
    folder = folder_of(file)
    found = {}
    for name, digest in sources.items():
        within = Path(name).is_relative_to(folder)
        found[str(Path(name).relative_to(folder)) if within else name] = digest
    plain = {"notices": list(notices), "sources": found}
    with contextlib.suppress(OSError, DataError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as out:
            out.write(json.dumps(plain).encode())


def folder_of(file: StudyFile) -> Path:
    """That of its class, where a file has it: helpers may lie beneath it."""
    if not names_file(file.model):
        return Path("/")
    return Path(file.model.rpartition(":")[0]).absolute().parent


def _code(reference: str) -> list[str]:
    location, _, name = reference.rpartition(":")
    if names_file(reference):
        return [_hash(Path(location)), name]
    return [reference, str(Path.cwd())]  # a package may lie in the current folder


def _hash(path: Path) -> str:
    return hashlib.sha256(read_regular(path, at_most=MOST_SOURCE_BYTES)).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _path(key: str) -> Path:
    return user_cache() / "checks" / f"{key[:32]}.json"
