"""Networks of the user's own that were checked and passed: the same code on the same data is not
tried again by the next launch.

Kept in the user's cache. A check that failed is not kept, and whatever cannot be read is no check.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.data.cache import keep_text, kept_text
from tuner.files.durable import read_regular
from tuner.files.plain import Strict
from tuner.models.names import names_file
from tuner.spec.study_file import StudyFile

KIND, MOST_BYTES = "checks", 1 << 20
"""Of what is kept in the cache."""
MOST_SOURCE_BYTES = 16 << 20
PACKAGES = ("torch", "tuner", "neuralforecast", "xlstm")
"""With another version of these a check says nothing."""


class _Stored(Strict):
    """A check that a network has passed."""

    notices: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=100)
    """What is to be said of it all the same."""
    sources: dict[Annotated[str, Field(max_length=4096)], str] = Field(max_length=1000)
    """The hash of each file of the user's that it imported, by the file's path."""


def key_of(file: StudyFile, data_hash: str) -> str | None:
    """The same for the same code, settings, defaults, ranges, data with their task, and packages;
    None where the code cannot be read.

    Raises:
        UsageError: files that the study file names cannot be used.
    """
    loss = file.training.loss
    codes = [file.model, *([loss.term] if loss is not None else [])]
    try:
        read = [_code(each) for each in codes]
    except (OSError, ValueError):
        return None
    files = file.named_files()
    plain = [
        read,
        None if files is None else files.model_dump(),
        dict(file.model_settings),
        file.defaults.values(),
        {name: each.definition(kind=True) for name, each in file.space.ranges.items()},
        file.training.model_dump(mode="json", exclude={"loss": {"term"}}),
        data_hash,
        [_version(each) for each in PACKAGES],
    ]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def kept(key: str) -> tuple[str, ...] | None:
    """The notices of a check that still stands; None where there is none."""
    text = kept_text(KIND, key, at_most=MOST_BYTES)
    if text is None:
        return None
    try:
        stored = _Stored.model_validate_json(text, strict=True)
        changed = [path for path, digest in stored.sources.items() if _hash(Path(path)) != digest]
    except (OSError, ValueError):
        return None
    return None if changed else tuple(stored.notices)


def keep(key: str, notices: Sequence[str], sources: Mapping[str, str]) -> None:
    """For the next launch; a cache that cannot be written is none."""
    keep_text(KIND, key, json.dumps({"notices": list(notices), "sources": dict(sources)}))


def _code(reference: str) -> list[str]:
    """With its place, which notices name, and with the current folder: what it imports may lie
    there.
    """
    here = str(Path.cwd())
    if names_file(reference):
        return [reference, here, _hash(Path(reference.rpartition(":")[0]))]
    return [reference, here]


def _hash(path: Path) -> str:
    return hashlib.sha256(read_regular(path, at_most=MOST_SOURCE_BYTES)).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
