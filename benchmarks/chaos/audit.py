"""Whether anything was lost, or counted twice: the database's record against the workers' own journals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import select
from stand import Stand

from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.queue.claims import ATTEMPTED
from tuner.storage.records import Counts, TrialResult
from tuner.storage.url import parse_url
from tuner.study.housekeeping import repair
from tuner.study.results import read_results


def journal(stand: Stand) -> list[dict[str, Any]]:
    """Every training that a worker saw the end of."""
    files = (stand.folder / "journal").iterdir()
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def audit(stand: Stand) -> tuple[dict[str, Any], list[str]]:
    """Figures, and every promise that does not hold (none, when all is well)."""
    with stand.opened() as study, study.database.engine.connect() as connection:
        counts = study.ledger.counts()
        trials = study.database.optuna.get_all_trials(study.study_id, deepcopy=False)
        claims = connection.execute(
            select(schema.work).where(ATTEMPTED).order_by(schema.work.c.work_id)
        ).all()
    report = check_database(parse_url(stand.url))
    trained = {each["execution"]: each["trial"] for each in journal(stand)}
    finished = [claim for claim in claims if claim.state == "finished"]
    late = [claim for claim in claims if claim.state != "finished" and claim.result is not None]
    told = {trial.number: trial for trial in trials}
    results = {claim.trial_number: TrialResult.from_json(claim.result) for claim in finished}
    executions = [result.recorded.other.get("execution") for result in results.values()]
    set_aside = sum(bool(result.recorded.set_aside) for result in results.values())
    figures = {
        "budget": counts.budget,
        "recorded_results": len(finished),
        "trials_by_state": dict(Counter(trial.state.name for trial in trials)),
        "claims_by_state": dict(Counter(claim.state for claim in claims)),
        "set_aside": set_aside,
        "trained_to_the_end": len(trained),
        "late_results_kept": len(late),
        "distinct_configurations": len({str(sorted(trial.params.items())) for trial in trials}),
        "not_started_again": stand.launch_logs().count("is not started again"),
        "database_check": [finding.what for finding in report.findings],
    }
    promises = {
        "as many recorded results as the budget": counts.finished
        == counts.budget
        == len(finished)
        == stand.trials,
        "no claim is left running": counts.running == 0,
        "each result belongs to another trial": len(results) == len(finished),
        "every trial is in a terminal state, and each has a result": {
            trial.number for trial in trials if trial.state.is_finished()
        }
        == set(told)
        == set(results),
        "Optuna was told what was recorded": all(
            _agree(told.get(number), result) for number, result in results.items()
        ),
        "no configuration counted twice": figures["distinct_configurations"] == len(trials),
        "no execution counted twice": len(set(executions) - {None}) == len(executions) - set_aside,
        "each counted result was trained, as that trial": all(
            trained.get(result.recorded.other.get("execution")) == number
            for number, result in results.items()
            if not result.recorded.set_aside
        ),
        "no late result is one that counts": not {
            TrialResult.from_json(claim.result).recorded.other["execution"] for claim in late
        }
        & set(executions),
        "no worker was lost for good": figures["not_started_again"] == 0,
        "tuner db check finds nothing": report.healthy,
    }
    return figures, [promise for promise, holds in promises.items() if not holds]


def _agree(trial: Any, result: TrialResult) -> bool:
    if trial is None or trial.state != result.state:
        return False
    if result.state == TrialState.COMPLETE and tuple(trial.values) != result.values:
        return False
    return all(
        trial.user_attrs.get(key) == value for key, value in result.recorded.to_flat().items()
    )


@dataclass(frozen=True)
class Shared:
    """A study that another program changed, after its repair: what was recorded, and what is in Optuna's tables."""

    counts: Counts
    shown: list[FrozenTrial]
    """Its trials, as Optuna's interface gives them of ours."""
    raw: list[FrozenTrial]
    """All that lie in its tables."""
    finished: int
    """Claims with a result."""
    results: dict[int, TrialResult]
    front: list[int]

    @property
    def complete(self) -> dict[int, TrialResult]:
        return {n: r for n, r in self.results.items() if r.state == TrialState.COMPLETE}

    @property
    def reasons(self) -> list[str]:
        """Why the others have no values."""
        return [str(r.recorded.failure) for n, r in self.results.items() if n not in self.complete]


