"""Where a task's series come from: one entry point over etth, demo and the user's own files."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt

from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, DemoSource, FileSource, TypedSource, files_found
from tuner.data.task import Task
from tuner.errors import DataError, UsageError
from tuner.files.durable import file_sha256, open_plain, replacing
from tuner.files.environment import user_cache

if TYPE_CHECKING:
    from tuner.data.open_file import OpenFile

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


# Data in a place that others share: a folder, or a URL that files are fetched from.


MOST_BYTES = 1 << 30
"""Of one file that is fetched."""
SILENCE_S = 10.0
"""A server that says nothing for so long is given up."""
WHOLE_S = 1800.0
"""A file that has not come in so long is given up."""
_URL = re.compile(r"(https?|file):/+(.*)")


def url_of(place: Path | None) -> str | None:
    """The URL that was given in place of a folder; None where it is a folder.

    A path has one slash where a URL has two: `Path("https://host/data")` is `https:/host/data`.

    Raises:
        UsageError: it names a user or a password, which would be shown and logged.
    """
    match = _URL.fullmatch(str(place)) if place is not None else None
    if match is None:
        return None
    scheme, rest = match.groups()
    url = f"{scheme}:{'///' if scheme == 'file' else '//'}{rest}"
    if scheme != "file" and "@" in urlsplit(url).netloc:
        raise UsageError("--data-dir: a URL with a password is not taken, since it would be logged")
    return url


def told_to_others(place: Path) -> str:
    """The place as another process of this host is to be given it, wherever that runs."""
    return url_of(place) or str(place.absolute())


def file_in(place: Path, name: str, *, reuse: bool) -> Path:
    """Where the file `name` of a folder or URL can be read. With `reuse` what was fetched before
    does.

    Raises:
        DataError: it could not be fetched.
        UsageError: the URL is none.
    """
    url = url_of(place)
    if url is None:
        return place / name
    folder = user_cache() / "fetched" / hashlib.sha256(url.encode()).hexdigest()[:16]
    path = folder / name
    if not (reuse and path.is_file()):
        remedy = f"name a folder or URL that holds {name} with --data-dir"
        fetch(f"{url.rstrip('/')}/{quote(name)}", path, remedy)
    return path


def fetch(url: str, path: Path, remedy: str, check: Callable[[bytes], None] | None = None) -> None:
    """Put what is at `url` to `path` in one step, once `check` took it, with its progress on
    stderr.

    Raises:
        DataError: it cannot be had, which ends with the `remedy`, is too long, or takes too long;
            or what `check` raised.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    from rich.progress import wrap_file

    from tuner.display.terminal import make_console

    deadline, left = time.monotonic() + WHOLE_S, MOST_BYTES
    said, console = f"downloading {path.name}", make_console(stderr=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file, urlopen(url, timeout=SILENCE_S) as response:  # noqa: S310 - ours, or the user's
            length = int(response.headers.get("Content-Length") or MOST_BYTES)
            with wrap_file(response, length, description=said, console=console) as content:
                while chunk := content.read(1 << 16):
                    left -= len(chunk)
                    if left < 0 or time.monotonic() > deadline:
                        most = f"{MOST_BYTES >> 20} MiB, or has not come in {WHOLE_S:.0f} s"
                        raise DataError(f"{url} holds more than {most}; copy it by hand")
                    file.write(chunk)
            file.seek(0)
            if check is not None:
                check(file.read())
    except (OSError, HTTPException, ValueError) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        said = f"not there, and could not be downloaded from {url} ({reason})"
        raise DataError(f"{path}: {said}; {remedy}") from None


# ETTh1 and ETTh2: found in a folder or the user's cache, else downloaded; checked by SHA-256.


SHA256 = {
    "ETTh1.csv": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2.csv": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
BASE_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
_ELSEWHERE = (
    "download ETTh1.csv and ETTh2.csv elsewhere "
    "and name their folder with --data-dir or TUNER_DATA_DIR"
)
_DAMAGED = "the file is damaged or another version: delete it and run 'tuner data fetch etth'"


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
        folder = fetch_etth(base_url=base_url if url is None else url.rstrip("/"))
    else:
        folder = find_etth(data_dir)
    return {name: (folder / name).read_bytes() for name in SHA256}


def find_etth(data_dir: Path | None) -> Path:
    """The folder of both files, checked: `data_dir`, else the user's cache. Nothing is downloaded.

    Raises:
        DataError: a file is missing, or its SHA-256 is not the known one.
    """
    folder = data_dir if data_dir is not None and url_of(data_dir) is None else default_folder()
    for name in SHA256:
        path = folder / name
        try:
            with open_plain(path) as file:
                _check_sum(file.read(), name, f"{path}: SHA-256 is", _DAMAGED)
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{path}: no such file; put ETTh1.csv and ETTh2.csv into this folder, name another "
                "with --data-dir or TUNER_DATA_DIR, or run 'tuner data fetch etth' and name none"
            ) from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return folder


def fetch_etth(dest: Path | None = None, *, base_url: str = BASE_URL) -> Path:
    """Download what `dest` lacks of both files (default: the user's cache), and return that folder.

    Raises:
        DataError: no network, an unwritable folder, or a file whose SHA-256 is not the known one.
    """
    folder = default_folder() if dest is None else dest
    for name in SHA256:
        url, path = f"{base_url}/{name}", folder / name
        if not path.exists():
            said = f"{url}: what was downloaded for {path} has SHA-256"
            again = f"try again, or {_ELSEWHERE}"
            check = partial(_check_sum, name=name, said=said, remedy=again)
            fetch(url, path, _ELSEWHERE, check)
    return find_etth(folder)


def _check_sum(content: bytes, name: str, said: str, remedy: str) -> None:
    found, expected = hashlib.sha256(content).hexdigest(), SHA256[name]
    if found != expected:
        raise DataError(f"{said} {found}, expected {expected}; {remedy}")


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
    try:
        found = _below(root, parts)
        if not found and folder is not None:
            found = _below(folder, parts)
            if found:
                _log.warning("%s finds nothing in its place; taken from %s", source.path, folder)
    except OSError as error:
        why = f"cannot be read ({error.strerror}), and {source.path} looks there"
        raise DataError(f"{error.filename}: {why}; make the pattern narrower") from None
    except ValueError as error:
        raise DataError(f"{source.path}: {error}") from None
    if not 0 < len(found) <= MOST_FILES:
        count = f"more than {MOST_FILES:,} files" if found else f"no file in {root}"
        beside = f", nor in {folder}" if folder is not None and not found else ""
        remedy = "correct 'path' under [source] in the task file"
        raise DataError(f"{source.path}: the pattern finds {count}{beside}; {remedy}")
    return dict(sorted(found.items()))


def _below(root: Path, parts: Sequence[str]) -> dict[str, Path]:
    found = islice(files_found(root, parts), MOST_FILES + 1)
    return {path.relative_to(root).as_posix(): path for path in found}


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


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source whose bytes are at hand: their digest (for the cache), and the parsing, done only
    when needed.
    """

    content_digest: str
    parse: Callable[[], tuple[Series, ...]]
    open: Callable[[], OpenFile] | None = None
    """Gives the file as a table, where it is one, and can be read in pieces."""


def open_source(task: Task, data_dir: Path | None, *, file: OpenFile | None = None) -> OpenSource:
    """Read the task's files. `data_dir`, a folder or a URL, is where `etth` looks, and where a file
    is looked for by its name if it is not at its own path; `demo` needs none. `file` is the task's,
    where it was opened before.

    Raises:
        DataError: a file that is missing, unreadable or not what it should be.
        UsageError: target columns the built-in data does not have.
    """
    source = task.source
    if isinstance(source, DemoSource):
        parse = partial(
            demo_series, rows=source.rows, seed=source.seed, n_targets=len(task.target_columns)
        )
        return OpenSource("", parse)
    if not isinstance(source, FileSource):
        contents = read_etth(data_dir)
        return OpenSource(_digest(contents), lambda: _parse_etth(contents, task))
    if source.apart is not None:
        return _open_runs(task, source, data_dir)
    if file is not None:
        from tuner.data.table import series_of
        from tuner.data.times import TimeColumn

        digest = _digest({"csv": file.content})
        where = TimeColumn(source=source, frequency=task.frequency)
        return OpenSource(digest, lambda: series_of(file, where, task))
    if source.runs is not None:
        return _open_joined(task, source, data_dir)
    path, beside = source.path, ""
    if data_dir is not None and not path.exists():
        other = file_in(data_dir, path.name, reuse=False)
        path, beside = (other, "") if other.exists() else (path, f", nor {other}")
    return _open_file(task, source, path, beside)


LARGE_FILE = 1 << 26
"""Bytes of a file from which on it is not read at once, where it need not be."""


def _open_file(task: Task, source: FileSource, path: Path, beside: str) -> OpenSource:
    """One file, wherever it was found."""
    from tuner.data.open_file import open_typed, read_bytes
    from tuner.data.table import parse_file, series_of
    from tuner.data.times import TimeColumn

    if not isinstance(source, TypedSource):
        content = read_bytes(path, beside=beside)
        return OpenSource(_digest({"csv": content}), lambda: parse_file(content, source, task))
    large = path.is_file() and path.stat().st_size >= LARGE_FILE
    held = None if large else read_bytes(path, beside=beside)
    digest = _sha256(path) if held is None else hashlib.sha256(held).hexdigest()
    placed = source.model_copy(update={"path": path}) if large else source
    opened = cache(lambda: open_typed(held, placed))
    where = TimeColumn(source=source, frequency=task.frequency)
    return OpenSource(_digest_of({"csv": digest}), lambda: series_of(opened(), where, task), opened)


def _open_joined(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    """The files of a pattern, as one."""
    from tuner.data.open_file import joined, open_typed, opened, read_bytes
    from tuner.data.table import series_of
    from tuner.data.times import TimeColumn

    files = files_of(source, None if url_of(data_dir) is not None else data_dir)

    def each(path: Path) -> OpenFile:
        one = source.model_copy(update={"path": path})
        if isinstance(one, TypedSource):
            return open_typed(None, one)
        return opened(read_bytes(path), one)

    whole = cache(lambda: joined([each(path) for path in files.values()], str(source.path)))
    where = TimeColumn(source=source, frequency=task.frequency)
    digest = _digest_of({name: _sha256(path) for name, path in files.items()})
    return OpenSource(digest, lambda: series_of(whole(), where, task), whole)


def _open_runs(task: Task, source: FileSource, data_dir: Path | None) -> OpenSource:
    """The files of a pattern: read now, as their digest says what is kept of them."""
    from tuner.data.open_file import read_bytes
    from tuner.data.table import parse_file

    files = files_of(source, None if url_of(data_dir) is not None else data_dir)

    def each(read: Callable[[str, Path], Any]) -> dict[str, Any]:
        """What is wrong with one of many files says so, and what else may be done."""
        from joblib import Parallel, delayed

        together = Parallel(n_jobs=-1, prefer="threads")  # pandas parses without the lock
        try:
            found = together(delayed(read)(*one) for one in files.items())
            return dict(zip(files, found, strict=True))
        except DataError as error:
            among = f"one of the {len(files)} files of {'/'.join(source.pattern()[1])}"
            raise DataError(f"{error} ({among}: correct it, or leave it out)") from None

    def series(name: str, path: Path) -> Series:
        alone = source.model_copy(update={"path": path})
        (one,) = parse_file(contents[name], alone, task)
        return replace(one, name=name)

    def parse() -> tuple[Series, ...]:
        found = tuple(each(series).values())
        if source.runs == "by_file" and (same := twins(found)) is not None:
            raise DataError(
                f"{source.path}: {same[0]} and {same[1]} hold the same values, and one may be "
                "trained on while the other is forecast; leave one of them out"
            )
        return found

    contents = each(lambda _, path: read_bytes(path))
    return OpenSource(_digest(contents), parse)


def _parse_etth(contents: Mapping[str, bytes], task: Task) -> tuple[Series, ...]:
    """Each file is a series, called as it."""
    from tuner.data.table import parse_file

    found: list[Series] = []
    for name, content in contents.items():
        source = CsvSource(kind="csv", path=Path(name), time_column="date")
        one = task.model_copy(update={"name": name.removesuffix(".csv")})
        found += parse_file(content, source, one)
    return tuple(found)


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except UsageError as error:
        raise DataError(str(error)) from None


def _digest(contents: Mapping[str, bytes]) -> str:
    return _digest_of({name: hashlib.sha256(held).hexdigest() for name, held in contents.items()})


def _digest_of(digests: Mapping[str, str]) -> str:
    each = (f"{name}:{digest};" for name, digest in digests.items())
    return hashlib.sha256("".join(each).encode()).hexdigest()
