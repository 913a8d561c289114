"""What of a study decides whether one more trial may be claimed, as columns of a single statement.

A claim reads them while it holds the study's row, and everybody else who wants a trial waits
meanwhile: each statement saved is time saved for all.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Label, Row, func, select

from tuner.spec.policy import SearchPolicy
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.schema import claims, studies


def budget_columns(study_id: int) -> list[Label[Any]]:
    """`budget`, `policy` and `created_at`, None where the study is gone, and how many claims run
    and have finished.
    """
    # By another name: the statement around these may read the claims as well.
    counted, mine = claims.alias("counted"), studies.c.study_id == study_id
    there = mine & optuna_rows.has_study(studies.c.study_id)
    found = [
        select(column).where(there).scalar_subquery().label(column.name)
        for column in (studies.c.budget, studies.c.policy, studies.c.created_at)
    ]
    for state in ("running", "finished"):
        number = select(func.count()).select_from(counted)
        number = number.where((counted.c.study_id == study_id) & (counted.c.state == state))
        found.append(number.scalar_subquery().label(state))
    return found


def search_s(seen: Row[Any], study: str) -> float | None:
    """The seconds that the stored policy of the study of this name gives the search; None: as many
    as it takes.
    """
    return SearchPolicy.from_json(seen.policy, study).search_s


def until(policy: str | None, study: str) -> float | None:
    """With how little left to gain a stored policy has the search stop; None: never."""
    return SearchPolicy.from_json(policy, study).until
