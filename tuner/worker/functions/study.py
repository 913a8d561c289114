"""A search over a function of somebody's: any loop asks for a trial and tells what it came to, and
`optimize` calls the function itself.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from tuner.config import MANY
from tuner.errors import UsageError
from tuner.files.environment import STORAGE_VARIABLE
from tuner.search.methods import own_sampler
from tuner.storage.database import open_database
from tuner.storage.optuna.private import distribution_of, suggested
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.worker.functions.called import COMPLETE, FAIL, Done, Function, Source, stop_loading
from tuner.worker.functions.calls import Answers, Asked, CalledStudy, Crew, seeds_of, source_of
from tuner.worker.functions.confirm import SEEDS, Verdict, confirmed
from tuner.worker.functions.foreign import MEASURED, Configuration, ForeignStudy, study_in

_log = logging.getLogger(__name__)
Space = Mapping[str, BaseDistribution]
_Known = tuple[float, float, Mapping[int, float]]
"""Of a trial that has finished: its value, its seconds, and what was reported at which step, if it
is a late one; low ones are good."""
_PRUNES_AFTER = 30
"""Finished trials, before one is ended early."""
_LOOKS_BACK = 200
"""Finished trials whose curves say how far one can still get."""
_FUNCTION = "tuner_function_hash"
"""The attribute of a study of `optimize`: a hash of the function that it calls now."""


class FunctionStudy(CalledStudy, AbstractContextManager["FunctionStudy", None]):
    """A search over a function, in a database; `with` closes it."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what was asked for and not told, and close the database."""
        self.release()
        self.database.close()

    def ask(self) -> Asked:
        """The next trial, leased to this process, which renews the lease.

        Raises:
            UsageError: the study holds as many trials as it is to hold.
        """
        self.hold()
        if (asked := self.claim()) is None:
            raise UsageError(f"study {self.name!r} has all its trials; ask for more with n_trials")
        return asked

    def tell(
        self,
        asked: Asked,
        values: float | Sequence[float] | None,
        *,
        seconds: float | None = None,
        why: str = "told as failed",
    ) -> bool:
        """What a trial came to; None: it failed, and `why`. False where the trial was lost to
        another process meanwhile: the result is kept, and does not count.

        `seconds`: of a study that measures; not said: since it was asked for.

        Raises:
            UsageError: as many values are expected as the study has directions.
        """
        took = time.monotonic() - asked.began if seconds is None else seconds
        done = Done(state=FAIL, why=why, seconds=took)
        if values is not None:
            given = list(map(float, values if isinstance(values, Sequence) else [values]))
            if len(given) != len(self.directions):
                raise UsageError(f"{len(given)} values told; expected {len(self.directions)}")
            finite = all(map(math.isfinite, given))
            why = "" if finite else f"{values} was told; expected finite numbers"
            done = replace(done, state=COMPLETE if finite else FAIL, why=why, values=given)
        return self.finish(asked, done)

    def given(self, trial: Trial) -> tuple[int, Mapping[str, Any]]:
        (seed,) = seeds_of(f"{self.name} {self.document['draw']} trial {trial.number}", 1)
        params = {}
        for name, text in self.document["space"].items():
            kind = distribution_of(text)
            params[name] = kind.to_external_repr(suggested(trial, name, kind))
        return seed, params

    def answers(self, asked: Asked) -> Answers:
        sign = -1 if self.directions[0] == "MAXIMIZE" else 1
        known = functools.cache(lambda: self._known(sign))  # of one call

        def answered(question: str, said: list[Any]) -> Any:
            if question == "suggest":
                return suggested(asked.trial, said[0], distribution_of(said[1]))
            step, value, elapsed_s = said
            # Of a second value that is not measured nobody knows what it has come to so far.
            return self.measures and _is_dominated(known(), step, sign * value, elapsed_s)

        return answered

    def _known(self, sign: int) -> Sequence[_Known]:
        done = self.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        rows = self.epochs.of_trials([each.number for each in done[-_LOOKS_BACK:]])
        found = []
        for each in done:
            there = ((row.epoch, row.val_loss) for row in rows.get(each.number, ()))
            curve = {step: sign * loss for step, loss in there if loss is not None}
            found.append((sign * each.values[0], each.values[1], curve))
        return found

    def finished(self) -> ForeignStudy:
        """As anybody's finished study.

        Raises:
            UsageError: no trial is complete.
        """
        return study_in(self.database.optuna, self.name, str(self.database.address))


def _is_dominated(known: Sequence[_Known], step: int, value: float, elapsed_s: float) -> bool:
    """Pruning where there are two objectives, as `tuner.search.pruning` does it: the best that a
    trial can still come to, as far as any of the `known` ones got better from the same step on, is
    dominated by one of them.
    """
    falls = [curve[step] - end for end, _, curve in known if step in curve]
    if len(known) < _PRUNES_AFTER or not falls:
        return False
    at_best = value - max(0.0, *falls)
    return any(end <= at_best and seconds <= elapsed_s for end, seconds, _ in known)


