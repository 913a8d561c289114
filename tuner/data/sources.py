"""Where a task's series come from: one entry point over etth, demo and the user's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.data.demo import demo_series
from tuner.data.etth import read_etth
from tuner.data.many_files import files_of, twins
from tuner.data.remote import file_in, url_of
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, DemoSource, FileSource
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
    """Read the task's files. `data_dir`, a folder or a URL, is where `etth` looks, and where a file
    is looked for by its name if it is not at its own path; `demo` needs none.

    Raises:
        DataError: a file that is missing, unreadable or not what it should be.
        UsageError: target columns the built-in data does not have.
    """
    source = task.source
    if isinstance(source, FileSource):
        return _open_file(task, source, data_dir)
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


def _open_file(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    from tuner.data.table import read_bytes

    if source.runs is not None:
        return _open_runs(task, source, data_dir)
    path, beside = source.path, ""
    if data_dir is not None and not path.exists():
        other = file_in(data_dir, path.name, reuse=False)
        path, beside = (other, "") if other.exists() else (path, f", nor {other}")
    content = read_bytes(path, beside=beside)
    return OpenSource(
        label=str(source.path),
        content_digest=_digest({"csv": content}),
        parse=lambda: _parse_file(content, source, task),
    )


def _open_runs(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    """The files of a pattern: read now, as their digest says what is kept of them."""
    from tuner.data.table import read_bytes

    here = None if data_dir is None or url_of(data_dir) is not None else data_dir
    files = files_of(source, here)
    contents: dict[str, bytes] = {}
    for name, path in files.items():
        with _one_of(files, source):
            contents[name] = read_bytes(path)
    return OpenSource(
        label=str(source.path),
        content_digest=_digest(contents),
        parse=lambda: _parse_runs(contents, files, source, task),
    )


def _parse_runs(
    contents: Mapping[str, bytes], files: Mapping[str, Path], source: FileSource, task: Task
) -> tuple[Series, ...]:
    """A series for each file, called as the file."""
    found: list[Series] = []
    for name, content in contents.items():
        alone = source.model_copy(update={"path": files[name]})
        with _one_of(files, source):
            (one,) = _parse_file(content, alone, task)
        found.append(replace(one, name=name))
    if source.runs == "by_file" and (same := twins(found)) is not None:
        raise DataError(
            f"{source.path}: {same[0]} and {same[1]} hold the same values, and one may be trained "
            "on while the other is forecast; leave one of them out, or make the pattern narrower"
        )
    return tuple(found)


@contextmanager
def _one_of(files: Mapping[str, Path], source: FileSource) -> Iterator[None]:
    """What is wrong with one of many files says so, and what else may be done."""
    try:
        yield
    except DataError as error:
        raise DataError(
            f"{error} (one of the {len(files)} files of {'/'.join(source.pattern()[1])}: correct "
            "it, leave it out, or make the pattern narrower)"
        ) from None


def _parse_file(content: bytes, source: FileSource, task: Task) -> tuple[Series, ...]:
    if isinstance(source, CsvSource):
        from tuner.data.table import parse_table

        return parse_table(content, source, task)
    from tuner.data.parquet import parse_parquet

    return parse_parquet(content, source, task)


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
