"""Where the targets of a task are: a small CSV that a task file names, read and checked.

What a task keeps are the places themselves, in the order of its targets: they are part of what it
is, so another file of positions makes another task, wherever the file lies.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.data.source_kinds import Frozen, Name
from tuner.errors import DataError, UsageError, guess
from tuner.files.durable import read_regular
from tuner.files.plain import excerpt
from tuner.files.toml_file import TomlDocument

MOST_BYTES = 4 << 20
"""Of a file of positions: more than ten thousand lines."""
LARGEST = 1e9
"""Of a coordinate, in any unit."""
EARTH_KM = 6371.0088
"""The mean radius."""
DIGITS = 6
"""Decimals of kilometres, so that the last bits of one machine's cosine do not change the hash."""

NAME, PLANE, GLOBE = "series", ("x", "y"), ("lat", "lon")
HEADER = "a header with the columns series,x,y or series,lat,lon is expected"
_BOUNDS = {"lat": 90.0, "lon": 180.0}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Python's own float takes more: 1_000, and the digits of other scripts."""

Coordinate = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Position(Frozen):
    """Where a target is: on a plane, in any one unit of length; from `lat` and `lon`, kilometres
    east and north of the first target.
    """

    series: Name
    x: Coordinate
    y: Coordinate


def positions_of(
    document: TomlDocument, targets: Sequence[str], *, long: bool
) -> tuple[Position, ...]:
    """What the key `positions` of a task file names; nothing where there is no such key.

    Args:
        document: the task file.
        targets: its target columns.
        long: its series stand below each other.

    Raises:
        UsageError: no path, or a task whose targets are not the detectors.
        DataError: as `read_positions`.
    """
    named = document.data.get("positions")
    if named is None:
        return ()
    where = f"{document.where(('positions',))}: key 'positions'"
    if not isinstance(named, str) or not named:
        raise UsageError(f"{where}: the path of a CSV is expected, such as 'positions.csv'")
    if long:
        raise UsageError(
            f"{where}: says where target columns are, and here the series stand below each other "
            "(id_column); write a wide file, with a column for each detector"
        )
    try:
        path = (document.path.parent / Path(named).expanduser()).absolute()
        return read_positions(path, targets)
    except RuntimeError as error:  # of a home folder that nobody has
        raise UsageError(f"{where}: {error}") from None


def read_positions(path: Path, targets: Sequence[str]) -> tuple[Position, ...]:
    """The places of `targets`, in their order. Lines of others are not looked at.

    Raises:
        DataError: one line that names the file and the line or the target, and the remedy.
    """
    rows = _rows(_text(path), path)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    axes = _axes(header, path)
    found: dict[str, tuple[float, float]] = {}
    for line, cells in rows:
        where = f"{path}, line {line}"
        if len(cells) != len(header):
            raise DataError(
                f"{where}: has {len(cells)} cells, the header has {len(header)}; correct the line"
            )
        name = cells[header.index(NAME)].strip()
        if name in found:
            raise DataError(
                f"{where}: {excerpt(name)!r} is there twice; keep one line for each series"
            )
        if name in targets:
            first, second = (_number(cells[header.index(axis)], axis, where) for axis in axes)
            found[name] = first, second
    for target in targets:
        if target not in found:
            raise DataError(
                f"{path}: says nothing of the target {excerpt(target)!r}{guess(target, found)}; "
                "add a line for it"
            )
    places = [found[target] for target in targets]
    if axes == GLOBE:
        places = _on_a_plane(places)
    return tuple(
        Position(series=target, x=x, y=y) for target, (x, y) in zip(targets, places, strict=True)
    )


def _text(path: Path) -> str:
    try:
        content = read_regular(path.resolve(), at_most=MOST_BYTES)
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file; correct 'positions' in the task file, which is relative to it"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason}); name a CSV of positions") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: is not UTF-8 text; save the file as UTF-8") from None


def _rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, and the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: cannot be read as CSV ({error})") from None


def _axes(header: Sequence[str], path: Path) -> tuple[str, str]:
    there = [axes for axes in (PLANE, GLOBE) if set(axes) <= set(header)]
    if NAME not in header or not there:
        shown = ", ".join(repr(excerpt(cell)) for cell in header[:8]) or "nothing"
        raise DataError(f"{path}, line 1: {HEADER}, there is {shown}")
    if len(there) > 1:
        raise DataError(f"{path}, line 1: has x,y and lat,lon; keep one of the two pairs")
    for name in (NAME, *there[0]):
        if header.count(name) > 1:
            raise DataError(f"{path}, line 1: the column {name!r} is there twice; keep one")
    return there[0]


def _number(cell: str, axis: str, where: str) -> float:
    bound = _BOUNDS.get(axis, LARGEST)
    number = float(cell) if _NUMBER.fullmatch(cell.strip()) else math.nan
    if not abs(number) <= bound:
        raise DataError(
            f"{where}, column {axis!r}: a number from {-bound:g} to {bound:g} is expected, got "
            f"{excerpt(cell.strip())!r}"
        )
    return number


def _on_a_plane(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Degrees (latitude, longitude) as kilometres east and north of the first place.

    Equirectangular, about the mean latitude: within a region, a thousandth is the error.
    """
    middle = math.radians(sum(lat for lat, _ in places) / len(places))
    per_degree = math.radians(EARTH_KM)
    lat0, lon0 = places[0]
    found = []
    for lat, lon in places:
        east = (lon - lon0 + 180) % 360 - 180  # the short way round
        x = round(per_degree * math.cos(middle) * east, DIGITS)
        found.append((x, round(per_degree * (lat - lat0), DIGITS)))
    return found
