"""What a database holds: each study, whatever made it, with how it stands and its size."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from tuner.errors import TunerError
from tuner.files.plain import in_json
from tuner.report.overview import live_line
from tuner.settings import Settings, differing
from tuner.spec.policy import StudySettings
from tuner.storage.database import Database
from tuner.storage.optuna.trials import studies_of_others
from tuner.storage.schema import epochs, work
from tuner.study.housekeeping import referring
from tuner.study.open import OpenStudy, list_studies, open_study, registered_in
from tuner.study.snapshot import snapshot
from tuner.verdict.verified import progress
from tuner.worker.paths import WorkerPaths, working_folder

EPOCH_BYTES = 72
"""Of a row with nine numbers."""
COLUMNS = ("variant", "task", "finished", "budget", "state", "last")


def holdings(database: Database) -> list[dict[str, Any]]:
    """Of all studies, tuner's first, for JSON; all but `study` and `state` is missing of what
    cannot be read. `bytes` are those of results, plans, curves, and checkpoints here.
    """
    found: list[dict[str, Any]] = []
    for name in (ours := list_studies(database)):
        try:
            opened = open_study(database, name)
            line = live_line(snapshot(opened), opened, opened.ledger.counts())
            found.append({"study": name, **in_json(line, *COLUMNS), "bytes": _bytes(opened)})
        except TunerError:
            found.append({"study": name, "state": "cannot be read: see 'tuner db check'"})
    others = studies_of_others(database.engine, ours)
    return [*found, *({"study": each.name, "state": each.in_words} for each in others)]


def _bytes(opened: OpenStudy) -> int:
    mine, c = work.c.study_id == opened.study_id, work.c
    texts = [func.coalesce(func.sum(func.length(each)), 0) for each in (c.result, c.params, c.plan)]
    rows = select(func.count()).where(epochs.c.study_id == opened.study_id)
    with opened.database.engine.connect() as connection:
        size = sum(map(int, connection.execute(select(*texts).where(mine)).one()))
        size += EPOCH_BYTES * connection.execute(rows).scalar_one()
    paths = WorkerPaths(working_folder(opened.database.address))
    kept = paths.checkpoints(opened.key()).rglob("*")
    return size + sum(each.stat().st_size for each in kept if each.is_file())


def described(opened: OpenStudy) -> dict[str, str | list[str]]:
    """What a study is, in words; several where several are said of one thing."""
    definition, place, counts = opened.definition, opened.membership, opened.ledger.counts()
    settings = StudySettings.of(definition).but(mql_split=None)
    retune = registered_in(opened.database, opened.name)
    runs = progress(opened.verifications.runs())
    at_work = [f"{e.worker} on {e.device}, trial {e.trial_number}" for e in opened.roster.working()]
    return {
        "study": opened.name,
        "is": f"{definition.variant} on {definition.task_name}: {definition.core_change}",
        "search": f"{place.search} of group {place.group}, draw {place.draw}",
        "made as": opened.made_as,
        "objectives": " and ".join(definition.objectives),
        "settings": [*_unusual(settings), *_unusual(opened.policy())] or "as usual",
        "trials": f"{counts.finished} of {counts.budget} finished, {counts.running} running",
        "fresh seeds": ", ".join(f"{number} {state}" for state, number in runs.items()),
        "workers": at_work or "none",
        "retune": "none" if retune is None else " ".join(["registered", *_unusual(retune)]),
        "referred to": referring(opened.database, opened.name) or "by nobody",
    }


def _unusual(settings: Settings) -> list[str]:
    said = settings.in_flags()
    return [said[name] for name in differing(type(settings)(), settings) if said.get(name)]
