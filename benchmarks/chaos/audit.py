"""Whether anything was lost, or counted twice: the database's record against the workers' own journals."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from optuna.trial import TrialState
from sqlalchemy import select
from stand import Stand

from tuner.storage import TrialResult, parse_url, schema
from tuner.storage.check import check_database


def audit(stand: Stand) -> tuple[dict[str, Any], list[str]]:
    """Figures, and every promise that does not hold (none, when all is well)."""
    with stand.opened() as study, study.database.engine.connect() as connection:
        counts = study.ledger.counts()
        trials = study.optuna.get_trials(deepcopy=False)
        claims = connection.execute(select(schema.claims).order_by(schema.claims.c.claim_id)).all()
    report = check_database(parse_url(stand.url))
    seen = [json.loads(line) for path in (stand.folder / "journal").iterdir() for line in path.read_text().splitlines()]
    trained = {each["execution"]: each["trial"] for each in seen}
    finished = [claim for claim in claims if claim.state == "finished"]
    late = [claim for claim in claims if claim.state != "finished" and claim.result is not None]
    told = {trial.number: trial for trial in trials}
    results = {claim.trial_number: TrialResult.from_json(claim.result) for claim in finished}
    executions = [result.attributes.get("execution") for result in results.values()]
    set_aside = sum(bool(result.attributes.get("set_aside")) for result in results.values())
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
        "as many recorded results as the budget": counts.finished == counts.budget == len(finished) == stand.trials,
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
            trained.get(result.attributes.get("execution")) == number
            for number, result in results.items()
            if not result.attributes.get("set_aside")
        ),
        "no late result is one that counts": not {
            TrialResult.from_json(claim.result).attributes["execution"] for claim in late
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
    return all(trial.user_attrs.get(key) == value for key, value in result.attributes.items())
