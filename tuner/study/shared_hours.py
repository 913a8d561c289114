"""Which studies share a limit of device hours: those that any launch has limited together, until
one lifts it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select, update

from tuner.errors import StorageError
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.optuna.private import names_by_id
from tuner.storage.schema import studies
from tuner.study.open import OpenStudy


def share_launched_hours(studies: Sequence[OpenStudy], said: Mapping[str, Any]) -> list[str]:
    """The studies of one launch share the limit that it `said`, with all that shared one with any
    of them; a new search of a group that has one is paid by the same hours. Lines for the person
    who launches.

    To be called under the initialisation lock.
    """
    database, names = studies[0].database, [each.name for each in studies]
    if "max_gpu_s" in said:
        limit = said["max_gpu_s"]
        together = share_hours(database, names, limit)
        others = [name for name in together if name not in names]
        if not others:
            return []
        what = "is lifted for" if limit is None else "holds for"
        theirs = ", ".join(name for name in names if name in together)
        why = f"an earlier launch had them share a limit with {theirs}"
        return [f"--max-gpu-hours {what} {', '.join(others)} as well: {why}"]
    for each in studies:
        policy = each.policy()
        if (
            policy.max_gpu_s is not None
            and policy.gpu_shared
            and each.name not in policy.gpu_shared
        ):
            share_hours(database, [each.name], policy.max_gpu_s)
    return []


def share_hours(
    database: Database, names: Collection[str], seconds: float | None
) -> tuple[str, ...]:
    """Limit the studies of these names, and all that share a limit with one of them, to so many
    seconds together; None lifts the limit of all. Their names, the oldest first.

    To be called under the initialisation lock.

    Raises:
        StorageError: the policy of one of them cannot be read.
    """
    with database.engine.begin() as connection:
        by_id = names_by_id(connection)
        query = select(studies.c.study_id, studies.c.policy).order_by(studies.c.study_id)
        rows = connection.execute(query.with_for_update()).all()
        stored = {by_id[row.study_id]: row for row in rows if row.study_id in by_id}
        policies: dict[str, SearchPolicy] = {}
        for name, row in stored.items():
            try:
                policies[name] = SearchPolicy.from_json(row.policy, name)
            except StorageError:
                if name in names:
                    raise  # that of a study that nobody named says nothing
        together = _together(policies, names)
        shared = together if seconds is not None and len(together) > 1 else ()
        for name in together:
            before = policies[name]
            after = before.but(max_gpu_s=seconds, gpu_shared=shared)
            if after != before:
                mine = studies.c.study_id == stored[name].study_id
                connection.execute(update(studies).where(mine).values(policy=after.to_json()))
    return together


def _together(policies: Mapping[str, SearchPolicy], names: Collection[str]) -> tuple[str, ...]:
    """All studies that are there and share a limit with one of these, and these."""
    found = set(names) & policies.keys()
    while True:
        more = set(found)
        for name, policy in policies.items():
            sharing = {name, *policy.gpu_shared} if policy.gpu_shared else {name}
            if sharing & found:
                more |= sharing & policies.keys()
        if more == found:
            return tuple(name for name in policies if name in found)
        found = more