def audit_beside_others(stand: Stand) -> tuple[dict[str, Any], list[str]]:
    """The same where another program asked, told and changed trials of the study: what is ours, is it as we made it?

    Optuna itself checks before it writes, and between the two comes what we tell it: that much is for the repair.
    """
    before = check_database(parse_url(stand.url))
    repaired = repair(parse_url(stand.url), stand.folder)
    found = _read(stand)
    report = check_database(parse_url(stand.url))
    figures = {
        "budget": found.counts.budget,
        "recorded_results": found.finished,
        "of_them_trained": len(found.complete),
        "refused_as_no_configuration": len(found.results) - len(found.complete),
        "of_them_for_another_reason": [
            reason for reason in found.reasons if "enqueued with" not in reason
        ],
        "trials_in_optunas_tables": dict(Counter(trial.state.name for trial in found.raw)),
        "trials_shown": dict(Counter(trial.state.name for trial in found.shown)),
        "of_the_other_program": sum(
            t.state.is_finished() and t.number not in found.results for t in found.raw
        ),
        "front": found.front,
        "database_check": [f"{finding.level}: {finding.what}" for finding in before.findings],
        "repaired": list(repaired),
        "database_check_then": [f"{finding.level}: {finding.what}" for finding in report.findings],
    }
    promises = _promises_beside_others(found, {each["execution"]: each for each in journal(stand)})
    promises["after the repair, tuner db check finds no error"] = report.healthy
    return figures, [promise for promise, holds in promises.items() if not holds]


def _read(stand: Stand) -> Shared:
    with stand.opened() as study:
        counts, shown = study.ledger.counts(), study.optuna.get_trials(deepcopy=False)
        raw = study.database.optuna.get_all_trials(study.study_id, deepcopy=False)
        query = select(schema.work).where(ATTEMPTED, schema.work.c.state == "finished")
        with study.database.engine.connect() as connection:
            finished = connection.execute(query).all()
        front = [record.number for record in read_results(study).front]
    results = {claim.trial_number: TrialResult.from_json(claim.result) for claim in finished}
    return Shared(counts, shown, raw, len(finished), results, front)


def _promises_beside_others(found: Shared, trained: dict[str, Any]) -> dict[str, bool]:
    """What must hold; `trained` is what the workers saw the end of, by its execution."""
    counts, results, complete = found.counts, found.results, found.complete
    in_optuna = {trial.number: trial for trial in found.raw}
    return {
        "as many recorded results as the budget": counts.finished
        == counts.budget
        == found.finished
        == len(results),
        "no claim is left running": counts.running == 0,
        "what is shown as finished is what was recorded": {
            trial.number: (trial.state, tuple(trial.values or ()))
            for trial in found.shown
            if trial.state.is_finished()
        }
        == {
            number: (result.state, tuple(result.values or ())) for number, result in results.items()
        },
        "each result is what its worker measured": all(
            (
                trained[result.recorded.other["execution"]]["trial"],
                tuple(trained[result.recorded.other["execution"]]["values"]),
            )
            == (number, tuple(result.values or ()))
            for number, result in complete.items()
        ),
        "no execution counted twice": len(
            {r.recorded.other["execution"] for r in complete.values()}
        )
        == len(complete),
        "nothing failed but what was enqueued as no configuration, or lost its workers": all(
            "enqueued with" in reason or reason.startswith("set aside: its worker was lost")
            for reason in found.reasons
        ),
        "after the repair, Optuna has what was recorded": all(
            _agree(in_optuna.get(number), result) for number, result in results.items()
        ),
        "the front is of our results": set(found.front) <= set(complete) and bool(found.front),
        "the default configuration is among them": any(
            t.user_attrs.get("default") is True for t in found.shown
        ),
    }


def audit_verification(stand: Stand) -> tuple[dict[str, Any], list[str]]:
    """Whether each planned run has one result, which a worker measured as that run."""
    with stand.opened() as study:
        runs = study.verifications.runs()
    report = check_database(parse_url(stand.url))
    trained = {each["execution"]: (each["trial"], each["seed"]) for each in journal(stand)}
    made = {(run.trial_number, run.seed): run.result for run in runs if run.result is not None}
    executions = [result.recorded.other.get("execution") for result in made.values()]
    set_aside = sum(bool(result.recorded.set_aside) for result in made.values())
    figures = {
        "planned_runs": len(runs),
        "runs_by_state": dict(Counter(run.state for run in runs)),
        "set_aside": set_aside,
        "trained_to_the_end": sum(seed is not None for _, seed in trained.values()),
        "losses": sum(run.losses for run in runs),
        "late_results_kept": sum(len(run.late) for run in runs),
        "database_check": [finding.what for finding in report.findings],
    }
    late = {each.recorded.other.get("execution") for run in runs for each in run.late}
    promises = {
        "every planned run is finished": all(run.state == "finished" for run in runs)
        and bool(runs),
        "each has one result": len(made) == len(runs),
        "no execution counted twice": len(set(executions) - {None}) == len(executions) - set_aside,
        "each result was trained, as that run": all(
            trained.get(result.recorded.other.get("execution")) == which
            for which, result in made.items()
            if not result.recorded.set_aside
        ),
        "no late result is one that counts": not late & set(executions),
        "tuner db check finds nothing": report.healthy,
    }
    return figures, [promise for promise, holds in promises.items() if not holds]
