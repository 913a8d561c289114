"""From which front to choose what is verified: that of single runs, or that of what all runs of a search together expect.

    python benchmarks/front_choice/choosing.py --output OUT/h200

Two looks at it, neither of which needs a GPU:

- Recorded. The campaign's verified configurations (benchmarks/campaign), chosen from the fronts of single runs: how far
  each one's single run, and what is expected of it, were from its median on ten fresh seeds. The runs on fresh seeds
  took no part in the expectation.
- Simulated. Searches of 200 trials by TPE on a model of the table of real trials (benchmarks/samplers), which knows the
  truth of every configuration: five are chosen from each front, with the default one, and judged by their truth. Of
  models of the table there are two, for each favours its like; where both agree, it is not the model's doing.

Writes OUTPUT.md and OUTPUT.json. `--seeds 1 --trials 40` is a dry run, which fits the models of the table all the same: two minutes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.samplers.job import Job
from benchmarks.samplers.samplers import make_job, reference
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.config import Choice
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.search.sampler import EncodedSampler
from tuner.spec.pareto import front_indices, hypervolume
from tuner.spec.space import SearchSpace
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.known_runs import Run
from tuner.verdict.picks import picks, picks_of
from tuner.verdict.recommendation import model_of
from tuner.verdict.runs_model import Front, RunsModel, front_of_runs
from tuner.verdict.verification_plan import configurations
from tuner.verdict.verified import verified_in

BENCHMARKS = Path(__file__).resolve().parents[1]
CAMPAIGN = [
    BENCHMARKS / "campaign" / f"etth-{name}.json.gz"
    for name in ("original", "rmsnorm", "layernorm", "simple", "batchnorm")
]
TABLE = BENCHMARKS / "samplers" / "etth-original-h200.csv.gz"
TOP = 5
CHOICES = (Choice.FRONT, Choice.EXPECTED)
"""What is compared here; what is recommended is judged in benchmarks/verdict."""


def recorded(study: StudySnapshot) -> dict[str, Any]:
    """Errors against fresh seeds of the configurations chosen from the front, the default one left out."""
    model = model_of(replace(study, read_runs=tuple))
    assert model is not None, f"{study.name} has too few trials"
    seen = {trial.number: trial.values for trial in study.results.eligible if trial.values}
    told = dict(zip(model.trials, _points(model), strict=True))
    errors: dict[str, list[tuple[float, float]]] = {"single": [], "expected": []}
    for number, verified in verified_in(study).items():
        if number == picks_of(study)["default"] or verified.seconds is None or verified.mql is None:
            continue
        for name, points in (("single", seen), ("expected", told)):
            seconds, mql = points[number]
            errors[name].append(
                (math.log(seconds / verified.seconds.estimate), mql - verified.mql.estimate)
            )
    return {
        "variant": study.variant,
        "configurations": len(errors["single"]),
        **{name: _off(np.array(found)) for name, found in errors.items()},
    }


def _off(errors: np.ndarray) -> dict[str, float]:
    """Of errors (configurations, 2) of log time and MQL: their size and their mean."""
    rms, mean = np.sqrt(np.mean(errors**2, axis=0)), errors.mean(axis=0)
    return {
        "log_time": float(rms[0]),
        "mql": float(rms[1]),
        "mean_log_time": float(mean[0]),
        "mean_mql": float(mean[1]),
    }


def simulated(job: Job, seed: int, trials: int) -> dict[str, dict[str, float]]:
    """One search, and what is chosen from each of its fronts, by the truth."""
    results = _searched(job, seed, trials)
    found = {}
    for choice in CHOICES:
        front = (
            _expected(results, job.space) if choice is Choice.EXPECTED else front_of_runs(results)
        )
        points = [_truth(job, record) for record in configurations(results, TOP, front)]
        chosen = {name: _record(results, number) for name, number in picks(results, front).items()}
        found[choice.value] = {
            "hypervolume": hypervolume(points, reference(job)),
            "knee_mql": _truth(job, chosen["knee"])[1],
            "lowest_mql": _truth(job, chosen["mql"])[1],
            "promised_too_much": statistics.fmean(
                _truth(job, trial)[1] - point[1]
                for trial, point in zip(*_named(front), strict=True)
            ),
        }
    return found


def _points(model: RunsModel) -> list[tuple[float, float]]:
    return [(float(s), float(mql)) for s, mql in zip(model.seconds, model.mql, strict=True)]


def _expected(results: StudyResults, space: SearchSpace) -> Front:
    """As `tuner.verdict.runs_model.expected_front` of a study that has nothing but these results."""
    trials = [each for each in results.complete if each.converged and each.values]
    first: dict[tuple[float | str, ...], int] = {}
    runs = []
    for each in trials:
        number = first.setdefault(configuration(each.params), each.number)
        where = tuple(space.shares(each.params))
        runs.append(Run(trial=number, where=where, seconds=each.values[0], mql=each.values[1]))
    model = RunsModel(runs, next((each.number for each in trials if each.is_default), None))
    points = _points(model)
    chosen = front_indices(points)
    on_it = tuple(_record(results, model.trials[i]) for i in chosen)
    return Front(on_it, tuple(points[i] for i in chosen))


def _named(front: Front) -> tuple[Sequence[TrialRecord], Sequence[tuple[float, float]]]:
    return front.trials, front.points


def _searched(job: Job, seed: int, trials: int) -> StudyResults:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        directions=["minimize", "minimize"], sampler=EncodedSampler(job.space, "tpe", seed=seed)
    )
    study.enqueue_trial(job.space.held(job.default))
    noise = np.random.default_rng([seed, 77])
    records = []
    for number in range(trials):
        trial = study.ask(job.space.stored())
        params = job.space.true(trial.params)
        outcome = job.run(params, noise)
        if outcome.values is None:
            trial.set_user_attr("stopped_by", "diverged")
            study.tell(trial, state=TrialState.FAIL)
            continue
        study.tell(trial, outcome.values)
        records.append(
            TrialRecord(
                number=number,
                state=TrialState.COMPLETE,
                params=params,
                values=outcome.values,
                recorded=Recorded(converged=outcome.converged, default=number == 0),
                started=None,
                ended=None,
            )
        )
    return StudyResults(tuple(records))


def _record(results: StudyResults, number: int) -> TrialRecord:
    return next(record for record in results.records if record.number == number)


def _truth(job: Job, record: TrialRecord) -> tuple[float, float]:
    values = job.truth(record.params).values
    assert values is not None, "what converged in the search works without noise, too"
    return values


def table(document: dict[str, Any]) -> list[str]:
    lines = [
        "| variant | verified | log time: a single run is off by | what is expected | MQL: a single run is off by | on average | what is expected | on average |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in document["recorded"]:
        one, all_ = row["single"], row["expected"]
        lines.append(
            f"| {row['variant']} | {row['configurations']} | {one['log_time']:.3f} | {all_['log_time']:.3f} "
            f"| {one['mql']:.4f} | {one['mean_mql']:+.4f} | {all_['mql']:.4f} | {all_['mean_mql']:+.4f} |"
        )
    lines += [
        "",
        f"Root mean squares against the medians of ten fresh seeds. Simulated, {document['seeds']} searches of {document['trials']} trials, medians:",
        "",
        "| the table's model | chosen from | true hypervolume | a search in which it is larger | true MQL of the knee | of the lowest MQL | the front's MQL is too low by |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, searches in document["simulated"].items():
        for choice in CHOICES:
            found = [each[choice.value] for each in searches]
            other = [each[next(c.value for c in CHOICES if c is not choice)] for each in searches]
            larger = sum(
                a["hypervolume"] > b["hypervolume"] for a, b in zip(found, other, strict=True)
            )
            middle = {name: statistics.median(each[name] for each in found) for name in found[0]}
            lines.append(
                f"| {model} | {choice.value} | {middle['hypervolume']:.4f} | {larger} of {len(found)} | {middle['knee_mql']:.4f} "
                f"| {middle['lowest_mql']:.4f} | {middle['promised_too_much']:.4f} |"
            )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    studies = read_studies(
        [str(path) for path in CAMPAIGN], task="etth", storage="sqlite:///none.db"
    )
    found: dict[str, list[dict[str, dict[str, float]]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("forest", "gp"):
            job = make_job(str(TABLE), kind)
            found[kind] = [simulated(job, seed, options.trials) for seed in range(options.seeds)]
    document = {
        "recorded": [recorded(study) for study in studies],
        "seeds": options.seeds,
        "trials": options.trials,
        "simulated": found,
    }
    where = circumstances(
        studies[0].device_model or ""
    )  # at the end: it says how long all of this took
    lines = table(document)
    write(options.output, where | document, [*heading(where), *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
