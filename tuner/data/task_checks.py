"""What keys of a task are checked for, beyond their types."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.data.source_kinds import DemoSource, EtthSource, FileSource, Source


def checked_frequency(value: str, source: Source | None) -> str:
    """`value`, an alias of pandas.

    Raises:
        ValueError: it is none, or none of this source's.
    """
    if isinstance(source, EtthSource | DemoSource) and value != "h":
        raise ValueError(f"this source is hourly: 'h' is expected, got {value!r}")
    local = isinstance(source, FileSource) and source.timezone is not None
    if value in {"h", "min"} or (value == "D" and not local):
        return value  # the usual ones, without importing pandas
    from tuner.data.times import frequency_problem, within_a_day

    problem = frequency_problem(value)
    if problem is None and local and not within_a_day(value):
        problem = (
            f"source.timezone is for steps shorter than a day, got {value!r}: days have no "
            "daylight saving; leave timezone out"
        )
    if problem:
        raise ValueError(problem)
    return value


def named_once(names: tuple[str, ...], taken: Sequence[str]) -> tuple[str, ...]:
    """`names`, none of which is there twice or among `taken`.

    Raises:
        ValueError: one is.
    """
    for position, name in enumerate(names):
        if name in names[:position] or name in taken:
            raise ValueError(f"{name!r} is named twice; name each column once")
    return names
