"""Where a study stands, as one document: trials, front, what of it is verified, workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.errors import StorageError, StudyGoneError
from tuner.report.alarms import alarms_of
from tuner.search.methods import prunes
from tuner.storage.database import Database
from tuner.storage.queue.roster import WorkerRow, all_in_words
from tuner.study.group import names_by_group
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import snapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.lacking import lacking_of
from tuner.verdict.stats.intervals import in_json
from tuner.verdict.verified import Verified, progress, verified_in


def status_of(opened: OpenStudy) -> dict[str, Any]:
    """The study's status as one JSON-able document."""
    seen = snapshot(opened)
    results, policy, counts = seen.results, seen.policy, opened.ledger.counts()
    on_fresh_seeds, confirmation = verified_in(seen), confirmation_of(seen)
    verified = {number: each.as_dict() for number, each in on_fresh_seeds.items()}
    hosts, workers = opened.roster.hosts(), opened.roster.working()
    return {
        "name": opened.name,
        "group": opened.membership.group,
        "search": opened.membership.search,
        "variant": opened.definition.variant,
        "task": opened.definition.task_name,
        "trials": {
            "complete": results.of_state(TrialState.COMPLETE),
            "running": counts.running,
            "waiting": results.of_state(TrialState.WAITING),
            "pruned": results.of_state(TrialState.PRUNED) - results.missed,
            "failed": results.of_state(TrialState.FAIL),
        }
        | ({"missed": results.missed} if opened.definition.target_val_loss is not None else {}),
        "budget": counts.budget,
        "front": [
            record.as_dict() | {"verified": verified.get(record.number)} for record in results.front
        ],
        "verification": progress(seen.runs),
        "confirmation": confirmation.as_dict() if confirmation else None,
        "all_missed": _all_missed(on_fresh_seeds.values(), confirmation),
        "lacking": (found := lacking_of(seen)) and found.as_dict(),
        "objectives": list(results.objectives),
        "policy": policy.model_dump(mode="json") | {"prune": prunes(policy.sampler, policy.prune)},
        "time_is_up": counts.time_is_up,
        "hours_are_spent": counts.lacks_hours,
        "limits": results.limits or None,
        "feasible": not results.infeasible if results.limits and results.eligible else None,
        "censored": results.censored,
        "clock": opened.definition.clock.value,
        "hypervolume": results.hypervolume,
        "reference": results.reference,
        "device_model": seen.device_model,
        "workers": [_worker(row) for row in workers],
        "alarms": [alarm.as_dict() for alarm in alarms_of(opened, results)],
        "hosts": [{"host": host} | dataclasses.asdict(facts) for host, facts in hosts],
        "hosts_differ": all_in_words(hosts),
    }


def _worker(row: WorkerRow) -> dict[str, Any]:
    plain = in_json(row, "worker", "host", "pid", "device", "epoch", "val_loss", "note")
    return plain | {"trial": row.trial_number, "silent_s": round(row.silent_s, 1)}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where studies stand, in their order, and why others cannot be read."""

    opened: tuple[OpenStudy, ...]
    statuses: Mapping[str, dict[str, Any]]
    """By name."""
    unreadable: Mapping[str, str]
    """By name."""


def standing(database: Database, names: Iterable[str]) -> Standing:
    """Of the studies of these names; one that is damaged keeps no other from being seen.

    Raises:
        StudyGoneError: one was deleted meanwhile.
    """
    opened, statuses, unreadable = [], {}, {}
    for name in names:
        try:
            study = open_study(database, name)
            statuses[name] = status_of(study)
        except StudyGoneError:
            raise
        except StorageError as error:
            unreadable[name] = str(error)
        else:
            opened.append(study)
    return Standing(tuple(opened), statuses, unreadable)


def _all_missed(
    verified: Iterable[Verified], confirmation: Confirmation | None
) -> list[dict[str, Any]]:
    """The configurations of which every run on fresh seeds is over and none counts, and how they
    ended: without this they look as if nobody had run them.
    """
    confirmed = confirmation.configurations if confirmation else ()
    return [
        {"trial": each.trial_number, "what": each.without_figures}
        for each in {each.trial_number: each for each in (*verified, *confirmed)}.values()
        if each.runs and each.missed == len(each.runs) == each.planned
    ]


def groups_of(opened: Iterable[OpenStudy]) -> list[dict[str, Any]]:
    """The groups of searches that the studies belong to, each with those of its studies that are
    among them.
    """
    return [{"name": name, "studies": names} for name, names in names_by_group(opened).items()]