def create_study(
    name: str,
    space: Space | None = None,
    *,
    directions: Sequence[str] = ("minimize",),
    storage: str | None = None,
    sampler: str | BaseSampler = "auto",
    n_trials: int | None = None,
    default: Mapping[str, Any] | None = None,
    draw: int = 1,
    seconds: str = "measured",
) -> FunctionStudy:
    """The study of this name, for ask and tell; made where there is none.

    Args:
        name: in the database.
        space: distributions by parameter; None: trials are asked one by one (`suggest_float`).
        directions: one, "minimize" or "maximize": the second objective is seconds. Or two.
        storage: a database URL; else TUNER_STORAGE, else sqlite:///storage/tuner.db.
        sampler: `auto` (`tpe`), `tpe`, `gp`, `nsga2`, `random`, `qmc`, `module:Class`, or one of
            Optuna's.
        n_trials: how many finished trials it is to hold; None: as before, at first any number.
        default: the configuration that is tried first, and that others are held against.
        draw: of all seeds; another one asks the same question again.
        seconds: of one direction "measured" around the call, or "returned" as a second value.

    Raises:
        UsageError: an unknown sampler, more directions, or the study there is another one.
        StorageError: the database cannot be opened.

    >>> from optuna.distributions import FloatDistribution
    >>> with create_study("mine", {"x": FloatDistribution(0, 1)}) as study:
    ...     asked = study.ask()
    ...     study.tell(asked, asked.params["x"] ** 2)
    True
    """
    stop_loading()
    known = {*directions} <= {"minimize", "maximize"} and len(directions) in (1, 2)
    if not known or seconds not in ("measured", "returned"):
        told = "expected one direction or two, each minimize or maximize, and seconds measured or "
        raise UsageError(f"{told}returned")
    returned = [*directions, "minimize"][:2] if seconds == "returned" else list(directions)
    document = {
        "kind": "search over a function",
        "directions": returned,
        "space": {key: distribution_to_json(kind) for key, kind in (space or {}).items()},
        "draw": draw,
    }
    (seed,) = seeds_of(f"{name} {draw} sampler", 1)
    chosen = own_sampler(sampler, seed) if isinstance(sampler, str) else sampler
    url = storage or os.environ.get(STORAGE_VARIABLE) or DEFAULT_URL
    database = open_database(absolute(parse_url(url)))
    study = FunctionStudy(
        database, name, document, directions=returned, budget=MANY, sampler=chosen
    )
    study.optuna.set_user_attr(MEASURED, study.measures)
    if default is not None:
        study.optuna.enqueue_trial(dict(default), skip_if_exists=True)
    if n_trials is not None:
        study.ledger.set_budget(n_trials)
    return study


# Calling the function oneself.


@dataclass(slots=True)
class Result:
    """What a search came to."""

    study: FunctionStudy
    source: Source
    asked: Mapping[str, Any]
    """Of the confirmation."""
    verdict: Verdict | None = field(default=None, init=False)

    @property
    def best(self) -> Configuration:
        """What is confirmed; before that the reported best.

        Raises:
            UsageError: no trial is complete.
        """
        if self.verdict is not None and self.verdict.confirmed is not None:
            return self.verdict.best
        return self.study.finished().reported_best()

    @property
    def answer(self) -> tuple[str, ...]:
        """Sentences of 25 words at most."""
        if self.verdict is not None:
            return self.verdict.answer
        best = self.best
        said = f"The best is {best.in_words}, with {best.reported:.5g} in one run, partly luck."
        return said, "Nothing is confirmed yet: result.confirm() does it."

    def confirm(self, *, workers: int = 1) -> Verdict:
        """Run the best, and what is as good and faster, again on fresh seeds beside the default,
        else beside the reported best. What is killed goes on.

        Raises:
            UsageError: no trial is complete, or the margin is none.
        """
        study, more = self.study.finished(), {**self.asked, "workers": workers}
        self.verdict = confirmed(self.study.database, study, self.source, **more)
        return self.verdict


def optimize(  # noqa: D417 - what `create_study` takes is told there
    objective: Function | str,
    space: Space | None = None,
    *,
    n_trials: int | None = None,
    timeout: float | None = None,
    default: Mapping[str, Any] | None = None,
    directions: Sequence[str] = ("minimize",),
    study_name: str | None = None,
    storage: str | None = None,
    n_jobs: int = 1,
    gpus: Sequence[int | str] = (),
    sampler: str | BaseSampler = "auto",
    margin: str | float | None = None,
    confirm_seeds: int = SEEDS,
    draw: int = 1,
    seconds: str = "measured",
) -> Result:
    """Search over a function, each call of it in a process of its own. What `create_study` takes,
    too, is told there.

    Args:
        objective: called as `objective(trial)`; where it takes a seed, which goes with a `space`,
            as `train(params, *, seed, report=None)`. Or `path/to/file.py:name`, of either kind.
        n_trials: until the study holds so many finished trials.
        timeout: seconds, after which no trial begins.
        study_name: give it again, and the search goes on; None: a new name.
        n_jobs: calls at a time.
        gpus: dealt out to these; none: each sees what this process sees.
        margin: of `Result.confirm`: "1%", or a number in the value's own units.
        confirm_seeds: of `Result.confirm`.

    Raises:
        UsageError: neither `n_trials` nor `timeout`, or what `create_study` refuses.
        FunctionError: the first call failed.
        KeyboardInterrupt: after what was at work has been given back.

    >>> result = optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2, n_trials=3)
    >>> result.best.trial in range(3)
    True
    """
    if n_trials is None and timeout is None:
        raise UsageError("say n_trials or timeout, or nothing ends the search")
    until = math.inf if timeout is None else time.monotonic() + timeout
    source, seen = source_of(objective), [str(each) for each in gpus]
    study = create_study(
        study_name or f"function {time.time_ns():x}",
        space,
        directions=directions,
        storage=storage,
        sampler=sampler,
        n_trials=n_trials or MANY,
        default=default,
        draw=draw,
        seconds=seconds,
    )
    before = study.optuna.user_attrs.get(_FUNCTION)
    study.optuna.set_user_attr(_FUNCTION, source.sha256)
    if before not in (None, source.sha256):
        _log.warning("the function has changed; earlier trials stay")
    with Crew(study, source, seen) as crew:
        crew.work_off(n_jobs, until)
    return Result(study, source, {"margin": margin, "seeds": confirm_seeds, "gpus": seen})
