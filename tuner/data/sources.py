"""Where a task's series come from: one entry point over etth, demo and CSV files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.data.demo import demo_series
from tuner.data.etth import read_etth
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, DemoSource
from tuner.data.task import Task
from tuner.errors import DataError, unknown_name


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSource:
    """A source whose bytes are at hand: their digest (for the cache), and the parsing, done only
    when needed.
    """

    label: str
    content_digest: str
    parse: Callable[[], tuple[Series, ...]]


def open_source(task: Task, data_dir: Path | None) -> OpenSource:
    """Read the task's files. `data_dir` is where `etth` looks; a CSV has its own path, `demo` needs
    none.

    Raises:
        DataError: a file that is missing, unreadable or not what it should be.
        UsageError: target columns the built-in data does not have.
    """
    source = task.source
    if isinstance(source, CsvSource):
        return _open_csv(task, source)
    if isinstance(source, DemoSource):
        rows, seed, n_targets = source.rows, source.seed, len(task.target_columns)
        return OpenSource(
            label="demo",
            content_digest="",
            parse=lambda: demo_series(rows=rows, seed=seed, n_targets=n_targets),
        )
    contents = read_etth(data_dir)
    return OpenSource(
        label="etth", content_digest=_digest(contents), parse=lambda: _parse_etth(contents, task)
    )


def _open_csv(task: Task, source: CsvSource) -> OpenSource:
    from tuner.data.table import parse_table, read_bytes

    content = read_bytes(source.path)
    return OpenSource(
        label=str(source.path),
        content_digest=_digest({"csv": content}),
        parse=lambda: parse_table(content, source, task),
    )


def _parse_etth(contents: Mapping[str, bytes], task: Task) -> tuple[Series, ...]:
    from tuner.data.table import parse_table

    columns = next(iter(contents.values())).split(b"\n", 1)[0].decode().strip().split(",")
    for column in task.target_columns:
        if column not in columns[1:]:
            raise unknown_name("target column of etth", column, columns[1:])
    found: list[Series] = []
    for name, content in contents.items():
        stem = name.removesuffix(".csv")
        source = CsvSource(kind="csv", path=Path(name), time_column=columns[0])
        found += parse_table(content, source, task.model_copy(update={"name": stem}))
    if not found:
        raise DataError("etth: no series were read")
    return tuple(found)


def _digest(contents: Mapping[str, bytes]) -> str:
    together = hashlib.sha256()
    for name, content in contents.items():
        together.update(f"{name}:{hashlib.sha256(content).hexdigest()};".encode())
    return together.hexdigest()
