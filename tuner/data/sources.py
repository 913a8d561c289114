"""Where a task's series come from: one entry point over etth, demo and the user's own files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.data.cache import file_in, reason_of, transfer, url_of, user_cache
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, DemoSource, FileSource, files_found
from tuner.data.task import Task
from tuner.errors import DataError, unknown_name
from tuner.files.durable import open_plain, replacing

# Generated hourly series: daily and weekly cycles, slow drift, noise that grows with the level.


_START = np.datetime64("2024-01-01T00:00:00", "us")
_DECIMALS = 4
"""Values are rounded, so that the last bits of one machine's sine do not change the data's hash."""


def demo_series(*, rows: int, seed: int, n_targets: int) -> tuple[Series, ...]:
    """Series `demo1` and `demo2`, `rows` hours each, values (rows, n_targets) around 10 to 100.

    The same seed gives the same values: PCG64, one child stream per series, values rounded to 4
    decimals.
    """
    streams = np.random.SeedSequence(seed).spawn(2)
    timestamps = _START + np.arange(rows) * np.timedelta64(1, "h")
    return tuple(
        Series(
            name=f"demo{number}",
            timestamps=timestamps,
            values=_values(rows, n_targets, np.random.Generator(np.random.PCG64(stream))),
        )
        for number, stream in enumerate(streams, start=1)
    )


def _values(rows: int, n_targets: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    hours = np.arange(rows, dtype=np.float64)[:, None]
    level = random.uniform(20.0, 60.0, n_targets)
    phase = random.uniform(0.0, 2.0 * np.pi, (3, n_targets))
    day = np.sin(2.0 * np.pi * hours / 24.0 + phase[0]) + 0.4 * np.sin(
        4.0 * np.pi * hours / 24.0 + phase[1]
    )
    week = np.sin(2.0 * np.pi * hours / 168.0 + phase[2])
    drift = random.uniform(-0.15, 0.15, n_targets) * hours / max(rows, 1)
    signal = level * (1.0 + 0.3 * day + 0.15 * week + drift)
    spread = 0.03 * level * (1.0 + 0.8 * np.clip(day, 0.0, None))  # noisier at the daily peak
    noise = _persistent(random.standard_normal((rows, n_targets)), persistence=0.7)
    return np.asarray(np.round(signal + spread * noise, _DECIMALS), dtype=np.float64)


def _persistent(shocks: npt.NDArray[np.float64], *, persistence: float) -> npt.NDArray[np.float64]:
    """First-order autoregression of the shocks, along the rows, with unit variance."""
    noise = shocks.copy()
    fresh = (1.0 - persistence**2) ** 0.5
    for row in range(1, len(noise)):
        noise[row] = persistence * noise[row - 1] + fresh * shocks[row]
    return noise


# ETTh1 and ETTh2: found in a folder or the user's cache, else downloaded; checked by SHA-256.


SHA256 = {
    "ETTh1.csv": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2.csv": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
BASE_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
_MOST_BYTES = 64 << 20
_ELSEWHERE = (
    "download ETTh1.csv and ETTh2.csv elsewhere "
    "and name their folder with --data-dir or TUNER_DATA_DIR"
)


def default_folder() -> Path:
    """Where downloaded files are kept for this user."""
    return user_cache() / "etth"


def read_etth(data_dir: Path | None, *, base_url: str = BASE_URL) -> dict[str, bytes]:
    """The content of both files by file name: from `data_dir`, the user's cache, or the network. A
    `data_dir` that is a URL is where the cache is filled from.

    Raises:
        DataError: `data_dir` lacks a file, no network, or a file whose SHA-256 is not the known
            one.
    """
    url = url_of(data_dir)
    if data_dir is None or url is not None:
        folder = fetch_etth(base_url=url.rstrip("/") if url is not None else base_url)
    else:
        folder = data_dir
    return {name: _read_checked(folder / name) for name in SHA256}


def find_etth(data_dir: Path | None) -> Path:
    """The folder of both files, checked: `data_dir`, else the user's cache. Nothing is downloaded.

    Raises:
        DataError: a file is missing, or its SHA-256 is not the known one.
    """
    folder = data_dir if data_dir is not None and url_of(data_dir) is None else default_folder()
    for name in SHA256:
        _read_checked(folder / name)
    return folder


def fetch_etth(dest: Path | None = None, *, base_url: str = BASE_URL) -> Path:
    """Download what `dest` lacks of both files (default: the user's cache), and return that folder.

    Raises:
        DataError: no network, an unwritable folder, or a file whose SHA-256 is not the known one.
    """
    folder = default_folder() if dest is None else dest
    missing = [name for name in SHA256 if not (folder / name).exists()]
    for name in SHA256:
        if name not in missing:
            _read_checked(folder / name)
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{folder}: cannot be made ({error.strerror}); name a folder that holds ETTh1.csv "
                "and ETTh2.csv with --data-dir or TUNER_DATA_DIR"
            ) from None
    for name in missing:
        _download(f"{base_url}/{name}", folder / name)
    return folder


def _read_checked(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: no such file; put ETTh1.csv and ETTh2.csv into this folder, name another "
            "with --data-dir or TUNER_DATA_DIR, or run 'tuner data fetch etth' and name none"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    found, expected = hashlib.sha256(content).hexdigest(), SHA256[path.name]
    if found != expected:
        raise DataError(
            f"{path}: SHA-256 is {found}, expected {expected}; "
            "the file is damaged or another version: delete it and run 'tuner data fetch etth'"
        )
    return content


def _download(url: str, path: Path) -> None:
    """Download to a temporary file beside `path`, check it, then move it into place in one step."""
    try:
        with replacing(path) as file:
            transfer(url, file, path.name, most_bytes=_MOST_BYTES)
            file.seek(0)
            found, expected = hashlib.sha256(file.read()).hexdigest(), SHA256[path.name]
            if found != expected:
                raise DataError(
                    f"{url}: what was downloaded for {path} has SHA-256 {found}, expected "
                    f"{expected}; try again, or {_ELSEWHERE}"
                )
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
        raise DataError(
            f"{path}: not there, and could not be downloaded from {url} ({reason_of(error)}); "
            f"{_ELSEWHERE}"
        ) from None


# Many files of one source: each is a run of time by itself, and all together are one series.


MOST_FILES = 100_000

_log = logging.getLogger(__name__)


def files_of(source: FileSource, folder: Path | None) -> dict[str, Path]:
    """The files that a source's pattern finds, by their names from its first wildcard on, in the
    order of these: what they are called does not depend on where they lie.

    Args:
        source: whose path is a pattern.
        folder: where they are looked for if the pattern finds none at its own place.

    Raises:
        DataError: it finds nothing, or too many, a folder that cannot be read, or no file.
    """
    root, parts = source.pattern()
    found = _named(source, root, parts)
    if not found and folder is not None:
        found = _named(source, folder, parts)
        if found:
            _log.warning("%s finds nothing in its place; taken from %s", source.path, folder)
    if not found:
        beside = f", nor in {folder}" if folder is not None else ""
        raise DataError(
            f"{source.path}: the pattern finds no file in {root}{beside}; correct 'path' under "
            "[source] in the task file"
        )
    if len(found) > MOST_FILES:
        raise DataError(
            f"{source.path}: the pattern finds more than {MOST_FILES:,} files; make it narrower"
        )
    return dict(sorted(found.items()))


def in_order_of_splits(runs: tuple[Series, ...]) -> tuple[Series, ...]:
    """The files as they are dealt to training, validation and test: in the order of a hash of their
    names, so that a parameter that grows along with the names is in each split.
    """
    return tuple(sorted(runs, key=lambda run: hashlib.sha256(run.name.encode()).digest()))


def twins(runs: Sequence[Series]) -> tuple[str, str] | None:
    """The names of two that hold the same values, such as a copy and what it is of: dealt to two
    splits, one would be trained on and the other forecast. None where all differ.
    """
    seen: dict[bytes, str] = {}
    for run in runs:
        key = hashlib.sha256(run.values.tobytes()).digest()
        if key in seen:
            return seen[key], run.name
        seen[key] = run.name
    return None


def _named(source: FileSource, root: Path, parts: Sequence[str]) -> dict[str, Path]:
    try:
        found = islice(files_found(root, parts), MOST_FILES + 1)
        return {path.relative_to(root).as_posix(): path for path in found}
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}), and the pattern {source.path} "
            "looks there; let it be read, or make the pattern narrower"
        ) from None
    except ValueError as error:
        raise DataError(f"{source.path}: {error}") from None


@dataclass(frozen=True, slots=True)
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
        parse = partial(
            demo_series, rows=source.rows, seed=source.seed, n_targets=len(task.target_columns)
        )
        return OpenSource("demo", "", parse)
    contents = read_etth(data_dir)
    return OpenSource("etth", _digest(contents), lambda: _parse_etth(contents, task))


def _open_file(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    from tuner.data.table import read_bytes

    if source.runs is not None:
        return _open_runs(task, source, data_dir)
    path, beside = source.path, ""
    if data_dir is not None and not path.exists():
        other = file_in(data_dir, path.name, reuse=False)
        path, beside = (other, "") if other.exists() else (path, f", nor {other}")
    content = read_bytes(path, beside=beside)
    digest = _digest({"csv": content})
    return OpenSource(str(source.path), digest, lambda: _parse_file(content, source, task))


def _open_runs(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    """The files of a pattern: read now, as their digest says what is kept of them."""
    from tuner.data.table import read_bytes

    here = None if data_dir is None or url_of(data_dir) is not None else data_dir
    files = files_of(source, here)
    contents: dict[str, bytes] = {}
    for name, path in files.items():
        with _one_of(files, source):
            contents[name] = read_bytes(path)
    parse = partial(_parse_runs, contents, files, source, task)
    return OpenSource(str(source.path), _digest(contents), parse)


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
    from tuner.data.table import parse_parquet

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
