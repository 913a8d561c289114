"""Searches by BoTorch in the workers that our own searches run in: live, at equal device seconds.

    python benchmarks/retune/botorch_live.py make --like etth-original --searches 3 --seconds 240 --storage DB
    python benchmarks/retune/botorch_live.py search --study etth-original-botorch --gpu 0 --storage DB
    python benchmarks/retune/botorch_live.py plan --study etth-original-botorch --seeds 30 --picks OUT/picks.json --storage DB
    tuner verify --variant original --study group:etth-original-botorch --confirm --seeds 30 --gpus 0 --storage DB

`make` takes what is searched from a study that is there. `search` is `tuner worker`, and takes its
options, with another sampler: the next eight configurations are made by a process beside it while
eight train. What the device waits for them counts as in any search. `plan` freezes what our steps
recommend of these trials and what BoTorch's own model does, which it notes in the file of picks; the
last command runs both. Each may be stopped and given again.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

sys.path.append(str(Path(__file__).parents[2]))
from tuner.cli.main import main as tuner_main
from tuner.config import Value
from tuner.launch.retune_agreement import MOST_TRIALS
from tuner.search.cube import WholeSpaceSampler
from tuner.search.history import known_params
from tuner.search.past_runs import Place, place_of
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership, name_of_search
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import SearchSpace
from tuner.storage.database import open_database
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.url import absolute, parse_url
from tuner.study.create import create_study
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.verification_plan import Turn, interleaved

SUFFIX = "-botorch"


class BoTorchSampler(WholeSpaceSampler):
    """Sixteen Sobol points after the default, then eight at a time by the model, made ahead.

    Args:
        space: what is searched.
        search: `benchmarks.verdict.botorch_search`, or what has its names.
        pool: where the next eight are made, beside the worker.
        seed: of the first points.
    """

    def __init__(self, space: SearchSpace, search: Any, pool: Executor, *, seed: int) -> None:
        self._space, self._search, self._pool = space, search, pool
        self._first: list[Place] = search.first_places(space, seed)
        self._batch: list[Place] = []
        self._ahead: Future[list[Place]] | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return self._space.stored()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del search_space
        if self._space.whole(known_params(trial, self._space)):
            return {}  # the default, or handed back
        first, batch = self._search.FIRST, self._search.BATCH
        if trial.number <= first:
            place, waiting = self._first[trial.number - 1], self._first[trial.number :]
        else:
            if not self._batch:
                self._batch = (self._ahead or self._asked(study, trial, [])).result()
                self._ahead = None
            place, *self._batch = self._batch
            waiting = self._batch
        if self._ahead is None and trial.number > first - batch:
            self._ahead = self._asked(study, trial, [place, *waiting])
        found: dict[str, Any] = self._search.params_at(self._space, place)
        return found

    def _asked(
        self, study: Study, trial: FrozenTrial, waiting: Sequence[Place]
    ) -> Future[list[Place]]:
        """The next eight, by what has ended now."""
        others = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        told = self._search.Told(*told_by(self._space, others, waiting))
        return self._pool.submit(self._search.next_places, self._space, told)


class Trial(Protocol):
    """Optuna's, or as a study's results have it."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> TrialState: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> Sequence[float] | None: ...


def ended(
    space: SearchSpace, trials: Iterable[Trial]
) -> dict[int, tuple[Place, tuple[float, float]]]:
    """Place and (seconds, MQL) of the trials that ended, converged or not, by their numbers."""
    found = {}
    for each in sorted(trials, key=lambda each: each.number):
        if each.state == TrialState.COMPLETE and each.values is not None:
            seconds, mql = each.values
            found[each.number] = place_of(space, each.params), (seconds, mql)
    return found


def told_by(
    space: SearchSpace, trials: Sequence[FrozenTrial], waiting: Sequence[Place] = ()
) -> tuple[tuple[Place, ...], tuple[tuple[float, float], ...], tuple[Place, ...]]:
    """What `Told` is made of: places and figures of what ended; and the places of the trials that
    run, and that wait.
    """
    known = ended(space, trials).values()
    running = [
        place_of(space, params)
        for each in trials
        if each.state == TrialState.RUNNING and space.whole(params := known_params(each, space))
    ]
    return tuple(x for x, _ in known), tuple(y for _, y in known), (*running, *waiting)


def make(like: OpenStudy, *, searches: int, seconds: float) -> list[str]:
    """Studies of what `like` searches, those that are not there yet; their names."""
    there, names = list_studies(like.database), []
    group = like.membership.group + SUFFIX
    for number in range(1, searches + 1):
        name = name_of_search(group, number)
        names.append(name)
        if name not in there:
            create_study(
                like.database,
                name,
                like.definition,
                Membership.of_new(name, group=group, search=number),
                trials=MOST_TRIALS,
                policy=SearchPolicy(sampler="random", prune=False, search_s=seconds),
            )
    return names


def search(arguments: Sequence[str]) -> None:
    """`tuner worker` with these arguments, by BoTorch."""
    from benchmarks.verdict import botorch_search  # torch, which only a search needs

    samplers: dict[str, BoTorchSampler] = {}

    def made(
        name: str, definition: StudyDefinition, policy: SearchPolicy, **others: Any
    ) -> BoTorchSampler:
        del policy, others
        if name not in samplers:
            seed = zlib.crc32(name.encode())
            pool = ProcessPoolExecutor(
                1,
                mp_context=get_context("spawn"),
                initializer=botorch_search.quiet_and_seeded,
                initargs=(seed,),
            )
            pool.submit(botorch_search.quiet_and_seeded, seed)  # it imports while the first train
            samplers[name] = BoTorchSampler(definition.space, botorch_search, pool, seed=seed)
        return samplers[name]

    with patch("tuner.worker.trial_source.sampler_for", made):
        tuner_main(["worker", *arguments])


def plan(
    study: OpenStudy, *, seeds: int, pick: Callable[[StudySnapshot], int | None]
) -> int | None:
    """Freeze what is recommended of a search, by our steps and by `pick`, before the first run;
    the trial that `pick` named.

    Raises:
        SystemExit: nothing can be recommended.
    """
    found = plan_confirmation([study], seeds=seeds)
    now = snapshot(study).with_runs_read()
    there = confirmation_of(now)
    if there is None:
        raise SystemExit("; ".join(found.missing))
    own = pick(now)
    runs = [run for run in study.verifications.runs() if run.session == there.session]
    if own is not None:  # what is there stays; of an imported study, what waited is not
        study.verifications.add(_more(study, now.record(own).params, own, runs))
    print(f"{study.name}: our steps {list(there.frozen.steps())}, its own model {own}")
    return own


def noted(picks: Path, study: str, number: int | None) -> None:
    """Add to the file of picks."""
    known = json.loads(picks.read_text()) if picks.exists() else {}
    picks.write_text(json.dumps(known | {study: number}, indent=1) + "\n")


def recommended_by_model(study: StudySnapshot) -> int | None:
    """The number of the first trial of what BoTorch's model recommends; None where the default
    stands.
    """
    from benchmarks.verdict import botorch_search

    botorch_search.quiet_and_seeded(0)
    known = ended(study.definition.space, study.results.records)
    told = botorch_search.Told(
        tuple(x for x, _ in known.values()), tuple(y for _, y in known.values())
    )
    place = botorch_search.recommended(told)
    return next((number for number, (here, _) in known.items() if here == place), None)


def _more(
    study: OpenStudy, params: Mapping[str, Value], number: int, runs: Sequence[VerificationRun]
) -> list[Any]:
    """Runs of one more configuration on the seeds of a session."""
    seeds = {run.block: run.seed for run in runs}
    blocks = [[Turn(study.study_id, number, params, seeds[block])] for block in sorted(seeds)]
    last = max(run.place for run in study.verifications.runs())
    return interleaved(blocks, first=last + 1, plan=dict(runs[0].plan), session=runs[0].session)


def main() -> None:
    if sys.argv[1:2] == ["search"]:
        return search(sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making, planning = verbs.add_parser("make"), verbs.add_parser("plan")
    verbs.add_parser("search", help="and the options of tuner worker")
    making.add_argument("--like", required=True)
    making.add_argument("--searches", type=int, default=3)
    making.add_argument("--seconds", type=float, default=240.0, help="on devices, of each")
    planning.add_argument("--study", required=True, help="names, with commas")
    planning.add_argument("--seeds", type=int, default=30)
    planning.add_argument("--picks", type=Path, required=True)
    for each in (making, planning):
        each.add_argument("--storage", required=True)
    options = parser.parse_args()
    with closing(open_database(absolute(parse_url(options.storage)), create=False)) as database:
        if options.verb == "make":
            like = open_study(database, options.like)
            print(*make(like, searches=options.searches, seconds=options.seconds), sep="\n")
            return None
        for name in options.study.split(","):
            study = open_study(database, name)
            noted(options.picks, name, plan(study, seeds=options.seeds, pick=recommended_by_model))
    return None


if __name__ == "__main__":
    main()
